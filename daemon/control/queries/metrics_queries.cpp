#include "daemon/control/queries/metrics_queries.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/queries/job_metrics.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace lockstep {
namespace {

// Jobs nobody has started have nothing to say beyond being counted: 10,000 of them queued must not
// make 10,000 sets of series. One that waits for another attempt keeps its own, or Prometheus would
// take it for over; JobMetricsView::waits says what is left of them.
bool has_series(const Job& job) {
    return std::any_of(job.attempts.begin(), job.attempts.end(),
                       [](const Attempt& one) { return one.placed_at != 0; });
}

}  // namespace

struct MetricsQueries::Exposed {
    telemetry::MetricsView view;
    std::vector<telemetry::JobMetricsView> active;
    std::vector<std::vector<telemetry::RankMetricsView>> ranks;
    std::vector<telemetry::StartEstimateView> starts;
};

void MetricsQueries::expose_totals(Exposed& out) const {
    out.view.now = context_.now_seconds();
    out.view.max_series_per_job = context_.settings.max_series_per_job;
    const JobRegistry::Counts counts = registry_.counts();
    out.view.jobs = counts.states;
    out.view.submitted_total = counts.submitted;
    out.view.finished_total = counts.finished;
    out.ranks.resize(
        registry_.unfinished().size());  // borrowed by `active`: never moved from here on
}

void MetricsQueries::expose_job(Exposed& out, const JobRegistry::ActorPtr& actor) const {
    const Job& job = actor->job();
    if (const UnixMillis start = actor->expected_start(); start != 0) {
        out.starts.push_back({job.id.value, static_cast<double>(start) / 1000.0});
    }
    if (!has_series(job)) {
        return;
    }
    out.active.push_back(metrics_view(job, context_.scheduler, context_.series.find(job.id.value),
                                      out.ranks[out.active.size()], context_.clock.wall()));
    actor->describe(out.active.back());
    out.active.back().stats = actor->stats();
}

void MetricsQueries::expose_all(Exposed& out) const {
    expose_totals(out);
    for (const auto& [id, actor] : registry_.unfinished()) {
        expose_job(out, actor);
    }
    out.view.active = out.active;
    out.view.starts = out.starts;
    out.view.gpus = &context_.gpus;
}

// What a user may see: of other people's jobs not even that they are.
void MetricsQueries::expose_for(const Caller& caller, Exposed& out) const {
    expose_totals(out);
    for (const auto& [id, actor] : registry_.unfinished()) {
        if (caller.sees(actor->job().user)) {
            expose_job(out, actor);
        }
    }
    out.view.active = out.active;
    out.view.starts = out.starts;
    out.view.gpus = &context_.gpus;
    out.view.gpu_jobs = [this, caller](std::string_view job) {
        const JobRegistry::ActorPtr found = registry_.find(job);
        return found && caller.sees(found->job().user);
    };
}

MetricsBody MetricsQueries::metrics(const Caller& caller, std::string_view accept) {
    const telemetry::TextFormat format = telemetry::negotiate(accept);
    return {std::string{telemetry::content_type(format)}, "",
            [this, caller, format](const telemetry::PieceSink& sink) {
                Exposed all;
                if (caller.admin || caller.reads_all) {
                    expose_all(all);
                } else {
                    expose_for(caller, all);
                }
                count_what_is_here();
                telemetry::render_metrics(format, context_.metrics, all.view, sink);
            }};
}

MetricsBody MetricsQueries::own_metrics(std::string_view accept) {
    Exposed totals;
    expose_totals(totals);
    count_what_is_here();
    const telemetry::TextFormat format = telemetry::negotiate(accept);
    return {std::string{telemetry::content_type(format)},
            telemetry::render_metrics(format, context_.metrics, totals.view),
            {}};
}

// Into the daemon's own metrics.
void MetricsQueries::count_what_is_here() const {
    std::size_t connected = 0;
    double silence = 0;
    double offset = std::numeric_limits<double>::quiet_NaN();  // until an agent has measured
    for (const auto& [id, actor] : registry_.unfinished()) {
        for (const auto& [node, link] : actor->links()) {
            ++connected;
            silence = std::max(
                silence,
                std::chrono::duration<double>(context_.clock.steady() - link->last_heard).count());
            if (link->clock_offset) {
                offset = std::fmax(
                    offset, std::abs(static_cast<double>(link->clock_offset->offset_us)) / 1e6);
            }
        }
    }
    context_.metrics.agents(connected, silence, offset);
    context_.metrics.memory_tier(context_.series.series(), context_.series.bytes());
}

Result<MetricsBody> MetricsQueries::job_metrics(const Caller& caller, std::string_view id,
                                                telemetry::Shard shard, std::string_view accept) {
    Exposed one;
    one.view.now = context_.now_seconds();
    one.view.max_series_per_job = context_.settings.max_series_per_job;
    one.view.gpus = &context_.gpus;
    const JobRegistry::ActorPtr found = registry_.find(id);
    bool visible = found && caller.sees(found->job().user);
    if (visible) {
        one.ranks.resize(1);
        expose_job(one, found);
        one.view.active = one.active;
    } else if (!found) {
        forget_left();
        visible = std::any_of(left_.begin(), left_.end(), [&](const Left& left) {
            return left.id == id && caller.sees(left.user);
        });
    }
    if (!visible) {
        return fail(Errc::not_found, "no metrics of a job " + printable(id.substr(0, 64)));
    }
    const telemetry::TextFormat format = telemetry::negotiate(accept);
    return MetricsBody{std::string{telemetry::content_type(format)},
                       telemetry::render_job(format, context_.metrics, one.view, shard),
                       {}};
}

void MetricsQueries::finish(const Job& job) {
    forget_left();
    left_.push_back({job.id.value, job.user, context_.clock.steady()});
}

void MetricsQueries::forget(const std::string& job) {
    std::erase_if(left_, [&](const Left& one) { return one.id == job; });
}

void MetricsQueries::forget_left() {
    const auto now = context_.clock.steady();
    while (!left_.empty() && now - left_.front().at > limits::kEndedTargets) {
        left_.pop_front();
    }
}

std::vector<ScrapeTarget> MetricsQueries::scrape_targets(const Caller& caller) {
    std::vector<ScrapeTarget> out;
    for (const auto& [id, actor] : registry_.unfinished()) {
        const Job& job = actor->job();
        if (!has_series(job) || !caller.sees(job.user)) {
            continue;
        }
        ScrapeTarget target;
        target.job = id;
        target.name = job.spec.name;
        target.user = job.user;
        target.framework = to_string(job.spec.framework);
        target.allocation = job.attempt()->scheduler_id;
        const auto& resources = job.spec.resources;
        target.shards =
            telemetry::shards_of(static_cast<std::size_t>(job.spec.world_size()),
                                 static_cast<std::size_t>(resources.nodes) *
                                     static_cast<std::size_t>(std::max(resources.gpus_per_node, 0)),
                                 context_.settings.max_series_per_job);
        out.push_back(std::move(target));
    }
    std::sort(out.begin(), out.end(),
              [](const ScrapeTarget& a, const ScrapeTarget& b) { return a.job < b.job; });
    return out;
}

telemetry::MetricSamples MetricsQueries::samples() const {
    Exposed all;
    expose_all(all);
    telemetry::MetricSamples out;
    telemetry::MetricText text{out};
    telemetry::write_jobs(text, all.view);
    return out;
}

}  // namespace lockstep
