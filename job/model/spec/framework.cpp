#include "job/model/spec/framework.hpp"

#include <algorithm>
#include <array>

namespace lockstep {

namespace {

constexpr std::array<std::string_view, kFrameworkCount> kFrameworkNames{
#define LOCKSTEP_ROW(name) #name,
    LOCKSTEP_FRAMEWORKS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
};

constexpr std::array<const FrameworkTraits& (*)(), kFrameworkCount> kFrameworkTraits{
#define LOCKSTEP_ROW(name) &frameworks::name,
    LOCKSTEP_FRAMEWORKS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
};

// torchrun's, which every framework's ranks get.
constexpr std::array<std::string_view, 15> kTorchrunVariables{"TORCHELASTIC_*",
                                                              "PET_*",
                                                              "RANK",
                                                              "WORLD_SIZE",
                                                              "LOCAL_RANK",
                                                              "LOCAL_WORLD_SIZE",
                                                              "GROUP_RANK",
                                                              "GROUP_WORLD_SIZE",
                                                              "NODE_RANK",
                                                              "NNODES",
                                                              "ROLE_NAME",
                                                              "ROLE_RANK",
                                                              "ROLE_WORLD_SIZE",
                                                              "MASTER_ADDR",
                                                              "MASTER_PORT"};

bool is_one_of(std::span<const std::string_view> patterns, std::string_view name) {
    return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
        return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                      : name == pattern;
    });
}

}  // namespace

std::string_view to_string(Framework framework) {
    return kFrameworkNames[static_cast<std::size_t>(framework)];
}

std::vector<std::string_view> framework_names() {
    return {kFrameworkNames.begin(), kFrameworkNames.end()};
}

const FrameworkTraits& traits_of(Framework framework) {
    return kFrameworkTraits[static_cast<std::size_t>(framework)]();
}

bool is_launchers(std::string_view name) {
    return is_one_of(kTorchrunVariables, name) ||
           std::any_of(kFrameworkTraits.begin(), kFrameworkTraits.end(),
                       [&](const auto& one) { return is_one_of(one().variables, name); });
}

}  // namespace lockstep
