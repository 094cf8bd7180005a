#include "scheduler-integration/slurm/slurm_renamed.hpp"

#include "job/async/on_thread.hpp"
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_attempt_facts.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <functional>

namespace lockstep {
namespace {

constexpr std::size_t kSlurmJobBytes = 64;

std::string slurm_job_path(const AttemptRequest& request) {
    return request.kept_in() + "/" + std::string{slurm::kSlurmJobFileName};
}

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

// Once for each job. Without the file a job that is renamed while no lockstepd runs counts as lost.
void SlurmScheduler::keep_job(const SlurmTrackedPointer& tracked) {
    const SlurmAttempt& attempt = tracked->attempt;
    if (attempt.stage != SlurmAttempt::Stage::known || !attempt.seen || attempt.ended() ||
        attempt.seen->submitted_at <= 0 || stopped_ ||
        (tracked->kept.id == attempt.id &&
         tracked->kept.submitted_at == attempt.seen->submitted_at)) {
        return;
    }
    tracked->kept = {attempt.id, attempt.seen->submitted_at};
    tasks_.spawn("seen", write_job(tracked));
}

Task<void> SlurmScheduler::write_job(SlurmTrackedPointer tracked) {
    const SlurmAttempt::Copy job = tracked->kept;
    const std::function<Status()> write = [path = slurm_job_path(tracked->attempt.request), job] {
        return replace_file(path, to_text(job), 0600);
    };
    const Status written = co_await on_thread<Status>(files_, write);
    if (!written && tracked->kept.id == job.id && tracked->kept.submitted_at == job.submitted_at) {
        tracked->kept = {};  // a full disk, say: again with the next answer
    }
}

Task<void> SlurmScheduler::take_up_job(SlurmTrackedPointer tracked) {
    using Known = std::optional<SlurmAttempt::Copy>;
    const std::function<Known()> read = [path = slurm_job_path(tracked->attempt.request)] {
        const auto text = read_plain_file(path, kSlurmJobBytes);
        return text ? parse_slurm_job(*text) : Known{};
    };
    const Known before = co_await on_thread<Known>(files_, read);
    tracked->attempt.seen_before = before;
    tracked->kept = before.value_or(SlurmAttempt::Copy{});
    tracked->asks_file = false;
}

}  // namespace lockstep
