// Telemetry of a job on two nodes through a real store.
#pragma once

#include "daemon/store/history_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <functional>
#include <random>
#include <string>

namespace lockstep {

class HistoryTest : public ControlTest {
  protected:
    // Of node `node`'s only rank: `count` steps from `from`, one every 10 ms.
    static std::string rows(std::uint64_t seq, std::uint32_t node, std::int64_t from,
                            std::int64_t count, std::uint32_t generation = 1) {
        Batch out;
        out.seq = seq;
        out.generation = generation;
        out.node_rank = node;
        for (std::int64_t step = from; step < from + count; ++step) {
            out.add_row(node, step, 1'700'000'000.0 + 0.01 * static_cast<double>(step));
            out.set("loss", step == kSpike ? 1000.0 : 1.0 + 1.0 / static_cast<double>(step + 1));
        }
        return encode_batch(out);
    }
    // The same of numbers that do not pack.
    std::string noise(std::uint64_t seq, std::uint32_t node, std::int64_t from,
                      std::int64_t count) {
        Batch out;
        out.seq = seq;
        out.generation = 1;
        out.node_rank = node;
        for (std::int64_t step = from; step < from + count; ++step) {
            out.add_row(node, step, 1'700'000'000.0 + 0.01 * static_cast<double>(step));
            out.set("loss", dice_(random_));
        }
        return encode_batch(out);
    }
    void send(TestAgent& agent, std::uint64_t seq, const std::string& bytes) {
        agent.session->on_binary(bytes);
        until(
            [&] {
                const auto* ack = agent.peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "the batch is acknowledged");
    }
    void send(TestAgent& agent, std::uint64_t seq, std::uint32_t node, std::int64_t from,
              std::int64_t count) {
        send(agent, seq, rows(seq, node, from, count));
    }
    // Both ranks end well.
    void finish(const std::string& id, TestAgent& first, TestAgent& second) {
        first.say(exit(1, 0, 0));
        second.say(exit(1, 1, 0));
        until([&] { return state(id) == "succeeded"; }, "succeeded");
    }
    Result<std::string> ask(const std::string& id, std::size_t points, std::int32_t rank = 0) {
        Result<std::string> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SeriesQuery query;
            query.ranks = {rank};
            query.points = points;
            out = co_await control_->series(ada_, id, query);
        };
        wait(run());
        return out;
    }
    Json series(const std::string& id, std::size_t points, std::int32_t rank = 0) {
        const auto text = ask(id, points, rank);
        EXPECT_TRUE(text.has_value());
        return *parse_json(text.value_or("{}"));
    }
    std::size_t points(const std::string& id, std::int32_t rank = 0) {
        const Json all = series(id, 4000, rank)["series"];
        return all.empty() ? 0 : all[0]["points"].size();
    }
    template <class T>
    T read(std::function<Result<T>(Database&)> work) {
        T out{};
        auto run = [&]() -> Task<void> {
            auto done = co_await store_->read<T>(work);
            EXPECT_TRUE(done.has_value());
            out = done.value_or(T{});
        };
        wait(run());
        return out;
    }
    HistorySize stored() {
        return read<HistorySize>([](Database& db) { return HistoryRecords{db}.size(); });
    }
    std::size_t logged(const std::string& id) {
        return read<std::vector<LogRow>>(
                   [id](Database& db) { return HistoryRecords{db}.log(JobId{id}); })
            .size();
    }
    static constexpr std::int64_t kSpike = 12'345;
    static constexpr std::int64_t kBatch = 8000;

  private:
    std::mt19937_64 random_{3};
    std::uniform_real_distribution<double> dice_{0.5, 2};
};

}  // namespace lockstep
