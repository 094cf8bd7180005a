#include "daemon/telemetry/series/series.hpp"

#include "job/base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace lockstep::telemetry {
namespace {

Batch batch(std::uint64_t seq, std::uint32_t node, std::uint32_t rank, std::int64_t first,
            std::int64_t last, std::uint32_t generation = 1) {
    Batch result;
    result.seq = seq;
    result.node_rank = node;
    result.generation = generation;
    for (std::int64_t step = first; step <= last; ++step) {
        result.add_row(rank, step, 1000.0 + static_cast<double>(step));
        result.set("loss", 1.0 / static_cast<double>(step + 1));
    }
    return result;
}

// The gap counted as the time between two reports for some twenty of them: a hang after it was seen
// hours late.
TEST(JobSeries, AnIntervalInWhichTheJobStoodStillIsNone) {
    JobSeries job{1};
    auto report = [&job, seq = std::uint64_t{0}](std::int64_t step, double time) mutable {
        Batch one;
        one.seq = ++seq;
        one.generation = 1;
        one.add_row(0, step, time);
        job.ingest(one, 1, time);
    };
    report(1, 1000);
    report(2, 1010);
    EXPECT_EQ(job.rank(0).interval(), 10.0);
    job.stood_still(1015);
    report(3, 9000);
    EXPECT_EQ(job.rank(0).interval(), 10.0);
    report(4, 9010);
    EXPECT_EQ(job.rank(0).interval(), 10.0);
    report(5, 9031);
    EXPECT_GT(job.rank(0).interval(), 10.0) << "what comes after it counts";
}

// After a restart of lockstepd only the last of a job's suspensions was known, and an earlier one
// was an hour between two reports, and what a step took.
TEST(JobSeries, EverySuspensionIsKnownWhenRowsAreReadBack) {
    JobSeries job{1};
    for (const double at : {1012.0, 5012.0, 5012.0}) {
        job.stood_still(at);
    }
    const std::vector<double> values(job.metrics().size(), kAbsent);
    const std::vector<double> times{1000, 1010, 4000, 4010, 9000, 9010, 9020};
    for (std::size_t step = 0; step < times.size(); ++step) {
        job.restore({1, 1}, 0, static_cast<std::int64_t>(step), times[step], values);
    }
    EXPECT_EQ(job.rank(0).interval(), 10.0);
    EXPECT_EQ(job.step_times().steps(), 3U);
    EXPECT_LT(job.step_times().p99(), 12);
}

TEST(JobSeries, KnowsTheStepsOfEveryGeneration) {
    JobSeries job{2};
    Batch saved = batch(1, 0, 0, 1, 5);  // step s at 1000 + s
    saved.set("checkpoint_seconds", 2.0);
    saved.add_row(0, 6, 1006);
    saved.set("checkpoint_seconds", 3.0);
    job.ingest(saved, 1, 0);
    Batch other = batch(1, 1, 1, 1, 6);
    for (double& time : other.times) {
        time += 0.5;
    }
    other.set("checkpoint_seconds", 4.0);
    other.add_row(1, -1, 1900);  // no step: says nothing of one
    job.ingest(other, 1, 0);
    job.ingest(other, 1, 0);  // a replay
    ASSERT_EQ(job.generations().size(), 1U);
    const GenerationReport first = job.generations()[0];
    EXPECT_EQ(first.attempt, 1);
    EXPECT_EQ(first.generation, 1);
    EXPECT_EQ(first.first_step, 1);
    EXPECT_EQ(first.first_at, 1'001'000);
    EXPECT_EQ(first.last_step, 6);
    EXPECT_EQ(first.last_at, 1'006'000) << "of the rank that made it first";
    EXPECT_EQ(first.checkpoint_seconds, 5) << "of the rank that spent most";

    job.ingest(batch(2, 0, 0, 4, 9, 2), 1, 0);
    job.ingest(batch(1, 0, 0, 8, 8, 1), 2, 0);
    job.ingest(batch(2, 1, 1, 7, 7, 1), 1, 0);  // a late one of the first
    ASSERT_EQ(job.generations().size(), 3U);
    EXPECT_EQ(job.generations()[0].last_step, 7);
    EXPECT_EQ(job.generations()[1].generation, 2);
    EXPECT_EQ(job.generations()[1].first_step, 4);
    EXPECT_EQ(job.generations()[1].last_step, 9);
    EXPECT_EQ(job.generations()[1].checkpoint_seconds, 0) << "counted anew";
    EXPECT_EQ(job.generations()[2].attempt, 2);
    EXPECT_EQ(job.generations()[2].generation, 1);
    EXPECT_EQ(job.report_of(1, 2), &job.generations()[1]);
    EXPECT_EQ(job.report_of(2, 1), &job.generations()[2]);
    EXPECT_EQ(job.report_of(2, 2), nullptr);
    EXPECT_EQ(job.report_of(3, 1), nullptr);
}

// An infinite sum was stored as null, and the daemon ended at every start when it read that.
TEST(JobSeries, TimeInCheckpointsStaysFiniteWhateverARankSays) {
    JobSeries job{1};
    Batch huge = batch(1, 0, 0, 1, 1);
    huge.set("checkpoint_seconds", 1e308);
    huge.add_row(0, 2, 1002);
    huge.set("checkpoint_seconds", 1e308);
    huge.add_row(0, 3, 1003);
    huge.set("checkpoint_seconds", -5);
    job.ingest(huge, 1, 0);
    EXPECT_EQ(job.generations()[0].checkpoint_seconds, 1e15);
    JobSeries again{1};
    GenerationReport report = job.generations()[0];
    report.checkpoint_seconds = std::numeric_limits<double>::infinity();
    again.restore(report);
    EXPECT_EQ(again.generations()[0].checkpoint_seconds, 0) << "of an older version's state";
    std::vector<double> values(again.metrics().size(), kAbsent);
    values[index(CoreMetric::checkpoint_seconds)] = 1e308;
    again.restore({1, 1}, 0, 1, 1001, values);
    again.restore({1, 1}, 0, 2, 1002, values);
    Batch next = batch(2, 0, 0, 3, 3);
    next.set("checkpoint_seconds", 1.0);
    again.ingest(next, 1, 0);
    EXPECT_EQ(again.generations()[0].checkpoint_seconds, 1e15);
}

TEST(JobSeries, KeepsTheNewestGenerationsWhateverNumbersAgentsSay) {
    JobSeries job{1};
    for (std::uint32_t i = 1; i <= limits::kGenerationsKept + 10; ++i) {
        job.ingest(batch(i, 0, 0, 1, 1, i), 1, 0);
    }
    ASSERT_EQ(job.generations().size(), limits::kGenerationsKept);
    EXPECT_EQ(job.generations().front().generation, 11);
    EXPECT_EQ(job.generations().back().last_step, 1);
}

TEST(JobSeries, AReplayedBatchChangesNothing) {
    JobSeries job{2};
    const Batch first = batch(1, 0, 0, 0, 9);
    EXPECT_EQ(job.ingest(first, 1, 0).rows, 10U);
    EXPECT_EQ(job.ingest(batch(2, 0, 0, 10, 19), 1, 0).rows, 10U);
    for (const std::uint64_t seq : {1U, 2U}) {
        const Ingested again = job.ingest(batch(seq, 0, 0, 0, 9), 1, 0);
        EXPECT_TRUE(again.duplicate);
        EXPECT_EQ(again.rows, 0U);
    }
    EXPECT_EQ(job.rank(0).rows(), 20U);
}

TEST(JobSeries, BatchNumbersAreCountedPerNodeAndAttempt) {
    JobSeries job{2};
    EXPECT_EQ(job.ingest(batch(1, 0, 0, 0, 4), 1, 0).rows, 5U);
    EXPECT_EQ(job.ingest(batch(1, 1, 1, 0, 4), 1, 0).rows, 5U);
    EXPECT_EQ(job.ingest(batch(1, 0, 0, 3, 6), 2, 0).rows, 4U) << "a new attempt counts anew";
    EXPECT_EQ(job.rank(0).rows(), 7U);
}

TEST(JobSeries, RestoringFromTheStoredBatchesGivesTheSameSeries) {
    JobSeries live{2};
    JobSeries restored{2};
    std::vector<std::string> stored;
    const auto keep = [&](const Batch& b) {
        live.ingest(b, 1, 5000);
        stored.push_back(encode_batch(b));
    };
    keep(batch(1, 0, 0, 0, 9));
    keep(batch(1, 1, 1, 0, 9));
    keep(batch(2, 0, 0, 10, 15));
    keep(batch(3, 0, 0, 8, 12, 2));
    for (const auto& bytes : stored) {
        restored.ingest(decode_batch(bytes).value(), 1, 0);
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
        ASSERT_EQ(restored.rank(rank).rows(), live.rank(rank).rows());
        for (std::size_t row = 0; row < live.rank(rank).rows(); ++row) {
            EXPECT_EQ(restored.rank(rank).step(row), live.rank(rank).step(row));
            EXPECT_EQ(restored.rank(rank).column(0)->last_of(row),
                      live.rank(rank).column(0)->last_of(row));
        }
    }
    EXPECT_EQ(live.rank(0).last_step(), 12);
    EXPECT_EQ(live.rank(0).rows(), 13U) << "steps 8 and 9 were replaced";
}

// One row with a loss and a step time, and a second without a value.
Batch two_values(std::uint64_t seq, std::uint32_t rank, std::uint32_t generation) {
    Batch out;
    out.seq = seq;
    out.generation = generation;
    out.node_rank = 1;
    out.add_row(rank, 7, 1.0);
    out.set("loss", 0.5);
    out.set("step_seconds", 0.1);
    out.add_row(rank, 8, 2.0);
    return out;
}

TEST(JobSeries, RowsOfAnEarlierGenerationAreLate) {
    JobSeries job{1};
    job.ingest(batch(1, 0, 0, 0, 4, 2), 1, 0);
    const Ingested late = job.ingest(batch(1, 1, 0, 5, 6, 1), 1, 0);
    EXPECT_EQ(late.late_rows, 2U);
    EXPECT_EQ(late.rows, 0U);
    const Batch two = two_values(2, 0, 1);
    EXPECT_EQ(job.ingest(two, 1, 0).late_values, 2U) << "values are counted, not rows";
    EXPECT_EQ(job.rank(0).last_step(), 4);
}

TEST(JobSeries, RowsOfRanksOutsideTheJobAreCountedAndDropped) {
    JobSeries job{2};
    const Ingested result = job.ingest(batch(1, 0, 2, 0, 3), 1, 0);
    EXPECT_EQ(result.bad_rows, 4U);
    EXPECT_EQ(result.rows, 0U);
    EXPECT_EQ(job.ingest(two_values(2, 2, 0), 1, 0).bad_values, 2U) << "values, not rows";
}

TEST(JobSeries, MetricsBeyondTheLimitAreCountedAndDropped) {
    JobSeries job{1};
    Batch many;
    many.seq = 1;
    many.add_row(0, 0, 1);
    for (std::size_t i = 0; i < limits::kMetricsPerJob; ++i) {
        many.set("m" + std::to_string(i), 1);
    }
    const Ingested result = job.ingest(many, 1, 0);
    EXPECT_EQ(result.rows, 1U);
    EXPECT_EQ(result.dropped_values, kCoreMetrics);
    EXPECT_EQ(result.samples, limits::kMetricsPerJob - kCoreMetrics);
    EXPECT_EQ(job.metrics().size(), limits::kMetricsPerJob);
    Batch seen;
    seen.seq = 2;
    seen.add_row(0, -1, 2);
    seen.set("nccl_bus_bandwidth_all_reduce_one", 1e9);
    EXPECT_EQ(job.ingest(seen, 1, 2).dropped_values, 0U) << "they take no room of a script's";
}

TEST(JobSeries, AForeignNanWithThePayloadOfAbsentIsANan) {
    JobSeries job{1};
    Batch one;
    one.seq = 1;
    one.add_row(0, 0, 1);
    one.set("loss", kAbsent);
    job.ingest(one, 1, 0);
    ASSERT_TRUE(job.rank(0).latest(CoreMetric::loss).has_value());
    EXPECT_TRUE(std::isnan(*job.rank(0).latest(CoreMetric::loss)));
    EXPECT_EQ(job.rank(0).column(0)->nonfinite_total, 1U);
}

TEST(JobSeries, ARankCountsAsReportingForThreeIntervalsAndAtLeastThirtySeconds) {
    JobSeries job{3};
    EXPECT_FALSE(job.newest().reporting(0, 5000));
    EXPECT_EQ(job.report_age(0, 5000), std::nullopt);
    job.ingest(batch(1, 0, 0, 0, 9), 1, 5000);
    EXPECT_EQ(job.report_age(0, 5012.5), 12.5);
    EXPECT_TRUE(job.newest().reporting(0, 5030));
    EXPECT_FALSE(job.newest().reporting(0, 5030.5));
    // A rank with one step a minute may be silent for three.
    Batch slow;
    slow.seq = 1;
    slow.node_rank = 1;
    slow.add_row(1, 0, 1000);
    slow.add_row(1, 1, 1060);
    job.ingest(slow, 1, 5000);
    EXPECT_TRUE(job.newest().reporting(1, 5179));
    EXPECT_FALSE(job.newest().reporting(1, 5181));
}

TEST(JobSeries, RestoredReportsAreAsOldAsTheyAre) {
    JobSeries job{1};
    job.ingest(batch(1, 0, 0, 0, 9), 1, 0);
    EXPECT_EQ(job.report_age(0, 1109), 100);
}

TEST(JobSeries, OnlyReportedMetricsAreNamed) {
    JobSeries job{1};
    job.ingest(batch(1, 0, 0, 0, 1), 1, 0);
    Batch more;
    more.seq = 2;
    more.generation = 1;
    more.add_row(0, 2, 1);
    more.set("accuracy", 0.5);
    job.ingest(more, 1, 0);
    EXPECT_THAT(job.reported_metrics(), testing::ElementsAre("loss", "accuracy"));
    EXPECT_EQ(job.series(), 2U);
}

TEST(JobSeries, ARankIsInNoPhaseBecauseItsProcessBeforeWas) {
    JobSeries job{1};
    const auto report = [&](std::uint64_t seq, std::uint32_t generation, const char* metric) {
        Batch one;
        one.seq = seq;
        one.generation = generation;
        one.add_row(0, 1, static_cast<double>(seq));
        one.set(metric, 2.0);
        job.ingest(one, 1, 0);
    };
    report(1, 1, "phase_code");
    report(2, 1, "loss");
    ASSERT_EQ(job.rank(0).latest(*job.metric("phase_code")), 2.0);
    EXPECT_EQ(job.series(), 2U);
    report(3, 2, "loss");
    EXPECT_EQ(job.rank(0).latest(*job.metric("phase_code")), std::nullopt);
    report(4, 2, "phase_code");
    EXPECT_EQ(job.rank(0).latest(*job.metric("phase_code")), 2.0);
    EXPECT_EQ(job.series(), 2U);
}

TEST(JobSeries, ALargeJobKeepsCoarserRowsInsteadOfMoreMemory) {
    JobSeries job{2000};
    std::uint64_t seq = 0;
    for (std::int64_t step = 0; step < 600; ++step) {
        Batch one;
        one.seq = ++seq;
        for (std::uint32_t rank = 0; rank < 2000; ++rank) {
            one.add_row(rank, step, static_cast<double>(step));
            one.set("loss", 1);
        }
        job.ingest(one, 1, 0);
    }
    EXPECT_LT(job.bytes(), 2 * limits::kJobSeriesBytes);
    EXPECT_GE(job.rank(1999).rows(), limits::kRowsMin / 2);
    EXPECT_EQ(job.rank(1999).step(job.rank(1999).rows() - 1), 599);
}

// Both are kept up to date: /metrics asks for them at every scrape, of all ranks.
TEST(JobSeries, WhatItHoldsIsTheSumOverItsRanks) {
    JobSeries job{5};
    const std::size_t empty = job.bytes();
    for (std::uint64_t seq = 1; seq < 40; ++seq) {
        Batch one = batch(seq, 0, static_cast<std::uint32_t>(seq % 3), 0, 90,
                          static_cast<std::uint32_t>(seq / 7));
        one.set(seq % 2 == 0 ? "accuracy" : "samples", 1);
        job.ingest(one, 1, 0);
        std::size_t series = 0;
        std::size_t bytes = 0;
        for (std::size_t rank = 0; rank < job.world_size(); ++rank) {
            bytes += job.rank(rank).bytes() - sizeof(RankSeries);
            for (std::size_t metric = 0; metric < job.metrics().size(); ++metric) {
                series += job.rank(rank).column(metric) != nullptr ? 1 : 0;
            }
        }
        EXPECT_EQ(job.series(), series);
        EXPECT_EQ(job.bytes() - job.newest().bytes() - job.recent().bytes() - bytes,
                  empty - JobSeries{5}.newest().bytes() - JobSeries{5}.recent().bytes());
    }
}

TEST(SeriesStore, KeepsAJobUntilItIsErased) {
    SeriesStore store;
    EXPECT_EQ(store.find("a"), nullptr);
    JobSeries& job = store.job("a", 2);
    EXPECT_EQ(&store.job("a", 2), &job);
    EXPECT_EQ(store.find("a"), &job);
    job.ingest(batch(1, 0, 0, 0, 9), 1, 0);
    EXPECT_EQ(store.series(), 1U);
    EXPECT_GT(store.bytes(), 10U * 24);
    store.erase("a");
    store.erase("never there");
    EXPECT_EQ(store.find("a"), nullptr);
    EXPECT_EQ(store.jobs(), 0U);
    EXPECT_EQ(store.bytes(), 0U);
}

}  // namespace
}  // namespace lockstep::telemetry
