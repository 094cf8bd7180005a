// What was accepted survives a power cut: a commit is on disk before it returns.
#include "daemon/store/database.hpp"
#include "tests/support/sync_watch.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

using testing::Contains;
using testing::IsEmpty;

TEST(StoreSync, ACommitIsOnDiskBeforeItReturns) {
    const TemporaryFolder folder;
    const std::string here = std::filesystem::canonical(folder.path()).string();
    const auto database = std::move(Database::open(folder / "lockstep.db").value());
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(database->begin());
        ASSERT_TRUE(database->touch());
        sync_log().clear();
        ASSERT_TRUE(database->commit());
        EXPECT_THAT(sync_log(), Contains("sync " + here + "/lockstep.db-wal"));
    }
    sync_log().clear();
    ASSERT_TRUE(database->begin());
    database->rollback();
    EXPECT_THAT(sync_log(), IsEmpty()) << "the log shows what it is asked for, and nothing else";
}

}  // namespace
}  // namespace lockstep::test
