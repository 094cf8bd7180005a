// size: the metric families in the order in which they are written
#include "daemon/telemetry/exposition/exposition.hpp"

#include "daemon/telemetry/exposition/gpu_exposition.hpp"
#include "daemon/telemetry/exposition/process_metrics.hpp"
#include "daemon/telemetry/exposition/rank_exposition.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::telemetry {
namespace {

struct ShownJob {
    const JobMetricsView* view = nullptr;
    std::string labels;  // job_id="…"
    const JobStats* stats = nullptr;
    std::unique_ptr<const JobStats> own;  // what `stats` points to, unless it is the view's
};

// Restarts that can happen are there from the start: a counter that appears with 1 never alerts,
// because increase() has nothing to compare it with.
constexpr std::array kRestartCauses{
    CauseClass::rank_exit, CauseClass::rank_signal,    CauseClass::oom,
    CauseClass::node_lost, CauseClass::gpu_fault,      CauseClass::hang,
    CauseClass::preempted, CauseClass::nonfinite_loss, CauseClass::rendezvous_timeout};

constexpr std::size_t kJobBytes = 12U << 10U;  // of one job's own series, about

std::string with(std::string labels, std::string_view name, std::string_view value) {
    add_label(labels, name, value);
    return labels;
}

bool expected_cause(CauseClass cause) {
    return std::find(kRestartCauses.begin(), kRestartCauses.end(), cause) != kRestartCauses.end();
}

class JobsWriter {
  public:
    JobsWriter(MetricText& text, const MetricsView& view) : text_(text), view_(view), ranks_(view) {
        std::size_t silent = 0;
        for (const auto& job : view.active) {
            if (job.series != nullptr || ++silent <= limits::kSilentJobsShown) {
                add(job);
            }
        }
        suppressed_ = ranks_.suppressed() +
                      kSilentJobSeries * (silent - std::min(silent, limits::kSilentJobsShown)) +
                      (view.starts.size() - starts_shown());
        if (view.gpus != nullptr) {
            gpus_ = shown_gpus(*view.gpus, view.now, view.gpu_jobs);
            suppressed_ += gpus_.suppressed;
        }
    }

    // One job's, or a part of them.
    JobsWriter(MetricText& text, const MetricsView& view, Shard shard)
        : text_(text), view_(view), ranks_(view, shard) {
        if (view.active.empty()) {
            return;
        }
        add(view.active.front());
        suppressed_ = ranks_.suppressed();
        if (view.gpus != nullptr) {
            gpus_ = job_gpus(*view.gpus, view.now, view.active.front().job_id, shard);
            suppressed_ += gpus_.suppressed;
        }
    }

    void write_part(Shard shard) {
        if (shard.index == 0 && !jobs_.empty()) {
            left_out(jobs_.front().labels);
            each_job();
        }
        ranks_.write(text_);
        write_gpus(text_, gpus_);
    }

    // A little more than what is written, bytes: growing would copy megabytes and need them twice.
    std::size_t expected_size() const {
        return jobs_.size() * kJobBytes + ranks_.expected_size() + gpus_.expected_size();
    }

    void write() {
        totals();
        left_out({});
        each_job();
        ranks_.write(text_);
        write_gpus(text_, gpus_);
    }

  private:
    using StatField = std::optional<double> JobStats::*;

    void add(const JobMetricsView& job) {
        static const JobStats kNothing{};
        ShownJob shown{&job, with({}, "job_id", job.job_id), &kNothing, nullptr};
        if (job.series != nullptr && job.waits) {
            shown.own = std::make_unique<const JobStats>(past_job_stats(*job.series));
            shown.stats = shown.own.get();
        } else if (job.series != nullptr && job.stats != nullptr) {
            shown.stats = job.stats;
        } else if (job.series != nullptr) {
            shown.own = std::make_unique<const JobStats>(compute_job_stats(*job.series, view_.now));
            shown.stats = shown.own.get();
        }
        if (!job.waits) {
            ranks_.add(job, shown.labels, *shown.stats);
        }
        jobs_.push_back(std::move(shown));
    }

    void left_out(const std::string& labels) {
        text_.family("lockstep_exposition_suppressed_series", MetricType::gauge,
                     "Series left out of this body to keep it small.");
        text_.sample(labels, std::uint64_t{suppressed_});
    }

    void each_job() {
        identity();
        life();
        progress();
        loss_and_speed();
        health();
    }

    void totals() {
        text_.family("lockstep_jobs", MetricType::gauge, "Jobs by state.");
        for (std::size_t i = 0; i < kJobStates; ++i) {
            text_.sample(with({}, "state", to_string(static_cast<JobState>(i))), view_.jobs[i]);
        }
        text_.family("lockstep_jobs_submitted", MetricType::counter, "Jobs ever accepted.");
        text_.sample({}, view_.submitted_total);
        text_.family("lockstep_jobs_finished", MetricType::counter, "Jobs ever finished.");
        for (std::size_t i = 0; i < kFinishResults; ++i) {
            text_.sample(with({}, "result", kFinishResultNames[i]), view_.finished_total[i]);
        }
        text_.family("lockstep_job_start_estimate_timestamp_seconds", MetricType::gauge,
                     "When the scheduler would start a job that waits, seconds since the Unix "
                     "epoch.");
        for (const auto& one : view_.starts.first(starts_shown())) {
            text_.sample(with({}, "job_id", one.job_id), one.start);
        }
    }

    std::size_t starts_shown() const {
        return std::min(view_.starts.size(), limits::kSilentJobsShown);
    }

    void identity() {
        text_.family("lockstep_job", MetricType::info, "Always 1; the labels say what the job is.");
        for (const auto& job : jobs_) {
            std::string labels = job.labels;
            if (!job.view->cluster_label.empty()) {
                add_label(labels, job.view->cluster_label, job.view->cluster_job);
            }
            add_label(labels, "name", job.view->name);
            add_label(labels, "user", job.view->user);
            add_label(labels, "framework", job.view->framework);
            add_label(labels, "account", job.view->account);
            add_label(labels, "partition", job.view->partition);
            add_label(labels, "qos", job.view->qos);
            text_.sample(labels, std::uint64_t{1});
        }
        text_.family("lockstep_job_state", MetricType::gauge, "1 for the state the job is in.");
        for (const auto& job : jobs_) {
            for (std::size_t i = 0; i < kJobStates; ++i) {
                const auto state = static_cast<JobState>(i);
                text_.sample(with(job.labels, "state", to_string(state)),
                             std::uint64_t{state == job.view->state ? 1U : 0U});
            }
        }
    }

    void life() {
        text_.family("lockstep_job_ranks_expected", MetricType::gauge, "World size.");
        for (const auto& job : jobs_) {
            text_.sample(job.labels, static_cast<double>(job.view->ranks_expected));
        }
        text_.family("lockstep_job_ranks_reporting", MetricType::gauge,
                     "Ranks with a recent report.");
        for (const auto& job : jobs_) {
            text_.sample(job.labels, std::uint64_t{job.stats->ranks_reporting});
        }
        text_.family("lockstep_job_nodes", MetricType::gauge,
                     "Nodes of the current attempt; of an elastic job those its ranks run on.");
        for (const auto& job : jobs_) {
            if (job.view->nodes > 0) {
                text_.sample(job.labels, static_cast<double>(job.view->nodes));
            }
        }
        text_.family("lockstep_job_nodes_requested", MetricType::gauge,
                     "Nodes that an elastic job (resources.min_nodes) is to run on.");
        for (const auto& job : jobs_) {
            if (job.view->nodes_requested > 0) {
                text_.sample(job.labels, static_cast<double>(job.view->nodes_requested));
            }
        }
        text_.family("lockstep_job_restarts", MetricType::counter,
                     "Generations and attempts that ended early, by cause.");
        for (const auto& job : jobs_) {
            for (std::size_t i = 0; i < kCauseClasses; ++i) {
                const auto cause = static_cast<CauseClass>(i);
                if (job.view->restarts[i] > 0 || expected_cause(cause)) {
                    text_.sample(with(job.labels, "cause", to_string(cause)),
                                 job.view->restarts[i]);
                }
            }
        }
        time();
        rendezvous();
    }

    void rendezvous() {
        const auto each = [this](std::string_view name, std::string_view help, auto value) {
            text_.family(name, MetricType::gauge, help);
            for (const auto& job : jobs_) {
                if (job.view->ranks_joined) {
                    text_.sample(job.labels, static_cast<double>(value(*job.view)));
                }
            }
        };
        each("lockstep_rendezvous_ranks_joined", "Ranks whose node has joined the generation.",
             [](const JobMetricsView& job) { return *job.ranks_joined; });
        each("lockstep_rendezvous_ranks_missing", "Ranks whose node has not.",
             [](const JobMetricsView& job) {
                 return std::max<std::int64_t>(job.ranks_expected - *job.ranks_joined, 0);
             });
        each("lockstep_rendezvous_age_seconds",
             "How long the nodes have been meeting for, suspensions not counted; 0 once every "
             "rank was started.",
             [](const JobMetricsView& job) { return job.rendezvous_age; });
        each("lockstep_rendezvous_generation", "Number of the newest generation; 0 = none yet.",
             [](const JobMetricsView& job) { return job.generation; });
    }

    // Gauges: what was productive is lost once a later generation goes back behind it.
    void time() {
        text_.family("lockstep_job_span_seconds", MetricType::gauge,
                     "Wall time since submission, by what it went into.");
        for (const auto& job : jobs_) {
            for (std::size_t i = 0; i < kSpans; ++i) {
                text_.sample(with(job.labels, "span", kSpanNames[i]), job.view->span_seconds[i]);
            }
        }
        text_.family("lockstep_job_ettr_ratio", MetricType::gauge,
                     "Productive time / wall time since the first ranks were started.");
        for (const auto& job : jobs_) {
            if (job.view->ettr) {
                text_.sample(job.labels, *job.view->ettr);
            }
        }
        text_.family("lockstep_job_lost_steps", MetricType::counter,
                     "Steps that a later generation started before.");
        for (const auto& job : jobs_) {
            if (job.view->lost_steps) {
                text_.sample(job.labels, static_cast<std::uint64_t>(*job.view->lost_steps));
            }
        }
    }

    void optional(std::string_view name, MetricType type, std::string_view help, StatField field) {
        text_.family(name, type, help);
        for (const auto& job : jobs_) {
            if (const auto& value = job.stats->*field) {
                text_.sample(job.labels, *value);
            }
        }
    }

    void progress() {
        const auto integer = [this](std::string_view name, std::string_view help,
                                    std::optional<std::int64_t> JobStats::* field) {
            text_.family(name, MetricType::gauge, help);
            for (const auto& job : jobs_) {
                if (const auto& value = job.stats->*field) {
                    text_.sample(job.labels, static_cast<double>(*value));
                }
            }
        };
        integer("lockstep_job_step", "Highest step that all reporting ranks have reached.",
                &JobStats::step);
        integer("lockstep_job_total_steps", "Steps the run will have, as its ranks say.",
                &JobStats::total_steps);
        optional("lockstep_job_last_step_timestamp_seconds", MetricType::gauge,
                 "Newest report with a step, seconds since the Unix epoch.",
                 &JobStats::last_step_time);
        optional("lockstep_job_samples", MetricType::counter,
                 "Samples trained on by all ranks, repeated steps included.",
                 &JobStats::samples_total);
        optional("lockstep_job_tokens", MetricType::counter,
                 "Tokens trained on by all ranks, repeated steps included.",
                 &JobStats::tokens_total);
    }

    void loss_and_speed() {
        text_.family("lockstep_job_loss", MetricType::gauge,
                     "Local loss across ranks at lockstep_job_step.");
        for (const auto& job : jobs_) {
            if (job.stats->loss) {
                text_.sample(with(job.labels, "stat", "mean"), job.stats->loss->mean);
                text_.sample(with(job.labels, "stat", "min"), job.stats->loss->min);
                text_.sample(with(job.labels, "stat", "max"), job.stats->loss->max);
            }
        }
        text_.family("lockstep_job_step_time_seconds", MetricType::gauge,
                     "Step time across ranks at lockstep_job_step.");
        for (const auto& job : jobs_) {
            if (job.stats->step_seconds) {
                text_.sample(with(job.labels, "stat", "min"), job.stats->step_seconds->min);
                text_.sample(with(job.labels, "stat", "p50"), job.stats->step_seconds->p50);
                text_.sample(with(job.labels, "stat", "p99"), job.stats->step_seconds->p99);
                text_.sample(with(job.labels, "stat", "max"), job.stats->step_seconds->max);
            }
        }
        optional("lockstep_job_grad_norm", MetricType::gauge,
                 "Gradient norm of the lowest rank that reports it.", &JobStats::grad_norm);
        optional("lockstep_job_learning_rate", MetricType::gauge,
                 "Learning rate of the lowest rank that reports it.", &JobStats::learning_rate);
        optional("lockstep_job_data_wait_ratio", MetricType::gauge,
                 "Share of step time spent waiting for data.", &JobStats::data_wait_ratio);
        optional("lockstep_job_comm_exposed_ratio", MetricType::gauge,
                 "Share of step time spent waiting in collectives.", &JobStats::comm_exposed_ratio);
        optional("lockstep_job_mfu_ratio", MetricType::gauge,
                 "Share of the devices' peak that the model's operations use, mean over ranks.",
                 &JobStats::mfu);
    }

    void health() {
        text_.family("lockstep_job_straggler_ranks", MetricType::gauge,
                     "Ranks that have been slow for 20 steps and 30 s.");
        for (const auto& job : jobs_) {
            if (job.view->straggler_ranks) {
                text_.sample(job.labels, std::uint64_t{*job.view->straggler_ranks});
            }
        }
        text_.family("lockstep_job_anomalies", MetricType::counter,
                     "Episodes of what is wrong with a run that goes on.");
        for (const auto& job : jobs_) {
            for (std::size_t i = 0; i < kAnomalyKinds; ++i) {
                text_.sample(with(job.labels, "kind", kAnomalyNames[i]),
                             static_cast<std::uint64_t>(job.view->anomalies[i]));
            }
        }
        text_.family("lockstep_job_hang", MetricType::gauge,
                     "Whether its ranks hang: none of them makes a step any more.");
        for (const auto& job : jobs_) {
            if (job.view->hang) {
                text_.sample(job.labels, std::uint64_t{*job.view->hang ? 1U : 0U});
            }
        }
        text_.family("lockstep_job_loss_zscore", MetricType::gauge,
                     "How many standard deviations the loss is above its recent mean.");
        for (const auto& job : jobs_) {
            if (job.view->loss_zscore) {
                text_.sample(job.labels, *job.view->loss_zscore);
            }
        }
        text_.family("lockstep_job_grad_norm_zscore", MetricType::gauge,
                     "The same of the gradient norm.");
        for (const auto& job : jobs_) {
            if (job.view->grad_norm_zscore) {
                text_.sample(job.labels, *job.view->grad_norm_zscore);
            }
        }
        text_.family("lockstep_job_slowest_rank", MetricType::gauge,
                     "Rank with the lowest straggler score.");
        for (const auto& job : jobs_) {
            if (job.stats->slowest_rank) {
                text_.sample(job.labels, std::uint64_t{*job.stats->slowest_rank});
            }
        }
        text_.family("lockstep_job_nonfinite", MetricType::counter,
                     "Reported values that were NaN or infinite.");
        for (const auto& job : jobs_) {
            text_.sample(with(job.labels, "what", "loss"), job.stats->nonfinite_loss);
            text_.sample(with(job.labels, "what", "grad_norm"), job.stats->nonfinite_grad_norm);
            text_.sample(with(job.labels, "what", "other"), job.stats->nonfinite_other);
        }
        text_.family("lockstep_job_last_checkpoint_timestamp_seconds", MetricType::gauge,
                     "Newest durable checkpoint, seconds since the Unix epoch.");
        for (const auto& job : jobs_) {
            if (job.view->last_checkpoint_time) {
                text_.sample(job.labels, *job.view->last_checkpoint_time);
            }
        }
        optional("lockstep_job_checkpoint_seconds", MetricType::counter,
                 "Time in checkpoints of the rank that spent most on them.",
                 &JobStats::checkpoint_seconds);
    }

    MetricText& text_;
    const MetricsView& view_;
    std::vector<ShownJob> jobs_;
    std::size_t suppressed_ = 0;  // series that are left out
    RankExposition ranks_;
    ShownGpus gpus_;
};

}  // namespace

FinishResult finish_result(JobState state, CauseClass cause) {
    LOCKSTEP_CHECK(is_final(state));
    if (state == JobState::succeeded) {
        return FinishResult::completed;
    }
    if (state == JobState::cancelled) {
        return FinishResult::cancelled;
    }
    switch (cause) {
        case CauseClass::time_limit:
            return FinishResult::timeout;
        case CauseClass::node_lost:
            return FinishResult::node_fail;
        case CauseClass::preempted:
            return FinishResult::preempted;
        case CauseClass::oom:
            return FinishResult::oom;
        default:
            return FinishResult::failed;
    }
}

void write_jobs(MetricText& text, const MetricsView& view) {
    JobsWriter{text, view}.write();
}

void write_job(MetricText& text, const MetricsView& view, Shard shard) {
    JobsWriter{text, view, shard}.write_part(shard);
}

std::string render_job(TextFormat format, DaemonMetrics& daemon, const MetricsView& view,
                       Shard shard) {
    const auto began = std::chrono::steady_clock::now();
    std::string body;
    MetricText text{format, body};
    if (!view.active.empty()) {
        JobsWriter writer{text, view, shard};
        body.reserve(writer.expected_size());
        writer.write_part(shard);
    }
    text.end();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    daemon.exposition_duration.Observe(took.count());
    return body;
}

void render_metrics(TextFormat format, DaemonMetrics& daemon, const MetricsView& view,
                    const PieceSink& sink) {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    Clock::duration sending{};
    const PieceSink timed = [&](std::string piece) {
        const auto from = Clock::now();
        std::string next = sink(std::move(piece));
        sending += Clock::now() - from;
        return next;
    };
    std::string piece;
    MetricText text{format, piece, timed};
    daemon.write(text);
    write_process_metrics(text, read_process_use());
    write_jobs(text, view);
    text.end();
    const std::chrono::duration<double> took = Clock::now() - began - sending;
    daemon.exposition_duration.Observe(took.count());
    daemon.exposition_bytes.Set(static_cast<double>(text.handed_out()));
}

std::string render_metrics(TextFormat format, DaemonMetrics& daemon, const MetricsView& view) {
    std::string body;
    render_metrics(format, daemon, view, [&body](std::string piece) {
        body += piece;
        return piece;
    });
    return body;
}

}  // namespace lockstep::telemetry
