#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

// Without it, versions try NCCL and die, or run every rank by itself.
void add_accelerate(Variables& out, const JobSpec& spec) {
    if (spec.resources.gpus_per_node == 0) {
        out.try_emplace("ACCELERATE_USE_CPU", "true");
    }
}

void add_accelerate_rank(Variables& out, const JobSpec& spec, const RankPlace&) {
    add_accelerate(out, spec);
}

constexpr std::array<FrameworkPackage, 1> kAcceleratePackages{{{"accelerate", "accelerate"}}};
constexpr std::array<FrameworkImport, 1> kAccelerateImports{{{"accelerate", 50}}};

}  // namespace

const FrameworkTraits& accelerate() {
    static constexpr FrameworkTraits kTraits{
        .launches = kEveryLaunch,
        .add_rank = add_accelerate_rank,
        .add_node = add_accelerate,
        .meets_at_store = true,
        .may_run_torch = true,
        .packages = kAcceleratePackages,
        .imports = kAccelerateImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
