#include "daemon/control/actor/job_face.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kViewAge = std::chrono::milliseconds{250};

}  // namespace

JobRow JobFace::row(const Job& job) const {
    LiveView at_end = live();
    if (is_final(job.state)) {
        at_end.pending_reason.clear();
        at_end.expected_start = 0;
    }
    return row_of(job, dump_json(job_json(job, at_end)));
}

LiveView JobFace::live() const {
    LiveView out;
    out.pending_reason = machine_.pending_reason();
    out.expected_start = machine_.expected_start();
    if (const auto& stats = machine_.run().generation.stats) {
        out.step = stats->step;
        out.total_steps = stats->total_steps;
    }
    // Before that the view is not made anew as time passes, and it would tell of an old queue.
    out.now = job().started_at != 0 ? context_.clock.wall() : 0;
    if (const auto* series = context_.series.find(job().id.value)) {
        out.reports = series->generations();
    }
    return out;
}

std::shared_ptr<const std::string> JobFace::view(
    const std::function<Surroundings()>& surroundings) {
    const auto now = context_.clock.steady();
    const bool moving = job().started_at != 0;
    const bool waits_otherwise =
        view_reason_ != machine_.pending_reason() || view_start_ != machine_.expected_start();
    if (!view_ || waits_otherwise || (moving && now - view_at_ > kViewAge)) {
        machine_.stats(surroundings());
        view_ = std::make_shared<const std::string>(dump_json(job_json(job(), live())));
        view_at_ = now;
        view_reason_ = machine_.pending_reason();
        view_start_ = machine_.expected_start();
    }
    return view_;
}

void JobFace::describe(telemetry::JobMetricsView& view) const {
    if (view.waits) {
        return;  // the watches still know of the ranks that it had
    }
    view.straggler_ranks = machine_.anomalies().straggler_ranks();
    view.loss_zscore = machine_.anomalies().loss_z();
    view.grad_norm_zscore = machine_.anomalies().grad_norm_z();
    const Generation* live = job().live_generation();
    // One that is being ended needs nobody: its ranks may take their whole grace period.
    view.hang = live != nullptr && !live->first_failure &&
                (live->hang.has_value() || machine_.run().generation.hang_untold);
    const Attempt* attempt = job().attempt();
    const Generation* newest = job().generation();
    view.generation = newest == nullptr ? 0 : newest->number;
    std::int64_t nodes = 0;
    for (std::int32_t slot = 0; slot < job().spec.resources.allocated_nodes(); ++slot) {
        nodes += machine_.run().rendezvous.phase(slot) >= Rendezvous::Phase::joined ? 1 : 0;
    }
    const bool met = newest != nullptr && newest->open() && newest->running_at != 0;
    view.ranks_joined =
        met ? job().world_size()
            : std::min<std::int64_t>(nodes * job().spec.ranks_per_node(), job().world_size());
    if (!met) {
        UnixMillis since = newest == nullptr ? attempt->placed_at
                           : newest->open()  ? newest->started_at
                                             : newest->finished_at;
        const UnixMillis now = context_.clock.wall();
        // While the scheduler has its processes stand still nobody can meet; see WaitClock.
        if (!attempt->suspensions.empty()) {
            since = attempt->suspended() ? now : std::max(since, attempt->suspensions.back().to);
        }
        view.rendezvous_age = static_cast<double>(std::max<UnixMillis>(now - since, 0)) / 1000.0;
    }
}

}  // namespace lockstep
