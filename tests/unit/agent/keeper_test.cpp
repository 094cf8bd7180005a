// The process above an agent, and the claim that the next agent takes over from a dead one.
#include "job/agent/keeper.hpp"

#include "job/agent/claim.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace lockstep {
namespace {

// Seen by all of a test's processes.
struct Shared {
    std::atomic<int> starts = 0;
    std::atomic<pid_t> left = 0;  // what the first agent left behind
};

class KeeperTest : public testing::Test {
  protected:
    void SetUp() override {
        void* place = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(place, MAP_FAILED);
        shared_ = new (place) Shared;
    }
    void TearDown() override { ::munmap(shared_, sizeof(Shared)); }
    // A keeper with that agent, as a process of its own.
    template <class Agent>
    static pid_t start(int restarts, const Agent& agent) {
        const pid_t keeper = ::fork();
        if (keeper == 0) {
            std::_Exit(keep_agent(restarts, agent));
        }
        return keeper;
    }
    static int exit_code(pid_t keeper) {
        int status = 0;
        EXPECT_EQ(::waitpid(keeper, &status, 0), keeper);
        EXPECT_TRUE(WIFEXITED(status));
        return WEXITSTATUS(status);
    }

    Shared* shared_ = nullptr;
};

TEST_F(KeeperTest, AnAgentThatASignalEndsIsStartedAgainOnceNothingOfItLives) {
    const pid_t keeper = start(1, [this](bool again) {
        ++shared_->starts;
        if (again) {
            return ::kill(shared_->left, 0) != 0 && errno == ESRCH ? 7 : 8;
        }
        const pid_t child = ::fork();
        if (child == 0) {
            ::setsid();  // as a rank's own child may
            shared_->left = ::getpid();
            for (;;) {
                ::pause();
            }
        }
        while (shared_->left == 0) {
            ::usleep(100);
        }
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(exit_code(keeper), 7);
    EXPECT_EQ(shared_->starts, 2);
}

TEST_F(KeeperTest, NotOftenerThanItMayBe) {
    const pid_t keeper = start(2, [this](bool) {
        ++shared_->starts;
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(exit_code(keeper), 128 + SIGKILL);
    EXPECT_EQ(shared_->starts, 3);
}

TEST_F(KeeperTest, OneThatEndsByItselfIsNot) {
    const pid_t keeper = start(1, [this](bool) {
        ++shared_->starts;
        return 3;
    });
    EXPECT_EQ(exit_code(keeper), 3);
    EXPECT_EQ(shared_->starts, 1);
}

TEST_F(KeeperTest, WhatTellsItToEndTellsTheAgent) {
    const pid_t keeper = start(1, [this](bool) {
        sigset_t term;
        ::sigemptyset(&term);
        ::sigaddset(&term, SIGTERM);
        ::sigprocmask(SIG_BLOCK, &term, nullptr);
        ++shared_->starts;
        int number = 0;
        ::sigwait(&term, &number);
        return number;
    });
    while (shared_->starts == 0) {
        ::usleep(100);
    }
    ASSERT_EQ(::kill(keeper, SIGTERM), 0);
    EXPECT_EQ(exit_code(keeper), SIGTERM);
    EXPECT_EQ(shared_->starts, 1);
}

TEST_F(KeeperTest, TheAgentDiesWithIt) {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const pid_t keeper = start(1, [this](bool) -> int {
        shared_->left = ::getpid();
        for (;;) {
            ::pause();
        }
    });
    while (shared_->left == 0) {
        ::usleep(100);
    }
    EXPECT_EQ(parent_process(shared_->left), keeper);
    ASSERT_EQ(::kill(keeper, SIGKILL), 0);
    ASSERT_EQ(::waitpid(keeper, nullptr, 0), keeper);
    int status = 0;
    ASSERT_EQ(::waitpid(shared_->left, &status, 0), shared_->left) << "it is this one's now";
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

wire::ClaimFile content(const std::string& incarnation) {
    wire::ClaimFile out;
    out.pid = 7;
    out.incarnation = incarnation;
    out.node = "n1";
    return out;
}

TEST(Claim, IsTakenOverFromADeadAgentByItsKeeperAlone) {
    const test::TemporaryFolder folder;
    const auto take = [&](const char* incarnation, bool again) {
        return Claim::take(folder.path(), 1, content(incarnation), again);
    };
    {
        const auto first = take("i1", false);
        ASSERT_TRUE(first.has_value());
        const auto second = take("i2", true);
        ASSERT_FALSE(second.has_value()) << "the first lives";
        EXPECT_EQ(second.error().code, Errc::conflict);
    }
    const auto other = take("i3", false);
    ASSERT_FALSE(other.has_value()) << "it was claimed before";
    EXPECT_EQ(other.error().code, Errc::conflict);
    const auto next = take("i4", true);
    ASSERT_TRUE(next.has_value()) << next.error().message;
    EXPECT_FALSE(take("i5", true).has_value()) << "this one lives";
}

}  // namespace
}  // namespace lockstep
