// Why a job waits, in words for a person: Slurm's reason codes grouped by what can be done.
// Source: job_state_reason.c, https://slurm.schedmd.com/job_reason_codes.html. Pure; any thread.
#pragma once

#include "scheduler-integration/slurm/slurm_job.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class ReasonClass : std::uint8_t {
    waiting,  // goes away by itself
    limit,    // over a limit of a user, an account or a QOS: starts when other jobs end, or never
    held,     // somebody or Slurm itself put it on hold: needs a person
    never,    // cannot start as it was asked for
};

std::string_view to_string(ReasonClass reason_class);

struct Explanation {
    ReasonClass reason_class = ReasonClass::waiting;
    std::string text;    // one sentence without a full stop
    std::string change;  // what the user can do; empty where waiting is the answer
};

// The class alone. `reason` is what Slurm prints, with or without brackets and with what may
// follow the code after a comma, "(ReqNodeNotAvail, UnavailableNodes:n[1-2])". Unknown: waiting.
ReasonClass classify_reason(std::string_view reason);

// Slurm's word alone, "ReqNodeNotAvail"; "None" if it gives none, "other" for a whole sentence.
std::string reason_code(std::string_view reason);

// The same with words; `job` adds its partition and restarts. Unknown: the raw word, waiting.
Explanation explain_reason(std::string_view reason, const SlurmJob& job);

}  // namespace lockstep
