// size: every statement of one database
#include "daemon/store/database.hpp"

#include "tests/support/temporary_folder.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <lockstep_migrations.hpp>

#include <map>
#include <set>

namespace lockstep {
namespace {

class DatabaseTest : public ::testing::Test {
  protected:
    void SetUp() override { db_ = std::move(Database::open(file()).value()); }
    std::filesystem::path file() const { return folder_ / "lockstep.db"; }

    static SubmitWrite submission(int number, const std::string& key = "",
                                  const std::string& body = "b") {
        SubmitWrite write;
        Event event;
        event.seq = number;
        event.job = JobId{"ls-0000000000000000000000" + std::to_string(1000 + number)};
        event.time = 1000 + number;
        event::Submitted data;
        data.user = "ada";
        data.spec = *parse_json(R"({"name":"t","framework":"native"})");
        event.data = data;
        write.append.events.push_back(event);
        JobRow& row = write.append.row;
        row.id = event.job;
        row.user = "ada";
        row.name = number % 2 == 0 ? "even" : "odd";
        row.submitted_at = event.time;
        row.last_seq = number;
        row.view = "{\"n\":" + std::to_string(number) + "}";
        row.labels = {{"parity", row.name}};
        write.idempotency_key = key;
        write.body_sha256 = body;
        return write;
    }
    SubmitDone submit(const SubmitWrite& write) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto done = db_->submit(write);
        EXPECT_TRUE(done.has_value()) << done.error().message;
        EXPECT_TRUE(db_->commit().has_value());
        return *done;
    }

    const test::TemporaryFolder folder_;
    std::unique_ptr<Database> db_;
};

TEST_F(DatabaseTest, KeepsEventsAndTheFoldAcrossAReopen) {
    submit(submission(1));
    submit(submission(2));
    db_.reset();
    db_ = std::move(Database::open(file()).value());
    EXPECT_EQ(*db_->last_seq(), 2);
    EXPECT_EQ(db_->unfinished()->size(), 2U);
    const auto events = db_->events_of(submission(1).append.row.id, 0, 10);
    ASSERT_EQ(events->size(), 1U);
    EXPECT_EQ(std::get<event::Submitted>((*events)[0].data).user, "ada");
    EXPECT_EQ((*db_->job(submission(2).append.row.id))->view, "{\"n\":2}");
    EXPECT_FALSE(db_->job(JobId{"ls-none"})->has_value());
}

TEST_F(DatabaseTest, AnIdempotencyKeyGivesTheFirstJobAgain) {
    EXPECT_FALSE(submit(submission(1, "key")).repeated);
    const auto again = submit(submission(2, "key"));
    EXPECT_TRUE(again.repeated);
    EXPECT_FALSE(again.other_body);
    EXPECT_EQ(again.id, submission(1).append.row.id);
    EXPECT_TRUE(submit(submission(3, "key", "other")).other_body);
    EXPECT_EQ(db_->unfinished()->size(), 1U);
    SubmitWrite bobs = submission(4, "key");
    bobs.append.row.user = "bob";
    EXPECT_FALSE(submit(bobs).repeated) << "each user's keys are the user's own";
    EXPECT_EQ(db_->unfinished()->size(), 2U);
}

TEST_F(DatabaseTest, ListsNewestFirstWithFiltersAndAPlaceToGoOn) {
    for (int i = 1; i <= 9; ++i) {
        submit(submission(i));
    }
    RowQuery query;
    query.limit = 4;
    auto rows = *db_->jobs(query);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0].last_seq, 9);
    query.before = rows.back().id.value;
    EXPECT_EQ((*db_->jobs(query))[0].last_seq, 5);
    query = RowQuery{};
    query.name = "even";
    EXPECT_EQ(db_->jobs(query)->size(), 4U);
    query = RowQuery{};
    query.label_name = "parity";
    query.label_value = "odd";
    EXPECT_EQ(db_->jobs(query)->size(), 5U);
    query.state = JobState::failed;
    EXPECT_TRUE(db_->jobs(query)->empty());
    query = RowQuery{};
    query.user = "x' OR '1'='1";
    EXPECT_TRUE(db_->jobs(query)->empty());
}

TEST_F(DatabaseTest, AFinishedJobIsNoLongerUnfinished) {
    submit(submission(1));
    Append append = submission(1).append;
    append.events[0].seq = 2;
    append.events[0].data = event::Finished{JobState::succeeded, {}, 5};
    append.row.state = JobState::succeeded;
    append.row.labels.clear();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->append(append).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    EXPECT_TRUE(db_->unfinished()->empty());
    EXPECT_EQ(*db_->count(JobState::succeeded), 1);
    EXPECT_EQ(*db_->count(JobState::accepted), 0);
}

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
    const auto all = *db_->batches(job, {}, 1000);
    std::string order;
    for (const BatchRow& one : all) {
        order += static_cast<char>('0' + one.data[0]);
    }
    EXPECT_EQ(order, "12345") << "by attempt, number, node";
    const auto first = *db_->batches(job, {}, 2);
    ASSERT_EQ(first.size(), 2U) << "as many as fit";
    const BatchPlace upto{first[1].attempt, first[1].seq, first[1].node_rank};
    EXPECT_EQ(db_->batches(job, upto, 1)->front().data, "\x03");
    const auto flush = [&](BatchPlace place) {
        ASSERT_TRUE(db_->begin().has_value());
        ASSERT_TRUE(db_->add_chunks({job, {}, 0, "s", place}).has_value());
        ASSERT_TRUE(db_->commit().has_value());
    };
    flush({});
    EXPECT_EQ(db_->batches(job, {}, 1000)->size(), 5U) << "none has been read";
    flush(upto);
    EXPECT_EQ(db_->batches(job, {}, 1000)->size(), 3U);
    EXPECT_EQ(db_->batches(job, {}, 1000)->front().data, "\x03");
    EXPECT_EQ(db_->batches(JobId{"ls-y"}, {}, 1000)->size(), 1U);
}

TEST_F(DatabaseTest, JobsThatAreOverAndHaveTelemetryOutsideChunksAreFound) {
    std::vector<JobId> jobs;
    for (int i = 1; i <= 4; ++i) {
        jobs.push_back(submit(submission(i)).id);
    }
    ASSERT_TRUE(db_->begin().has_value());
    for (const int i : {0, 0, 1, 3}) {
        ASSERT_TRUE(db_->add_log({jobs[static_cast<std::size_t>(i)], "x"}).has_value());
    }
    ASSERT_TRUE(db_->commit().has_value());
    {
        SQLite::Database raw{file().string(), SQLite::OPEN_READWRITE};
        raw.exec("INSERT INTO batches VALUES ('" + jobs[2].value + "', 1, 0, 1, x'01')");
        raw.exec("UPDATE jobs SET final = 1 WHERE id <> '" + jobs[1].value + "'");
    }
    EXPECT_EQ(*db_->unpacked({}, 9), (std::vector{jobs[0], jobs[2], jobs[3]}));
    EXPECT_EQ(*db_->unpacked({}, 1), std::vector{jobs[0]});
    EXPECT_EQ(*db_->unpacked(jobs[0], 9), (std::vector{jobs[2], jobs[3]}));
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
    const auto first = db_->add_log({job, "one"});
    const auto second = db_->add_log({job, "two"});
    ASSERT_TRUE(db_->add_log({JobId{"ls-y"}, "other"}).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    ASSERT_LT(*first, *second);
    ASSERT_TRUE(db_->begin().has_value());
    const auto newest = db_->add_chunks({job, {some_chunk(100, 50)}, *first, "state"});
    ASSERT_TRUE(newest.has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const auto log = *db_->log_rows(job);
    ASSERT_EQ(log.size(), 1U);
    EXPECT_EQ(log[0].data, "two");
    EXPECT_EQ(db_->log_rows(JobId{"ls-y"})->size(), 1U);
    EXPECT_EQ(*db_->history_state(job), "state");
    const auto reader = db_->reader();
    ASSERT_TRUE(reader.has_value());
    const auto chunks = *(*reader)->chunks(job, 0, 3, 3, *newest);
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].step_high, 109);
    EXPECT_TRUE((*reader)->chunks(job, 0, 0, 2, *newest)->empty());
    EXPECT_TRUE((*reader)->chunks(job, 0, 3, 3, *newest - 1)->empty());
    EXPECT_EQ((*reader)->section(*newest, "loss", 1)->value(), "small");
    EXPECT_FALSE((*reader)->section(*newest, "loss", 2)->has_value());
    EXPECT_EQ((*reader)->sections(*newest, 0)->size(), 1U);
    EXPECT_FALSE((*reader)->add_log({job, "no"}).has_value()) << "it only reads";
}

TEST_F(DatabaseTest, HistoryBeyondItsSizeGoesThatOfFinishedJobsFirst) {
    const auto running = submit(submission(1)).id;
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->add_chunks({running, {some_chunk(1, 1000)}, 0, ""}).has_value());
    ASSERT_TRUE(
        db_->add_chunks({JobId{"ls-gone"}, {some_chunk(2, 1000), some_chunk(3, 1000)}, 0, ""})
            .has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const std::int64_t each = db_->history_size()->bytes / 3;
    const double never = -1e300;
    const auto expire = [&](std::int64_t bytes, double before) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto gone = db_->expire_history(bytes, before, 100);
        EXPECT_TRUE(gone.has_value()) << gone.error().message;
        EXPECT_TRUE(db_->commit().has_value());
        return *gone;
    };
    EXPECT_EQ(expire(3 * each, never).chunks, 0);
    EXPECT_EQ(expire(2 * each, never).chunks, 1);
    const auto left = *db_->chunks(JobId{"ls-gone"}, 0, 0, 9, 1000);
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left[0].step_low, 3);
    EXPECT_EQ(db_->chunks(running, 0, 0, 9, 1000)->size(), 1U);
    EXPECT_EQ(expire(3 * each, 2.0).samples, 20) << "older than the limit";
    EXPECT_TRUE(db_->chunks(running, 0, 0, 9, 1000)->empty());
    EXPECT_EQ(db_->history_size()->bytes, each);
}

TEST_F(DatabaseTest, HistoryOfExactlyItsSizeStaysAndOneByteLessCostsOneChunk) {
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->add_chunks({JobId{"ls-gone"},
                                 {some_chunk(1, 1000), some_chunk(2, 1000), some_chunk(3, 1000)},
                                 0,
                                 ""})
                    .has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const std::int64_t all = db_->history_size()->bytes;
    const auto expire = [&](std::int64_t bytes, std::size_t most) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto gone = db_->expire_history(bytes, -1e300, most);
        EXPECT_TRUE(db_->commit().has_value());
        return gone ? gone->chunks : -1;
    };
    EXPECT_EQ(expire(all, 100), 0);
    EXPECT_EQ(expire(all - 1, 100), 1);
    EXPECT_EQ(expire(0, 1), 1) << "at most so many at a time";
    EXPECT_EQ(expire(0, 100), 1);
    EXPECT_EQ(db_->history_size()->bytes, 0);
}

TEST_F(DatabaseTest, AtMostSoManyChunksGoAtATimeForWhateverReasons) {
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(
        db_->add_chunks({JobId{"ls-gone"}, {some_chunk(1, 1000), some_chunk(2, 1000)}, 0, ""})
            .has_value());
    const auto gone = db_->expire_history(0, 1.6, 1);  // one is too old, both are too much
    ASSERT_TRUE(db_->commit().has_value());
    EXPECT_EQ(gone->chunks, 1);
    EXPECT_EQ(db_->history_size()->chunks, 1);
}

TEST_F(DatabaseTest, EventsAfterOneAreThoseBehindIt) {
    for (int seq = 1; seq <= 4; ++seq) {
        submit(submission(seq));
    }
    const auto after = *db_->events_after(2, 10);
    ASSERT_EQ(after.size(), 2U) << "the last one that was told is not told again";
    EXPECT_EQ(after[0].seq, 3);
    EXPECT_EQ(db_->events_after(2, 1)->size(), 1U);
    EXPECT_TRUE(db_->events_after(4, 10)->empty());
    const auto job = after[0].job;
    EXPECT_EQ(db_->events_of(job, 2, 10)->size(), 1U);
    EXPECT_TRUE(db_->events_of(job, 3, 10)->empty());
    EXPECT_EQ(db_->events_before(job, 0, 10)->size(), 1U) << "from the newest";
    EXPECT_EQ(db_->events_before(job, 4, 10)->size(), 1U);
    EXPECT_TRUE(db_->events_before(job, 3, 10)->empty());
}

TEST_F(DatabaseTest, WithItsLastChunkAJobThatIsOverLosesItsState) {
    const auto running = submit(submission(1)).id;
    const JobId over{"ls-gone"};
    const JobId logged{"ls-logged"};
    ASSERT_TRUE(db_->begin().has_value());
    for (const JobId& job : {running, over, logged}) {
        ASSERT_TRUE(db_->add_chunks({job, {some_chunk(1, 10)}, 0, "state"}).has_value());
    }
    ASSERT_TRUE(db_->add_chunks({over, {some_chunk(20, 10)}, 0, ""}).has_value());
    EXPECT_EQ(*db_->history_state(over), "state") << "\"\" says nothing new";
    ASSERT_TRUE(db_->add_log({logged, "late"}).has_value());
    ASSERT_TRUE(db_->expire_history(1'000'000, 10, 100).has_value());
    EXPECT_EQ(*db_->history_state(over), "state") << "it has a chunk";
    ASSERT_TRUE(db_->expire_history(1'000'000, 100, 100).has_value());
    EXPECT_EQ(*db_->history_state(over), "");
    EXPECT_EQ(*db_->history_state(logged), "state") << "it says which batches are known";
    EXPECT_EQ(*db_->history_state(running), "state");
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
        ASSERT_TRUE(db_->add_chunks({job, {some_chunk(1, 10)}, 0, "state"}).has_value());
    }
    ASSERT_TRUE(db_->add_chunks({packed, {some_chunk(200, 10)}, 0, "state"}).has_value());
    ASSERT_TRUE(db_->add_log({logged, "late"}).has_value());
    ASSERT_EQ(db_->expire_history(1'000'000, 100, 100)->chunks, 3);
    EXPECT_EQ(*db_->forget_states("", 100), "");
    EXPECT_EQ(*db_->history_state(ended), "state") << "it runs";
    Append append = submission(1).append;
    append.events[0].seq = 3;
    append.events[0].data = event::Finished{JobState::succeeded, {}, 5};
    append.row.state = JobState::succeeded;
    append.row.labels.clear();
    ASSERT_TRUE(db_->append(append).has_value());
    std::string after;
    int calls = 0;
    do {
        const auto last = db_->forget_states(after, 1);
        ASSERT_TRUE(last.has_value());
        after = *last;
    } while (!after.empty() && ++calls < 100);
    EXPECT_EQ(*db_->history_state(ended), "");
    EXPECT_EQ(*db_->history_state(running), "state");
    EXPECT_EQ(*db_->history_state(packed), "state") << "it has a chunk";
    EXPECT_EQ(*db_->history_state(logged), "state") << "it says which batches are known";
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
        const HistorySize size = *db_->history_size();
        EXPECT_EQ(size.chunks, sum.getColumn(0).getInt64());
        EXPECT_EQ(size.samples, sum.getColumn(1).getInt64());
        EXPECT_EQ(size.bytes, sum.getColumn(2).getInt64());
    };
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(
        db_->add_chunks({job, {some_chunk(1, 10), some_chunk(20, 500)}, 0, ""}).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->add_chunks({job, {some_chunk(30, 10)}, 0, ""}).has_value());
    db_->rollback();
    check();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->expire_history(1'000'000, 10, 100).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    check();
}

TEST_F(DatabaseTest, TheNewestOfAKindIsOneOfEachGeneration) {
    const SubmitWrite write = submission(1);
    const JobId job = submit(write).id;
    Append append = write.append;
    append.row.labels.clear();
    append.events.clear();
    Seq seq = 1;
    const auto add = [&](EventData data) {
        Event event;
        event.seq = ++seq;
        event.job = job;
        event.time = 1;
        event.data = std::move(data);
        append.events.push_back(std::move(event));
    };
    for (std::int32_t generation = 1; generation <= 3; ++generation) {
        event::GenerationStarted started;
        started.attempt = 1;
        started.generation = generation;
        add(started);
        for (int i = 0; i < 5 && generation != 2; ++i) {
            event::AnomalySeen seen;
            seen.attempt = 1;
            seen.generation = generation;
            seen.anomaly = "nonfinite";
            add(seen);
        }
    }
    append.row.last_seq = seq;
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(db_->append(append).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const auto all = *db_->newest_of(job, EventKind::anomaly, 9);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].seq, seq);
    EXPECT_EQ(all[1].seq, 7);
    EXPECT_EQ(db_->newest_of(job, EventKind::anomaly, 1)->size(), 1U);
    EXPECT_TRUE(db_->newest_of(job, EventKind::evidence_taken, 9)->empty());
}

TEST_F(DatabaseTest, RefusesAFileOfANewerVersionAndLeavesItAlone) {
    db_.reset();
    {
        SQLite::Database raw{file().string(), SQLite::OPEN_READWRITE};
        raw.exec("PRAGMA user_version = " + std::to_string(schema_version() + 1));
    }
    const auto refused = Database::open(file());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_NE(refused.error().message.find("written by a newer lockstepd"), std::string::npos);
    SQLite::Database raw{file().string()};
    EXPECT_EQ(raw.execAndGet("PRAGMA user_version").getInt(), schema_version() + 1);
}

TEST_F(DatabaseTest, RefusesWhatIsNoDatabase) {
    const auto path = folder_ / "junk.db";
    std::FILE* out = std::fopen(path.c_str(), "w");
    std::fputs("this is not a database, but it is long enough to be taken for one", out);
    std::fclose(out);
    EXPECT_EQ(Database::open(path).error().code, Errc::corrupt);
}

TEST_F(DatabaseTest, TokensOfVersion1AreKept) {
    const auto old = folder_ / "old.db";
    {
        SQLite::Database raw{old.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE};
        raw.exec(kMigrations[0].sql);
        raw.exec("PRAGMA user_version = 1");
        raw.exec("INSERT INTO tokens VALUES ('h1','ada','admin',5,0), ('h2','bob','admin',6,90)");
    }
    const auto db = std::move(Database::open(old).value());
    const auto rows = db->tokens();
    ASSERT_TRUE(rows.has_value());
    ASSERT_EQ(rows->size(), 2U);
    EXPECT_EQ((*rows)[0].sha256, "h1");
    EXPECT_EQ((*rows)[0].user, "ada");
    EXPECT_EQ((*rows)[0].role, "admin");
    EXPECT_EQ((*rows)[0].scopes, "");
    EXPECT_EQ((*rows)[0].expires_at, 0);
    EXPECT_EQ((*rows)[0].revoked_at, 0);
    EXPECT_EQ((*rows)[1].created_at, 6);
    EXPECT_EQ((*rows)[1].expires_at, 90);
    EXPECT_EQ((*rows)[0].id.size(), 15U);
    EXPECT_NE((*rows)[0].id, (*rows)[1].id);
}

TEST_F(DatabaseTest, EndedTokensAreForgottenAfterAWhile) {
    const auto add = [&](const std::string& id, UnixMillis expires, UnixMillis revoked) {
        TokenRow row;
        row.id = id;
        row.sha256 = "h" + id;
        row.expires_at = expires;
        row.revoked_at = revoked;
        EXPECT_TRUE(db_->add_token(row).has_value());
    };
    add("endless", 0, 0);
    add("expired-long-ago", 99, 0);
    add("expired", 100, 0);
    add("revoked-long-ago", 0, 99);
    add("revoked", 0, 100);
    EXPECT_TRUE(db_->remove_ended_tokens(100).has_value());
    std::set<std::string> left;
    const auto rows = db_->tokens();
    for (const TokenRow& row : rows.value()) {
        left.insert(row.id);
    }
    EXPECT_EQ(left, (std::set<std::string>{"endless", "expired", "revoked"}));
}

TEST_F(DatabaseTest, ATokenThatIsRevokedTwiceWasRevokedTheFirstTime) {
    TokenRow row;
    row.id = "one";
    row.sha256 = "h";
    ASSERT_TRUE(db_->add_token(row).has_value());
    ASSERT_TRUE(db_->revoke_token("one", 5).has_value());
    ASSERT_TRUE(db_->revoke_token("one", 9).has_value());
    const auto rows = db_->tokens();
    ASSERT_EQ(rows->size(), 1U);
    EXPECT_EQ(rows->front().revoked_at, 5);
}

TEST_F(DatabaseTest, ATokenThatIsRevokedTakesAllThatWereMadeWithItAlong) {
    const std::vector<std::pair<std::string, std::string>> tokens{
        {"root", ""}, {"a", "root"}, {"a1", "a"}, {"a11", "a1"}, {"b", "root"}, {"other", ""}};
    for (const auto& [id, parent] : tokens) {
        TokenRow row;
        row.id = id;
        row.sha256 = "hash of " + id;
        row.parent = parent;
        ASSERT_TRUE(db_->add_token(row).has_value());
    }
    ASSERT_TRUE(db_->revoke_token("a1", 5).has_value());
    ASSERT_TRUE(db_->revoke_token("a", 9).has_value());
    std::map<std::string, UnixMillis> revoked;
    const auto rows = db_->tokens();
    ASSERT_TRUE(rows.has_value());
    for (const TokenRow& row : *rows) {
        revoked[row.id] = row.revoked_at;
    }
    const std::map<std::string, UnixMillis> expected{{"root", 0}, {"a", 9}, {"a1", 5},
                                                     {"a11", 5},  {"b", 0}, {"other", 0}};
    EXPECT_EQ(revoked, expected);
}

TEST_F(DatabaseTest, AFullDiskIsExhaustedAndHeals) {
    submit(submission(1));
    ASSERT_TRUE(db_->limit_pages(1).has_value());
    Result<SubmitDone> outcome = SubmitDone{};
    int stored = 1;
    for (int i = 2; i < 2000 && outcome; ++i) {
        ASSERT_TRUE(db_->begin().has_value());
        SubmitWrite write = submission(i);
        write.append.row.view = std::string(5000, 'x');
        outcome = db_->submit(write);
        if (outcome && db_->commit()) {
            ++stored;
        }
    }
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, Errc::exhausted);
    db_->rollback();
    EXPECT_EQ(db_->unfinished()->size(), static_cast<std::size_t>(stored));
    ASSERT_TRUE(db_->limit_pages(1'000'000).has_value());
    submit(submission(1999));
    EXPECT_EQ(db_->unfinished()->size(), static_cast<std::size_t>(stored) + 1);
}

}  // namespace
}  // namespace lockstep
