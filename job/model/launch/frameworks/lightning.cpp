#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

constexpr std::array<FrameworkPackage, 2> kLightningPackages{
    {{"lightning", "lightning"}, {"pytorch_lightning", "lightning"}}};
constexpr std::array<FrameworkImport, 2> kLightningImports{
    {{"lightning", 40}, {"pytorch_lightning", 45}}};

}  // namespace

const FrameworkTraits& lightning() {
    static constexpr FrameworkTraits kTraits{
        .launches = kEveryLaunch,
        .meets_at_store = true,
        .may_run_torch = true,
        .hands_out_gpus = always,  // it counts the devices that it sees
        .packages = kLightningPackages,
        .imports = kLightningImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
