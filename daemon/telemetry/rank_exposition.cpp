#include "daemon/telemetry/rank_exposition.hpp"

#include "daemon/telemetry/gpu_exposition.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::telemetry {

void RankExposition::add(const JobMetricsView& job, const std::string& labels,
                         const JobStats& stats) {
    place(job, labels);
    if (job.series == nullptr) {
        return;
    }
    const JobSeries& series = *job.series;
    const std::size_t world = series.world_size();
    const bool full = world <= kFullTierRanks;
    const bool fits = world * (kRankCoreSeries + kRankFullSeries) <= view_.max_series_per_job;
    ranks_.reserve(ranks_.size() + std::min(world, most_ranks()) / shard_.count + 1);
    for (std::size_t i = 0; i < world; ++i) {
        if (!series.reporting(i, view_.now)) {
            continue;
        }
        if (i >= most_ranks()) {
            suppressed_ += kRankCoreSeries;
        } else if (shard_.has(i)) {
            add_core(series, i, labels, stats);
        }
        if (full && fits && shard_.has(i)) {
            add_full(series.rank(i));
        } else if (full && !fits) {
            suppressed_ += kRankFullSeries;
        }
    }
}

// Agents say which GPUs a rank uses, and nobody else knows.
void RankExposition::place(const JobMetricsView& job, const std::string& labels) {
    std::vector<RankGpu> gpus;
    if (view_.gpus != nullptr && !job.ranks.empty()) {
        gpus = view_.gpus->ranks(job.job_id, view_.now);
    }
    for (const auto& rank : job.ranks) {
        const std::size_t own = gpus_of(gpus, rank.rank).size();
        suppressed_ += own - std::min(own, kRankGpusShown);
    }
    placed_.push_back({&job, labels, std::move(gpus)});
}

void RankExposition::add_core(const JobSeries& all, std::size_t rank, const std::string& labels,
                              const JobStats& stats) {
    ShownRank shown;
    const RankSeries& series = all.rank(rank);
    shown.labels_begin = labels_.size();
    labels_ += labels;
    labels_ += ",rank=\"";
    labels_ += std::to_string(rank);
    labels_ += '"';
    shown.labels_end = labels_.size();
    const auto latest = [&series](CoreMetric metric) {
        return series.latest(metric).value_or(kAbsent);
    };
    if (series.last_step() >= 0) {
        shown.step = static_cast<double>(series.last_step());
    }
    shown.loss = latest(CoreMetric::loss);
    shown.step_seconds = latest(CoreMetric::step_seconds);
    shown.busy_seconds = latest(CoreMetric::busy_seconds);
    shown.comm_wait_seconds = latest(CoreMetric::comm_wait_seconds);
    shown.data_wait_seconds = latest(CoreMetric::data_wait_seconds);
    if (rank < stats.straggler_score.size()) {
        shown.straggler_score = stats.straggler_score[rank];
    }
    shown.report_age = all.report_age(rank, view_.now).value_or(kAbsent);
    ranks_.push_back(shown);
}

void RankExposition::add_full(const RankSeries& series) {
    FullRank shown;
    shown.rank = ranks_.size() - 1;
    shown.samples = series.total(CoreMetric::samples).value_or(kAbsent);
    shown.tokens = series.total(CoreMetric::tokens).value_or(kAbsent);
    shown.checkpoint = series.total(CoreMetric::checkpoint_seconds).value_or(kAbsent);
    shown.grad_norm = series.latest(CoreMetric::grad_norm).value_or(kAbsent);
    shown.learning_rate = series.latest(CoreMetric::learning_rate).value_or(kAbsent);
    shown.nonfinite = static_cast<double>(series.nonfinite());
    full_.push_back(shown);
}

void RankExposition::write(MetricText& text) const {
    write_info(text);
    write_core(text);
    write_full(text);
}

void RankExposition::write_info(MetricText& text) const {
    text.family("lockstep_rank", MetricType::info, "Always 1; the labels say where the rank is.");
    for (const auto& [job, job_labels, gpus] : placed_) {
        for (const auto& rank : job->ranks) {
            const auto number = static_cast<std::size_t>(rank.rank);
            if (number >= most_ranks() || !shard_.has(number)) {
                continue;
            }
            std::string labels = job_labels;
            add_label(labels, "rank", std::to_string(rank.rank));
            add_label(labels, "node", rank.node);
            add_label(labels, "local_rank", std::to_string(rank.local_rank));
            auto own = gpus_of(gpus, rank.rank);
            own = own.first(std::min(own.size(), kRankGpusShown));
            for (const RankGpu& one : own) {
                std::string with_gpu = labels;
                add_label(with_gpu, "gpu", std::to_string(one.gpu->gpu));
                text.sample(with_gpu, std::uint64_t{1});
            }
            if (own.empty()) {
                text.sample(labels, std::uint64_t{1});
            }
        }
    }
}

std::string_view RankExposition::labels(const ShownRank& rank) const {
    return std::string_view{labels_}.substr(rank.labels_begin, rank.labels_end - rank.labels_begin);
}

void RankExposition::gauge(MetricText& text, std::string_view name, std::string_view help,
                           double ShownRank::*field) const {
    text.family(name, MetricType::gauge, help);
    for (const auto& rank : ranks_) {
        if (!is_absent(rank.*field)) {
            text.sample(labels(rank), rank.*field);
        }
    }
}

void RankExposition::write_core(MetricText& text) const {
    gauge(text, "lockstep_rank_step", "Last step reported.", &ShownRank::step);
    gauge(text, "lockstep_rank_loss", "Last local loss.", &ShownRank::loss);
    gauge(text, "lockstep_rank_step_time_seconds", "Wall time of the last step.",
          &ShownRank::step_seconds);
    gauge(text, "lockstep_rank_busy_seconds", "Last step without waiting for data or peers.",
          &ShownRank::busy_seconds);
    gauge(text, "lockstep_rank_comm_wait_seconds", "Wait in collectives in the last step.",
          &ShownRank::comm_wait_seconds);
    gauge(text, "lockstep_rank_data_wait_seconds", "Wait for data in the last step.",
          &ShownRank::data_wait_seconds);
    gauge(text, "lockstep_rank_straggler_score",
          "Median busy time over that of the rank, 0 to 1; 1 is not slow.",
          &ShownRank::straggler_score);
    gauge(text, "lockstep_rank_report_age_seconds", "Since the last report arrived.",
          &ShownRank::report_age);
}

void RankExposition::further(MetricText& text, std::string_view name, MetricType type,
                             std::string_view help, double FullRank::*field) const {
    text.family(name, type, help);
    for (const auto& rank : full_) {
        if (!is_absent(rank.*field)) {
            text.sample(labels(ranks_[rank.rank]), rank.*field);
        }
    }
}

void RankExposition::write_full(MetricText& text) const {
    further(text, "lockstep_rank_samples", MetricType::counter,
            "Samples trained on, repeated steps included.", &FullRank::samples);
    further(text, "lockstep_rank_tokens", MetricType::counter,
            "Tokens trained on, repeated steps included.", &FullRank::tokens);
    further(text, "lockstep_rank_grad_norm", MetricType::gauge, "Last gradient norm.",
            &FullRank::grad_norm);
    further(text, "lockstep_rank_learning_rate", MetricType::gauge, "Last learning rate.",
            &FullRank::learning_rate);
    further(text, "lockstep_rank_checkpoint_seconds", MetricType::counter,
            "Time spent writing checkpoints.", &FullRank::checkpoint);
    further(text, "lockstep_rank_nonfinite", MetricType::counter,
            "Reported values that were NaN or infinite.", &FullRank::nonfinite);
}

}  // namespace lockstep::telemetry
