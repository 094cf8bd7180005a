#include "scheduler-integration/slurm/scheduler/counters.hpp"

#include "job/base/limits.hpp"
#include "scheduler-integration/slurm/slurm_reason.hpp"

#include <utility>

namespace lockstep {

void SlurmCounters::count_reason(std::string reason, std::uint64_t how_many) {
    const bool room =
        pending_reasons.size() < limits::kWaitReasons || pending_reasons.count(reason) > 0;
    pending_reasons[room ? std::move(reason) : "other"] += how_many;
}

void SlurmCounters::count_jobs(PartitionAndState where, std::uint64_t how_many) {
    std::size_t partitions = 0;
    const std::string* last = nullptr;
    for (const auto& [one, count] : jobs) {
        partitions += last == nullptr || *last != one.first ? 1 : 0;
        last = &one.first;
    }
    const auto known = jobs.lower_bound({where.first, ""});
    if (partitions >= limits::kWaitReasons &&
        (known == jobs.end() || known->first.first != where.first)) {
        where.first = "other";
    }
    jobs[std::move(where)] += how_many;
}

void measure_waits(
    SlurmCounters& counters, const SlurmTrackedMap& tracked_by_key, UnixMillis begun,
    const std::function<void(const std::string& partition, double seconds)>& waited) {
    counters.pending_reasons.clear();
    counters.jobs.clear();
    for (const auto& [key, tracked] : tracked_by_key) {
        const SlurmAttempt& attempt = tracked->attempt;
        if (attempt.stage != SlurmAttempt::Stage::known || !attempt.seen) {
            continue;
        }
        const SlurmJob& job = *attempt.seen;
        const SlurmPhase phase = job.verdict().phase;
        const bool waits = phase == SlurmPhase::queued || phase == SlurmPhase::held ||
                           phase == SlurmPhase::blocked;
        if (waits) {
            counters.count_reason(reason_code(job.reason), 1);
        }
        if (phase != SlurmPhase::ended && job.state.base != SlurmBase::none) {
            counters.count_jobs({job.partition, std::string{to_string(job.state.base)}}, 1);
        }
        // What is cancelled while it waits has a start, too, but never a node.
        const bool started = !waits && phase != SlurmPhase::requeueing && !job.nodes.empty() &&
                             job.submitted_at > 0 && job.started_at >= job.submitted_at;
        if (started && tracked->wait_told != attempt.id && job.started_at * 1000 >= begun) {
            tracked->wait_told = attempt.id;
            if (waited) {
                waited(job.partition, static_cast<double>(job.started_at - job.submitted_at));
            }
        }
    }
}

}  // namespace lockstep
