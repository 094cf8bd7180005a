#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

// deepspeed/launcher/launch.py adds these to torchrun's.
void add_deepspeed(Variables& out, const JobSpec&, const RankPlace& place) {
    out["LOCAL_SIZE"] = std::to_string(place.local_world_size);
    out["CROSS_RANK"] = std::to_string(place.node_rank);
    out["CROSS_SIZE"] = std::to_string(place.nodes);
}

constexpr std::array<std::string_view, 3> kDeepspeedVariables{"LOCAL_SIZE", "CROSS_RANK",
                                                              "CROSS_SIZE"};
constexpr std::array<FrameworkPackage, 1> kDeepspeedPackages{{{"deepspeed", "deepspeed"}}};
constexpr std::array<FrameworkImport, 1> kDeepspeedImports{{{"deepspeed", 30}}};

}  // namespace

const FrameworkTraits& deepspeed() {
    static constexpr FrameworkTraits kTraits{
        .launches = kEveryLaunch,
        .add_rank = add_deepspeed,
        .variables = kDeepspeedVariables,
        .meets_at_store = true,
        .may_run_torch = true,
        .packages = kDeepspeedPackages,
        .imports = kDeepspeedImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
