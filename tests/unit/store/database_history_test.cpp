// Jobs' telemetry in the database: its log, its chunks and their size.
#include "daemon/store/history_records.hpp"
#include "daemon/store/job_records.hpp"
#include "tests/unit/store/database_fixture.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

// All of them went with the first flush, read or not.
TEST_F(DatabaseTest, OfBatchesOfAnOlderVersionAFlushTakesThoseThatWereRead) {
    {
        SQLite::Database old{file().string(), SQLite::OPEN_READWRITE};
        old.exec(
            "INSERT INTO batches VALUES ('ls-x', 2, 0, 1, x'05'), ('ls-x', 1, 1, 1, x'02'), "
            "('ls-x', 1, 0, 2, x'03'), ('ls-x', 1, 0, 1, x'01'), ('ls-x', 1, 1, 2, x'04'), "
            "('ls-y', 1, 0, 1, x'06')");
    }
    const JobId job{"ls-x"};
    const auto all = *HistoryRecords{*db_}.batches(job, {}, 1000);
    std::string order;
    for (const BatchRow& one : all) {
        order += static_cast<char>('0' + one.data[0]);
    }
    EXPECT_EQ(order, "12345") << "by attempt, number, node";
    const auto first = *HistoryRecords{*db_}.batches(job, {}, 2);
    ASSERT_EQ(first.size(), 2U) << "as many as fit";
    const BatchPlace upto{first[1].attempt, first[1].seq, first[1].node_rank};
    EXPECT_EQ(HistoryRecords{*db_}.batches(job, upto, 1)->front().data, "\x03");
    const auto flush = [&](BatchPlace place) {
        ASSERT_TRUE(db_->begin().has_value());
        ASSERT_TRUE(HistoryRecords{*db_}.add_chunks({job, {}, 0, "s", place}).has_value());
        ASSERT_TRUE(db_->commit().has_value());
    };
    flush({});
    EXPECT_EQ(HistoryRecords{*db_}.batches(job, {}, 1000)->size(), 5U) << "none has been read";
    flush(upto);
    EXPECT_EQ(HistoryRecords{*db_}.batches(job, {}, 1000)->size(), 3U);
    EXPECT_EQ(HistoryRecords{*db_}.batches(job, {}, 1000)->front().data, "\x03");
    EXPECT_EQ(HistoryRecords{*db_}.batches(JobId{"ls-y"}, {}, 1000)->size(), 1U);
}

TEST_F(DatabaseTest, JobsThatAreOverAndHaveTelemetryOutsideChunksAreFound) {
    std::vector<JobId> jobs;
    for (int i = 1; i <= 4; ++i) {
        jobs.push_back(submit(submission(i)).id);
    }
    ASSERT_TRUE(db_->begin().has_value());
    for (const int i : {0, 0, 1, 3}) {
        ASSERT_TRUE(
            HistoryRecords{*db_}.add_log({jobs[static_cast<std::size_t>(i)], "x"}).has_value());
    }
    ASSERT_TRUE(db_->commit().has_value());
    {
        SQLite::Database raw{file().string(), SQLite::OPEN_READWRITE};
        raw.exec("INSERT INTO batches VALUES ('" + jobs[2].value + "', 1, 0, 1, x'01')");
        raw.exec("UPDATE jobs SET final = 1 WHERE id <> '" + jobs[1].value + "'");
    }
    EXPECT_EQ(*HistoryRecords{*db_}.unpacked({}, 9), (std::vector{jobs[0], jobs[2], jobs[3]}));
    EXPECT_EQ(*HistoryRecords{*db_}.unpacked({}, 1), std::vector{jobs[0]});
    EXPECT_EQ(*HistoryRecords{*db_}.unpacked(jobs[0], 9), (std::vector{jobs[2], jobs[3]}));
}

ChunkRow some_chunk(std::int64_t number, std::size_t bytes) {
    ChunkRow chunk;
    chunk.block = 3;
    chunk.attempt = 1;
    chunk.generation = 2;
    chunk.step_low = number;
    chunk.step_high = number + 9;
    chunk.time_low = static_cast<double>(number);
    chunk.time_high = static_cast<double>(number) + 0.5;
    chunk.rows = 10;
    chunk.samples = 20;
    chunk.sections = {{"loss", 0, std::string(bytes, 'x')}, {"loss", 1, "small"}};
    return chunk;
}

TEST_F(DatabaseTest, AFlushMovesTheLogIntoChunksAtOnce) {
    const JobId job{"ls-x"};
    ASSERT_TRUE(db_->begin().has_value());
    const auto first = HistoryRecords{*db_}.add_log({job, "one"});
    const auto second = HistoryRecords{*db_}.add_log({job, "two"});
    ASSERT_TRUE(HistoryRecords{*db_}.add_log({JobId{"ls-y"}, "other"}).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    ASSERT_LT(*first, *second);
    ASSERT_TRUE(db_->begin().has_value());
    const auto newest =
        HistoryRecords{*db_}.add_chunks({job, {some_chunk(100, 50)}, *first, "state"});
    ASSERT_TRUE(newest.has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const auto log = *HistoryRecords{*db_}.log(job);
    ASSERT_EQ(log.size(), 1U);
    EXPECT_EQ(log[0].data, "two");
    EXPECT_EQ(HistoryRecords{*db_}.log(JobId{"ls-y"})->size(), 1U);
    EXPECT_EQ(*HistoryRecords{*db_}.state(job), "state");
    const auto reader = db_->reader();
    ASSERT_TRUE(reader.has_value());
    const auto chunks = *HistoryRecords{**reader}.chunks(job, 0, 3, 3, *newest);
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].step_high, 109);
    EXPECT_TRUE(HistoryRecords{**reader}.chunks(job, 0, 0, 2, *newest)->empty());
    EXPECT_TRUE(HistoryRecords{**reader}.chunks(job, 0, 3, 3, *newest - 1)->empty());
    EXPECT_EQ(HistoryRecords{**reader}.section(*newest, "loss", 1)->value(), "small");
    EXPECT_FALSE(HistoryRecords{**reader}.section(*newest, "loss", 2)->has_value());
    EXPECT_EQ(HistoryRecords{**reader}.sections(*newest, 0)->size(), 1U);
    EXPECT_FALSE(HistoryRecords{**reader}.add_log({job, "no"}).has_value()) << "it only reads";
}

TEST_F(DatabaseTest, HistoryBeyondItsSizeGoesThatOfFinishedJobsFirst) {
    const auto running = submit(submission(1)).id;
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(
        HistoryRecords{*db_}.add_chunks({running, {some_chunk(1, 1000)}, 0, ""}).has_value());
    ASSERT_TRUE(
        HistoryRecords{*db_}
            .add_chunks({JobId{"ls-gone"}, {some_chunk(2, 1000), some_chunk(3, 1000)}, 0, ""})
            .has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const std::int64_t each = HistoryRecords{*db_}.size()->bytes / 3;
    const double never = -1e300;
    const auto expire = [&](std::int64_t bytes, double before) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto gone = HistoryRecords{*db_}.expire(bytes, before, 100);
        EXPECT_TRUE(gone.has_value()) << gone.error().message;
        EXPECT_TRUE(db_->commit().has_value());
        return *gone;
    };
    EXPECT_EQ(expire(3 * each, never).chunks, 0);
    EXPECT_EQ(expire(2 * each, never).chunks, 1);
    const auto left = *HistoryRecords{*db_}.chunks(JobId{"ls-gone"}, 0, 0, 9, 1000);
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left[0].step_low, 3);
    EXPECT_EQ(HistoryRecords{*db_}.chunks(running, 0, 0, 9, 1000)->size(), 1U);
    EXPECT_EQ(expire(3 * each, 2.0).samples, 20) << "older than the limit";
    EXPECT_TRUE(HistoryRecords{*db_}.chunks(running, 0, 0, 9, 1000)->empty());
    EXPECT_EQ(HistoryRecords{*db_}.size()->bytes, each);
}

TEST_F(DatabaseTest, HistoryOfExactlyItsSizeStaysAndOneByteLessCostsOneChunk) {
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(HistoryRecords{*db_}
                    .add_chunks({JobId{"ls-gone"},
                                 {some_chunk(1, 1000), some_chunk(2, 1000), some_chunk(3, 1000)},
                                 0,
                                 ""})
                    .has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const std::int64_t all = HistoryRecords{*db_}.size()->bytes;
    const auto expire = [&](std::int64_t bytes, std::size_t most) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto gone = HistoryRecords{*db_}.expire(bytes, -1e300, most);
        EXPECT_TRUE(db_->commit().has_value());
        return gone ? gone->chunks : -1;
    };
    EXPECT_EQ(expire(all, 100), 0);
    EXPECT_EQ(expire(all - 1, 100), 1);
    EXPECT_EQ(expire(0, 1), 1) << "at most so many at a time";
    EXPECT_EQ(expire(0, 100), 1);
    EXPECT_EQ(HistoryRecords{*db_}.size()->bytes, 0);
}

TEST_F(DatabaseTest, AtMostSoManyChunksGoAtATimeForWhateverReasons) {
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(
        HistoryRecords{*db_}
            .add_chunks({JobId{"ls-gone"}, {some_chunk(1, 1000), some_chunk(2, 1000)}, 0, ""})
            .has_value());
    const auto gone = HistoryRecords{*db_}.expire(0, 1.6, 1);  // one is too old, both are too much
    ASSERT_TRUE(db_->commit().has_value());
    EXPECT_EQ(gone->chunks, 1);
    EXPECT_EQ(HistoryRecords{*db_}.size()->chunks, 1);
}

TEST_F(DatabaseTest, WithItsLastChunkAJobThatIsOverLosesItsState) {
    const auto running = submit(submission(1)).id;
    const JobId over{"ls-gone"};
    const JobId logged{"ls-logged"};
    ASSERT_TRUE(db_->begin().has_value());
    for (const JobId& job : {running, over, logged}) {
        ASSERT_TRUE(
            HistoryRecords{*db_}.add_chunks({job, {some_chunk(1, 10)}, 0, "state"}).has_value());
    }
    ASSERT_TRUE(HistoryRecords{*db_}.add_chunks({over, {some_chunk(20, 10)}, 0, ""}).has_value());
    EXPECT_EQ(*HistoryRecords{*db_}.state(over), "state") << "\"\" says nothing new";
    ASSERT_TRUE(HistoryRecords{*db_}.add_log({logged, "late"}).has_value());
    ASSERT_TRUE(HistoryRecords{*db_}.expire(1'000'000, 10, 100).has_value());
    EXPECT_EQ(*HistoryRecords{*db_}.state(over), "state") << "it has a chunk";
    ASSERT_TRUE(HistoryRecords{*db_}.expire(1'000'000, 100, 100).has_value());
    EXPECT_EQ(*HistoryRecords{*db_}.state(over), "");
    EXPECT_EQ(*HistoryRecords{*db_}.state(logged), "state") << "it says which batches are known";
    EXPECT_EQ(*HistoryRecords{*db_}.state(running), "state");
    ASSERT_TRUE(db_->commit().has_value());
}

// Its state was still needed when its last chunk went, and nothing came that would go later.
TEST_F(DatabaseTest, AStateWhoseChunksAllWentWhileTheJobRanGoesOnceItIsOver) {
    const auto ended = submit(submission(1)).id;
    const auto running = submit(submission(2)).id;
    const JobId packed{"ls-packed"};
    const JobId logged{"ls-logged"};
    ASSERT_TRUE(db_->begin().has_value());
    for (const JobId& job : {ended, running, logged}) {
        ASSERT_TRUE(
            HistoryRecords{*db_}.add_chunks({job, {some_chunk(1, 10)}, 0, "state"}).has_value());
    }
    ASSERT_TRUE(
        HistoryRecords{*db_}.add_chunks({packed, {some_chunk(200, 10)}, 0, "state"}).has_value());
    ASSERT_TRUE(HistoryRecords{*db_}.add_log({logged, "late"}).has_value());
    ASSERT_EQ(HistoryRecords{*db_}.expire(1'000'000, 100, 100)->chunks, 3);
    EXPECT_EQ(*HistoryRecords{*db_}.forget_states("", 100), "");
    EXPECT_EQ(*HistoryRecords{*db_}.state(ended), "state") << "it runs";
    Append append = submission(1).append;
    append.events[0].seq = 3;
    append.events[0].data = event::Finished{JobState::succeeded, {}, 5};
    append.row.state = JobState::succeeded;
    append.row.labels.clear();
    ASSERT_TRUE(JobRecords{*db_}.append(append).has_value());
    std::string after;
    int calls = 0;
    do {
        const auto last = HistoryRecords{*db_}.forget_states(after, 1);
        ASSERT_TRUE(last.has_value());
        after = *last;
    } while (!after.empty() && ++calls < 100);
    EXPECT_EQ(*HistoryRecords{*db_}.state(ended), "");
    EXPECT_EQ(*HistoryRecords{*db_}.state(running), "state");
    EXPECT_EQ(*HistoryRecords{*db_}.state(packed), "state") << "it has a chunk";
    EXPECT_EQ(*HistoryRecords{*db_}.state(logged), "state") << "it says which batches are known";
    ASSERT_TRUE(db_->commit().has_value());
}

TEST_F(DatabaseTest, TheSizeOfHistoryIsThatOfTheTableAfterEveryWriteAndRollback) {
    const JobId job{"ls-x"};
    const auto check = [&] {
        SQLite::Database raw{file().string(), SQLite::OPEN_READONLY};
        SQLite::Statement sum{raw,
                              "SELECT count(*), coalesce(sum(samples), 0), coalesce(sum(bytes), 0) "
                              "FROM history_chunks"};
        sum.executeStep();
        const HistorySize size = *HistoryRecords{*db_}.size();
        EXPECT_EQ(size.chunks, sum.getColumn(0).getInt64());
        EXPECT_EQ(size.samples, sum.getColumn(1).getInt64());
        EXPECT_EQ(size.bytes, sum.getColumn(2).getInt64());
    };
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(HistoryRecords{*db_}
                    .add_chunks({job, {some_chunk(1, 10), some_chunk(20, 500)}, 0, ""})
                    .has_value());
    ASSERT_TRUE(db_->commit().has_value());
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(HistoryRecords{*db_}.add_chunks({job, {some_chunk(30, 10)}, 0, ""}).has_value());
    db_->rollback();
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(HistoryRecords{*db_}.expire(1'000'000, 10, 100).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    check();
}

}  // namespace
}  // namespace lockstep
