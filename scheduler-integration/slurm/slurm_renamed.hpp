// A job that somebody has renamed (scontrol update JobName=) is known by its number, and by the
// moment at which Slurm itself has said that it was submitted: a slurmctld that has lost jobs gives
// their numbers again, within a second or two of ours. Both are kept in a file of the attempt, for
// a daemon that was away while it was renamed.
#pragma once

#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `job` has the attempt's number and another name: adds it to the attempt's rows if it is the one.
void take_renamed(SlurmAttempt& attempt, const SlurmJob& job, std::vector<SlurmJob>& rows);

std::string to_text(const SlurmAttempt::Copy& job);
// What to_text() wrote; nothing of any other text.
std::optional<SlurmAttempt::Copy> parse_slurm_job(std::string_view text);

}  // namespace lockstep
