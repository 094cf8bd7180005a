// Jobs that are removed: what goes at once, what goes in slices, what comes too late.
#include "daemon/store/clock_records.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class RemovalTest : public ::testing::Test {
  protected:
    void SetUp() override { db_ = std::move(Database::open(folder_ / "lockstep.db").value()); }

    static JobId id(int number) {
        return JobId{"ls-0000000000000000000000" + std::to_string(1000 + number)};
    }
    static JobRow row(int number, bool over, Seq seq) {
        JobRow out;
        out.id = id(number);
        out.user = "ada";
        out.name = "t";
        out.state = over ? JobState::succeeded : JobState::accepted;
        out.finished_at = over ? 5000 + number : 0;
        out.last_seq = seq;
        out.view = "{}";
        return out;
    }
    template <class Work>
    void commit(Work work) {
        ASSERT_TRUE(db_->begin().has_value());
        work();
        ASSERT_TRUE(db_->commit().has_value());
    }
    // A job that has ended; events 10 n and 10 n + 1.
    void ended(int number, std::vector<std::pair<std::string, std::string>> labels = {}) {
        commit([&] {
            SubmitWrite write;
            Event event;
            event.seq = 10 * number;
            event.job = id(number);
            event::Submitted data;
            data.user = "ada";
            data.spec = *parse_json(R"({"name":"t","framework":"native"})");
            event.data = data;
            write.append.events = {event};
            write.append.row = row(number, false, event.seq);
            write.append.row.labels = std::move(labels);
            write.idempotency_key = "key" + std::to_string(number);
            EXPECT_TRUE(JobRecords{*db_}.submit(write).has_value());
            Append end;
            event.seq += 1;
            event.data = event::Finished{JobState::succeeded, {}, 5};
            end.events = {event};
            end.row = row(number, true, event.seq);
            EXPECT_TRUE(JobRecords{*db_}.append(end).has_value());
        });
    }
    bool remove(int number) {
        bool done = false;
        commit([&] {
            RemovalRow removal;
            removal.job = id(number);
            removal.removed_at = 9000;
            const auto removed = RemovalRecords{*db_}.remove_job(removal);
            EXPECT_TRUE(removed.has_value()) << removed.error().message;
            done = removed.value_or(false);
        });
        return done;
    }
    static ChunkRow chunk() {
        ChunkRow out;
        out.rows = 1;
        out.samples = 10;
        out.sections = {{"loss", 0, "0123456789"}};
        return out;
    }

    const test::TemporaryFolder folder_;
    std::unique_ptr<Database> db_;
};

TEST_F(RemovalTest, OnlyAJobThatIsOverGoesAndNothingOfItIsFound) {
    ended(1);
    ended(2);
    commit([&] {
        SubmitWrite write;
        Event event;
        event.seq = 30;
        event.job = id(3);
        event::Submitted data;
        data.user = "ada";
        data.spec = *parse_json(R"({"name":"t","framework":"native"})");
        event.data = data;
        write.append.events = {event};
        write.append.row = row(3, false, 30);
        EXPECT_TRUE(JobRecords{*db_}.submit(write).has_value());
    });
    EXPECT_FALSE(remove(3)) << "it is not over";
    EXPECT_FALSE(remove(4)) << "there is none";
    EXPECT_TRUE(remove(1));
    EXPECT_FALSE(remove(1)) << "it is gone";
    EXPECT_FALSE(JobRecords{*db_}.find(id(1))->has_value());
    EXPECT_TRUE(EventRecords{*db_}.of_job(id(1), 0, 10)->empty());
    EXPECT_EQ(EventRecords{*db_}.of_job(id(2), 0, 10)->size(), 2U);
    EXPECT_EQ(*JobRecords{*db_}.count(JobState::succeeded), 1);
    const auto removal = *RemovalRecords{*db_}.find(id(1));
    ASSERT_TRUE(removal.has_value());
    EXPECT_EQ(removal->user, "ada");
    EXPECT_EQ(removal->finished_at, 5001);
    EXPECT_FALSE(RemovalRecords{*db_}.find(id(2))->has_value());
}

// A repetition of the submission made the job once more.
TEST_F(RemovalTest, TheKeyOfARemovedJobStaysAsLongAsItsRemoval) {
    ended(1);
    ended(2);
    EXPECT_TRUE(remove(1));
    const auto job_of_key = [&]() -> std::string {
        const auto done = JobRecords{*db_}.submitted_before("ada", "key1", "").value();
        return done ? done->id.value : "";
    };
    EXPECT_EQ(job_of_key(), id(1).value);
    commit([&] { EXPECT_TRUE(RemovalRecords{*db_}.forget(1'000'000).has_value()); });
    EXPECT_EQ(job_of_key(), id(1).value) << "something of the job is left";
    commit([&] {
        EXPECT_TRUE(RemovalRecords{*db_}.done(id(1)).has_value());
        EXPECT_TRUE(RemovalRecords{*db_}.forget(1'000'000).has_value());
    });
    EXPECT_EQ(job_of_key(), "");
    EXPECT_TRUE(JobRecords{*db_}.submitted_before("ada", "key2", "")->has_value());
}

TEST_F(RemovalTest, TheKeyOfASweepIsHandedOnToAJobThatIsThere) {
    for (const int number : {1, 2, 3}) {
        ended(number, {{kSweepLabel, id(1).value}});
    }
    ended(4, {{kSweepLabel, id(4).value}});
    const auto job_of_key = [&] {
        return JobRecords{*db_}.submitted_before("ada", "key1", "").value().value().id.value;
    };
    EXPECT_TRUE(remove(1));
    EXPECT_EQ(job_of_key(), id(2).value);
    EXPECT_TRUE(remove(3));
    EXPECT_EQ(job_of_key(), id(2).value);
    EXPECT_TRUE(remove(2));
    EXPECT_EQ(job_of_key(), id(2).value) << "of the sweep none is left";
}

// Streams resume by number: a number that is given twice would hide an event from its reader.
TEST_F(RemovalTest, NumbersOfRemovedEventsAreNotGivenAgain) {
    ended(1);
    ended(2);
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 21);
    EXPECT_TRUE(remove(2));
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 21);
    commit([&] {
        EXPECT_TRUE(RemovalRecords{*db_}.done(id(2)).has_value());
        EXPECT_TRUE(RemovalRecords{*db_}.forget(1'000'000).has_value());
    });
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 21) << "the row is kept while it is all that knows";
    ended(3);
    commit([&] { EXPECT_TRUE(RemovalRecords{*db_}.forget(1'000'000).has_value()); });
    EXPECT_FALSE(RemovalRecords{*db_}.find(id(2))->has_value());
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 31);
}

TEST_F(RemovalTest, HistoryGoesInSlicesAndWhatComesLateIsNotKept) {
    ended(1);
    commit([&] {
        EXPECT_TRUE(HistoryRecords{*db_}
                        .add_chunks({id(1), {chunk(), chunk(), chunk()}, 0, "state"})
                        .has_value());
        EXPECT_TRUE(HistoryRecords{*db_}.add_chunks({id(2), {chunk()}, 0, ""}).has_value());
        EXPECT_TRUE(HistoryRecords{*db_}.add_log({id(1), "rows"}).has_value());
    });
    const std::int64_t each = HistoryRecords{*db_}.size()->bytes / 4;
    EXPECT_EQ(*HistoryRecords{*db_}.bytes_of(id(1)), 3 * each);
    EXPECT_TRUE(remove(1));
    const auto slice = [&] {
        std::int64_t chunks = -1;
        commit([&] { chunks = HistoryRecords{*db_}.remove(id(1), 2)->chunks; });
        return chunks;
    };
    EXPECT_EQ(slice(), 2);
    EXPECT_EQ(HistoryRecords{*db_}.log(id(1))->size(), 1U) << "there is another slice";
    EXPECT_EQ(slice(), 1);
    EXPECT_TRUE(HistoryRecords{*db_}.log(id(1))->empty());
    EXPECT_EQ(*HistoryRecords{*db_}.state(id(1)), "");
    EXPECT_EQ(HistoryRecords{*db_}.size()->bytes, each);
    commit([&] {
        EXPECT_TRUE(HistoryRecords{*db_}.add_chunks({id(1), {chunk()}, 0, "late"}).has_value());
        EXPECT_TRUE(HistoryRecords{*db_}.add_log({id(1), "late"}).has_value());
    });
    EXPECT_EQ(HistoryRecords{*db_}.size()->bytes, each);
    EXPECT_TRUE(HistoryRecords{*db_}.log(id(1))->empty());
    EXPECT_EQ(*HistoryRecords{*db_}.state(id(1)), "");
}

TEST_F(RemovalTest, ASnapshotGoesWithTheLastJobThatRunsInIt) {
    ended(1, {{kSnapshotLabel, "abc-1"}});
    ended(2, {{kSnapshotLabel, "abc-1"}});
    EXPECT_TRUE(remove(1));
    EXPECT_TRUE(remove(2));
    EXPECT_EQ((*RemovalRecords{*db_}.find(id(1)))->snapshot, "");
    EXPECT_EQ((*RemovalRecords{*db_}.find(id(2)))->snapshot, "abc-1");
}

TEST_F(RemovalTest, WhatIsUnfinishedIsFoundUntilItIsDone) {
    for (int i = 1; i <= 3; ++i) {
        ended(i);
        EXPECT_TRUE(remove(i));
    }
    commit([&] { EXPECT_TRUE(RemovalRecords{*db_}.done(id(2)).has_value()); });
    const auto left = *RemovalRecords{*db_}.unfinished(JobId{}, 10);
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left[0].job, id(1));
    EXPECT_EQ(RemovalRecords{*db_}.unfinished(id(1), 10)->size(), 1U);
    commit([&] { EXPECT_TRUE(RemovalRecords{*db_}.forget(1'000'000).has_value()); });
    EXPECT_EQ(RemovalRecords{*db_}.unfinished(JobId{}, 10)->size(), 2U);
}

TEST_F(RemovalTest, OldJobsAreThoseThatEndedBeforeWithoutTheLabelKeep) {
    ended(3);
    ended(1);
    ended(2, {{"keep", "for the paper"}});
    const auto ended_before = [&](UnixMillis before, std::size_t limit, EndedJob after = {}) {
        std::vector<JobId> out;
        const auto found = *JobRecords{*db_}.ended_before(before, after, limit);
        for (const EndedJob& one : found) {
            out.push_back(one.job);
        }
        return out;
    };
    const auto old = ended_before(5003, 10);
    ASSERT_EQ(old.size(), 1U);
    EXPECT_EQ(old[0], id(1));
    EXPECT_EQ(ended_before(6000, 10).front(), id(1)) << "the oldest first";
    EXPECT_EQ(ended_before(6000, 10).size(), 2U);
    EXPECT_EQ(ended_before(6000, 10, {5001, id(1)}), std::vector{id(3)});
}

TEST_F(RemovalTest, ATimeThatNobodySawPassIsAGapUntilTheClockGoesBack) {
    std::vector<ClockGap> gaps;
    const auto look = [&](UnixMillis now) {
        commit([&] { gaps = *ClockRecords{*db_}.look(now, 100); });
    };
    look(1000);
    EXPECT_TRUE(gaps.empty()) << "the first look";
    look(1100);
    EXPECT_TRUE(gaps.empty());
    look(9000);
    look(9050);
    look(9500);
    ASSERT_EQ(gaps.size(), 2U);
    EXPECT_EQ(gaps[0].began, 1100);
    EXPECT_EQ(gaps[0].ended, 9000);
    EXPECT_EQ(gaps[1].began, 9050);
    look(1200);
    EXPECT_TRUE(gaps.empty()) << "the clock had been ahead";
    look(1250);
    EXPECT_TRUE(gaps.empty());
}

TEST_F(RemovalTest, WithoutALookBeforeTheNewestJobSaysWhenTheClockWasRight) {
    ended(1);
    std::vector<ClockGap> gaps;
    commit([&] { gaps = *ClockRecords{*db_}.look(8000, 100); });
    ASSERT_EQ(gaps.size(), 1U);
    EXPECT_EQ(gaps[0].began, 5001);
}

TEST_F(RemovalTest, AFolderAndASnapshotAreUsedAsLongAsAJobIsThere) {
    ended(1);
    ended(2, {{kFolderLabel, id(1).value}, {kSnapshotLabel, "abc"}});
    EXPECT_EQ(*JobRecords{*db_}.user_of_folder(id(1)), id(2).value);
    EXPECT_EQ(*JobRecords{*db_}.user_of_folder(id(2)), "");
    // A folder that is called like a job is any folder, while that job's is in the runs directory.
    ended(3, {{kNamesakeLabel, id(2).value}});
    EXPECT_EQ(*JobRecords{*db_}.user_of_folder(id(2)), "");
    EXPECT_EQ(*JobRecords{*db_}.user_of_folder(id(2), true), id(3).value);
    EXPECT_TRUE(*JobRecords{*db_}.snapshot_used("abc"));
    EXPECT_FALSE(*JobRecords{*db_}.snapshot_used("ab"));
    commit([&] {
        RemovalRow removal;
        removal.job = id(2);
        EXPECT_TRUE(*RemovalRecords{*db_}.remove_job(removal));
    });
    EXPECT_EQ(*JobRecords{*db_}.user_of_folder(id(1)), "");
    EXPECT_FALSE(*JobRecords{*db_}.snapshot_used("abc"));
}

}  // namespace
}  // namespace lockstep
