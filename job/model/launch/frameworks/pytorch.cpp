#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

constexpr std::array<FrameworkPackage, 1> kTorchPackages{{{"torch", "torch"}}};
constexpr std::array<FrameworkImport, 2> kTorchImports{{{"torch.distributed", 60}, {"torch", 110}}};

}  // namespace

const FrameworkTraits& pytorch() {
    static constexpr FrameworkTraits kTraits{
        .launches = kEveryLaunch,
        .meets_at_store = true,
        .may_run_torch = true,
        .packages = kTorchPackages,
        .imports = kTorchImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
