// An attempt that the Slurm scheduler follows: the rules' own state, and what is on its way for it.
// Shared with the coroutines that act for it, which may end after it is followed no more. Control
// thread.
#pragma once

#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

struct SlurmTracked {
    SlurmAttempt attempt;
    bool has_turn = false;           // counted against submissions_at_once
    bool in_line = false;            // waits for a turn
    bool unwritten = false;          // its batch script could not be written
    std::string key;                 // in SlurmTrackedMap
    std::string told;                // what was last announced
    std::size_t stillborn_told = 0;  // of attempt.stillborn, in the log
    std::int64_t wait_told = 0;      // of which allocation, by SlurmSchedulerOptions::waited
    bool asks_file = false;          // take_up_job() has not finished
    bool in_question = false;        // ask_history() or ask_detail() has not finished
    std::optional<SteadyTime> detail_wanted;
    SlurmAttempt::Copy kept;  // what the file of its Slurm job has, or is about to have
};

using SlurmTrackedPointer = std::shared_ptr<SlurmTracked>;
// By the part of an attempt's Slurm name that no other attempt has: <ulid>-a<attempt>.
using SlurmTrackedMap = std::map<std::string, SlurmTrackedPointer>;

}  // namespace lockstep
