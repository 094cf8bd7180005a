// What the rules of an attempt (slurm_attempt.cpp) and what is said of it (slurm_observe.cpp) both
// ask. Pure; any thread.
#pragma once

#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include <optional>
#include <string>

namespace lockstep {

inline bool is_claimed(const SlurmAttempt& attempt) {
    return attempt.claimed != 0;
}

// By srun, before there is an agent.
inline bool imports_image(const SlurmAttempt& attempt) {
    return attempt.request.container.runtime == ContainerRuntime::pyxis;
}

inline std::string job_words(const SlurmAttempt& attempt) {
    return "Slurm job " + std::to_string(attempt.id);
}

// Of one that was seen.
inline std::optional<int> exit_code_of(const SlurmAttempt& attempt) {
    return attempt.seen->exit_code || !attempt.detail ? attempt.seen->exit_code
                                                      : attempt.detail->exit_code;
}

inline std::string exit_words(const SlurmAttempt& attempt) {
    const auto code = exit_code_of(attempt);
    return code.value_or(0) != 0 ? " (exit code " + std::to_string(*code) + ")" : "";
}

inline bool is_waiting(SlurmPhase phase) {
    return phase == SlurmPhase::requeueing || phase == SlurmPhase::queued ||
           phase == SlurmPhase::held || phase == SlurmPhase::blocked;
}

inline bool waits(const SlurmAttempt& attempt) {
    return is_waiting(attempt.last_verdict.phase);
}

// Slurm put a job whose ranks had started back into its queue.
inline bool was_requeued(const SlurmAttempt& attempt) {
    return is_claimed(attempt) && attempt.seen_at >= attempt.claimed_at && waits(attempt);
}

}  // namespace lockstep
