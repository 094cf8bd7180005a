// What a rank runs into that talks to its agent, each with its reason. What the agent refuses is in
// job/base/limits.hpp.
#pragma once

#include <chrono>

namespace lockstep::limits {

// The agent's answer, for which it may have to ask lockstepd: one that is started again is back by
// then.
inline constexpr auto kRankAnswerPatience = std::chrono::seconds{30};
// For an agent that is behind, to take the word on a checkpoint, which must not be lost; a report
// is not waited for.
inline constexpr auto kCheckpointReportPatience = std::chrono::seconds{1};

}  // namespace lockstep::limits
