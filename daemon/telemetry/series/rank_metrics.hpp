// The metrics of a rank that have a meaning, one row each: their names where ranks report them, in
// /metrics and in GET /v1/jobs/{id}/ranks. Series, means, totals, the families of /metrics and
// their number, what ranks are sorted by, and OpenAPI follow from the rows. A metric of any other
// name needs no row: it has history, plots and exports.
// Values only; any thread.
#pragma once

#include "job/base/enum_table.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::telemetry {

// In the order of the rows; their ids are the same in every job.
enum class CoreMetric : std::uint8_t {
    loss,
    step_seconds,
    busy_seconds,
    comm_wait_seconds,
    data_wait_seconds,
    samples,
    tokens,
    grad_norm,
    learning_rate,
    checkpoint_seconds,
    total_steps,
    epoch,
    nccl_collectives,
    nccl_lag,
    mfu,
};
constexpr std::size_t index(CoreMetric metric) {
    return static_cast<std::size_t>(metric);
}

// Of which ranks /metrics shows it: of as many as the budget allows, or only of those of jobs that
// are small enough (exposition.hpp).
enum class Shown : std::uint8_t { nowhere, of_many, of_few };
enum class Aggregate : std::uint8_t {
    latest,  // a gauge
    total,   // a counter: the sum of all finite values ever reported, restarts included
};
// What GET …/ranks answers of it: nothing; its newest value, "nan" and "inf" being news; its newest
// value, which is 0 or more. What is answered can be sorted by.
enum class Answered : std::uint8_t { no, any, positive };

struct RankMetric {
    CoreMetric metric{};
    std::string_view name;      // under which ranks report it (job/rank); times in seconds
    std::string_view family{};  // in /metrics, without _total
    std::string_view help{};    // in /metrics
    Shown shown = Shown::nowhere;
    Aggregate aggregate = Aggregate::latest;
    bool mean = false;  // EWMA20 is kept
    // The agent sees it, the rank does not say it: that it comes shows nobody that the rank is
    // heard.
    bool seen = false;
    Answered answered = Answered::no;
    std::string_view description{};  // of the answer, with the unit
    double example = 0;              // of the answer
};

inline constexpr std::array kRankMetrics{
    RankMetric{.metric = CoreMetric::loss,  // of the step, before any all-reduce
               .name = "loss",
               .family = "lockstep_rank_loss",
               .help = "Last local loss.",
               .shown = Shown::of_many,
               .answered = Answered::any,
               .description = "Its newest loss, in the loss's own unit.",
               .example = 0.031},
    RankMetric{.metric = CoreMetric::step_seconds,
               .name = "step_seconds",
               .family = "lockstep_rank_step_time_seconds",
               .help = "Wall time of the last step.",
               .shown = Shown::of_many,
               .mean = true,
               .answered = Answered::any,
               .description = "Seconds that its newest step took.",
               .example = 0.496},
    RankMetric{.metric = CoreMetric::busy_seconds,  // step − comm_wait − data_wait
               .name = "busy_seconds",
               .family = "lockstep_rank_busy_seconds",
               .help = "Last step without waiting for data or peers.",
               .shown = Shown::of_many,
               .mean = true,
               .answered = Answered::positive,
               .description = "Seconds of its newest step without waits: "
                              "step_seconds − comm_wait_seconds − data_wait_seconds.",
               .example = 0.401},
    RankMetric{
        .metric = CoreMetric::comm_wait_seconds,  // exposed time in collectives
        .name = "comm_wait_seconds",
        .family = "lockstep_rank_comm_wait_seconds",
        .help = "Wait in collectives in the last step.",
        .shown = Shown::of_many,
        .mean = true,
        .answered = Answered::positive,
        .description = "Seconds of its newest step that it waited in collectives for other ranks.",
        .example = 0.08},
    RankMetric{.metric = CoreMetric::data_wait_seconds,
               .name = "data_wait_seconds",
               .family = "lockstep_rank_data_wait_seconds",
               .help = "Wait for data in the last step.",
               .shown = Shown::of_many,
               .mean = true,
               .answered = Answered::positive,
               .description = "Seconds of its newest step that it waited for its next batch.",
               .example = 0.015},
    RankMetric{.metric = CoreMetric::samples,  // in the step
               .name = "samples",
               .family = "lockstep_rank_samples",
               .help = "Samples trained on, repeated steps included.",
               .shown = Shown::of_few,
               .aggregate = Aggregate::total,
               .mean = true},
    RankMetric{.metric = CoreMetric::tokens,  // in the step
               .name = "tokens",
               .family = "lockstep_rank_tokens",
               .help = "Tokens trained on, repeated steps included.",
               .shown = Shown::of_few,
               .aggregate = Aggregate::total},
    RankMetric{.metric = CoreMetric::grad_norm,
               .name = "grad_norm",
               .family = "lockstep_rank_grad_norm",
               .help = "Last gradient norm.",
               .shown = Shown::of_few},
    RankMetric{.metric = CoreMetric::learning_rate,
               .name = "learning_rate",
               .family = "lockstep_rank_learning_rate",
               .help = "Last learning rate.",
               .shown = Shown::of_few},
    RankMetric{.metric = CoreMetric::checkpoint_seconds,  // spent writing one
               .name = "checkpoint_seconds",
               .family = "lockstep_rank_checkpoint_seconds",
               .help = "Time spent writing checkpoints.",
               .shown = Shown::of_few,
               .aggregate = Aggregate::total},
    // How many the run will have: the job's, shown with the job. Only the latest is kept.
    RankMetric{.metric = CoreMetric::total_steps, .name = "total_steps"},
    RankMetric{.metric = CoreMetric::epoch, .name = "epoch"},
    // Of all communicators together, as NCCL's RAS counts them (job/agent/nccl): launched since the
    // row before.
    RankMetric{.metric = CoreMetric::nccl_collectives,
               .name = "nccl_collectives",
               .family = "lockstep_rank_nccl_collectives",
               .help = "Collective operations of NCCL launched, by NCCL's RAS.",
               .shown = Shown::of_few,
               .aggregate = Aggregate::total,
               .seen = true},
    RankMetric{.metric = CoreMetric::nccl_lag,
               .name = "nccl_lag",
               .family = "lockstep_rank_nccl_lag",
               .help = "Collective operations behind the foremost rank of a communicator that "
                       "stands still.",
               .shown = Shown::of_few,
               .seen = true,
               .answered = Answered::positive,
               .description = "Collective operations of NCCL that it has not launched and the "
                              "foremost rank of a communicator has, while all of that one stand "
                              "still; the most of its communicators. 0: none.",
               .example = 1},
    // Share of the peak of the rank's own devices; the job's is their mean.
    RankMetric{.metric = CoreMetric::mfu, .name = "mfu"},
};
inline constexpr std::size_t kCoreMetrics = kRankMetrics.size();

constexpr const RankMetric& row_of(CoreMetric metric) {
    return kRankMetrics[index(metric)];
}
constexpr std::size_t count_rank_metrics(auto selected) {
    return static_cast<std::size_t>(
        std::count_if(kRankMetrics.begin(), kRankMetrics.end(), selected));
}

// Running means are kept one after the other, without places for metrics that have none.
inline constexpr std::size_t kMeanMetrics =
    count_rank_metrics([](const RankMetric& row) { return row.mean; });
// kMeanMetrics if it has none.
constexpr std::size_t mean_place(std::size_t metric) {
    constexpr auto kPlaces = [] {
        std::array<std::uint8_t, kCoreMetrics> places{};
        std::uint8_t next = 0;
        for (std::size_t i = 0; i < kCoreMetrics; ++i) {
            places[i] = kRankMetrics[i].mean ? next++ : std::uint8_t{kMeanMetrics};
        }
        return places;
    }();
    return metric < kCoreMetrics ? kPlaces[metric] : kMeanMetrics;
}

static_assert(is_count_of<CoreMetric, kCoreMetrics>());
static_assert(
    [] {
        for (std::size_t i = 0; i < kCoreMetrics; ++i) {
            const RankMetric& row = kRankMetrics[i];
            if (index(row.metric) != i || row.family.empty() != (row.shown == Shown::nowhere) ||
                row.help.empty() != row.family.empty() ||
                row.description.empty() != (row.answered == Answered::no)) {
                return false;
            }
        }
        return true;
    }(),
    "a row has the place of its enumerator, and what is shown or answered its texts");

}  // namespace lockstep::telemetry
