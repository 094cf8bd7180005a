#include "job/async/task_group.hpp"

#include "job/async/sleep.hpp"
#include "job/base/log.hpp"
#include "job/base/result.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

Task<void> wait_on(net::steady_timer& timer, int& ended) {
    co_await sleep_on(timer, 1h);
    ++ended;
}

Task<void> join_then(TaskGroup& group, bool& joined) {
    co_await group.join();
    joined = true;
}

TEST(TaskGroup, JoinWaitsForEveryTask) {
    net::io_context io;
    net::steady_timer one{io};
    net::steady_timer two{io};
    int ended = 0;
    bool joined = false;
    TaskGroup group{io};
    group.spawn("one", wait_on(one, ended));
    group.spawn("two", wait_on(two, ended));
    EXPECT_EQ(group.size(), 2U);
    net::co_spawn(io, join_then(group, joined), [](const std::exception_ptr&) {});
    io.poll();
    EXPECT_FALSE(joined);
    one.cancel();
    io.poll();
    EXPECT_EQ(ended, 1);
    EXPECT_FALSE(joined);
    two.cancel();
    io.poll();
    EXPECT_EQ(ended, 2);
    EXPECT_TRUE(joined);
    EXPECT_EQ(group.size(), 0U);
}

Task<void> note(int& begun) {
    ++begun;
    co_return;
}

// Node::leave() counts on it: its input is taken before its deadline is read.
TEST(TaskGroup, ACoroutineBeginsInATurnOfItsOwn) {
    net::io_context io;
    int begun = 0;
    TaskGroup group{io};
    net::post(io, [&] {  // on the thread that runs it, where a dispatch would be a call
        group.spawn("noted", note(begun));
        EXPECT_EQ(begun, 0);
    });
    io.run();
    EXPECT_EQ(begun, 1);
}

Task<void> throws() {
    co_await net::post(net::use_awaitable);
    throw std::runtime_error{"a defect"};
}

Task<Result<int>> passes_on(const Result<int>& result) {
    co_await net::post(net::use_awaitable);
    LOCKSTEP_CO_TRY(result);
    co_return *result + 1;
}

TEST(ResultTry, PassesAnErrorOnFromACoroutine) {
    net::io_context io;
    const Result<int> good = 1;
    const Result<int> bad = fail(Errc::denied, "no");
    Result<int> of_good;
    Result<int> of_bad;
    const auto take = [](Result<int>& into) {
        return [&into](const std::exception_ptr&, Result<int> result) { into = std::move(result); };
    };
    net::co_spawn(io, passes_on(good), take(of_good));
    net::co_spawn(io, passes_on(bad), take(of_bad));
    io.run();
    EXPECT_EQ(*of_good, 2);
    ASSERT_FALSE(of_bad);
    EXPECT_EQ(of_bad.error().code, Errc::denied);
}

TEST(TaskGroupDeathTest, AnExceptionEndsTheProgram) {
    const auto defect = [] {
        log::start("test", log::Level::error, false);
        net::io_context io;
        TaskGroup group{io};
        group.spawn("bad", throws());
        io.run();
    };
    EXPECT_DEATH(defect(), "a defect");
}

TEST(Sleep, TellsCancelFromTheEnd) {
    net::io_context io;
    net::steady_timer timer{io};
    std::vector<bool> results;
    const auto keep = [&results](const std::exception_ptr&, bool slept) {
        results.push_back(slept);
    };
    net::co_spawn(io, sleep_on(timer, 0ms), keep);
    io.run();
    net::co_spawn(io, sleep_on(timer, 1h), keep);
    io.restart();
    io.poll();
    timer.cancel();
    io.run();
    EXPECT_EQ(results, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace lockstep
