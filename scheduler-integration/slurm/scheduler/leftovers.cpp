#include "scheduler-integration/slurm/scheduler/leftovers.hpp"

#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace lockstep {
namespace {

struct NamedAttempt {
    JobId job;
    std::int32_t attempt = 0;
};

// Of `<name>-<ulid>-a<attempt>`. Nothing: no name of ours.
std::optional<NamedAttempt> attempt_of_name(const std::string& name) {
    std::string part = attempt_part(name);
    const auto end = part.rfind("-a");
    if (part.empty() || end == std::string::npos) {
        return std::nullopt;
    }
    const auto number = to_int(part.substr(end + 2));
    if (!number || *number < 1 || *number > INT32_MAX) {
        return std::nullopt;
    }
    part.resize(end);
    std::transform(part.begin(), part.end(), part.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return NamedAttempt{JobId{"ls-" + part}, static_cast<std::int32_t>(*number)};
}

// It holds nodes, or will. One that is completing is being ended already.
bool is_held(const SlurmJob& job) {
    const SlurmVerdict verdict = job.verdict();
    return !verdict.terminal && verdict.phase != SlurmPhase::finishing &&
           verdict.phase != SlurmPhase::ended;
}

}  // namespace

bool SlurmLeftovers::one_waits() const {
    return std::any_of(leftovers_.begin(), leftovers_.end(), [](const auto& one) {
        return one.second.ended_at != 0 && !one.second.cancelled;
    });
}

Task<void> SlurmLeftovers::audit(const JobTable& table, const SlurmTrackedMap& tracked) {
    if (!end_of_) {
        co_return;
    }
    std::map<std::int64_t, Leftover> seen;
    for (const SlurmJob& job : table.jobs) {
        const std::string part = attempt_part(job.name);
        if (part.empty() || tracked.contains(part) || !is_held(job)) {
            continue;
        }
        const auto known = leftovers_.find(job.id);
        if (known != leftovers_.end() && known->second.name == job.name) {
            seen[job.id] = known->second;
        } else {
            seen[job.id].name = job.name;
        }
    }
    leftovers_ = std::move(seen);
    // By number: what is asked meanwhile may change the list.
    std::vector<std::int64_t> numbers;
    for (const auto& [id, one] : leftovers_) {
        if (!one.foreign) {
            numbers.push_back(id);
        }
    }
    for (const std::int64_t id : numbers) {
        Leftover& one = leftovers_[id];
        const auto attempt = attempt_of_name(one.name);
        const std::string job = attempt ? attempt->job.value : "";
        if (one.ended_at == 0 && attempt) {
            auto asking = end_of_(attempt->job, attempt->attempt);
            const auto ended = co_await std::move(asking);
            one.foreign = !ended && ended.error().code == Errc::not_found;
            one.ended_at = ended.value_or(0);
        }
        // What its agents still do has its time; slurmctld may be slow, and is asked again.
        const auto now = clock_.steady();
        if (one.ended_at == 0 ||
            clock_.wall() - one.ended_at <
                std::chrono::milliseconds{options_.over_patience}.count() ||
            (one.cancelled && now - *one.cancelled < options_.over_patience)) {
            continue;
        }
        const Status done = co_await backend_.cancel(id, one.name);
        if (done) {
            counters_.leftovers_cancelled += one.cancelled ? 0 : 1;
            one.cancelled = now;
            log::warn("Slurm held a job of an attempt that has ended; it is cancelled",
                      {{"job", job}, {"name", one.name}, {"slurm_job", id}});
            pace_.soon();
        } else {
            log::warn("cannot cancel a job of an attempt that has ended",
                      {{"job", job},
                       {"name", one.name},
                       {"slurm_job", id},
                       {"what", done.error().message}});
        }
    }
    counters_.leftovers = static_cast<std::uint64_t>(
        std::count_if(leftovers_.begin(), leftovers_.end(),
                      [](const auto& one) { return one.second.ended_at != 0; }));
}

}  // namespace lockstep
