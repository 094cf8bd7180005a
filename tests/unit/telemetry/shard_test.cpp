// One job's exposition and its parts.
#include "daemon/telemetry/exposition/shard.hpp"

#include "daemon/telemetry/exposition/exposition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kShardNow = 5000;

// The samples of a body; a series that is there twice fails.
std::set<std::string> samples(const std::string& body) {
    std::set<std::string> out;
    std::istringstream in{body};
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("#")) {
            EXPECT_TRUE(out.insert(line).second) << line;
        }
    }
    return out;
}

std::set<std::string> with(const std::set<std::string>& all, const std::string& text) {
    std::set<std::string> out;
    std::copy_if(all.begin(), all.end(), std::inserter(out, out.end()),
                 [&](const auto& line) { return line.find(text) != std::string::npos; });
    return out;
}

// Eleven ranks on three nodes with two GPUs each; the last node is shared with a younger job.
class Shards : public testing::Test {
  protected:
    static constexpr std::uint32_t kRanks = 11;

    Shards() : series_(kRanks) {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            Batch batch;
            batch.seq = 1;
            batch.node_rank = rank;
            batch.add_row(rank, 11, 4000);
            batch.set("loss", 0.25);
            batch.set("step_seconds", 0.1);
            batch.set("busy_seconds", 0.02);
            batch.set("samples", 64);
            series_.ingest(batch, 1, kShardNow - 2);
            ranks_.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(rank % 4),
                              "n" + std::to_string(rank / 4)});
        }
        for (const auto& rank : ranks_) {
            views_.push_back({rank.rank, rank.local, rank.node});
        }
        job_.resize(1);
        job_[0].job_id = "ls-1";
        job_[0].state = JobState::running;
        job_[0].ranks_expected = kRanks;
        job_[0].series = &series_;
        job_[0].ranks = views_;
        for (std::int32_t node = 0; node < 3; ++node) {
            gpus_.take({"ls-1", node}, "n" + std::to_string(node), look({}), kShardNow - 1);
        }
        view_.now = kShardNow;
        view_.active = job_;
        view_.gpus = &gpus_;
    }
    static GpuBatch look(std::vector<GpuUse> uses) {
        GpuBatch batch;
        for (std::uint32_t i = 0; i < 2; ++i) {
            GpuSample gpu;
            gpu.gpu = i;
            gpu.uuid = "GPU-" + std::to_string(i);
            gpu.values.fill(1);
            batch.gpus.push_back(gpu);
        }
        batch.uses = std::move(uses);
        batch.xids.push_back({0, 79, 4990});
        return batch;
    }
    std::string render(Shard shard, TextFormat format = TextFormat::prometheus) {
        return render_job(format, daemon_, view_, shard);
    }
    std::set<std::string> of(std::string_view job, Shard shard = {}) {
        std::string name{job};
        job_[0].job_id = name;
        view_.active = job_;
        auto out = samples(render(shard));
        job_[0].job_id = "ls-1";
        return out;
    }

    struct Rank {
        std::int32_t rank = 0;
        std::int32_t local = 0;
        std::string node;
    };
    JobSeries series_;
    std::vector<Rank> ranks_;
    std::vector<RankMetricsView> views_;
    std::vector<JobMetricsView> job_;
    GpuTable gpus_;
    MetricsView view_;
    DaemonMetrics daemon_;
};

TEST_F(Shards, TogetherAreTheWholeAndHaveNothingInCommon) {
    const auto whole = samples(render({}));
    EXPECT_GT(with(whole, "rank=").size(), kRanks * 7);
    EXPECT_EQ(with(whole, "lockstep_gpu_info").size(), 6U);
    for (const std::size_t count : {2U, 3U, 7U, 16U, 1024U}) {
        std::set<std::string> together;
        std::size_t sum = 0;
        for (std::size_t index = 0; index < count; ++index) {
            const auto part = samples(render({index, count}));
            EXPECT_EQ(part, samples(render({index, count})));
            sum += part.size();
            together.insert(part.begin(), part.end());
        }
        EXPECT_EQ(together, whole) << count;
        EXPECT_EQ(sum, whole.size()) << count << " parts have a series in common";
    }
}

TEST_F(Shards, ShareTheRanksEvenlyAlsoWhenTheHighestAreCut) {
    view_.max_series_per_job = 6 * kRankCoreSeries;  // ranks 0 to 5
    for (std::size_t index = 0; index < 3; ++index) {
        const auto part = samples(render({index, 3}));
        EXPECT_EQ(with(part, "lockstep_rank_step{").size(), 2U);
        EXPECT_EQ(with(part, "lockstep_rank_info{").size(), 2U);
        // Said once, and of all parts.
        EXPECT_EQ(with(part, "lockstep_exposition_suppressed_series{job_id=\"ls-1\"} " +
                                 std::to_string(5 * kRankCoreSeries + kRanks * kRankFullSeries))
                      .size(),
                  index == 0 ? 1U : 0U);
    }
}

TEST_F(Shards, AreTheSameSeriesAsTheWholeBodyHas) {
    const auto all = samples(render_metrics(TextFormat::prometheus, daemon_, view_));
    for (const std::string& line : samples(render({}))) {
        if (!line.starts_with("lockstep_exposition_suppressed_series")) {
            EXPECT_TRUE(all.contains(line)) << line;
        }
    }
    const auto one = samples(render({}));
    for (const std::string& line : all) {
        const bool of_a_job = line.find("job_id=") != std::string::npos ||
                              line.find("lockstep_gpu_") != std::string::npos;
        EXPECT_EQ(one.contains(line), of_a_job) << line;
    }
}

TEST_F(Shards, AGpuOfTwoJobsIsShownWithOneOfThem) {
    const std::string shared = "lockstep_gpu_utilization_ratio{node=\"n2\",gpu=\"1\"}";
    gpus_.take({"ls-2", 0}, "n2", look({}), kShardNow);
    EXPECT_EQ(with(of("ls-1"), shared).size(), 1U);
    EXPECT_THAT(with(of("ls-2"), "lockstep_gpu_"), IsEmpty());
    // A process of the younger one is on GPU 1: it goes there, GPU 0 and its errors stay.
    gpus_.take({"ls-2", 0}, "n2", look({{0, 1, 100}}), kShardNow);
    EXPECT_THAT(with(of("ls-1"), shared), IsEmpty());
    EXPECT_EQ(with(of("ls-2"), shared).size(), 1U);
    const std::string error = "lockstep_gpu_xid_last_timestamp_seconds{node=\"n2\",gpu=\"0\"";
    EXPECT_EQ(with(of("ls-1"), error).size(), 1U);
    EXPECT_THAT(with(of("ls-2"), error), IsEmpty());
    EXPECT_EQ(with(of("ls-1"), "lockstep_gpu_info").size(), 5U);
}

TEST_F(Shards, AJobThatIsOverHasAnEmptyBody) {
    view_.active = {};
    EXPECT_EQ(render({}), "");
    EXPECT_EQ(render({}, TextFormat::openmetrics), "# EOF\n");
}

TEST_F(Shards, SpeakBothFormats) {
    const std::string open = render({1, 2}, TextFormat::openmetrics);
    EXPECT_TRUE(open.ends_with("\n# EOF\n"));
    EXPECT_THAT(open, HasSubstr("# TYPE lockstep_rank_samples counter\n"));
    EXPECT_THAT(open, HasSubstr("lockstep_rank_samples_total{job_id=\"ls-1\",rank=\"1\"} 64\n"));
    EXPECT_THAT(open, HasSubstr("# TYPE lockstep_rank info\n"));
    EXPECT_EQ(samples(render({1, 2})), samples(open));
    EXPECT_THAT(render({1, 2}), Not(HasSubstr("# EOF")));
    EXPECT_THAT(render({1, 2}), HasSubstr("# TYPE lockstep_rank_samples_total counter\n"));
}

TEST(ShardText, IsReadOrRefusedInWords) {
    const auto good = parse_shard("3/4");
    ASSERT_TRUE(good);
    EXPECT_EQ(good->index, 3U);
    EXPECT_EQ(good->count, 4U);
    EXPECT_TRUE(parse_shard("0/1024"));
    for (const char* bad : {"", "4/4", "-1/4", "1", "0/0", "0/1025", "a/4", "0/b", "1/2/3", "/",
                            "0/99999999999999999999"}) {
        EXPECT_FALSE(parse_shard(bad)) << bad;
    }
}

TEST(ShardCount, FollowsTheSizeThatWasAskedFor) {
    EXPECT_EQ(shards_of(1, 0, limits::kSeriesPerJob), 1U);
    EXPECT_EQ(shards_of(1024, 1024, limits::kSeriesPerJob), 2U);
    // 10,000 ranks with a GPU each: 90,000 series of ranks, 200,000 of GPUs.
    EXPECT_EQ(shards_of(10'000, 10'000, limits::kSeriesPerJob), 6U);
    EXPECT_EQ(shards_of(100'000, 0, limits::kSeriesPerJob), 6U) << "the budget cuts what is more";
    EXPECT_EQ(shards_of(100'000, 0, 0), 1U);
}

}  // namespace
}  // namespace lockstep::telemetry
