// GPUs beside ranks in one history: what is kept of a look, whose it is, and how much at most.
#include "daemon/telemetry/series/gpu_history.hpp"

#include "daemon/telemetry/series/history_scan.hpp"
#include "daemon/telemetry/series/series.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace lockstep::telemetry {
namespace {

// A look at the GPUs of a node, each at `use`, with `watts` where it is known.
GpuBatch gpu_look(double time, std::size_t gpus, double use, std::vector<GpuUse> uses = {}) {
    GpuBatch out;
    out.time = time;
    out.uses = std::move(uses);
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
        GpuSample one;
        one.gpu = gpu;
        one[GpuMetric::utilization] = use;
        one[GpuMetric::recovery_action] = 0;  // not kept
        out.gpus.push_back(one);
    }
    return out;
}

GpuRows gpu_rows_of(const std::string& node, const GpuBatch& seen, std::uint32_t generation,
                    std::int64_t step) {
    auto rows = make_gpu_rows(node, seen, generation, [step](const auto&) { return step; });
    return rows.value_or(GpuRows{});
}

class NoGpuChunks final : public HistorySource {
  public:
    Result<std::vector<ChunkMeta>> chunks(std::uint32_t, std::uint32_t) override {
        return std::vector<ChunkMeta>{};
    }
    Result<std::optional<std::string>> section(std::int64_t, std::string_view,
                                               std::uint8_t) override {
        return std::optional<std::string>{};
    }
};

// Last values by x.
std::map<double, double> gpu_points(const JobSeries& series, std::uint32_t id, Axis x) {
    NoGpuChunks none;
    HistoryAsk ask;
    ask.metric = "gpu_utilization_ratio";
    ask.entities = {id};
    ask.x = x;
    ask.every_generation = x == Axis::time;
    const auto found =
        fold_series(none, ask, series.history()->tail(0, {id}, EntityKind::gpu).rows());
    EXPECT_TRUE(found.has_value());
    std::map<double, double> out;
    for (const RankHistory& one : *found) {
        for (const SeriesBucket& bucket : one.buckets) {
            out[bucket.x] = bucket.last.value_or(NAN);
        }
    }
    return out;
}

TEST(GpuHistory, ALookIsTheSameAfterTheLog) {
    const GpuRows rows =
        gpu_rows_of("n7", gpu_look(100.5, 3, 0.25, {{9, 2, 1}, {4, 0, 1}, {3, 2, 1}}), 2, 17);
    const std::string bytes = encode_gpu_rows(rows);
    ASSERT_TRUE(is_gpu_rows(bytes));
    const auto back = decode_gpu_rows(bytes);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->node, "n7");
    EXPECT_EQ(back->batch.ranks, (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_EQ(back->batch.steps, (std::vector<std::int64_t>{17, 17, 17}));
    EXPECT_EQ(back->batch.generation, 2U);
    ASSERT_EQ(back->batch.columns.size(), 1U) << "only what a chart is made of, and only if known";
    EXPECT_EQ(back->batch.columns[0].name, "gpu_utilization_ratio");
    ASSERT_EQ(back->uses.size(), 3U);
    EXPECT_EQ(back->uses[1].rank, 3U) << "by GPU, then rank";
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(decode_gpu_rows(std::string_view{bytes}.substr(0, size)).has_value()) << size;
    }
    EXPECT_FALSE(is_gpu_rows(encode_batch(rows.batch)));
}

TEST(GpuHistory, WhatCannotBeKeptIsNot) {
    const StepOf none = [](const auto&) { return -1; };
    EXPECT_FALSE(make_gpu_rows("n0", gpu_look(1, 0, 0.5), 1, none)) << "no GPUs";
    EXPECT_FALSE(make_gpu_rows("n0", gpu_look(NAN, 1, 0.5), 1, none)) << "no time";
    EXPECT_FALSE(make_gpu_rows("a\nb", gpu_look(1, 1, 0.5), 1, none)) << "no host's name";
    EXPECT_FALSE(make_gpu_rows("a,b", gpu_look(1, 1, 0.5), 1, none));
    EXPECT_TRUE(make_gpu_rows("n0", gpu_look(1, 1, 0.5), 1, none));
}

TEST(GpuHistory, NumbersAreGivenOnceAndComeBackFromText) {
    JobSeries series{8};
    series.ingest(gpu_rows_of("n0", gpu_look(1, 2, 0.5, {{0, 0, 1}}), 1, -1), 1, 1);
    series.ingest(gpu_rows_of("n1", gpu_look(1, 1, 0.5, {{1, 0, 1}, {2, 0, 1}}), 1, -1), 1, 1);
    series.ingest(gpu_rows_of("n0", gpu_look(2, 3, 0.5), 1, -1), 1,
                  2);  // one more is seen; nobody is on it
    const auto before = series.gpus().snapshot();
    ASSERT_EQ(before->size(), 4U);
    EXPECT_EQ(before->node_of(3), "n0");
    EXPECT_EQ(before->at(3).gpu, 2U);
    EXPECT_EQ(before->at(0).ranks, (std::vector<std::uint32_t>{0})) << "who used it last";
    EXPECT_EQ(before->used_by({2, 5}), (std::vector<std::uint32_t>{2}));

    JobSeries again{8};
    std::string text = before->text();
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
        EXPECT_TRUE(again.gpus().restore_line(text.substr(0, end)));
        text.erase(0, end + 1);
    }
    EXPECT_EQ(again.gpus().directory().text(), before->text());
    series.ingest(gpu_rows_of("n2", gpu_look(3, 1, 0.5), 2, -1), 2, 3);
    again.ingest(gpu_rows_of("n2", gpu_look(3, 1, 0.5), 2, -1), 2, 3);
    EXPECT_EQ(again.gpus().directory().text(), series.gpus().directory().text());
    EXPECT_EQ(before->size(), 4U) << "what was handed out does not change";
    for (const char* bad : {"gpus ", "gpus  n0", "gpus 0:0 n0", "gpus 0:0:x n0", "gpus 0:0: ",
                            "gpus 999999999:0: n0", "seen 1 2 3", "gpus 0:0:1,,1:1: n0"}) {
        EXPECT_FALSE(GpuDirectory{}.take_line(bad)) << bad;
    }
}

TEST(GpuHistory, RanksAndGpusOfTheSameNumberAreApart) {
    JobSeries series{2};
    series.keep_history();
    Batch reports;
    reports.seq = 1;
    reports.generation = 1;
    reports.add_row(0, 5, 50);
    reports.set("loss", 2.5);
    series.ingest(reports, 1, 50);
    series.ingest(gpu_rows_of("n0", gpu_look(51, 1, 0.75), 1, 5), 1, 51);
    EXPECT_EQ(gpu_points(series, 0, Axis::step), (std::map<double, double>{{5, 0.75}}));
    const auto sealed = series.history()->seal();
    ASSERT_EQ(sealed.size(), 2U);
    EXPECT_NE(sealed[0]->kind, sealed[1]->kind);
    ColumnCodec codec;
    for (const auto& rows : sealed) {
        const bool gpu = rows->kind == EntityKind::gpu;
        const auto chunk =
            encode_chunk(*rows, gpu ? gpu_history_metrics() : series.metrics(), codec);
        ASSERT_TRUE(chunk.has_value());
        EXPECT_EQ(chunk->kind, rows->kind);
        EXPECT_EQ(std::count_if(chunk->sections.begin(), chunk->sections.end(),
                                [&](const Section& one) {
                                    return one.name == (gpu ? "gpu_utilization_ratio" : "loss") &&
                                           one.level == 0;
                                }),
                  1);
    }
}

// A restart takes the steps from 10 to 5 back: by step the second try counts, by time both
// happened.
TEST(GpuHistory, StepsThatARestartDidAgainAreBothThereByTime) {
    JobSeries series{1};
    const auto step = [&](std::uint32_t generation, std::int64_t at, std::uint64_t seq) {
        Batch reports;
        reports.seq = seq;
        reports.generation = generation;
        reports.add_row(0, at, 100 + static_cast<double>(seq));
        reports.set("loss", 1);
        series.ingest(reports, 1, 100 + static_cast<double>(seq));
    };
    const auto seen = [&](std::uint32_t generation, double time, double use) {
        const auto rows = make_gpu_rows(
            "n0", gpu_look(time, 1, use, {{0, 0, 1}}), generation,
            [&](const auto& ranks) { return series.step_in({1, generation}, ranks); });
        series.ingest(rows.value_or(GpuRows{}), 1, time);
    };
    seen(0, 99, 0.0);  // nothing has begun
    step(1, 5, 1);
    seen(1, 101, 0.1);
    step(1, 10, 2);
    seen(1, 102, 0.2);
    seen(2, 103, 0.3);  // started anew, and has reported nothing: not step 10 of the one before
    step(2, 5, 3);
    seen(2, 104, 0.4);
    EXPECT_EQ(gpu_points(series, 0, Axis::step), (std::map<double, double>{{5, 0.4}}));
    EXPECT_EQ(
        gpu_points(series, 0, Axis::time),
        (std::map<double, double>{{99, 0.0}, {101, 0.1}, {102, 0.2}, {103, 0.3}, {104, 0.4}}));
}

// 98,304 GPUs are looked at once a second: what is kept of it is bounded, of every node, evenly.
TEST(GpuHistory, OfALargeJobEveryNodeHasItsTurn) {
    JobSeries series{8};
    constexpr std::size_t kNodes = 12'288;
    constexpr std::size_t kPerNode = 8;
    const auto name = [](std::size_t node) { return "n" + std::to_string(node); };
    for (std::size_t node = 0; node < kNodes; ++node) {
        series.ingest(gpu_rows_of(name(node), gpu_look(1, kPerNode, 0.5), 1, -1), 1, 1);
    }
    const double interval = static_cast<double>(kNodes * kPerNode * gpu_history_metrics().size()) /
                            limits::kGpuSamplesPerSecond;
    std::vector<int> taken(kNodes);
    std::size_t most = 0;
    constexpr int kSeconds = 200;
    for (int second = 0; second < kSeconds; ++second) {
        std::size_t now = 0;
        for (std::size_t node = 0; node < kNodes; ++node) {
            if (series.gpus().take_turn(name(node), 1000.0 + second)) {
                ++taken[node];
                ++now;
            }
        }
        most = second == 0 ? 0 : std::max(most, now);  // the first look of each is one to keep
    }
    EXPECT_LE(static_cast<double>(most * kPerNode * gpu_history_metrics().size()),
              1.1 * limits::kGpuSamplesPerSecond);
    const auto [few, many] = std::minmax_element(taken.begin(), taken.end());
    EXPECT_GE(*few, static_cast<int>(kSeconds / interval) - 1);
    EXPECT_LE(*many, static_cast<int>(kSeconds / interval) + 2);
    EXPECT_LT(series.gpus().bytes(), 16U << 20U);

    JobSeries small{8};
    small.ingest(gpu_rows_of("n0", gpu_look(1, kPerNode, 0.5), 1, -1), 1, 1);
    for (int second = 0; second < 10; ++second) {
        EXPECT_TRUE(small.gpus().take_turn("n0", 1000.3 + second)) << "every look of a small job";
    }
    EXPECT_FALSE(small.gpus().take_turn("n0", 1009.31)) << "an agent that looks all the time";
}

}  // namespace
}  // namespace lockstep::telemetry
