// The version every program prints and every /metrics carries.
#pragma once

#include <lockstep_version.hpp>

#include <string_view>

namespace lockstep {
inline constexpr std::string_view kVersion = LOCKSTEP_VERSION;
}  // namespace lockstep
