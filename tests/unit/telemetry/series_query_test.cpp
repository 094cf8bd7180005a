#include "daemon/telemetry/series/series_query.hpp"

#include "tests/unit/telemetry/names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace lockstep::telemetry {
namespace {

JobSeries job_with(const std::vector<std::vector<double>>& losses) {
    JobSeries job{losses.size()};
    Batch batch;
    batch.seq = 1;
    for (std::size_t rank = 0; rank < losses.size(); ++rank) {
        for (std::size_t step = 0; step < losses[rank].size(); ++step) {
            batch.add_row(static_cast<std::uint32_t>(rank), static_cast<std::int64_t>(step),
                          100 + 0.5 * static_cast<double>(step));
            batch.set("loss", losses[rank][step]);
        }
    }
    job.ingest(batch, 1, 0);
    return job;
}

SeriesQuery with_points(std::size_t points) {
    SeriesQuery query;
    query.points = points;
    return query;
}

TEST(SeriesQuery, GivesEveryReportWhenThereAreFewEnough) {
    const JobSeries job = job_with({{3, 2, 1}, {6, 5, 4}});
    const auto result = query_series(job, {});
    ASSERT_EQ(result.size(), 2U);
    ASSERT_EQ(result[1].buckets.size(), 3U);
    EXPECT_EQ(result[1].rank, 1);
    EXPECT_EQ(result[1].buckets[1].x, 1);
    EXPECT_EQ(result[1].buckets[1].min, 5);
    EXPECT_EQ(result[1].buckets[1].max, 5);
    EXPECT_EQ(result[1].buckets[1].last, 5);
}

TEST(SeriesQuery, ReducesToTheBucketsAskedForAndKeepsTheirExactExtremes) {
    std::mt19937 random{7};
    std::normal_distribution<double> noise;
    std::vector<double> values(3000);
    std::generate(values.begin(), values.end(), [&] { return noise(random); });
    const JobSeries job = job_with({values});
    const auto result = query_series(job, with_points(100));
    ASSERT_EQ(result[0].buckets.size(), 100U);
    // 3,000 steps from 0 to 2,999 in 100 parts of 29.99.
    for (std::size_t part = 0; part < 100; ++part) {
        double low = kInf;
        double high = -kInf;
        double last = 0;
        for (std::size_t step = 0; step < 3000; ++step) {
            if (std::min<std::size_t>(static_cast<std::size_t>(static_cast<double>(step) / 29.99),
                                      99) == part) {
                low = std::min(low, values[step]);
                high = std::max(high, values[step]);
                last = values[step];
            }
        }
        EXPECT_EQ(result[0].buckets[part].min, low);
        EXPECT_EQ(result[0].buckets[part].max, high);
        EXPECT_EQ(result[0].buckets[part].last, last);
    }
}

TEST(SeriesQuery, EveryOneSampleSpikeSurvivesHoweverLongTheRun) {
    JobSeries job{1};
    Batch batch;
    for (std::int64_t step = 0; step < 50'000; ++step) {
        batch.add_row(0, step, static_cast<double>(step));
        batch.set("loss", step % 1000 == 500 ? 100.0 + static_cast<double>(step) : 1.0);
        if (batch.rows() == limits::kBatchRows || step + 1 == 50'000) {
            ++batch.seq;
            job.ingest(batch, 1, 0);
            const auto seq = batch.seq;
            batch = {};
            batch.seq = seq;
        }
    }
    const auto result = query_series(job, with_points(200));
    ASSERT_LE(result[0].buckets.size(), 200U);
    std::size_t spikes = 0;
    for (const auto& bucket : result[0].buckets) {
        spikes += bucket.max.value() > 100 ? 1 : 0;
    }
    EXPECT_EQ(spikes, 50U);
    EXPECT_EQ(result[0].buckets.back().x, 49'999);
}

TEST(SeriesQuery, TheSameQuestionHasTheSameAnswer) {
    std::vector<double> values;
    for (int i = 0; i < 2500; ++i) {
        values.push_back(std::sin(i));
    }
    const JobSeries job = job_with({values});
    const SeriesQuery query = with_points(37);
    EXPECT_EQ(to_json(query, query_series(job, query)), to_json(query, query_series(job, query)));
}

TEST(SeriesQuery, FromAndToAreIncluded) {
    const JobSeries job = job_with({{0, 1, 2, 3, 4, 5}});
    SeriesQuery query;
    query.from = 2;
    query.to = 4;
    const auto result = query_series(job, query);
    ASSERT_EQ(result[0].buckets.size(), 3U);
    EXPECT_EQ(result[0].buckets.front().x, 2);
    EXPECT_EQ(result[0].buckets.back().x, 4);
}

TEST(SeriesQuery, TheTimeAxisIsTheRanksClock) {
    const JobSeries job = job_with({{7, 8, 9}});
    SeriesQuery query;
    query.x = Axis::time;
    query.from = 100.5;
    const auto result = query_series(job, query);
    ASSERT_EQ(result[0].buckets.size(), 2U);
    EXPECT_EQ(result[0].buckets[0].x, 100.5);
    EXPECT_EQ(to_json(query, result)["x"], "time");
}

TEST(SeriesQuery, OnlyTheRanksAskedForAndKnown) {
    const JobSeries job = job_with({{1}, {2}, {3}});
    SeriesQuery query;
    query.ranks = {2, 0, 99, -1};
    const auto result = query_series(job, query);
    ASSERT_EQ(result.size(), 2U);
    EXPECT_EQ(result[0].rank, 2);
    EXPECT_EQ(result[1].rank, 0);
}

TEST(SeriesQuery, AMetricNobodyReportedIsEmpty) {
    const JobSeries job = job_with({{1}});
    SeriesQuery query;
    query.metric = "no_such_metric";
    EXPECT_TRUE(query_series(job, query).empty());
    query.metric = "grad_norm";
    EXPECT_TRUE(query_series(job, query).empty());
}

TEST(SeriesQuery, NonfiniteValuesAreNullInPointsAndListedByName) {
    const JobSeries job = job_with({{1, kNan, 3, kInf, -kInf}});
    const SeriesQuery query;
    const Json json = to_json(query, query_series(job, query));
    EXPECT_EQ(dump_json(json),
              R"({"metric":"loss","x":"step","series":[{"rank":0,"points":[[0,1.0,1.0,1.0],)"
              R"([1,null,null,null],[2,3.0,3.0,3.0],[3,null,null,null],[4,null,null,null]],)"
              R"("nonfinite":[[1,"nan"],[3,"inf"],[4,"-inf"]],"nonfinite_total":3}]})");
}

TEST(SeriesQuery, ABucketKeepsFiniteExtremesWhenItsLastValueIsNot) {
    const JobSeries job = job_with({{4, 2, kNan, 1, kNan, kNan}});
    const auto result = query_series(job, with_points(2));
    ASSERT_EQ(result[0].buckets.size(), 2U);
    EXPECT_EQ(result[0].buckets[0].min, 2);
    EXPECT_EQ(result[0].buckets[0].max, 4);
    EXPECT_EQ(result[0].buckets[0].last, std::nullopt);
    EXPECT_EQ(result[0].buckets[1].min, 1);
    EXPECT_EQ(result[0].buckets[1].last, std::nullopt);
    EXPECT_EQ(result[0].nonfinite.size(), 3U);
}

TEST(SeriesQuery, StepsThatStartAnewEachEpochAreOrderedOnTheAxis) {
    JobSeries job{1};
    Batch batch;
    batch.seq = 1;
    for (int epoch = 0; epoch < 3; ++epoch) {
        for (std::int64_t step = 0; step < 100; ++step) {
            batch.add_row(0, step, 0);
            batch.set("loss", epoch);
        }
    }
    job.ingest(batch, 1, 0);
    const auto result = query_series(job, with_points(10));
    ASSERT_EQ(result[0].buckets.size(), 10U);
    EXPECT_TRUE(std::is_sorted(result[0].buckets.begin(), result[0].buckets.end(),
                               [](const auto& a, const auto& b) { return a.x < b.x; }));
    EXPECT_EQ(result[0].buckets[3].min, 0);
    EXPECT_EQ(result[0].buckets[3].last, 2);
}

TEST(SeriesQuery, FewReportsThatRunBackwardsAreOrderedToo) {
    JobSeries job{1};
    Batch batch;
    batch.seq = 1;
    for (const std::int64_t step : {3, 1, 3, 2}) {
        batch.add_row(0, step, 0);
        batch.set("loss", static_cast<double>(batch.rows()));
    }
    job.ingest(batch, 1, 0);
    std::vector<std::pair<double, double>> points;
    const auto result = query_series(job, {});
    for (const auto& bucket : result.front().buckets) {
        points.emplace_back(bucket.x, bucket.last.value());
    }
    EXPECT_THAT(points, testing::ElementsAre(std::pair{1.0, 2.0}, std::pair{2.0, 4.0},
                                             std::pair{3.0, 1.0}, std::pair{3.0, 3.0}));
}

TEST(SeriesQuery, ManyReportsAtOnePlaceAreOneBucket) {
    JobSeries job{1};
    Batch batch;
    batch.seq = 1;
    for (int i = 0; i < 100; ++i) {
        batch.add_row(0, 5, 0);
        batch.set("loss", i);
    }
    job.ingest(batch, 1, 0);
    const auto result = query_series(job, with_points(10));
    ASSERT_EQ(result[0].buckets.size(), 1U);
    EXPECT_EQ(result[0].buckets[0].min, 0);
    EXPECT_EQ(result[0].buckets[0].max, 99);
}

}  // namespace
}  // namespace lockstep::telemetry
