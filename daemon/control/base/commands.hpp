// What users may have done to jobs that are not over, as the HTTP edge asks for it. Control thread
// only. Each command is durable when it is answered.
#pragma once

#include "daemon/control/base/caller.hpp"
#include "daemon/control/base/submit_result.hpp"
#include "job/async/asio.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// A command that is done once under its Idempotency-Key. key_reused: the key belongs to another one
// of the job.
struct CommandDone {
    std::string job_json;
    bool already = false;  // it had been done before, under this key: nothing was done now
};

// Of whom a profile is wanted.
struct ProfileQuery {
    std::vector<std::int32_t> ranks{};  // ascending; empty = the first ones
    std::int64_t seconds = limits::kProfileSecondsUsual;
};

class Commands {
  public:
    virtual ~Commands() = default;

    virtual Task<Result<std::string>> cancel(Caller caller, std::string id) = 0;  // the job's JSON
    // The ranks are ended and started anew, from the newest checkpoint, in the same allocation; the
    // job's JSON. conflict: nothing runs. Again before they have ended is no error. key: "" = none.
    virtual Task<SubmitResult<CommandDone>> restart(Caller caller, std::string id,
                                                    std::string key) = 0;
    // The ranks get the signal at which they write a checkpoint; the job's JSON. conflict: nothing
    // runs.
    virtual Task<SubmitResult<CommandDone>> checkpoint(Caller caller, std::string id,
                                                       std::string key) = 0;
    // Every unfinished job of the sweep that the job is of: {"cancelled": n}. invalid: of none.
    virtual Task<Result<std::string>> cancel_sweep(Caller caller, std::string id) = 0;
    // The ranks are looked at now; nothing is stopped; the job's JSON. conflict: nothing runs.
    virtual Task<Result<std::string>> take_evidence(Caller caller, std::string id) = 0;
    // What ranks do for some seconds is recorded; nothing is stopped. {attempt, generation,
    // profile, ranks, seconds, patience_seconds}. conflict: nothing runs, or another one is under
    // way; invalid: no such rank.
    virtual Task<Result<std::string>> take_profile(Caller caller, std::string id,
                                                   ProfileQuery query) = 0;
};

}  // namespace lockstep
