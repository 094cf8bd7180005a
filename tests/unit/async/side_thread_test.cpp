// Calls that hang, on the thread that is kept for them.
#include "job/async/side_thread.hpp"

#include "job/async/task_group.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class SideThreadTest : public testing::Test {
  protected:
    ~SideThreadTest() override { hang_->set_value(); }
    struct Answer {
        std::optional<int> value;
        bool ended = false;
    };
    static Task<void> ask(SideThread& side, std::function<int()> work, Clock::time_point until,
                          Answer& out) {
        out.value = co_await side.run<int>(work, until);
        out.ended = true;
    }
    void start(SideThread& side, const std::function<int()>& work, std::chrono::milliseconds time,
               Answer& out) {
        tasks_.spawn("ask", ask(side, work, Clock::now() + time, out));
    }
    void run_until_ended(const Answer& answer) {
        const auto deadline = Clock::now() + 10s;
        while (!answer.ended && Clock::now() < deadline) {
            io_.run_one_for(50ms);
            io_.restart();
        }
        ASSERT_TRUE(answer.ended);
    }
    // Does not come back before the test has ended.
    std::function<int()> hanging() const {
        return [end = end_, began = began_] {
            ++*began;
            end.wait();
            return 1;
        };
    }

    net::io_context io_{1};
    TaskGroup tasks_{io_};
    std::shared_ptr<std::promise<void>> hang_ = std::make_shared<std::promise<void>>();
    std::shared_future<void> end_{hang_->get_future()};
    std::shared_ptr<std::atomic<int>> began_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(SideThreadTest, WhatTheWorkReturnsComesBackFromAnotherThread) {
    SideThread side{io_};
    std::thread::id where;
    Answer answer;
    const auto work = [&where] {
        where = std::this_thread::get_id();
        return 7;
    };
    start(side, work, 10s, answer);
    run_until_ended(answer);
    EXPECT_EQ(answer.value, 7);
    EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(SideThreadTest, WorkThatThrowsIsNoAnswerAndTheNextOneIs) {
    SideThread side{io_};
    Answer bad;
    Answer good;
    start(side, []() -> int { throw std::runtime_error("no"); }, 10s, bad);
    start(side, [] { return 7; }, 10s, good);
    run_until_ended(bad);
    run_until_ended(good);
    EXPECT_EQ(bad.value, std::nullopt);
    EXPECT_EQ(good.value, 7);
}

TEST_F(SideThreadTest, ACallThatHangsIsNotWaitedForAndWhatWaitsBehindItNeverBegins) {
    SideThread side{io_};
    Answer stuck;
    Answer behind;
    auto late = std::make_shared<std::atomic<bool>>(false);
    start(side, hanging(), 50ms, stuck);
    const auto never = [late] {
        *late = true;
        return 2;
    };
    start(side, never, 50ms, behind);
    run_until_ended(stuck);
    run_until_ended(behind);
    EXPECT_EQ(stuck.value, std::nullopt);
    EXPECT_EQ(behind.value, std::nullopt);
    hang_->set_value();
    Answer after;
    start(side, [] { return 3; }, 10s, after);
    run_until_ended(after);
    EXPECT_EQ(after.value, 3) << "it came back";
    EXPECT_FALSE(*late);
    hang_ = std::make_shared<std::promise<void>>();
}

TEST_F(SideThreadTest, WithSeveralThreadsOneThatHangsHoldsUpNobody) {
    SideThread side{io_, 2};
    Answer stuck;
    start(side, hanging(), 10s, stuck);
    for (int i = 0; i < 3; ++i) {
        Answer other;
        start(side, [i] { return i; }, 10s, other);
        run_until_ended(other);
        EXPECT_EQ(other.value, i);
    }
    EXPECT_FALSE(stuck.ended);
    side.let_go();
    run_until_ended(stuck);
    EXPECT_EQ(stuck.value, std::nullopt);
}

TEST_F(SideThreadTest, ItsEndWaitsAMomentAtMost) {
    constexpr int kThreads = 30;  // a second for each would be more than the bound
    const int before = LooseThread::abandoned();
    Answer stuck;
    auto side = std::make_unique<SideThread>(io_, kThreads);
    for (int i = 0; i < kThreads; ++i) {
        start(*side, hanging(), 60s, stuck);
    }
    const auto run_until = [this](const auto& condition) {
        const auto deadline = Clock::now() + 60s;
        while (!condition() && Clock::now() < deadline) {
            io_.run_one_for(50ms);
            io_.restart();
        }
        return condition();
    };
    ASSERT_TRUE(run_until([this] { return *began_ == kThreads; })) << "each has one of its own";
    side->let_go();
    ASSERT_TRUE(run_until([this] { return tasks_.size() == 0; }));
    const auto began = Clock::now();
    side.reset();
    EXPECT_LT(Clock::now() - began, 20s) << "for all of them together";
    EXPECT_EQ(LooseThread::abandoned(), before + kThreads);
}

}  // namespace
}  // namespace lockstep
