#include "daemon/control/machine/desync.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/anomaly.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 2;

event::AnomalySeen words(const Job& job, std::int32_t rank, std::string_view message) {
    event::AnomalySeen out;
    out.attempt = job.attempt()->number;
    out.generation = job.live_generation()->number;
    out.rank = rank;
    if (const NodeClaim* claim = job.claim_of_node(rank / job.spec.ranks_per_node())) {
        out.node = claim->node;
    }
    out.anomaly = to_string(AnomalyKind::desync);
    out.message = printable(message.substr(0, limits::kTextBytes));
    log::warn(out.message, {{"job", job.id.value}, {"rank", rank}});
    return out;
}

template <class Desync>
void withdraw(Draft& draft, const Desync& known) {
    auto over = words(draft.job(), known.rank,
                      "nobody waits for rank " + std::to_string(known.rank) + " in NCCL any more");
    over.since = known.since;
    over.over = true;
    draft.add(std::move(over));
}

}  // namespace

bool is_busy(const telemetry::JobSeries* series, std::int32_t rank) {
    constexpr double kTraining = 1;
    const auto phase = series == nullptr ? std::nullopt : series->metric("phase_code");
    if (!phase || static_cast<std::size_t>(rank) >= series->world_size()) {
        return false;
    }
    const auto code = series->rank(static_cast<std::size_t>(rank)).latest(*phase);
    return code && *code != kTraining;
}

void desync_outlived(Draft& draft, GenerationRun& run) {
    constexpr std::int64_t kRunAhead =
        2;  // steps of which the host reports before the GPU has made them
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || !live->desync || draft.at.series == nullptr) {
        run.desync_step.reset();
        return;
    }
    std::int64_t step = 0;  // of those that are said to wait
    for (std::size_t rank = 0; rank < draft.at.series->present(); ++rank) {
        if (static_cast<std::int32_t>(rank) != live->desync->rank) {
            step = std::max(step, draft.at.series->rank(rank).last_step());
        }
    }
    if (!run.desync_step) {
        run.desync_step = step;
    }
    if (step > *run.desync_step + kRunAhead) {
        withdraw(draft, *live->desync);
        run.desync_step.reset();
    }
}

void desync_seen(Draft& draft, AttemptRun& run, const Agent& link, const wire::Desync& seen) {
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || live->number != seen.generation || live->slot_of(0) != link.node_rank ||
        seen.rank < -1 || seen.rank >= static_cast<std::int32_t>(live->exited.size())) {
        return;
    }
    if (live->desync && live->desync->rank != seen.rank) {
        withdraw(draft, *live->desync);
        run.generation.desync_step.reset();
        live = draft.job().live_generation();
    }
    if (seen.rank < 0 || live->desync || live->exited[static_cast<std::size_t>(seen.rank)]) {
        return;
    }
    const telemetry::JobStats* known = run.generation.fresh_stats(draft.at);
    const double usual = known != nullptr && known->step_seconds ? known->step_seconds->p99 : 0.0;
    constexpr auto kKind = static_cast<std::size_t>(AnomalyKind::desync);
    const bool often = draft.job().anomalies[kKind] - run.generation.anomalies_before[kKind] >=
                       limits::kAnomalyEvents;
    const std::int64_t waited = std::clamp<std::int64_t>(seen.waited_ms, 0, draft.at.wall);
    if (often || is_busy(draft.at.series, seen.rank) ||
        static_cast<double>(waited) < usual * 1000.0 * kSteps) {
        return;
    }
    auto told = words(draft.job(), seen.rank, seen.message);
    told.since = draft.at.wall - waited;
    draft.add(std::move(told));
}

}  // namespace lockstep
