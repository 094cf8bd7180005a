// Whether a store is a copy, and what becomes of it and its runs directory.
#include "daemon/backup/store_place.hpp"

#include "daemon/store/database.hpp"
#include "daemon/store/identity_records.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class StorePlaceTest : public ::testing::Test {
  protected:
    StorePlace place(const std::string& name, const std::string& runs = "") const {
        StorePlace out;
        out.directory = folder_ / name;
        out.database = out.directory / "lockstep.db";
        out.runs = runs.empty() ? out.directory / "runs" : folder_ / runs;
        out.host = "h1";
        return out;
    }
    Status start(const StorePlace& here, OnCopy on_copy = OnCopy::refuse) {
        fs::create_directories(here.directory);
        auto database = Database::open(here.database);
        if (!database) {
            return fail(database.error());
        }
        note_.clear();
        const Status settled = settle_place(**database, here, on_copy, 5000, note_);
        identity_ = IdentityRecords{**database}.find()->value_or(StoreIdentity{});
        copied_ = IdentityRecords{**database}.copied_jobs().value();
        return settled;
    }
    void copy(const std::string& from, const std::string& to) {
        fs::copy(folder_ / from, folder_ / to,
                 fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }

    test::TemporaryFolder folder_;
    std::string note_;
    StoreIdentity identity_;
    CopiedJobs copied_;
};

TEST_F(StorePlaceTest, TheSameFolderIsTheSameStoreAlsoWhenItIsRenamed) {
    ASSERT_TRUE(start(place("a")).has_value());
    const StoreIdentity first = identity_;
    EXPECT_EQ(first.store.size(), 32U);
    ASSERT_TRUE(start(place("a")).has_value());
    EXPECT_EQ(identity_.incarnation, first.incarnation);
    fs::rename(folder_ / "a", folder_ / "b");
    ASSERT_TRUE(start(place("b")).has_value());
    EXPECT_EQ(identity_.incarnation, first.incarnation);
    EXPECT_EQ(identity_.directory, (folder_ / "b").string());
    const std::pair<std::string, std::string> moved{(folder_ / "a/runs").string(),
                                                    (folder_ / "b/runs").string()};
    EXPECT_EQ(copied_.moves, std::vector{moved});
}

TEST_F(StorePlaceTest, ARenamedFolderBehindASymbolicLinkTakesItsRunsAlong) {
    fs::create_directories(folder_ / "disk");
    fs::create_directory_symlink(folder_ / "disk", folder_ / "link");
    // As lockstepd gives them: the data directory as it really is, the runs as they were typed.
    const auto typed = [&](const std::string& name) {
        StorePlace out = place("disk/" + name, "link/" + name + "/runs");
        out.directory = fs::canonical(folder_.path()) / "disk" / name;
        return out;
    };
    ASSERT_TRUE(start(typed("a")).has_value());
    fs::rename(folder_ / "disk/a", folder_ / "disk/b");
    ASSERT_TRUE(start(typed("b")).has_value());
    const std::pair<std::string, std::string> moved{(folder_ / "link/a/runs").string(),
                                                    (folder_ / "link/b/runs").string()};
    EXPECT_EQ(copied_.moves, std::vector{moved});
}

TEST_F(StorePlaceTest, ACopyIsRefusedAndNothingChangesInIt) {
    ASSERT_TRUE(start(place("a")).has_value());
    copy("a", "b");
    const auto refused = start(place("b"));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_NE(refused.error().message.find((folder_ / "a").string()), std::string::npos);
    EXPECT_EQ(identity_.directory, (folder_ / "a").string());
    EXPECT_FALSE(start(place("b")).has_value()) << "asked again it says the same";
    EXPECT_TRUE(start(place("a")).has_value());
}

TEST_F(StorePlaceTest, ACopyThatGoesItsOwnWayIsAnotherStoreAndTheFlagIsNotNeededAgain) {
    ASSERT_TRUE(start(place("a")).has_value());
    const StoreIdentity first = identity_;
    copy("a", "b");
    ASSERT_TRUE(start(place("b"), OnCopy::own_way).has_value());
    EXPECT_NE(identity_.store, first.store);
    EXPECT_FALSE(note_.empty());
    EXPECT_FALSE(fs::exists(folder_ / "b/runs" / (".store-" + first.store)));
    EXPECT_TRUE(start(place("b")).has_value());
    EXPECT_TRUE(start(place("b"), OnCopy::own_way).has_value()) << "of no copy it changes nothing";
    EXPECT_TRUE(note_.empty());
    EXPECT_TRUE(start(place("a")).has_value());
}

TEST_F(StorePlaceTest, OneThatWasTakenOverFromFindsThatInItsRunsDirectory) {
    ASSERT_TRUE(start(place("a", "shared")).has_value());
    const StoreIdentity first = identity_;
    copy("a", "b");
    EXPECT_FALSE(start(place("b", "shared"), OnCopy::own_way).has_value())
        << "they are the first one's";
    ASSERT_TRUE(start(place("b", "shared"), OnCopy::take_over).has_value());
    EXPECT_EQ(identity_.store, first.store);
    EXPECT_NE(identity_.incarnation, first.incarnation);
    const auto back = start(place("a", "shared"));
    ASSERT_FALSE(back.has_value());
    EXPECT_NE(back.error().message.find((folder_ / "b").string()), std::string::npos)
        << back.error().message;
    EXPECT_NE(back.error().message.find("has taken over from this one"), std::string::npos);
    EXPECT_NE(back.error().message.find("--take-over --runs-dir"), std::string::npos);
    EXPECT_TRUE(start(place("b", "shared")).has_value());
}

TEST_F(StorePlaceTest, AStoreOfBeforeHasNoIdentityAndGetsOne) {
    fs::create_directories(folder_ / "a");
    ASSERT_TRUE(Database::open(folder_ / "a/lockstep.db").has_value());
    copy("a", "b");
    EXPECT_TRUE(start(place("b")).has_value());
    EXPECT_TRUE(start(place("a")).has_value());
}

TEST_F(StorePlaceTest, ADatabaseThatWasPutIntoTheFolderIsACopy) {
    ASSERT_TRUE(start(place("a")).has_value());
    ASSERT_TRUE(start(place("b")).has_value());
    fs::remove(folder_ / "b/lockstep.db");
    fs::copy_file(folder_ / "a/lockstep.db", folder_ / "b/lockstep.db");
    EXPECT_FALSE(start(place("b")).has_value());
}

}  // namespace
}  // namespace lockstep
