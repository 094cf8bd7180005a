#include "scheduler-integration/slurm/slurm_blame.hpp"

#include "scheduler-integration/slurm/batch_script.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// A node that refuses an allocation does so when it is told of it, within slurmctld's
// MessageTimeout and its repetition; seconds.
constexpr std::int64_t kStillbornAge = 30;

// How a batch script ends that never got as far as an agent's call, seen with a slurmctld that was
// killed. What a person has to mend ends otherwise: 64 and 127 (batch_script), 4 for an agent that
// was sent away.
constexpr std::array<int, 5> kAccidents{
    1,                      // srun got no step: slurmctld was away or had forgotten the allocation
    2,                      // ENOENT: slurmd had cleared the script of the number's last job, or it
    3,                      // the agent found the claim of an earlier job of its number
    5,                      // the agent found no lockstepd for half an hour
    slurm::kRestartedExit,  // Slurm started the script once more by itself
};

bool is_launch_failure(const SlurmJob& job, int signal) {
    return signal > 0 || job.reason == "JobLaunchFailure" || job.reason == "NodeDown" ||
           job.reason == "SystemFailure";
}

Blame blame_of_failure(const SlurmJob& job, const SlurmJobDetail* detail) {
    const std::optional<int> code =
        job.exit_code || detail == nullptr ? job.exit_code : detail->exit_code;
    const std::optional<int> signal = job.signal || detail == nullptr ? job.signal : detail->signal;
    if (job.reason == "BadConstraints") {
        return Blame::others;  // a refusal that comes late
    }
    if (is_launch_failure(job, signal.value_or(0))) {
        return Blame::slurm;
    }
    if (!code) {
        return detail == nullptr ? Blame::unclear : Blame::others;
    }
    const bool accident =
        std::find(kAccidents.begin(), kAccidents.end(), *code) != kAccidents.end();
    return accident ? Blame::slurm : Blame::others;
}

bool ended_soon(const SlurmJob& job) {
    return job.started_at > 0 && job.ended_at >= job.started_at &&
           job.ended_at - job.started_at <= kStillbornAge;
}

// A slurmctld that was killed gives numbers out again; a node that still has the old job of the
// number refuses the new one, and slurmd cancels it as root. squeue does not say who it was: then
// it was Slurm if no person had the time to, or if Slurm had started the job twice.
Blame blame_of_cancel(const SlurmJob& job, const SlurmJobDetail* detail) {
    const auto& by = job.state.cancelled_by;
    const bool started = job.started_at > 0;
    if (by.value_or(0) != 0) {
        // The jobs' own user: a person, or lockstepd before it was restarted.
        return started && by == job.uid && detail == nullptr ? Blame::unclear : Blame::others;
    }
    const bool by_root = by && job.uid != 0;  // where root hands in the jobs it is a person, too
    if (ended_soon(job) || (started && by_root) || job.restarts > 0 ||
        (detail != nullptr && detail->restarts > 0)) {
        return Blame::slurm;
    }
    return started && detail == nullptr ? Blame::unclear : Blame::others;
}

}  // namespace

Blame blame(const SlurmJob& job, const SlurmJobDetail* detail) {
    switch (job.verdict().end) {
        case SlurmEnd::node_fail:
        case SlurmEnd::boot_fail:
            return Blame::slurm;
        case SlurmEnd::failed:
            return blame_of_failure(job, detail);
        case SlurmEnd::cancelled:
            return blame_of_cancel(job, detail);
        case SlurmEnd::ok:
            // An agent that has not called in never ends with 0. But the node of an earlier job of
            // the number still tells a slurmctld that was killed how that one ended.
            return ended_soon(job) ? Blame::slurm : Blame::others;
        case SlurmEnd::time_limit:
            // An agent calls in before anything else. A slurmctld that was killed may have believed
            // in a launch that never reached the node, through several short lives of lockstepd, or
            // lockstepd was away for all of the job's time.
            return Blame::slurm;
        case SlurmEnd::none:
        case SlurmEnd::oom:
        case SlurmEnd::deadline:
        case SlurmEnd::preempted:
        case SlurmEnd::revoked:
            break;
    }
    return Blame::others;
}

}  // namespace lockstep
