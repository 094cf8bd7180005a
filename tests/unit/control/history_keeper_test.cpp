// Telemetry through a real store: log, chunks, questions, restarts.
#include "daemon/control/telemetry_log.hpp"
#include "tests/unit/control/control_fixture.hpp"

namespace lockstep {
namespace {

class HistoryKeeperTest : public ControlTest {
  protected:
    static std::string rows(std::uint64_t seq, std::uint32_t node, std::int64_t from,
                            std::int64_t count) {
        Batch out;
        out.seq = seq;
        out.generation = 1;
        out.node_rank = node;
        for (std::int64_t step = from; step < from + count; ++step) {
            out.add_row(node, step, 1'700'000'000.0 + 0.01 * static_cast<double>(step));
            out.set("loss", step == kSpike ? 1000.0 : 1.0 + 1.0 / static_cast<double>(step + 1));
        }
        return encode_batch(out);
    }
    void send(TestAgent& agent, std::uint64_t seq, std::uint32_t node, std::int64_t from,
              std::int64_t count) {
        agent.session->on_binary(rows(seq, node, from, count));
        until(
            [&] {
                const auto* ack = agent.peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "the batch is acknowledged");
    }
    Json series(const std::string& id, std::size_t points) {
        Json out;
        auto run = [&]() -> Task<void> {
            SeriesQuery query;
            query.ranks = {0};
            query.points = points;
            const auto text = co_await control_->series(ada_, id, query);
            EXPECT_TRUE(text.has_value());
            out = *parse_json(text.value_or("{}"));
        };
        wait(run());
        return out;
    }
    HistorySize stored() {
        HistorySize out;
        auto run = [&]() -> Task<void> {
            const std::function<Result<HistorySize>(Database&)> work = [](Database& db) {
                return db.history_size();
            };
            const auto size = co_await store_->read<HistorySize>(work);
            out = size.value_or(HistorySize{});
        };
        wait(run());
        return out;
    }
    std::size_t logged(const std::string& id) {
        std::size_t out = 0;
        auto run = [&]() -> Task<void> {
            const std::function<Result<std::vector<LogRow>>(Database&)> work = [id](Database& db) {
                return db.log_rows(JobId{id});
            };
            const auto read = co_await store_->read<std::vector<LogRow>>(work);
            out = read.value_or(std::vector<LogRow>{}).size();
        };
        wait(run());
        return out;
    }
    static constexpr std::int64_t kSpike = 12'345;
    static constexpr std::int64_t kBatch = 8000;
};

TEST_F(HistoryKeeperTest, ALongRunIsInChunksAndKeepsItsSpikeAcrossRestarts) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::int64_t step = 0;
    std::uint64_t seq = 0;
    for (; step < 10 * kBatch; step += kBatch) {
        send(first, ++seq, 0, step, kBatch);
    }
    until([&] { return stored().chunks > 0; }, "a full block becomes a chunk");
    const Json live = series(id, 800);
    EXPECT_LE(live["series"][0]["points"].size(), 800U);
    for (int restart = 0; restart < 2; ++restart) {
        first.session->on_closed();
        second.session->on_closed();
        shut_down();
        boot();
        EXPECT_EQ(series(id, 800), live) << "the same question has the same answer";
        first = hello(0, "i0", true);
        second = hello(1, "i1", true);
        until([&] { return second.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        // What is in chunks is not taken again, though its batches are gone.
        first.session->on_binary(rows(1, 0, 0, kBatch));
        first.session->on_binary(rows(seq, 0, step - kBatch, kBatch));
        send(second, static_cast<std::uint64_t>(restart) + 1, 1, restart, 1);
        EXPECT_EQ(series(id, 800), live);
    }
    double highest = 0;
    for (const Json& point : live["series"][0]["points"]) {
        highest = std::max(highest, point[2].get<double>());
    }
    EXPECT_EQ(highest, 1000.0);
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    until([&] { return logged(id) == 0; }, "the rest becomes a chunk when the job is over");
    EXPECT_EQ(stored().samples, 10 * kBatch + 2);
    shut_down();
    boot();
    EXPECT_EQ(series(id, 800), live);
}

TEST_F(HistoryKeeperTest, AHeatmapComesFromChunksAndFromWhatIsInNoneYet) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    for (std::int64_t i = 0; i < 9; ++i) {
        send(first, static_cast<std::uint64_t>(i) + 1, 0, i * kBatch, kBatch);
    }
    until([&] { return stored().chunks > 0; }, "a full block becomes a chunk");
    send(second, 1, 1, 0, 100);
    std::string map;
    auto ask = [&]() -> Task<void> {
        HeatmapQuery query;
        query.metric = "loss";
        query.columns = 72;
        const auto bytes = co_await control_->heatmap(ada_, id, query);
        map = bytes.value_or("");
    };
    wait(ask());
    ASSERT_EQ(map.size(), 56U + 2U * 71U) << "1,024 steps a column";
    EXPECT_EQ(static_cast<unsigned char>(map[56 + 12]), 254) << "the spike at step 12,345";
    EXPECT_EQ(static_cast<unsigned char>(map[56 + 13]), 1);
    EXPECT_EQ(static_cast<unsigned char>(map[56 + 71]), 1) << "rank 1 began";
    EXPECT_EQ(map[56 + 72], 0) << "and went no further";
}

TEST_F(HistoryKeeperTest, HistoryOnAFullDiskStaysInTheLogAndIsNotLost) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, kBatch);
    limit_store(1);
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    limit_store(1'000'000);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    shut_down();
    boot();
    EXPECT_EQ(series(id, 4000)["series"][0]["points"].back()[0], kBatch - 1);
}

TEST(TelemetryLog, GivesTheBatchesBackAndRefusesDamage) {
    std::string log;
    append_logged(log, 2, 7, "abc");
    append_logged(log, 3, 8, "");
    const std::string row = pack_log(log).value();
    const auto back = unpack_log(row);
    ASSERT_TRUE(back.has_value());
    ASSERT_EQ(back->size(), 2U);
    EXPECT_EQ((*back)[0].attempt, 2);
    EXPECT_EQ((*back)[0].node_rank, 7U);
    EXPECT_EQ((*back)[0].bytes, "abc");
    for (std::size_t i = 0; i < row.size(); ++i) {
        EXPECT_FALSE(unpack_log(row.substr(0, i)).has_value()) << i;
    }
    EXPECT_FALSE(unpack_log(pack_log(log.substr(0, log.size() - 1)).value()).has_value());
}

}  // namespace
}  // namespace lockstep
