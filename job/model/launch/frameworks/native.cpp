// Lockstep's own trainer (job/trainer).
#include "job/model/launch/frameworks/frameworks.hpp"

#include <algorithm>
#include <optional>

namespace lockstep::frameworks {
namespace {

constexpr std::string_view kServersNeeded =
    "strategy parameter_server needs a role ps and a role worker, the servers and those who train";
constexpr std::array<std::string_view, 1> kWorkers{"worker"};

bool has_native_servers(const JobSpec& spec) {
    return spec.train && spec.train->strategy == TrainStrategy::parameter_server;
}

std::span<const std::string_view> native_roles(const JobSpec& spec) {
    if (has_native_servers(spec)) {
        return kWorkersAndServers;
    }
    return kWorkers;
}

// Each of several servers has a part of the gradient, and none of them its norm.
void check_clip(const JobSpec& spec, std::vector<FieldError>& errors) {
    const auto servers = std::find_if(spec.roles.begin(), spec.roles.end(),
                                      [](const RoleSpec& role) { return role.name == "ps"; });
    const std::optional<TrainConfig>& train = spec.train;
    if (!train || servers == spec.roles.end() || servers->count == 1) {
        return;
    }
    if (train->strategy == TrainStrategy::parameter_server && train->update == TrainUpdate::sync &&
        train->gradient_clip > 0.0) {
        errors.push_back({"/train/gradient_clip",
                          "with update sync needs one server: none of several knows the norm "
                          "of the whole gradient"});
    }
}

void check_native_roles(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (has_native_servers(spec) && (!has_role(spec, "worker") || !has_role(spec, "ps"))) {
        errors.push_back({"/roles", std::string{kServersNeeded}});
    }
    check_clip(spec, errors);
}

void check_native(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (has_native_servers(spec) && spec.roles.empty()) {
        errors.push_back({"/roles", std::string{kServersNeeded}});
    }
}

// Servers hold parameters in the host's memory; their node's GPUs are the workers'.
std::int32_t native_gpus_of(const JobSpec& spec, const RankRole& role) {
    if (!has_native_servers(spec)) {
        return kAllGpus;
    }
    return role.name == "ps" ? 0 : kEqualShareOfGpus;
}

}  // namespace

const FrameworkTraits& native() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankAlone,
        .no_other_launch = "the agent starts Lockstep's own trainer",
        .roles = native_roles,
        .check_roles = check_native_roles,
        .check = check_native,
        .own_programs = true,
        .gpus_of = native_gpus_of,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
