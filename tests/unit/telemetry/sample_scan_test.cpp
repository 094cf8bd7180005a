#include "daemon/telemetry/series/sample_scan.hpp"

#include "daemon/telemetry/series/history.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "tests/unit/telemetry/names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>
#include <memory>

namespace lockstep::telemetry {
namespace {

class MemoryChunks final : public HistorySource {
  public:
    void add(Chunk chunk) {
        ChunkMeta meta;
        meta.id = newest() + 1;
        meta.block = chunk.block;
        meta.start = chunk.start;
        meta.step_low = chunk.step_low;
        meta.step_high = chunk.step_high;
        metas_.push_back(meta);
        chunks_.push_back(std::move(chunk));
    }
    std::int64_t newest() const { return static_cast<std::int64_t>(chunks_.size()); }
    void damage(std::size_t chunk) {
        for (Section& one : chunks_[chunk].sections) {
            one.data.resize(one.data.size() / 2);
        }
    }
    Result<std::vector<ChunkMeta>> chunks(std::uint32_t low, std::uint32_t high) override {
        std::vector<ChunkMeta> out;
        for (const ChunkMeta& meta : metas_) {
            if (meta.block >= low && meta.block <= high) {
                out.push_back(meta);
            }
        }
        return out;
    }
    Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                               std::uint8_t level) override {
        for (const Section& one : chunks_[static_cast<std::size_t>(chunk - 1)].sections) {
            if (one.name == name && one.level == level) {
                return one.data;
            }
        }
        return std::optional<std::string>{};
    }

  private:
    std::vector<Chunk> chunks_;
    std::vector<ChunkMeta> metas_;
};

struct Sample {
    Start start;
    std::int64_t step = -1;
    double time = 0;
    double value = 0;
    bool operator==(const Sample& other) const {
        return start == other.start && step == other.step && time == other.time &&
               std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value);
    }
};
using ByRank = std::map<std::uint32_t, std::vector<Sample>>;

// A job's history and what went into it.
class SampleScan : public testing::Test {
  protected:
    void begin_anew() {
        source_ = {};
        history_ = std::make_unique<History>();
        expected_.clear();
    }
    void report(std::uint32_t rank, Start start, std::int64_t step, double value) {
        const double time = 1'700'000'000 + 0.25 * static_cast<double>(reports_++);
        history_->add(start, rank, step, time, {value, step == 3 ? 7.0 : kAbsent}, 0);
        expected_[rank].push_back({start, step, time, value});
    }
    void store() {
        const auto sealed = history_->seal();
        for (const auto& rows : sealed) {
            auto chunk = encode_chunk(*rows, kNames, codec_);
            ASSERT_TRUE(chunk.has_value());
            source_.add(std::move(*chunk));
        }
        history_->stored(sealed.size(), source_.newest());
    }
    // Four ranks in three blocks; the second generation makes steps 6 … 9 again.
    void train() {
        for (const std::uint32_t generation : {1U, 2U}) {
            for (std::int64_t step = generation == 1 ? 0 : 6; step < 10; ++step) {
                for (const std::uint32_t rank : {0U, 1U, 64U, 130U}) {
                    report(rank, {1, generation}, step,
                           static_cast<double>(rank) + 0.1 * static_cast<double>(step));
                }
                if (step % 4 == 3) {
                    store();
                }
            }
        }
    }
    SamplePage page(const SampleAsk& ask, std::size_t metric = 0) {
        auto got = read_samples(source_, ask, history_->tail(metric, ask.entities).rows(),
                                source_.newest());
        EXPECT_TRUE(got.has_value());
        return got ? std::move(*got) : SamplePage{};
    }
    // All pages; `between` them something may happen.
    ByRank read(SampleAsk ask, const std::function<void()>& between = [] {}) {
        ByRank out;
        pages_ = 0;
        for (bool more = true; more;) {
            const SamplePage got = page(ask);
            ++pages_;
            std::size_t samples = 0;
            for (const SampleRun& run : got.runs) {
                for (std::size_t i = 0; i < run.steps.size(); ++i, ++samples) {
                    out[run.entity].push_back(
                        {run.start, run.steps[i], run.times[i], run.values[i]});
                }
            }
            EXPECT_EQ(samples, got.samples);
            more = got.next.has_value();
            if (got.next) {
                const auto again = parse_cursor(to_cursor(*got.next));
                EXPECT_EQ(again, got.next);
                ask.place = *got.next;
            }
            between();
        }
        return out;
    }
    static SampleAsk question(std::size_t limit = limits::kSamplesPage) {
        SampleAsk ask;
        ask.metric = "loss";
        ask.entities = {0, 1, 64, 130};
        ask.limit = limit;
        return ask;
    }

    MemoryChunks source_;
    std::unique_ptr<History> history_ = std::make_unique<History>();
    ColumnCodec codec_;
    ByRank expected_;
    int reports_ = 0;
    int pages_ = 0;
};

TEST_F(SampleScan, EverySampleComesOnceWhateverThePagesAre) {
    train();
    for (const std::size_t limit : {1U, 2U, 3U, 7U, 20U, 55U, 56U, 57U}) {
        EXPECT_EQ(read(question(limit)), expected_) << limit;
    }
    EXPECT_EQ(pages_, 1);
    read(question(1));
    EXPECT_GT(pages_, 40);
}

TEST_F(SampleScan, WhatIsStoredBetweenTwoPagesIsNeitherMissedNorGivenTwice) {
    // After so many pages all becomes chunks; the rest of it is read from there.
    for (int moment = 1; moment < 40; ++moment) {
        begin_anew();
        train();
        for (std::int64_t step = 10; step < 13; ++step) {
            for (const std::uint32_t rank : {130U, 64U, 1U, 0U}) {
                report(rank, step < 12 ? Start{1, 2} : Start{2, 1}, step, kNan);
            }
        }
        int page = 0;
        const auto got = read(question(2), [&] {
            if (++page == moment) {
                store();
            }
        });
        EXPECT_EQ(got, expected_) << moment;
        EXPECT_GT(pages_, 28);
    }
}

TEST_F(SampleScan, TheOrderIsTheSameBeforeAndAfterItIsStored) {
    for (const std::uint32_t generation : {1U, 2U}) {
        for (std::int64_t step = 0; step < 5; ++step) {
            for (const std::uint32_t rank : {130U, 1U, 0U, 64U}) {
                report(rank, {1, generation}, step, static_cast<double>(rank));
            }
        }
    }
    const std::string before = to_json_text(question(), page(question()));
    store();
    EXPECT_EQ(to_json_text(question(), page(question())), before);
}

TEST_F(SampleScan, NewSamplesDuringAnExportDoNotDisturbTheOthers) {
    train();
    const ByRank first = expected_;
    std::int64_t step = 100;
    const auto got = read(question(3), [&] {
        if (step < 110) {
            for (const std::uint32_t rank : {0U, 130U}) {
                report(rank, {1, 2}, step, 1);
            }
            ++step;
            if (step % 3 == 0) {
                store();
            }
        }
    });
    for (const auto& [rank, samples] : first) {
        const auto& seen = got.at(rank);
        ASSERT_GE(seen.size(), samples.size());
        EXPECT_TRUE(std::equal(samples.begin(), samples.end(), seen.begin())) << rank;
        // What came later may be there or not, but in order and without a gap.
        const auto& all = expected_.at(rank);
        ASSERT_LE(seen.size(), all.size());
        EXPECT_TRUE(std::equal(seen.begin(), seen.end(), all.begin())) << rank;
    }
}

TEST_F(SampleScan, RanksStepsAndGenerationsCanBeChosen) {
    train();
    SampleAsk ask = question(5);
    ask.entities = {1, 130};
    ask.from = 5;
    ask.to = 7;
    ask.generation = 1;
    auto got = read(ask);
    ASSERT_EQ(got.size(), 2U);
    ASSERT_EQ(got[1].size(), 3U);
    EXPECT_EQ(got[1][0].step, 5);
    EXPECT_EQ(got[130][2], expected_[130][7]);
    ask.generation = 2;
    got = read(ask);
    ASSERT_EQ(got[130].size(), 2U);
    EXPECT_EQ(got[130][0], expected_[130][10]);
    ask.attempt = 2;
    EXPECT_TRUE(read(ask).empty());
}

TEST_F(SampleScan, AStepThatWasNotGivenAndNoFiniteValueComeToo) {
    report(0, {1, 1}, -1, kInf);
    report(0, {1, 1}, 5, kNan);
    store();
    report(0, {1, 1}, -1, -kInf);
    EXPECT_EQ(read(question()), expected_);
    SampleAsk ranged = question();
    ranged.from = 0;
    EXPECT_EQ(read(ranged)[0].size(), 1U);
    const auto json = parse_json(to_json_text(question(), page(question())));
    ASSERT_TRUE(json.has_value());
    EXPECT_EQ((*json)["metric"], "loss");
    EXPECT_FALSE(json->contains("next_cursor"));
    const Json& run = (*json)["runs"][0];
    EXPECT_EQ(run["values"], Json::parse(R"(["inf","nan","-inf"])"));
    EXPECT_EQ(run["steps"], Json::parse("[null,5,null]"));
    EXPECT_EQ(run["times"], Json::parse("[1700000000,1700000000.25,1700000000.5]"));
}

TEST_F(SampleScan, AMetricThatFewRowsHaveAndOneThatNoneHas) {
    train();
    SampleAsk ask = question();
    ask.metric = "rare";
    EXPECT_EQ(page(ask, 1).samples, 4U);
    ask.metric = "none";
    EXPECT_EQ(page(ask, 99).samples, 0U);
}

TEST_F(SampleScan, ADamagedChunkIsLeftOutAndCounted) {
    train();
    const std::size_t whole = page(question()).samples;
    source_.damage(0);
    const SamplePage got = page(question());
    EXPECT_EQ(got.damaged, 1U);
    EXPECT_LT(got.samples, whole);
    EXPECT_GT(got.samples, 0U);
    EXPECT_EQ((*parse_json(to_json_text(question(), got)))["damaged_chunks"], 1);
}

TEST(SampleCursor, OnlyWhatWasGivenOutIsTaken) {
    for (const char* text : {"", "1", "1.2.3.4", "1.2.3.4.5.6", "1.2.3.4.x", "-1.2.3.4.5",
                             "1.2.3.4.2147483648", "1.2.3.4."}) {
        EXPECT_FALSE(parse_cursor(base64_encode(text)).has_value()) << text;
    }
    EXPECT_FALSE(parse_cursor("x").has_value());
    EXPECT_EQ(parse_cursor(base64_encode("1.2.3.4.5")), (SamplePlace{1, 2, {3, 4}, 5}));
}

}  // namespace
}  // namespace lockstep::telemetry
