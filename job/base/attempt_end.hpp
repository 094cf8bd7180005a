// How the end of an attempt reaches the scheduler's records: by the exit code of its agents, which
// its batch script passes on, and by one file. Constants.
#pragma once

#include <string_view>

namespace lockstep {

// Of an agent whose job Lockstep has cancelled: 128 + SIGINT, as of a program that Ctrl-C ended.
inline constexpr int kCancelledExit = 130;

// <attempt directory>/outcome: one line, what an attempt that can lose agents on its way (spares,
// elastic) has come to, a JobState's word that is `succeeded` or `cancelled`, and the number of the
// allocation. The exit code of an agent that was lost stays the highest, so that the codes alone do
// not tell. The number, because a copy of the attempt's script finds the file too.
inline constexpr std::string_view kOutcomeFileName = "outcome";

}  // namespace lockstep
