#include "daemon/control/machine/gpu_blame.hpp"

#include "job/base/log.hpp"
#include "job/model/failure.hpp"
#include "job/model/gpu_error.hpp"
#include "job/model/recovery.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// How long before the end of a rank an error may have come that ended it.
constexpr UnixMillis kXidBefore = 60'000;  // ms
// How much later than the rank the agent may have met it: NVML tells it on a thread of its own, and
// the two clocks need not be the same.
constexpr UnixMillis kXidLate = 5'000;  // ms

UnixMillis failed_at(const event::RankExited& exit) {
    return exit.failed_at != 0 ? exit.failed_at : exit.at;
}

bool is_of_peer(const event::RankExited& exit) {
    return parse_failure_kind(exit.failure).value_or(FailureKind::own) != FailureKind::own;
}

bool is_failure(const event::RankExited& exit) {
    return exit.exit_code != 0 && !exit.stopped;
}

// Whether the rank may have failed of it: there, or because it has lost a peer there.
bool may_come_of(const event::RankExited& exit, const event::GpuXid& xid, const GpuError& error) {
    const bool there = exit.node == xid.node || (xid.rank >= 0 && is_of_peer(exit));
    return is_failure(exit) && there &&
           (error.gone || (xid.at >= std::min(failed_at(exit), exit.at) - kXidBefore &&
                           xid.at <= exit.at + kXidLate));
}

// Where the GPU is, if it is one of those that the job has there; else -1. A node may have more
// that others use, and the agent sees them all: then it is the job's only if a rank was on it.
std::int32_t slot_of(const Job& job, const AttemptRun& run, const event::GpuXid& xid) {
    const Generation& generation = *job.generation();
    const std::int32_t wanted = job.spec.resources.gpus_per_node;
    const auto is_there = [&](std::int32_t slot) {
        const auto claim = job.attempt()->claims.find(slot);
        return claim != job.attempt()->claims.end() && claim->second.node == xid.node;
    };
    if (wanted < 1) {
        return -1;
    }
    if (xid.rank >= 0) {
        const std::int32_t slot = generation.slot_of(xid.rank / job.spec.ranks_per_node());
        return is_there(slot) ? slot : -1;
    }
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        const std::int32_t slot = generation.slot_of(node);
        if (!is_there(slot)) {
            continue;
        }
        const auto link = run.links.find(slot);
        const std::int32_t all = link == run.links.end() ? 0 : link->second->join.gpus;
        return all > 0 && all <= wanted ? slot : -1;
    }
    return -1;
}

bool job_goes_on(const Job& job) {
    const auto reason = reason_to_stop(job);
    return !reason || plan_recovery(job, *reason).kind != Recovery::none;
}

// The same, with the fault among its events.
bool would_go_on(const Draft& draft, const event::FaultSeen& fault) {
    Job tried = draft.job();  // a copy
    Event event;
    event.seq = tried.last_seq;
    event.job = tried.id;
    event.time = draft.at.wall;
    event.data = fault;
    return apply(tried, event).has_value() && job_goes_on(tried);
}

// Whether something that failed at that time is not what the generation ends of.
bool comes_later(const Generation& generation, UnixMillis at) {
    return generation.first_failure && generation.first_failure_kind == FailureKind::own &&
           generation.first_failure_at <= at;
}

// No other node takes the place of the GPU's, and none is lost: what its ranks did decides whether
// the job goes on, and how they are ended. A job that does not go on has the GPU as its cause.
void only_name_gpu(Draft& draft, event::FaultSeen fault, const event::RankExited& failed) {
    const Generation& newest = *draft.job().generation();
    if (!newest.open() || comes_later(newest, fault.at)) {
        return;  // nothing would name it
    }
    fault.slot = -1;
    if (job_goes_on(draft.job())) {
        fault.cause_class = cause_of(draft.job(), failed).kind;
    }
    draft.add(std::move(fault));
}

// `failed`: what came of it; nullptr: nothing yet.
void lose_gpu(Draft& draft, const AttemptRun& run, const event::GpuXid& xid, const GpuError& error,
              const event::RankExited* failed) {
    const Job& job = draft.job();
    const std::int32_t slot = slot_of(job, run, xid);
    if (slot < 0 || job.attempt()->lost.contains(slot)) {
        return;
    }
    event::FaultSeen fault;
    fault.attempt = job.attempt()->number;
    fault.generation = job.generation()->number;
    fault.slot = slot;
    fault.node = xid.node;
    fault.rank = xid.rank;
    fault.cause_class = CauseClass::gpu_fault;
    fault.message = "GPU " + std::to_string(xid.gpu) + " of " + xid.node + " reported XID " +
                    std::to_string(xid.xid) + ": " + std::string{error.words};
    // Before whatever came of it, also what is heard of that later.
    fault.at = std::min(xid.at, draft.at.wall) - kXidLate;
    if (failed != nullptr) {
        const Cause cause = cause_of(job, *failed);
        fault.at = std::min(fault.at, failed_at(*failed) - 1);
        fault.rank = fault.rank < 0 ? cause.rank : fault.rank;
        fault.message += ". Then " + cause.message;
        if (fault.rank == cause.rank && !cause.log_tail.empty()) {
            fault.message += "\n" + cause.log_tail;
        }
    }
    fault.at = std::max<UnixMillis>(fault.at, 0);
    // Each of 100,000 ranks may have lost its peer there, and to try is to copy the job.
    if (failed != nullptr && failed->node != xid.node && comes_later(*job.generation(), fault.at)) {
        return;
    }
    if (!would_go_on(draft, fault)) {
        if (failed != nullptr) {
            only_name_gpu(draft, std::move(fault), *failed);
        }
        return;
    }
    if (draft.add(std::move(fault))) {
        draft.give_up(slot);
        log::warn("a GPU of the job has failed", {{"job", draft.job().id.value},
                                                  {"node", xid.node},
                                                  {"gpu", xid.gpu},
                                                  {"xid", xid.xid}});
    }
}

}  // namespace

void look_for_gpu_error(Draft& draft, const AttemptRun& run, std::int32_t rank) {
    const Generation* newest = draft.job().generation();
    if (newest == nullptr || draft.job().attempt()->xids.empty()) {
        return;
    }
    const auto found = newest->failed.find(rank);
    if (found == newest->failed.end()) {
        return;
    }
    // Copies: the job of the draft changes with the fault.
    const event::RankExited failed = found->second;
    std::vector<event::GpuXid> before;
    for (const event::GpuXid& xid : draft.job().attempt()->xids) {
        const GpuError* error = find_gpu_error(xid.xid);
        if (error != nullptr && xid.generation == failed.generation &&
            may_come_of(failed, xid, *error)) {
            before.push_back(xid);
        }
    }
    for (const event::GpuXid& xid : before) {
        lose_gpu(draft, run, xid, *find_gpu_error(xid.xid), &failed);
    }
}

void gpu_error_seen(Draft& draft, const AttemptRun& run, const event::GpuXid& xid) {
    const GpuError* error = find_gpu_error(xid.xid);
    const Generation* newest = draft.job().generation();
    if (error == nullptr || newest == nullptr || newest->number != xid.generation) {
        return;
    }
    const event::RankExited* first = nullptr;
    for (const auto& [rank, exit] : newest->failed) {
        if (may_come_of(exit, xid, *error) &&
            (first == nullptr || failed_at(exit) < failed_at(*first))) {
            first = &exit;
        }
    }
    if (first != nullptr) {
        const event::RankExited failed = *first;
        lose_gpu(draft, run, xid, *error, &failed);
    } else if (error->gone && newest->open() &&
               draft.job().spec.recovery.has(RecoveryTrigger::node_failure)) {
        lose_gpu(draft, run, xid, *error, nullptr);
    }
}

}  // namespace lockstep
