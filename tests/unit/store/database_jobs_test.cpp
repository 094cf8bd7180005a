// Jobs and their events in the database, and the file that it is in.
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "tests/unit/store/database_fixture.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST_F(DatabaseTest, KeepsEventsAndTheFoldAcrossAReopen) {
    submit(submission(1));
    submit(submission(2));
    db_.reset();
    db_ = std::move(Database::open(file()).value());
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 2);
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), 2U);
    const auto events = EventRecords{*db_}.of_job(submission(1).append.row.id, 0, 10);
    ASSERT_EQ(events->size(), 1U);
    EXPECT_EQ(std::get<event::Submitted>((*events)[0].data).user, "ada");
    EXPECT_EQ((*JobRecords{*db_}.find(submission(2).append.row.id))->view, "{\"n\":2}");
    EXPECT_FALSE(JobRecords{*db_}.find(JobId{"ls-none"})->has_value());
}

TEST_F(DatabaseTest, AnIdempotencyKeyGivesTheFirstJobAgain) {
    EXPECT_FALSE(submit(submission(1, "key")).repeated);
    const auto again = submit(submission(2, "key"));
    EXPECT_TRUE(again.repeated);
    EXPECT_FALSE(again.other_body);
    EXPECT_EQ(again.id, submission(1).append.row.id);
    EXPECT_TRUE(submit(submission(3, "key", "other")).other_body);
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), 1U);
    SubmitWrite bobs = submission(4, "key");
    bobs.append.row.user = "bob";
    EXPECT_FALSE(submit(bobs).repeated) << "each user's keys are the user's own";
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), 2U);
}

TEST_F(DatabaseTest, ListsNewestFirstWithFiltersAndAPlaceToGoOn) {
    for (int i = 1; i <= 9; ++i) {
        submit(submission(i));
    }
    RowQuery query;
    query.limit = 4;
    auto rows = *JobRecords{*db_}.list(query);
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0].last_seq, 9);
    query.before = rows.back().id.value;
    EXPECT_EQ((*JobRecords{*db_}.list(query))[0].last_seq, 5);
    query = RowQuery{};
    query.name = "even";
    EXPECT_EQ(JobRecords{*db_}.list(query)->size(), 4U);
    query = RowQuery{};
    query.label_name = "parity";
    query.label_value = "odd";
    EXPECT_EQ(JobRecords{*db_}.list(query)->size(), 5U);
    query.states = {JobState::failed};
    EXPECT_TRUE(JobRecords{*db_}.list(query)->empty());
    query.states = {JobState::failed, JobState::accepted};
    EXPECT_EQ(JobRecords{*db_}.list(query)->size(), 5U);
    query = RowQuery{};
    query.user = "x' OR '1'='1";
    EXPECT_TRUE(JobRecords{*db_}.list(query)->empty());
}

// The page looked through the newest 50 jobs: nobody found "that llama job of last week".
TEST_F(DatabaseTest, ASearchLooksAtEveryJobATurnAtATime) {
    for (int i = 1; i <= 9; ++i) {
        SubmitWrite write = submission(i);
        if (i == 2) {
            write.append.row.view =
                R"({"framework":"pytorch","labels":{"Team":"Vision","n":"ü"},"cause":{"message":"Out of memory"}})";
        }
        submit(write);
    }
    RowQuery query;
    const auto first = *JobRecords{*db_}.search(query, {"vision"}, 4);
    EXPECT_TRUE(first.found.empty());
    EXPECT_EQ(first.looked_at, 4U);
    EXPECT_TRUE(first.more);
    query.before = first.last;
    const auto second =
        *JobRecords{*db_}.search(query, {"EVEN", "team:vis", "PyTorch", "ada", "ü", "MEMORY"}, 5);
    ASSERT_EQ(second.found.size(), 1U);
    EXPECT_EQ(second.found[0].last_seq, 2);
    EXPECT_EQ(second.looked_at, 5U);
    EXPECT_FALSE(second.more);
    query = RowQuery{};
    query.limit = 2;
    const auto odd = *JobRecords{*db_}.search(query, {"odd"}, 100);
    ASSERT_EQ(odd.found.size(), 2U);
    EXPECT_TRUE(odd.more) << "it ended with the second one";
    EXPECT_EQ(odd.last, odd.found.back().id.value);
    query.user = "bob";
    EXPECT_EQ(JobRecords{*db_}.search(query, {"odd"}, 100)->looked_at, 0U);
    query = RowQuery{};
    EXPECT_TRUE(JobRecords{*db_}.search(query, {"odd", "even"}, 100)->found.empty()) << "each word";
    EXPECT_TRUE(JobRecords{*db_}.search(query, {"%"}, 100)->found.empty()) << "no pattern";
}

TEST_F(DatabaseTest, AFinishedJobIsNoLongerUnfinished) {
    submit(submission(1));
    Append append = submission(1).append;
    append.events[0].seq = 2;
    append.events[0].data = event::Finished{JobState::succeeded, {}, 5};
    append.row.state = JobState::succeeded;
    append.row.labels.clear();
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(JobRecords{*db_}.append(append).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    EXPECT_TRUE(JobRecords{*db_}.unfinished()->empty());
    EXPECT_EQ(*JobRecords{*db_}.count(JobState::succeeded), 1);
    EXPECT_EQ(*JobRecords{*db_}.count(JobState::accepted), 0);
}

TEST_F(DatabaseTest, EventsAfterOneAreThoseBehindIt) {
    for (int seq = 1; seq <= 4; ++seq) {
        submit(submission(seq));
    }
    const auto after = *EventRecords{*db_}.after(2, 10);
    ASSERT_EQ(after.size(), 2U) << "the last one that was told is not told again";
    EXPECT_EQ(after[0].seq, 3);
    EXPECT_EQ(EventRecords{*db_}.after(2, 1)->size(), 1U);
    EXPECT_TRUE(EventRecords{*db_}.after(4, 10)->empty());
    const auto job = after[0].job;
    EXPECT_EQ(EventRecords{*db_}.of_job(job, 2, 10)->size(), 1U);
    EXPECT_TRUE(EventRecords{*db_}.of_job(job, 3, 10)->empty());
    EXPECT_EQ(EventRecords{*db_}.of_job_before(job, 0, 10)->size(), 1U) << "from the newest";
    EXPECT_EQ(EventRecords{*db_}.of_job_before(job, 4, 10)->size(), 1U);
    EXPECT_TRUE(EventRecords{*db_}.of_job_before(job, 3, 10)->empty());
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
    ASSERT_TRUE(JobRecords{*db_}.append(append).has_value());
    ASSERT_TRUE(db_->commit().has_value());
    const auto all = *EventRecords{*db_}.newest_of(job, EventKind::anomaly, 9);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].seq, seq);
    EXPECT_EQ(all[1].seq, 7);
    EXPECT_EQ(EventRecords{*db_}.newest_of(job, EventKind::anomaly, 1)->size(), 1U);
    EXPECT_TRUE(EventRecords{*db_}.newest_of(job, EventKind::evidence_taken, 9)->empty());
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

TEST_F(DatabaseTest, AFullDiskIsExhaustedAndHeals) {
    submit(submission(1));
    ASSERT_TRUE(db_->limit_pages(1).has_value());
    Result<SubmitDone> outcome = SubmitDone{};
    int stored = 1;
    for (int i = 2; i < 2000 && outcome; ++i) {
        ASSERT_TRUE(db_->begin().has_value());
        SubmitWrite write = submission(i);
        write.append.row.view = std::string(5000, 'x');
        outcome = JobRecords{*db_}.submit(write);
        if (outcome && db_->commit()) {
            ++stored;
        }
    }
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, Errc::exhausted);
    db_->rollback();
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), static_cast<std::size_t>(stored));
    ASSERT_TRUE(db_->limit_pages(1'000'000).has_value());
    submit(submission(1999));
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), static_cast<std::size_t>(stored) + 1);
}

}  // namespace
}  // namespace lockstep
