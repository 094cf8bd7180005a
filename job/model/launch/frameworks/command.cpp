// Any program.
#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

std::span<const std::string_view> any_role(const JobSpec&) {
    return {};
}

bool has_roles(const JobSpec& spec) {
    return !spec.roles.empty();
}

// It may start a Ray cluster itself.
bool command_must_agree(const JobSpec&, std::string_view package) {
    return package == "ray";
}

}  // namespace

const FrameworkTraits& command() {
    static constexpr FrameworkTraits kTraits{
        .launches = kEveryLaunch,
        .roles = any_role,
        .needs_endpoints = has_roles,
        .may_run_torch = true,
        .masks_gpus = always,
        .must_agree = command_must_agree,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
