// Every stored sample through a real store: pages, chunks, restarts.
#include "daemon/store/history_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

namespace lockstep {
namespace {

class HistorySamplesTest : public ControlTest {
  protected:
    void send(TestAgent& agent, std::uint64_t seq, std::uint32_t node, std::int64_t from,
              std::int64_t count, const char* metric = "loss") {
        Batch out;
        out.seq = seq;
        out.generation = 1;
        out.node_rank = node;
        for (std::int64_t step = from; step < from + count; ++step) {
            out.add_row(node, step, 1'700'000'000.0 + 0.01 * static_cast<double>(step));
            out.set(metric, 1.0 / static_cast<double>(step + 1 + node));
        }
        agent.session->on_binary(encode_batch(out));
        until(
            [&] {
                const auto* ack = agent.peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "the batch is acknowledged");
    }
    Result<std::string> ask(const std::string& id, SamplesQuery query) {
        Result<std::string> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            Caller caller = ada_;
            SamplesQuery copy = query;
            out = co_await control_->samples(std::move(caller), id, std::move(copy));
        };
        wait(run());
        return out;
    }
    std::string names(const std::string& id) {
        std::string out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->metric_names(ada_, id);
            out = text ? *text : text.error().message;
        };
        wait(run());
        return out;
    }
    // rank → its samples as JSON [step, time, value].
    std::map<int, Json> read(const std::string& id, std::size_t limit) {
        std::map<int, Json> out;
        pages_ = 0;
        SamplesQuery query;
        query.limit = limit;
        do {
            const auto text = ask(id, query);
            EXPECT_TRUE(text.has_value()) << text.error().message;
            // Larger than what the daemon reads of others.
            Json page = Json::parse(text.value_or("{}"));
            for (const Json& run : page["runs"]) {
                Json& rank = out[run["rank"].get<int>()];
                for (std::size_t i = 0; i < run["steps"].size(); ++i) {
                    rank.push_back({run["steps"][i], run["times"][i], run["values"][i]});
                }
            }
            query.cursor = page.value("next_cursor", "");
            ++pages_;
        } while (!query.cursor.empty());
        return out;
    }
    std::int64_t chunks() {
        std::int64_t out = 0;
        auto run = [&]() -> Task<void> {
            const std::function<Result<HistorySize>(Database&)> work = [](Database& db) {
                return HistoryRecords{db}.size();
            };
            const auto size = co_await store_->read<HistorySize>(work);
            out = size ? size->chunks : 0;
        };
        wait(run());
        return out;
    }
    int pages_ = 0;
    static constexpr std::int64_t kBatch = 8000;
};

TEST_F(HistorySamplesTest, EverySampleOfChunksAndOfWhatIsInNoneYetAcrossARestart) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    for (std::int64_t i = 0; i < 9; ++i) {
        send(first, static_cast<std::uint64_t>(i) + 1, 0, i * kBatch, kBatch);
    }
    until([&] { return chunks() > 0; }, "a full block becomes a chunk");
    send(first, 10, 0, 9 * kBatch, 10);
    send(second, 1, 1, 5, 20);
    send(second, 2, 1, 25, 1, "seldom");
    const auto live = read(id, 10'000);
    EXPECT_GT(pages_, 7);
    ASSERT_EQ(live.at(0).size(), 9U * kBatch + 10U);
    EXPECT_EQ(live.at(0)[70'000], (Json{70'000, 1'700'000'700.0, 1.0 / 70'001}));
    ASSERT_EQ(live.at(1).size(), 20U);
    EXPECT_EQ(names(id), R"({"ranks":2,"items":["loss","seldom"]})");
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    shut_down();
    boot();
    EXPECT_EQ(read(id, 65'536), live);
    EXPECT_EQ(pages_, 2);
    EXPECT_EQ(read(id, 7'777), live);
    EXPECT_EQ(names(id), R"({"ranks":2,"items":["loss","seldom"]})");
}

TEST_F(HistorySamplesTest, WhatCannotBeAskedIsRefused) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    EXPECT_EQ(names(id), R"({"ranks":2,"items":[]})");
    EXPECT_EQ(ask(id, {}).value_or(""), R"({"metric":"loss","runs":[]})");
    SamplesQuery query;
    query.ranks = {0, 2};
    EXPECT_EQ(ask(id, query).error().message, "ranks: the job has ranks 0-1");
    query.ranks = {};
    query.cursor = "x";
    EXPECT_EQ(ask(id, query).error().code, Errc::invalid);
    EXPECT_EQ(ask("ls-01JCXW3V5N8Q2R7T9ZABCDEFGH", {}).error().code, Errc::not_found);
}

}  // namespace
}  // namespace lockstep
