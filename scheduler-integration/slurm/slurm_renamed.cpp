#include "scheduler-integration/slurm/slurm_renamed.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_attempt_facts.hpp"

namespace lockstep {
namespace {

bool is_ours(const SlurmAttempt& attempt, const SlurmJob& job) {
    // Ours has begun. One that waits is another's of the same second, whose number a slurmctld gave
    // that had lost ours; Slurm dates one that it puts back into the queue anew.
    if (attempt.stage != SlurmAttempt::Stage::known ||
        (is_claimed(attempt) && is_waiting(job.verdict().phase))) {
        return false;
    }
    if (attempt.seen) {
        return attempt.seen->submitted_at == job.submitted_at;
    }
    return attempt.seen_before && attempt.seen_before->id == job.id &&
           attempt.seen_before->submitted_at == job.submitted_at;
}

}  // namespace

void take_renamed(SlurmAttempt& attempt, const SlurmJob& job, std::vector<SlurmJob>& rows) {
    if (!is_ours(attempt, job)) {
        return;
    }
    const bool known = attempt.called_id == job.id && !attempt.called.empty();
    // Slurm's programs take a name with a comma for two.
    attempt.called = job.name.find(',') == std::string::npos ? job.name : "";
    attempt.called_id = job.id;
    if (!known && !job.verdict().terminal) {
        attempt.cancelled = false;  // by the name that it does not have: in vain
    }
    rows.push_back(job);
    rows.back().name = attempt.name;
}

std::string to_text(const SlurmAttempt::Copy& job) {
    return std::to_string(job.id) + " " + std::to_string(job.submitted_at) + "\n";
}

std::optional<SlurmAttempt::Copy> parse_slurm_job(std::string_view text) {
    const auto blank = text.find(' ');
    if (blank == std::string_view::npos || !text.ends_with('\n')) {
        return std::nullopt;
    }
    const auto id = to_int(text.substr(0, blank));
    const auto submitted = to_int(text.substr(blank + 1, text.size() - blank - 2));
    if (!id || !submitted) {
        return std::nullopt;
    }
    return SlurmAttempt::Copy{*id, *submitted};
}

}  // namespace lockstep
