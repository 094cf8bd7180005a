// size: one fixture, a question or an accident per test
// Telemetry through a real store: log, chunks, questions, restarts.
#include "daemon/control/history/telemetry_log.hpp"
#include "daemon/store/clock_records.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "tests/unit/control/history_fixture.hpp"

#include <SQLiteCpp/SQLiteCpp.h>

namespace lockstep {
namespace {

using HistoryKeeperTest = HistoryTest;

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

// Chunks that a full disk refuses are tried again, without a batch that would ask for it, and with
// the job over by then.
TEST_F(HistoryKeeperTest, WhatAFullDiskRefusesIsStoredOnceThereIsRoom) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::uint64_t seq = 0;
    std::int64_t step = 0;
    for (; step < 8 * kBatch; step += kBatch) {
        const std::uint64_t number = ++seq;
        send(first, number, noise(number, 0, step, kBatch));
    }
    ASSERT_EQ(stored().chunks, 0);
    // Room for one more batch in the log and for events, not for a chunk of them all.
    limit_store(1'000'000);
    const auto pages = static_cast<std::int64_t>(std::filesystem::file_size(folder_ / "db") / 4096);
    limit_store(pages + 90);
    send(first, ++seq, noise(9, 0, step, kBatch));
    const auto* history = context_->series.find(id)->history();
    ASSERT_TRUE(history->storing) << "65,536 rows are a chunk";
    until([&] { return !history->storing; }, "the chunk is refused");
    finish(id, first, second);
    EXPECT_EQ(stored().chunks, 0);
    EXPECT_GT(logged(id), 0U);
    EXPECT_GT(points(id), 3000U) << "and seen all the same";
    limit_store(1'000'000);
    until([&] { return stored().samples == 9 * kBatch; }, "the chunk is tried again");
    EXPECT_EQ(logged(id), 0U);
    const Json live = series(id, 800);
    shut_down();
    boot();
    EXPECT_EQ(series(id, 800), live);
}

TEST_F(HistoryKeeperTest, TwoQuestionsAtOnceAboutAFinishedJobRestoreItOnce) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 100);
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "packed");
    shut_down();
    boot();
    std::vector<std::string> answers;
    auto ask = [&]() -> Task<void> {
        const RanksQuery query;  // takes the series into memory; others are answered from chunks
        const auto text = co_await control_->ranks(ada_, id, query);
        answers.push_back(text.value_or("nothing"));
    };
    for (int i = 0; i < 3; ++i) {
        net::co_spawn(*io_, ask(), net::detached);
    }
    until([&] { return answers.size() == 3; }, "answered");
    for (const std::string& answer : answers) {
        const auto json = parse_json(answer);
        ASSERT_TRUE(json.has_value()) << answer;
        EXPECT_EQ((*json)["items"][0]["step"], 99);
    }
    EXPECT_EQ(context_->series.find(id)->rank(0).reports(), 100U);
    EXPECT_EQ(points(id), 100U);
    EXPECT_EQ(stored().samples, 100);
}

// Its series would be made from a million rows first, for an answer of 800 points.
TEST_F(HistoryKeeperTest, AFinishedJobIsAnsweredFromChunksAloneAndAlwaysTheSame) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::uint64_t seq = 0;
    for (std::int64_t step = 0; step < 2 * kBatch; step += kBatch) {
        send(first, ++seq, 0, step, kBatch);
    }
    send(second, 1, 1, 0, 3000);  // memory has every one of these
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "packed");
    until([&] { return context_->series.find(id)->history()->empty(); }, "and known to be");
    const Json long_one = series(id, 800, 0);
    const Json short_one = series(id, 800, 1);
    double highest = 0;
    for (const Json& point : long_one["series"][0]["points"]) {
        highest = std::max(highest, point[2].get<double>());
    }
    EXPECT_EQ(highest, 1000.0);
    shut_down();
    boot();
    EXPECT_EQ(series(id, 800, 0), long_one);
    EXPECT_EQ(series(id, 800, 1), short_one);
    const auto other = [&]() -> Task<void> {
        SeriesQuery query;
        query.metric = "accuracy";
        const auto text = co_await control_->series(ada_, id, query);
        const Json answer = *parse_json(text.value_or("{}"));
        EXPECT_EQ(answer["metrics"], Json::array({"loss"})) << "which names there are";
        HeatmapQuery map;
        map.metric = "loss";
        const auto bytes = co_await control_->heatmap(ada_, id, map);
        EXPECT_GT(bytes.value_or("").size(), 56U + 2U);
        const auto names = co_await control_->metric_names(ada_, id);
        EXPECT_EQ(names.value_or(""), R"({"ranks":2,"items":["loss"]})");
    };
    wait(other());
    EXPECT_EQ(context_->series.find(id), nullptr) << "nothing of it was taken into memory";
    const auto load = [&]() -> Task<void> {
        const RanksQuery query;
        co_await control_->ranks(ada_, id, query);
    };
    wait(load());
    ASSERT_NE(context_->series.find(id), nullptr);
    EXPECT_EQ(series(id, 800, 0), long_one);
    EXPECT_EQ(series(id, 800, 1), short_one);
}

// A kill between the job's end and its last flush: nobody ever asked for the job again.
TEST_F(HistoryKeeperTest, WhatAKillLeftInTheLogOfAFinishedJobIsPackedAtTheNextStart) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 100);
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "packed");
    shut_down();
    {
        std::string log;
        append_logged(log, 1, 0, rows(2, 0, 100, 50));
        append_logged(log, 1, 0, rows(1, 0, 0, 100));  // known: it is not packed twice
        auto db = std::move(Database::open(folder_ / "db").value());
        ASSERT_TRUE(db->begin().has_value());
        ASSERT_TRUE(HistoryRecords{*db}.add_log({JobId{id}, pack_log(log).value()}).has_value());
        ASSERT_TRUE(db->commit().has_value());
    }
    boot();
    until([&] { return logged(id) == 0; }, "packed at the start");
    EXPECT_EQ(stored().samples, 150);
    until([&] { return context_->series.find(id) == nullptr; }, "and forgotten: nobody asked");
    EXPECT_EQ(points(id), 150U);
}

// Series made of the late batch alone hid all that the job had.
TEST_F(HistoryKeeperTest, ALateBatchOfAFinishedJobHidesNothingAndIsPacked) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 100);
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "packed");
    until(
        [&] {
            context_->series.erase(id);  // as when other jobs are looked at
            return context_->series.find(id) == nullptr;
        },
        "not in memory");
    send(first, 2, 0, 100, 10);
    EXPECT_EQ(points(id), 110U);
    until([&] { return logged(id) == 0; }, "packed");
    EXPECT_EQ(stored().samples, 110);
    send(first, 3, 0, 110, 5);  // the series are in memory this time
    until([&] { return stored().samples == 115; }, "packed");
    EXPECT_EQ(points(id), 115U);
}

TEST_F(HistoryKeeperTest, ADatabaseWithABatchARowIsPackedWhole) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    finish(id, first, second);
    shut_down();
    {
        SQLite::Database old{(folder_ / "db").string(), SQLite::OPEN_READWRITE};
        for (int seq = 3; seq >= 1; --seq) {
            for (int node = 0; node < 2; ++node) {
                SQLite::Statement put{old, "INSERT INTO batches VALUES (?, 1, ?, ?, ?)"};
                const std::string data = rows(static_cast<std::uint64_t>(seq),
                                              static_cast<std::uint32_t>(node), 10 * (seq - 1), 10);
                put.bind(1, id);
                put.bind(2, node);
                put.bind(3, seq);
                put.bind(4, data.data(), static_cast<int>(data.size()));
                put.exec();
            }
        }
    }
    boot();
    until([&] { return stored().samples == 60; }, "packed at the start");
    EXPECT_EQ(points(id, 0), 30U);
    EXPECT_EQ(points(id, 1), 30U);
    EXPECT_TRUE(read<std::vector<BatchRow>>([id](Database& db) {
                    return HistoryRecords{db}.batches(JobId{id}, {}, 1000);
                }).empty());
}

// Databases of the first days of version 3 say as JSON which batches they know.
TEST_F(HistoryKeeperTest, AStateThatIsJsonIsReadAndWhatItKnowsIsNotTakenTwice) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    for (std::uint64_t seq = 1; seq <= 9; ++seq) {
        send(first, seq, 0, static_cast<std::int64_t>(seq - 1) * kBatch, kBatch);
    }
    until([&] { return stored().chunks > 0 && logged(id) == 0; }, "in chunks");
    shut_down();
    {
        SQLite::Database old{(folder_ / "db").string(), SQLite::OPEN_READWRITE};
        SQLite::Statement put{old, "UPDATE history_state SET data = ?"};
        put.bind(1, R"({"seen":[[1,0,9]],"generations":[[1,1,0,71999,1700000000000,1700000719990,)"
                    R"(null]]})");
        ASSERT_EQ(put.exec(), 1);
    }
    boot();
    first = hello(0, "i0", true);
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(first.peer->last<wire::Welcome>()->acked_batch, 9U);
    first.session->on_binary(rows(9, 0, 8 * kBatch, kBatch));
    send(first, 10, 0, 9 * kBatch, 1);
    const auto& generations = context_->series.find(id)->generations();
    ASSERT_EQ(generations.size(), 1U);
    EXPECT_EQ(generations[0].last_step, 9 * kBatch);
    EXPECT_EQ(generations[0].checkpoint_seconds, 0);
    EXPECT_EQ(context_->series.find(id)->history()->open_samples(), 1U) << "one row is new";
}

// They came back as the rows that were left: less than before and not 0, which Prometheus added to
// what it had.
TEST_F(HistoryKeeperTest, CountersAreAfterARestartWhatTheyWereThoughOldChunksHaveExpired) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    const auto tokens_of = [](std::uint64_t seq) {
        Batch out;
        out.seq = seq;
        out.generation = 1;
        for (std::int64_t i = 0; i < kBatch; ++i) {
            const std::int64_t step = static_cast<std::int64_t>(seq - 1) * kBatch + i;
            out.add_row(0, step, 1'700'000'000.0 + 0.01 * static_cast<double>(step));
            out.set("tokens", 2);
        }
        return encode_batch(out);
    };
    std::uint64_t seq = 0;
    while (seq < 9) {
        ++seq;
        send(first, seq, tokens_of(seq));
    }
    until([&] { return stored().chunks > 0 && logged(id) == 0; }, "in chunks");
    ++seq;
    send(first, seq, tokens_of(seq));
    const double before = 2.0 * 10 * kBatch;
    EXPECT_EQ(job_totals(*context_->series.find(id)).tokens, before);
    shut_down();
    {
        SQLite::Database expired{(folder_ / "db").string(), SQLite::OPEN_READWRITE};
        expired.exec("DELETE FROM history_sections; DELETE FROM history_chunks");
    }
    boot();
    ASSERT_NE(context_->series.find(id), nullptr);
    EXPECT_EQ(context_->series.find(id)->rank(0).reports(), static_cast<std::uint64_t>(kBatch))
        << "what the log has";
    EXPECT_EQ(job_totals(*context_->series.find(id)).tokens, before);
    first = hello(0, "i0", true);
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    first.session->on_binary(tokens_of(seq));
    ++seq;
    send(first, seq, tokens_of(seq));
    EXPECT_EQ(job_totals(*context_->series.find(id)).tokens, before + 2.0 * kBatch)
        << "one batch came again, one is new";
}

// Each job is below its own bound, and hundreds of them together took all memory.
TEST_F(HistoryKeeperTest, WithTooManyRowsOfAllJobsInMemoryTheLargestIsPacked) {
    shut_down();
    open_samples_ = 1000;
    boot();
    TestAgent first;
    TestAgent second;
    const std::string large = start_job_with(first, second);
    const std::string small = submit("other", "other")->id;
    until([&] { return scheduler_.submissions == 2; }, "the other reaches the scheduler");
    TestAgent third = hello(0, "o0");
    TestAgent fourth = hello(1, "o1");
    start_ranks(third, fourth);
    send(first, 1, 0, 0, 600);
    send(third, 1, rows(1, 0, 0, 400));
    EXPECT_EQ(stored().chunks, 0);
    send(third, 2, rows(2, 0, 400, 1));
    until([&] { return stored().chunks > 0; }, "one is packed");
    EXPECT_EQ(stored().samples, 600);
    EXPECT_EQ(logged(large), 0U);
    EXPECT_EQ(logged(small), 2U);
}

TEST_F(HistoryKeeperTest, ManyQuestionsAtOnceWaitForEachOtherAndAreAllAnswered) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 100);
    std::size_t answered = 0;
    std::size_t refused = 0;
    auto ask = [&]() -> Task<void> {
        HeatmapQuery query;
        query.metric = "loss";
        const auto map = co_await control_->heatmap(ada_, id, query);
        answered += map ? 1 : 0;
        refused += !map && map.error().code == Errc::exhausted ? 1 : 0;
    };
    // The charts of many tabs.
    for (int i = 0; i < 200; ++i) {
        net::co_spawn(*io_, ask(), net::detached);
    }
    until([&] { return answered + refused == 200; }, "all have an answer");
    EXPECT_EQ(refused, 0U);
}

TEST_F(HistoryKeeperTest, QuantilesAndTheWorstRankAreOfChunksAndNewestRows) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    const auto ask = [&] {
        SeriesQuery query;
        query.stats = {telemetry::BandStat::lowest, telemetry::BandStat::highest};
        query.worst = 1;
        query.points = 4000;
        Result<std::string> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            out = co_await control_->series(ada_, id, std::move(query));
        };
        wait(run());
        SCOPED_TRACE(out ? *out : out.error().message);
        return parse_json(out.value()).value();
    };
    // Rank 1 has kSpike, of a loss that is near 1 otherwise.
    send(first, 1, 0, 0, 2000);
    send(second, 1, 1, 0, 2000);
    Json before = ask();
    EXPECT_EQ(before["ranks"], 2) << before;
    EXPECT_EQ(before["bands"]["x"].size(), 2000U);
    EXPECT_EQ(before["bands"]["count"][7], 2);
    EXPECT_EQ(before["bands"]["min"][0], 2.0);
    EXPECT_EQ(before["series"].size(), 0U);
    EXPECT_EQ(before["worst"].size(), 1U);
    EXPECT_EQ(before["worst"][0]["node"], "n0");
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "all is in chunks");
    Json after = ask();
    EXPECT_EQ(after["bands"], before["bands"]);
    SeriesQuery none;
    none.metric = "nothing";
    none.worst = 3;
    auto run = [&]() -> Task<void> {
        const auto text = co_await control_->series(ada_, id, none);
        EXPECT_EQ(parse_json(text.value()).value()["metrics"], Json::array({"loss"}));
    };
    wait(run());
}

// 16 metrics of 256 ranks at 4,000 points each would be 750 MB of JSON.
TEST_F(HistoryKeeperTest, ManyLinesHaveFewerPointsEach) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 2000);
    const auto points_with = [&](std::size_t metrics) {
        SeriesQuery query;
        query.points = 4000;
        query.metrics = metrics;
        std::size_t out = 0;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->series(ada_, id, query);
            out = parse_json(text.value()).value()["series"][0]["points"].size();
        };
        wait(run());
        return out;
    };
    EXPECT_EQ(points_with(16), 2000U);
    const std::size_t few = points_with(1000);
    EXPECT_LE(few, 262'144U / 1000 / 2);
    EXPECT_GE(few, 60U);
}

TEST_F(HistoryKeeperTest, ABatchOfAGenerationThatHasNotBegunIsRefused) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_binary(rows(1, 0, 0, 10, 2));
    EXPECT_EQ(first.peer->closed, "a batch of a generation that has not begun");
    send(second, 1, 1, 0, 10);
    EXPECT_EQ(points(id, 0), 0U);
    EXPECT_EQ(points(id, 1), 10U);
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

TEST_F(HistoryKeeperTest, TelemetryIsKeptForDaysNotHours) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    send(first, 1, 0, 0, 100);
    finish(id, first, second);
    until([&] { return logged(id) == 0 && stored().chunks > 0; }, "it is in a chunk");
    // Hour by hour, as lockstepd sees them.
    const auto days_pass = [&](int days) {
        clock_.advance(std::chrono::hours{24 * days});
        auto look = [&]() -> Task<void> {
            constexpr UnixMillis kAnyTime = std::numeric_limits<UnixMillis>::max();
            co_await store_->look_at_clock(clock_.wall(), kAnyTime);
        };
        wait(look());
        shut_down();
        boot();  // looks for what is too old
    };
    days_pass(29);
    EXPECT_GT(stored().chunks, 0);
    clock_.advance(std::chrono::hours{24 * 400});
    shut_down();
    boot();
    EXPECT_GT(stored().chunks, 0) << "a clock that jumps makes nothing old";
    days_pass(2);
    until([&] { return stored().chunks == 0; }, "31 days are more than the 30 of the settings");
}

}  // namespace
}  // namespace lockstep
