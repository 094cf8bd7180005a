#include "job/base/mounts.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Mounts, HaveTheirPlaceAndTypeWhateverIsWrittenBetween) {
    const auto mounts = parse_mounts(
        "22 1 0:20 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "36 22 0:32 / /data rw shared:2 master:1 - nfs4 server:/data rw,vers=4.2\n"
        "no line of it\n"
        "38 22 0:34 / /cut rw shared:3\n"
        "39 22 0:35 / /last rw - lustre");
    ASSERT_EQ(mounts.size(), 3U);
    EXPECT_EQ(mounts[0].point, "/");
    EXPECT_EQ(mounts[0].type, "ext4");
    EXPECT_EQ(mounts[1].point, "/data");
    EXPECT_EQ(mounts[1].type, "nfs4");
    EXPECT_EQ(mounts[2].type, "lustre");
}

// A file below one was said to be on the file system above it.
TEST(Mounts, AreReadWhereTheirPlaceHasABlankOrABackslash) {
    const auto mounts = parse_mounts(
        "36 22 0:32 / /mnt/my\\040data rw - nfs a:/b rw\n"
        "37 22 0:33 / /mnt/a\\134b\\011c rw - nfs a:/b rw\n"
        "38 22 0:34 / /mnt/x\\04 rw - nfs a:/b rw\n");
    ASSERT_EQ(mounts.size(), 3U);
    EXPECT_EQ(mounts[0].point, "/mnt/my data");
    EXPECT_EQ(mounts[1].point, "/mnt/a\\b\tc");
    EXPECT_EQ(mounts[2].point, "/mnt/x\\04");
}

}  // namespace
}  // namespace lockstep
