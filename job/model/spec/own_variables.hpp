// Variables of Lockstep that a job may set in its environment, beside kPythonHooks (spec.hpp).
#pragma once

#include <string_view>

namespace lockstep {

// Where NCCL's Inspector plugin is, or "off" (job/agent/nccl/inspector_watch.hpp). Not the ranks'.
inline constexpr std::string_view kNcclInspector = "LOCKSTEP_NCCL_INSPECTOR";

}  // namespace lockstep
