// How lockstep-train ends, and what the log and the agent hear of it.
#pragma once

#include "job/base/result.hpp"
#include "job/rank/client.hpp"

namespace lockstep {

// 0: everything was trained.
inline constexpr int kExitFailed = 1;     // the training failed, e.g. a peer was lost
inline constexpr int kExitWrong = 2;      // the configuration or the data is wrong
inline constexpr int kExitStopped = 143;  // by SIGTERM, after writing a checkpoint

// The exit code. `client`: also to the agent, so that the job's cause has these words. Only what is
// this rank's own fault: a rank that lost others is not whose fault it was.
int wrong(const Error& error, RankClient* client = nullptr);
// The same where another rank is at fault, which says it in its own words.
int wrong_elsewhere(const Error& error, RankClient* client);

int failed(const Error& error);
// A rank that another has not met in time names it: "missing: rank 3".
int failed_by_peer(const Error& error, RankClient* client);

}  // namespace lockstep
