// How much each user's jobs take, and who may submit no more for it.
#include "daemon/control/base/user_bytes.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(UserBytesTest, SpecificationsCountAtOnceAndFoldersAsTheyWereMeasuredLast) {
    UserBytes bytes;
    bytes.add("ls-1", "ada", 100);
    bytes.add("ls-2", "ada", 20);
    bytes.add("ls-3", "bob", 3);
    EXPECT_EQ(bytes.of("ada"), 120);
    bytes.measured("ls-1", {5000});
    EXPECT_EQ(bytes.of("ada"), 5120);
    bytes.measured("ls-1", {4000});
    EXPECT_EQ(bytes.of("ada"), 4120) << "in place of what it was";
    bytes.measured("ls-1", {10, false});
    EXPECT_EQ(bytes.of("ada"), 4120) << "a file system that fails makes nothing smaller";
    bytes.measured("ls-1", {5000, false});
    EXPECT_EQ(bytes.of("ada"), 5120);
    bytes.measured("ls-1", {4000});
    bytes.add("ls-1", "ada", 100);
    EXPECT_EQ(bytes.of("ada"), 4120) << "the store says it again";
    EXPECT_EQ(bytes.of("bob"), 3);
    EXPECT_EQ(bytes.of("eve"), 0);
}

TEST(UserBytesTest, OfAJobThatIsRemovedNothingCounts) {
    UserBytes bytes;
    bytes.add("ls-1", "ada", 100);
    bytes.add("ls-2", "ada", 20);
    bytes.measured("ls-1", {5000});
    bytes.removed("ls-1");
    bytes.removed("ls-1");
    EXPECT_EQ(bytes.of("ada"), 20);
    bytes.measured("ls-1", {5000});
    EXPECT_EQ(bytes.of("ada"), 20) << "it was removed while its folder was measured";
}

TEST(UserBytesTest, WhoHasAsMuchAsTheBoundMaySubmitNoMore) {
    UserBytes bytes;
    bytes.add("ls-1", "ada", 1'999'999'999);
    EXPECT_TRUE(bytes.check("ada", 2'000'000'000).has_value());
    EXPECT_TRUE(bytes.check("ada", 0).has_value()) << "no bound";
    bytes.add("ls-2", "ada", 1'200'000'001);
    const Status over = bytes.check("ada", 2'000'000'000);
    ASSERT_FALSE(over.has_value());
    EXPECT_EQ(over.error().code, Errc::exhausted);
    EXPECT_EQ(over.error().retry_after_s, 0);
    EXPECT_EQ(
        over.error().message,
        "limit: a user's jobs may take 2.0 GB on disk; ada has 3.2 GB. lockstep du says which "
        "jobs take most, lockstep rm removes those that are over");
    EXPECT_TRUE(bytes.check("bob", 2'000'000'000).has_value());
}

TEST(UserBytesTest, JobsAreGoneThroughAlsoWhileSomeGo) {
    UserBytes bytes;
    bytes.add("ls-1", "ada", 1);
    bytes.add("ls-2", "ada", 1);
    bytes.add("ls-3", "ada", 1);
    EXPECT_EQ(bytes.next(""), "ls-1");
    bytes.removed("ls-1");
    bytes.removed("ls-2");
    EXPECT_EQ(bytes.next("ls-1"), "ls-3");
    EXPECT_EQ(bytes.next("ls-3"), "");
}

}  // namespace
}  // namespace lockstep
