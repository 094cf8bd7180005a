// Who may do what in a folder that a job's user and lockstepd share, asked of the kernel.
#include "daemon/control/base/shared_folder.hpp"

#include "daemon/control/base/attempt_files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace lockstep {
namespace {

using testing::HasSubstr;

// What `doing` returns in a process of its own that is the user `uid` and in no group of ours.
bool as(uid_t uid, const std::function<bool()>& doing) {
    const pid_t child = ::fork();
    if (child == 0) {
        const bool changed =
            ::setgroups(0, nullptr) == 0 && ::setgid(65534) == 0 && ::setuid(uid) == 0;
        ::_exit(changed ? (doing() ? 0 : 1) : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 2);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool opens(const std::filesystem::path& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0660);
    if (fd >= 0) {
        ::close(fd);
    }
    return fd >= 0;
}

constexpr uid_t kAda = 1;  // daemon
constexpr uid_t kEve = 2;  // bin

class SharedFolder : public testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0) {
            GTEST_SKIP() << "only root can be other users";
        }
        ASSERT_EQ(::chmod(folder_.path().c_str(), 0711), 0);
    }
    const test::TemporaryFolder folder_;
};

TEST_F(SharedFolder, ItsUserWorksInItAndNobodyElseSeesIt) {
    const auto job = folder_ / "job";
    const auto attempt = job / "a1";
    std::filesystem::create_directories(attempt);
    ASSERT_EQ(::chmod(job.c_str(), 0700), 0);
    const Status passes = let_pass(job, kAda);
    if (!passes && passes.error().message.find("access control") != std::string::npos) {
        GTEST_SKIP() << passes.error().message;
    }
    ASSERT_TRUE(passes.has_value()) << passes.error().message;
    ASSERT_TRUE(share_folder(attempt, kAda).has_value());
    EXPECT_TRUE(as(kAda, [&] { return opens(attempt / "log", O_WRONLY | O_CREAT | O_EXCL); }));
    EXPECT_FALSE(as(kAda, [&] { return opens(job / "log", O_WRONLY | O_CREAT); }));
    EXPECT_FALSE(as(kAda, [&] { return opens(job, O_RDONLY | O_DIRECTORY); })) << "not listed";
    EXPECT_FALSE(as(kAda, [&] { return ::rename(attempt.c_str(), (job / "b").c_str()) == 0; }));
    for (const auto& path : {attempt / "log", attempt, job}) {
        EXPECT_FALSE(as(kEve, [&] { return opens(path, O_RDONLY); })) << path;
    }
    struct stat info{};
    EXPECT_NE(::lstat((attempt / "log").c_str(), &info), -1);
    EXPECT_EQ(info.st_uid, kAda);
}

TEST_F(SharedFolder, WhatEitherSideWritesTheOtherReads) {
    // The daemon of this test is ada, the job's user eve; root only arranges it.
    const auto attempt = folder_ / "a1";
    std::filesystem::create_directories(attempt);
    ASSERT_EQ(::chown(attempt.c_str(), kAda, kAda), 0);
    if (!as(kAda, [&] { return share_folder(attempt, kEve).has_value(); })) {
        GTEST_SKIP() << "no access control lists here";
    }
    EXPECT_TRUE(as(kEve, [&] { return opens(attempt / "rank.log", O_WRONLY | O_CREAT); }));
    EXPECT_TRUE(as(kAda, [&] { return opens(attempt / "rank.log", O_RDONLY); }));
    EXPECT_TRUE(as(kAda, [&] { return opens(attempt / "agent.json", O_WRONLY | O_CREAT); }));
    EXPECT_TRUE(as(kEve, [&] { return opens(attempt / "agent.json", O_RDONLY); }));
    EXPECT_FALSE(as(3, [&] { return opens(attempt / "agent.json", O_RDONLY); }));
}

TEST_F(SharedFolder, AnAttemptOfAnotherUserIsTheirsToReadAndNotItsCheckpointsNeighbours) {
    const auto runs = folder_ / "runs";
    std::filesystem::create_directories(runs);
    ASSERT_EQ(::chmod(runs.c_str(), 0711), 0);
    const JobId job{"ls-01J0000000000000000000000A"};
    const auto made = prepare_attempt(runs, job, 1, 2, {"http://h:1"}, "daemon");
    if (!made && made.error().message.find("access control") != std::string::npos) {
        GTEST_SKIP() << made.error().message;
    }
    ASSERT_TRUE(made.has_value()) << made.error().message;
    const std::filesystem::path directory{made->directory};
    const auto readable = [&] { return opens(directory / "agent.json", O_RDONLY); };
    EXPECT_TRUE(as(kAda, readable));
    EXPECT_FALSE(as(kEve, readable));
    EXPECT_TRUE(as(kAda, [&] {
        return opens(default_checkpoint_directory(runs, job) / "step-1", O_WRONLY | O_CREAT);
    }));
    // After a restart of the daemon, at another address: still the user's to read.
    ASSERT_TRUE(refresh_attempt(directory, {"http://h:2"}).has_value());
    EXPECT_TRUE(as(kAda, readable));
    EXPECT_FALSE(as(kEve, readable));
}

TEST_F(SharedFolder, AnUnknownUserIsNamed) {
    const auto made = prepare_attempt(folder_ / "runs", JobId{"ls-01J0000000000000000000000A"}, 1,
                                      1, {"http://h:1"}, "nobody-of-here");
    ASSERT_FALSE(made.has_value());
    EXPECT_THAT(made.error().message, HasSubstr("nobody-of-here"));
}

TEST_F(SharedFolder, TheFolderAboveThatIsClosedIsNamed) {
    const auto closed = folder_ / "closed";
    std::filesystem::create_directories(closed / "runs");
    ASSERT_EQ(::chmod(closed.c_str(), 0700), 0);
    EXPECT_THAT(open_to_others(closed / "runs").error().message,
                HasSubstr(closed.string() + " is closed to other users"));
    ASSERT_EQ(::chmod(closed.c_str(), 0711), 0);
    EXPECT_TRUE(open_to_others(closed / "runs").has_value());
}

}  // namespace
}  // namespace lockstep
