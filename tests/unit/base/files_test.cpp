#include "job/base/files.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace lockstep {
namespace {

class Files : public ::testing::Test {
  protected:
    const test::TemporaryFolder folder_;
};

TEST_F(Files, AreReplacedAsAWholeWithTheModeAskedFor) {
    const auto path = folder_ / "secret";
    ASSERT_TRUE(write_file_atomic(path, "one", 0600).has_value());
    ASSERT_TRUE(write_file_atomic(path, "two", 0600).has_value());
    EXPECT_EQ(*read_file(path, 100), "two");
    struct stat info{};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder_.path()}, {}), 1);
}

TEST_F(Files, LargerThanTheCapAreNotRead) {
    std::ofstream{folder_ / "big"} << std::string(5000, 'x');
    EXPECT_EQ(read_file(folder_ / "big", 4999).error().code, Errc::exhausted);
    EXPECT_EQ(read_file(folder_ / "big", 5000)->size(), 5000U);
    EXPECT_EQ(read_file(folder_ / "none", 10).error().code, Errc::not_found);
}

TEST_F(Files, DirectoriesAreMadePrivate) {
    const auto path = folder_ / "a/b/c";
    ASSERT_TRUE(make_private_directories(path).has_value());
    ASSERT_TRUE(make_private_directories(path).has_value());
    struct stat info{};
    ASSERT_EQ(::stat((folder_ / "a").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U);
    std::ofstream{folder_ / "file"} << "x";
    EXPECT_FALSE(make_private_directories(folder_ / "file").has_value());
    EXPECT_FALSE(make_private_directories(folder_ / "file/below").has_value());
}

TEST_F(Files, ADirectoryThatMayNotBeMadeIsToldAsThat) {
    constexpr uid_t kNobody = 65534;
    const auto closed = folder_ / "closed";
    std::filesystem::create_directory(closed);
    ASSERT_EQ(::chmod(closed.c_str(), 0555), 0);
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0711), 0);
    const bool root = ::geteuid() == 0;  // who may do everything
    ASSERT_TRUE(!root || ::seteuid(kNobody) == 0);
    const Status made = make_private_directories(closed / "runs/job");
    const Status leaf = make_private_directories(closed / "runs");
    const Status there = make_private_directories(closed);
    ASSERT_TRUE(!root || ::seteuid(0) == 0);
    const std::string words = "mkdir " + (closed / "runs").string() + ": Permission denied";
    EXPECT_EQ(made.error().message, words);
    EXPECT_EQ(leaf.error().message, words);
    EXPECT_TRUE(there.has_value());
}

TEST_F(Files, ReplacesWithoutWaitingForTheDisk) {
    const auto path = folder_ / "script";
    ASSERT_TRUE(replace_file(path, "one", 0700).has_value());
    ASSERT_TRUE(replace_file(path, "two", 0700).has_value());
    EXPECT_EQ(read_file(path, 100).value_or(""), "two");
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
    EXPECT_FALSE(replace_file(folder_ / "no/such/folder", "x").has_value());
}

TEST_F(Files, InASharedFolderNoLinkIsFollowedAndNoPipeWaitedFor) {
    std::ofstream{folder_ / "secret"} << "mine";
    std::filesystem::create_symlink(folder_ / "secret", folder_ / "link");
    ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    for (const char* name : {"link", "pipe"}) {
        EXPECT_EQ(read_plain_file(folder_ / name, 100).error().code, Errc::denied) << name;
        EXPECT_EQ(read_plain_tail(folder_ / name, 100).error().code, Errc::denied) << name;
    }
    EXPECT_FALSE(read_plain_file(folder_.path(), 100).has_value()) << "a folder";
    EXPECT_EQ(read_plain_file(folder_ / "secret", 100).value_or(""), "mine");
    EXPECT_EQ(read_plain_tail(folder_ / "secret", 2).value_or(""), "ne");
    EXPECT_EQ(read_plain_tail(folder_ / "secret", 9).value_or(""), "mine");
}

// `lockstep run -o /nope/x` said "create /nope/x.tmp.4711".
TEST_F(Files, AnErrorNamesTheFileThatWasAskedForAndNoTemporaryOne) {
    const auto path = folder_ / "nope" / "x";
    const auto done = write_file_atomic(path, "new");
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "create " + path.string() + ": No such file or directory");
}

// A node whose ranks could not start said "No space left on device", and not of which.
TEST_F(Files, WhereAFileSystemIsToBlameItIsNamed) {
    for (const int number : {ENOSPC, EDQUOT, EROFS}) {
        const Error error = file_error("open", "/proc/self/rank-00000.log", number);
        EXPECT_EQ(error.message,
                  "open /proc/self/rank-00000.log: " + std::generic_category().message(number) +
                      " (file system /proc, proc)");
        EXPECT_EQ(error.code, errno_error("", number).code);
    }
    EXPECT_EQ(file_error("open", "/proc/self/x", ENOENT).message,
              "open /proc/self/x: No such file or directory");
    const auto here = file_error("mkdir", folder_ / "not" / "there", EROFS).message;
    EXPECT_NE(here.find(" (file system /"), std::string::npos) << here;
    // Where no path is there is no file system to name: it was said to be the root's.
    const auto loop = folder_ / "loop";
    std::filesystem::create_symlink(loop, loop);
    const auto in_loop = file_error("open", loop / "x", EDQUOT).message;
    EXPECT_EQ(in_loop.find("file system"), std::string::npos) << in_loop;
    const auto made = make_private_directories("/proc/self/x");
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message, "mkdir /proc/self/x: No such file or directory");
}

TEST_F(Files, NothingIsWrittenIntoWhatAnotherLaidInTheWay) {
    const auto path = folder_ / "agent.json";
    const auto in_the_way = path.string() + ".tmp." + std::to_string(::getpid());
    std::ofstream{folder_ / "victim"} << "untouched";
    std::filesystem::create_symlink(folder_ / "victim", in_the_way);
    ASSERT_TRUE(write_file_atomic(path, "new", 0600).has_value());
    EXPECT_EQ(read_file(path, 100).value_or(""), "new");
    EXPECT_EQ(read_file(folder_ / "victim", 100).value_or(""), "untouched");
    std::filesystem::create_hard_link(folder_ / "victim", in_the_way);
    ASSERT_TRUE(write_file_atomic(path, "newer", 0600).has_value());
    EXPECT_EQ(read_file(folder_ / "victim", 100).value_or(""), "untouched");
}

}  // namespace
}  // namespace lockstep
