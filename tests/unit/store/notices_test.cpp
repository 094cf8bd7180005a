// Notices in the store: with their events or not at all, in whose turn they are due, gone with
// their job.
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "tests/support/temporary_folder.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <lockstep_migrations.hpp>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

class NoticesTest : public ::testing::Test {
  protected:
    void SetUp() override { db_ = std::move(Database::open(file()).value()); }
    std::filesystem::path file() const { return folder_ / "lockstep.db"; }

    static JobId id(int number) {
        return JobId{"ls-0000000000000000000000" + std::to_string(1000 + number)};
    }
    static NoticeRow notice(int number, Seq seq, const std::string& user, const std::string& lane,
                            UnixMillis due = 1000) {
        NoticeRow out;
        out.job = id(number);
        out.user = user;
        out.seq = seq;
        out.target = "webhook:http://" + lane + "/";
        out.lane = lane;
        out.body = R"({"event":"failed"})";
        out.created_at = due;
        out.due_at = due;
        return out;
    }
    // The end of a job, with what is to be told of it.
    static Append end_of(int number, Seq seq, std::vector<NoticeRow> notices) {
        Append out;
        Event event;
        event.seq = seq;
        event.job = id(number);
        event.data = event::Finished{JobState::succeeded, {}, 5};
        out.events = {event};
        out.row.id = id(number);
        out.row.user = "ada";
        out.row.state = JobState::succeeded;
        out.row.finished_at = 5000;
        out.row.last_seq = seq;
        out.row.view = "{}";
        out.notices = std::move(notices);
        return out;
    }
    void append(const Append& what) {
        ASSERT_TRUE(db_->begin().has_value());
        const Status done = JobRecords{*db_}.append(what);
        ASSERT_TRUE(done.has_value()) << done.error().message;
        ASSERT_TRUE(db_->commit().has_value());
    }
    void settle(const std::vector<NoticeSettled>& settled) {
        ASSERT_TRUE(db_->begin().has_value());
        ASSERT_TRUE(NoticeRecords{*db_}.settle(settled).has_value());
        ASSERT_TRUE(db_->commit().has_value());
    }
    NoticeQueue queue(UnixMillis now = 2000, std::size_t of_lane = 10, std::size_t most = 100) {
        NoticeQuery query;
        query.now = now;
        query.latest = now + 1'000'000;
        query.of_lane = of_lane;
        query.most = most;
        auto out = NoticeRecords{*db_}.queue(query);
        EXPECT_TRUE(out.has_value()) << (out ? "" : out.error().message);
        return out ? *out : NoticeQueue{};
    }
    static std::string lanes(const NoticeQueue& queue) {
        std::string out;
        for (const NoticeRow& row : queue.due) {
            out += (out.empty() ? "" : " ") + row.user + ":" + row.lane;
        }
        return out;
    }

    const test::TemporaryFolder folder_;
    std::unique_ptr<Database> db_;
};

TEST_F(NoticesTest, AreThereAsTheyWereWrittenAfterAReopen) {
    append(end_of(1, 7, {notice(1, 7, "ada", "a"), notice(1, 7, "ada", "b")}));
    db_.reset();
    db_ = std::move(Database::open(file()).value());
    const NoticeQueue all = queue();
    ASSERT_EQ(all.due.size(), 2U);
    const NoticeRow& row = all.due[0];
    EXPECT_GT(row.id, 0);
    EXPECT_EQ(row.job, id(1));
    EXPECT_EQ(row.user, "ada");
    EXPECT_EQ(row.seq, 7);
    EXPECT_EQ(row.target, "webhook:http://a/");
    EXPECT_EQ(row.lane, "a");
    EXPECT_EQ(row.body, R"({"event":"failed"})");
    EXPECT_EQ(row.created_at, 1000);
    EXPECT_EQ(row.due_at, 1000);
    EXPECT_EQ(row.tries, 0);
    EXPECT_EQ(all.waiting.at("ada"), 2U);
    EXPECT_EQ(all.next_due, 0);
}

TEST_F(NoticesTest, AreStoredWithTheirEventsOrNotAtAll) {
    ASSERT_TRUE(db_->begin().has_value());
    ASSERT_TRUE(JobRecords{*db_}.append(end_of(1, 7, {notice(1, 7, "ada", "a")})).has_value());
    db_->rollback();
    EXPECT_TRUE(queue().due.empty());
    EXPECT_TRUE(EventRecords{*db_}.of_job(id(1), 0, 10)->empty());
    append(end_of(1, 7, {notice(1, 7, "ada", "a")}));
    EXPECT_EQ(queue().due.size(), 1U);
    EXPECT_EQ(EventRecords{*db_}.of_job(id(1), 0, 10)->size(), 1U);
}

TEST_F(NoticesTest, OneOfAnEventAndATargetIsKept) {
    append(end_of(1, 7, {notice(1, 7, "ada", "a"), notice(1, 7, "ada", "a")}));
    EXPECT_EQ(queue().due.size(), 1U);
}

TEST_F(NoticesTest, GoWhenTheyAreSettledOrWaitForTheNextTry) {
    append(end_of(1, 7, {notice(1, 7, "ada", "a"), notice(1, 7, "ada", "b")}));
    const NoticeQueue first = queue();
    ASSERT_EQ(first.due.size(), 2U);
    settle({{first.due[0].id, 0, 1}, {first.due[1].id, 9000, 3}});
    EXPECT_TRUE(queue().due.empty());
    EXPECT_EQ(queue().next_due, 9000);
    EXPECT_EQ(queue().waiting.at("ada"), 1U);
    const NoticeQueue later = queue(9000);
    ASSERT_EQ(later.due.size(), 1U);
    EXPECT_EQ(later.due[0].tries, 3);
    EXPECT_EQ(later.due[0].created_at, 1000);
    settle({{later.due[0].id, 0, 4}});
    EXPECT_TRUE(queue(9000).waiting.empty());
    // A number is not given again: what becomes of an old one must not end a new one.
    append(end_of(2, 8, {notice(2, 8, "ada", "a")}));
    EXPECT_GT(queue().due.at(0).id, later.due[0].id);
}

TEST_F(NoticesTest, UsersAndTheirLanesTakeTurns) {
    std::vector<NoticeRow> rows;
    for (Seq seq = 1; seq <= 50; ++seq) {
        rows.push_back(notice(1, seq, "ada", "slow", 1000 + seq));
    }
    rows.push_back(notice(1, 60, "ada", "quick", 1500));
    rows.push_back(notice(1, 61, "bob", "other", 1600));
    append(end_of(1, 100, rows));
    EXPECT_EQ(lanes(queue(2000, 2, 100)), "ada:slow bob:other ada:quick ada:slow");
    EXPECT_EQ(lanes(queue(2000, 10, 3)), "ada:slow bob:other ada:quick");
    EXPECT_EQ(queue(2000, 100, 100).due.size(), 52U);
}

// The clock was years ahead when the next try was chosen, and is right now.
TEST_F(NoticesTest, OneThatAWrongClockPutOffForYearsIsDue) {
    append(end_of(1, 7, {notice(1, 7, "ada", "a", 9'000'000'000)}));
    EXPECT_EQ(queue().due.size(), 1U);
    append(end_of(2, 8, {notice(2, 8, "ada", "b", 500'000)}));
    EXPECT_EQ(queue().due.size(), 1U) << "within what a pause may be";
    EXPECT_EQ(queue().next_due, 500'000);
}

TEST_F(NoticesTest, GoWithTheirJob) {
    append(end_of(1, 7, {notice(1, 7, "ada", "a")}));
    append(end_of(2, 8, {notice(2, 8, "ada", "a")}));
    ASSERT_TRUE(db_->begin().has_value());
    RemovalRow removal;
    removal.job = id(1);
    removal.removed_at = 9000;
    EXPECT_TRUE(RemovalRecords{*db_}.remove_job(removal).value_or(false));
    ASSERT_TRUE(db_->commit().has_value());
    const NoticeQueue left = queue();
    ASSERT_EQ(left.due.size(), 1U);
    EXPECT_EQ(left.due[0].job, id(2));
}

// A database of the version before gets the table, and what is in it stays.
TEST_F(NoticesTest, AnOlderDatabaseIsMigrated) {
    std::size_t before = 0;
    while (before < kMigrations.size() &&
           std::string{kMigrations[before].name}.find("notices") == std::string::npos) {
        ++before;
    }
    ASSERT_LT(before, kMigrations.size());
    const auto old = folder_ / "old.db";
    {
        SQLite::Database raw{old.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE};
        for (std::size_t i = 0; i < before; ++i) {
            raw.exec(kMigrations[i].sql);
        }
        raw.exec("PRAGMA user_version = " + std::to_string(before));
        raw.exec(
            "INSERT INTO jobs (id, user, name, state, final, submitted_at, finished_at, last_seq, "
            "view) VALUES ('ls-x', 'ada', 't', 'accepted', 0, 1, 0, 1, '{}')");
    }
    db_ = std::move(Database::open(old).value());
    EXPECT_EQ(JobRecords{*db_}.unfinished()->size(), 1U);
    append(end_of(1, 7, {notice(1, 7, "ada", "a")}));
    EXPECT_EQ(queue().due.size(), 1U);
}

}  // namespace
}  // namespace lockstep
