// Work that never comes back, in real processes.
#include "job/agent/preflight/errands.hpp"

#include "job/async/task_group.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

class ErrandsTest : public testing::Test {
  protected:
    std::chrono::milliseconds run(milliseconds budget = milliseconds{20'000}) {
        const auto began = std::chrono::steady_clock::now();
        tasks.spawn("errands", errands.run(budget));
        io.run();
        return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
    }
    std::size_t add(const std::string& answer) {
        return errands.add([answer] { return answer; }, milliseconds{20'000});
    }
    net::io_context io{1};
    TaskGroup tasks{io};
    Errands errands{io};
};

TEST_F(ErrandsTest, EveryItemAnswersFromAnotherProcess) {
    const auto first = add("one");
    const auto second =
        errands.add([] { return std::to_string(::getpid()); }, milliseconds{20'000});
    const auto third = add(std::string(200'000, 'x'));
    run();
    EXPECT_EQ(errands.answer(first), "one");
    ASSERT_TRUE(errands.answer(second));
    EXPECT_NE(*errands.answer(second), std::to_string(::getpid()));
    EXPECT_EQ(errands.answer(third)->size(), 200'000U);
}

TEST_F(ErrandsTest, AProcessThatStandsStillIsAbandonedAndTheRestAnswers) {
    const auto before = add("before");
    const auto stuck = errands.add(
        [] {
            ::raise(SIGSTOP);
            return std::string{"too late"};
        },
        milliseconds{200});
    const auto after = add("after");
    const auto took = run();
    EXPECT_EQ(errands.answer(before), "before");
    EXPECT_FALSE(errands.answer(stuck));
    EXPECT_EQ(errands.answer(after), "after");
    EXPECT_GE(took, milliseconds{200});
    EXPECT_LT(took, milliseconds{15'000});
}

TEST_F(ErrandsTest, OneThatCrashesTakesNobodyWithIt) {
    const auto crash = errands.add(
        []() -> std::string {
            ::signal(SIGABRT, SIG_DFL);
            std::abort();
        },
        milliseconds{20'000});
    const auto after = add("after");
    run();
    EXPECT_FALSE(errands.answer(crash));
    EXPECT_EQ(errands.answer(after), "after");
}

// An exception used to go on in the forked process as if that were the agent.
TEST_F(ErrandsTest, OneThatThrowsEndsItsProcessAndTheRestAnswers) {
    const auto before = add("before");
    const auto bad =
        errands.add([]() -> std::string { throw std::runtime_error("the file server is gone"); },
                    milliseconds{20'000});
    const auto after = add("after");
    run();
    EXPECT_EQ(errands.answer(before), "before");
    EXPECT_FALSE(errands.answer(bad));
    EXPECT_TRUE(errands.asked(bad));
    EXPECT_EQ(errands.answer(after), "after");
}

// A mount whose turn never came was called dead.
TEST_F(ErrandsTest, WhatTheBudgetCutShortWasNotAsked) {
    const auto stop = [] {
        ::raise(SIGSTOP);
        return std::string{};
    };
    bool silent_was_asked = false;
    // Where the machine stands still, the budget may be over before that item's patience.
    for (const int budget : {3'000, 10'000, 30'000}) {
        Errands some{io};
        some.add([] { return std::string{"before"}; }, milliseconds{20'000});  // it has begun then
        const auto silent = some.add(stop, milliseconds{500});
        const auto cut = some.add(stop, milliseconds{60'000});
        const auto never = some.add([] { return std::string{"never"}; }, milliseconds{20'000});
        tasks.spawn("errands", some.run(milliseconds{budget}));
        io.restart();
        io.run();
        silent_was_asked = some.asked(silent);
        EXPECT_FALSE(some.asked(cut)) << "it had not all its patience";
        EXPECT_FALSE(some.asked(never));
        EXPECT_FALSE(some.answer(never));
        if (silent_was_asked) {
            break;
        }
    }
    EXPECT_TRUE(silent_was_asked) << "it had all its patience";
}

TEST_F(ErrandsTest, WhatIsCancelledWasNotAsked) {
    const auto one = errands.add(
        [] {
            ::raise(SIGSTOP);
            return std::string{};
        },
        milliseconds{60'000});
    net::steady_timer soon{io, milliseconds{50}};
    soon.async_wait([this](const ErrorCode&) { errands.cancel(); });
    run(milliseconds{60'000});
    EXPECT_FALSE(errands.asked(one));
}

TEST_F(ErrandsTest, TheBudgetBoundsThemAll) {
    for (int i = 0; i < 50; ++i) {
        errands.add(
            [] {
                ::raise(SIGSTOP);
                return std::string{};
            },
            milliseconds{2'000});
    }
    EXPECT_LT(run(milliseconds{600}), milliseconds{60'000});
}

TEST_F(ErrandsTest, NothingIsWaitedForAfterCancel) {
    errands.add(
        [] {
            ::raise(SIGSTOP);
            return std::string{};
        },
        milliseconds{60'000});
    net::steady_timer soon{io, milliseconds{50}};
    soon.async_wait([this](const ErrorCode&) { errands.cancel(); });
    EXPECT_LT(run(milliseconds{60'000}), milliseconds{10'000});
}

// The claim's lock is a descriptor: a process that hangs must not keep a dead agent's node.
TEST_F(ErrandsTest, TheForkedProcessHasNoDescriptorOfOurs) {
    const int own = ::open("/dev/null", O_RDONLY);
    ASSERT_GT(own, 3);
    const auto seen =
        errands.add([own] { return ::fcntl(own, F_GETFD) < 0 ? std::string{"closed"} : "open"; },
                    milliseconds{20'000});
    run();
    EXPECT_EQ(errands.answer(seen), "closed");
    ::close(own);
}

}  // namespace
}  // namespace lockstep
