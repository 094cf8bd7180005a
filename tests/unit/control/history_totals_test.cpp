// The counters of a job whose stored rows come back in part, or not at all.
#include "daemon/control/history/history_totals.hpp"

#include "daemon/telemetry/series/job_stats.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/control/stored_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

using telemetry::CoreMetric;
using telemetry::JobSeries;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kSteps = 100;  // of a batch; more than are left of a chunk that is cut

// Rank 0: 10 tokens a step, a quarter of a second for a checkpoint, no loss at every tenth.
Batch counting(std::uint64_t seq) {
    Batch out;
    out.seq = seq;
    out.generation = 1;
    for (std::int64_t i = 0; i < kSteps; ++i) {
        const std::int64_t step = static_cast<std::int64_t>(seq) * kSteps + i;
        out.add_row(0, step, 1'700'000'000.0 + static_cast<double>(step));
        out.set("tokens", 10);
        out.set("checkpoint_seconds", 0.25);
        out.set("loss", i % 10 == 0 ? std::nan("") : 1.0);
    }
    return out;
}

void expect_totals(const JobSeries& series, double batches, const char* when) {
    const telemetry::JobTotals all = job_totals(series);
    EXPECT_EQ(all.tokens, 1000 * batches) << when;
    EXPECT_EQ(all.checkpoint_seconds, 25 * batches) << when;
    EXPECT_EQ(all.nonfinite_loss, 10 * batches) << when;
    EXPECT_EQ(all.nonfinite_other, 0U) << when;
    EXPECT_EQ(compute_job_stats(series, 0).tokens_total, all.tokens) << when;
}

// They came back smaller: Prometheus took it for new counters and added all of them once more, a
// burst of tokens and a page for a NaN of last week.
TEST(HistoryTotals, ArePastARestartWhatTheyWereThoughAPartOfTheRowsComesBack) {
    JobSeries live{2};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    live.ingest(counting(2), 1, 0);
    const StoredHistory stored = flushed(live, false);
    live.ingest(counting(3), 1, 0);
    expect_totals(live, 3, "before");

    JobSeries back{2};
    restore_history(JobId{"j"}, stored, back);
    ASSERT_LT(back.rank(0).reports(), 2U * kSteps) << "a part of the rows";
    expect_totals(back, 2, "what chunks are about");
    restore_log(JobId{"j"}, logged(counting(3)), back);
    expect_totals(back, 3, "and the log, which is after it");
    EXPECT_TRUE(back.ingest(counting(2), 1, 0).duplicate);
    EXPECT_TRUE(back.ingest(counting(3), 1, 0).duplicate);
    expect_totals(back, 3, "a batch that comes again");
    back.ingest(counting(4), 1, 0);
    expect_totals(back, 4, "a new one");
    EXPECT_EQ(back.newest().total(CoreMetric::tokens)[0], 4000) << "as /metrics reads it of a rank";
    EXPECT_EQ(back.newest().nonfinite()[0], 40U);
    EXPECT_FALSE(back.rank(1).total(CoreMetric::tokens)) << "never reported";
}

TEST(HistoryTotals, AreNotCountedTwiceWhenAllRowsComeBack) {
    JobSeries live{2};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    JobSeries back{2};
    restore_history(JobId{"j"}, flushed(live, true), back);
    ASSERT_EQ(back.rank(0).reports(), static_cast<std::uint64_t>(kSteps));
    expect_totals(back, 1, "every row is here");
}

TEST(HistoryTotals, OutliveTheChunksThatTheyWereStoredWith) {
    JobSeries live{2};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    StoredHistory stored = flushed(live, true);
    stored.chunks.clear();
    stored.newest_chunk = 0;
    JobSeries back{2};
    restore_history(JobId{"j"}, stored, back);
    EXPECT_TRUE(back.rank(0).empty());
    expect_totals(back, 1, "no row is left");
    back.ingest(counting(2), 1, 0);
    expect_totals(back, 2, "they go on");
    EXPECT_EQ(encode_totals(back), "counted rank 0 20 20 0 nan 2000 50 nan\n");
}

// Of a rank beyond those that /metrics ever shows, and of one that it does: an elastic job that
// runs on few of its nodes.
TEST(HistoryTotals, OfALargeJobAreThoseOfItsFirstRanksAndOneOfAllOthers) {
    constexpr std::size_t kRanks = limits::kFullTierRanks + 1;
    const auto beyond = [](std::uint64_t seq) {
        Batch out = counting(seq);
        std::fill(out.ranks.begin(), out.ranks.end(), static_cast<std::uint32_t>(kRanks - 1));
        out.node_rank = 1;
        return out;
    };
    JobSeries live{kRanks};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    live.ingest(beyond(1), 1, 0);
    live.ingest(beyond(2), 1, 0);
    EXPECT_EQ(encode_totals(live),
              "counted rank 0 10 10 0 nan 1000 25 nan\n"
              "counted job 20 0 0 nan 2000 25\n");
    for (std::uint64_t restarts = 1; restarts < 4; ++restarts) {
        const StoredHistory stored = flushed(live, false);
        const telemetry::JobTotals before = job_totals(live);
        JobSeries back{kRanks};
        restore_history(JobId{"j"}, stored, back);
        EXPECT_EQ(job_totals(back).tokens, before.tokens);
        EXPECT_EQ(job_totals(back).checkpoint_seconds, before.checkpoint_seconds);
        EXPECT_EQ(job_totals(back).nonfinite_loss, before.nonfinite_loss);
        const double mine = 1000.0 * static_cast<double>(restarts);
        EXPECT_EQ(back.rank(0).total(CoreMetric::tokens), mine) << "as /metrics may show it";
        EXPECT_EQ(back.newest().nonfinite()[0], 10 * restarts);
        EXPECT_FALSE(back.rank(kRanks - 1).total(CoreMetric::tokens)) << "from nothing on";
        back.ingest(counting(restarts + 1), 1, 0);
        back.ingest(beyond(restarts + 2), 1, 0);
        EXPECT_EQ(job_totals(back).tokens, *before.tokens + 2000);
        EXPECT_EQ(back.rank(kRanks - 1).total(CoreMetric::tokens), 1000.0);
        live = std::move(back);
    }
}

// The most that a rank has spent is no sum: the ranks beyond begin anew, and what they added was
// not seen until they had as much as the first.
TEST(HistoryTotals, OfCheckpointsInALargeJobGrowWithTheSlowestRankWhicheverItIs) {
    constexpr std::size_t kRanks = limits::kFullTierRanks + 1;
    const auto saved = [](std::uint64_t seq, double first, double last) {
        Batch out;
        out.generation = 1;
        out.seq = seq;
        for (const std::size_t rank : {std::size_t{0}, kRanks - 1}) {
            out.add_row(static_cast<std::uint32_t>(rank), static_cast<std::int64_t>(seq),
                        1'700'000'000.0 + static_cast<double>(seq));
            out.set("checkpoint_seconds", rank == 0 ? first : last);
        }
        return out;
    };
    JobSeries live{kRanks};
    live.keep_history();
    live.ingest(saved(1, 1000, 1200), 1, 0);
    EXPECT_EQ(job_totals(live).checkpoint_seconds, 1200);
    for (int restart = 1; restart < 4; ++restart) {
        JobSeries back{kRanks};
        ASSERT_TRUE(restore_totals(encode_totals(live), true, back).has_value());
        const double before = *job_totals(live).checkpoint_seconds;
        EXPECT_EQ(job_totals(back).checkpoint_seconds, before);
        back.ingest(saved(1, 1, 50), 1, 0);
        EXPECT_EQ(job_totals(back).checkpoint_seconds, before + 50) << "of the last rank";
        live = std::move(back);
    }
}

// A counter that comes back smaller by the last digit is a new one, too.
TEST(HistoryTotals, OfALargeJobNeverFallByARounding) {
    constexpr std::size_t kRanks = limits::kFullTierRanks + 1;
    for (int i = 1; i < 60; ++i) {
        JobSeries live{kRanks};
        Batch batch;
        batch.generation = 1;
        batch.seq = 1;
        for (const std::size_t rank : {std::size_t{0}, kRanks - 1}) {
            batch.add_row(static_cast<std::uint32_t>(rank), 1, 1'700'000'000.0);
            batch.set("checkpoint_seconds", (rank == 0 ? 0.1 : 0.7) * i);
            batch.set("samples", (rank == 0 ? 0.3 : 1e9 / 7) * i);
        }
        live.ingest(batch, 1, 0);
        JobSeries back{kRanks};
        ASSERT_TRUE(restore_totals(encode_totals(live), true, back).has_value());
        EXPECT_GE(*job_totals(back).checkpoint_seconds, *job_totals(live).checkpoint_seconds) << i;
        EXPECT_DOUBLE_EQ(*job_totals(back).checkpoint_seconds,
                         *job_totals(live).checkpoint_seconds);
        EXPECT_GE(*job_totals(back).samples, *job_totals(live).samples) << i;
        EXPECT_DOUBLE_EQ(*job_totals(back).samples, *job_totals(live).samples);
    }
}

// States of before 0.2.0 have no counters.
TEST(HistoryTotals, OfAStateWithoutThemAreThoseOfAllRowsOrBeginAnew) {
    JobSeries live{2};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    StoredHistory stored = flushed(live, true);
    stored.state.resize(stored.state.find("counted"));
    ASSERT_THAT(stored.state, HasSubstr("seen 1 0 1\n"));
    JobSeries all{2};
    restore_history(JobId{"j"}, stored, all);
    expect_totals(all, 1, "every row is here");

    stored.complete = false;
    stored.chunks[0].whole = false;
    JobSeries part{2};
    restore_history(JobId{"j"}, stored, part);
    EXPECT_FALSE(job_totals(part).tokens);
    EXPECT_EQ(job_totals(part).nonfinite_loss, 0U) << "as a counter that begins";
    part.ingest(counting(2), 1, 0);
    expect_totals(part, 1, "only what came since");
}

TEST(HistoryTotals, ABadLineIsAnErrorAndAllBeginsAnew) {
    for (const char* bad : {"counted rank 0 0 0 0 1 1 1\n", "counted rank 2 0 0 0 1 1 1 1\n",
                            "counted rank 0 -1 0 0 1 1 1 1\n", "counted rank 0 0 0 0 1 1 1 1 1\n",
                            "counted rank 0 0 0 0 1 1 1 1", "counted job 0 0 0 1 1\n",
                            "counted job 0 0 0 1 1 1 1\n", "counted node 0 0 0 1 1 1\n"}) {
        JobSeries back{2};
        back.ingest(counting(1), 1, 0);
        const std::string state = std::string{"counted rank 1 0 0 0 5 5 5 5\n"} + bad;
        EXPECT_FALSE(restore_totals(state, true, back).has_value()) << bad;
        EXPECT_FALSE(job_totals(back).tokens) << bad;
        EXPECT_EQ(job_totals(back).nonfinite_loss, 0U) << bad;
    }
}

// The version before stops at a line that it does not know.
TEST(HistoryTotals, ComeAfterAllThatOlderVersionsRead) {
    JobSeries live{2};
    live.keep_history();
    live.ingest(counting(1), 1, 0);
    const std::string state = encode_state(live);
    EXPECT_THAT(state.substr(0, state.find("counted")), HasSubstr("generation 1 1 "));
    EXPECT_THAT(state.substr(state.find("counted")), Not(HasSubstr("generation")));
    JobSeries back{2};
    EXPECT_TRUE(restore_state(state, back).has_value()) << "they are no bad lines";
    EXPECT_EQ(back.last_batch(1, 0), 1U);
}

}  // namespace
}  // namespace lockstep
