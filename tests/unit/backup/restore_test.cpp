// Backups of a store whose runs lie outside its data directory, and what is restored of them.
#include "daemon/backup/restore.hpp"

#include "daemon/backup/store_place.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RestoreTest : public ::testing::Test {
  protected:
    static constexpr const char* kLog = "ls-1/a1/rank-00000.log";

    Status start(const std::string& name, const fs::path& runs) const {
        StorePlace here;
        here.directory = folder_ / name;
        here.database = here.directory / kDatabaseName;
        here.runs = runs;
        here.host = "h1";
        fs::create_directories(here.directory);
        const auto database = Database::open(here.database);
        std::string note;
        return database ? settle_place(**database, here, OnCopy::refuse, 5000, note)
                        : fail(database.error());
    }
    // A store "first" with one job, whose log is in `runs`.
    void make_first(const fs::path& runs) const {
        ASSERT_TRUE(start("first", runs).has_value());
        fs::create_directories((runs / kLog).parent_path());
        ASSERT_TRUE(write_file_atomic(runs / kLog, "as it was\n", 0600).has_value());
        const auto database = Database::open(folder_ / "first" / kDatabaseName);
        ASSERT_TRUE(database.has_value());
        Append append;
        append.row.id = JobId{"ls-1"};
        append.row.state = JobState::succeeded;
        ASSERT_TRUE(JobRecords{**database}.append(append).has_value());
    }
    BackupPlan plan(const fs::path& runs, bool named) const {
        BackupPlan out;
        out.data = folder_ / "first";
        out.runs = runs;
        out.runs_named = named;
        out.to = folder_ / "backup";
        return out;
    }
    Result<Manifest> backup(const BackupPlan& plan) const {
        return make_backup(plan, 5000, [] { return false; });
    }
    Result<RestoreReport> restore(const std::string& name, bool take_over) const {
        RestorePlan plan;
        plan.from = folder_ / "backup";
        plan.data = folder_ / name;
        plan.take_over = take_over;
        return restore_backup(plan, 6000, [] { return false; }, [](const std::string&) {});
    }
    fs::path shared() const { return folder_ / "shared"; }

    const test::TemporaryFolder folder_;
};

TEST_F(RestoreTest, OneThatTakesOverStartsInTheRunsDirectoryOfTheFirstOne) {
    make_first(shared());
    ASSERT_TRUE(backup(plan(shared(), true)).has_value());
    fs::remove(shared() / kLog);  // what has been lost there comes back
    const auto done = restore("second", true);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->runs, shared());
    EXPECT_EQ(test::text_of(shared() / kLog), "as it was\n");
    const Status started = start("second", shared());
    EXPECT_TRUE(started.has_value()) << started.error().message;
    const Status back = start("first", shared());
    ASSERT_FALSE(back.has_value());
    EXPECT_NE(back.error().message.find((folder_ / "second").string()), std::string::npos)
        << back.error().message;
    const auto database = Database::open(folder_ / "second" / kDatabaseName);
    ASSERT_TRUE(database.has_value());
    EXPECT_TRUE(IdentityRecords{**database}.copied_jobs()->moves.empty())
        << "the runs are where they were";
}

TEST_F(RestoreTest, OneThatOnlyLooksLeavesTheRunsDirectoryToTheFirstOne) {
    make_first(shared());
    ASSERT_TRUE(backup(plan(shared(), true)).has_value());
    const auto done = restore("second", false);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->runs, folder_ / "second" / "runs");
    EXPECT_EQ(test::text_of(done->runs / kLog), "as it was\n");
    EXPECT_TRUE(start("first", shared()).has_value());
}

TEST_F(RestoreTest, OneThatFailsDoesNotKeepTheFirstOneFromStarting) {
    make_first(shared());
    ASSERT_TRUE(backup(plan(shared(), true)).has_value());
    fs::remove_all(shared() / "ls-1");
    ASSERT_TRUE(write_file_atomic(shared() / "ls-1", "in the way", 0600).has_value());
    EXPECT_FALSE(restore("second", true).has_value());
    EXPECT_FALSE(fs::exists(folder_ / "second"));
    EXPECT_TRUE(start("first", shared()).has_value());
}

TEST_F(RestoreTest, RunsInTheDataDirectoryGoWithIt) {
    make_first(folder_ / "first" / "runs");
    ASSERT_TRUE(backup(plan(folder_ / "first" / "runs", false)).has_value());
    const auto done = restore("second", true);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->runs, folder_ / "second" / "runs");
    EXPECT_TRUE(start("second", done->runs).has_value());
}

TEST_F(RestoreTest, ABackupWithoutTheRunsOfTheStoreIsRefused) {
    make_first(shared());
    const auto elsewhere = backup(plan(folder_ / "first" / "runs", false));
    ASSERT_FALSE(elsewhere.has_value());
    EXPECT_NE(elsewhere.error().message.find(shared().string()), std::string::npos)
        << elsewhere.error().message;
    const auto missing = backup(plan(folder_ / "typo", true));
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, Errc::not_found);
    EXPECT_NE(missing.error().message.find((folder_ / "typo").string()), std::string::npos);
    EXPECT_FALSE(fs::exists(folder_ / "backup"));
    BackupPlan none = plan(folder_ / "typo", true);
    none.copy = RunsCopied::none;
    EXPECT_TRUE(backup(none).has_value());
}

}  // namespace
}  // namespace lockstep
