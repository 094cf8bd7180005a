// The line in front of the handshake workers: turns, fairness between addresses, leaving it.
#include "daemon/http/server/handshakes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class HandshakesTest : public testing::Test {
  protected:
    net::io_context io_{1};
    Handshakes handshakes_{io_, Handshakes::Caps{2, 1, 500ms}};
    std::vector<std::unique_ptr<Handshakes::Turn>> turns_;
    std::vector<std::size_t> granted_;
    std::vector<std::size_t> cancelled_;

    static Task<void> stand(Handshakes::Turn& turn, std::size_t number,
                            std::vector<std::size_t>& granted,
                            std::vector<std::size_t>& cancelled) {
        const bool in = co_await turn.wait();
        (in ? granted : cancelled).push_back(number);
    }
    void come(const std::string& from) {
        const std::size_t number = turns_.size();
        turns_.push_back(
            std::make_unique<Handshakes::Turn>(handshakes_, net::ip::make_address(from)));
        net::co_spawn(io_, stand(*turns_.back(), number, granted_, cancelled_),
                      [](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); });
    }
    void settle() {
        io_.restart();
        io_.poll();
    }
    // In the order they were let in.
    const std::vector<std::size_t>& now_in() {
        settle();
        return granted_;
    }
};

TEST_F(HandshakesTest, AnAddressThatCallsOftenHoldsUpItselfOnly) {
    for (int i = 0; i < 5; ++i) {
        come("10.0.0.1");
    }
    come("10.0.0.2");
    EXPECT_EQ(now_in(), (std::vector<std::size_t>{0, 5}));
    come("10.0.0.3");
    settle();
    EXPECT_EQ(handshakes_.waiting(), 5U);
    turns_[0]->release();
    turns_[5]->release();
    EXPECT_EQ(now_in(), (std::vector<std::size_t>{0, 5, 6, 1}));
}

TEST_F(HandshakesTest, WhoLeavesTheLineIsSkipped) {
    for (const char* from : {"10.0.0.1", "10.0.0.1", "10.0.0.1"}) {
        come(from);
    }
    settle();
    turns_[1]->cancel();
    settle();
    EXPECT_EQ(cancelled_, (std::vector<std::size_t>{1}));
    turns_[0]->release();
    EXPECT_EQ(now_in(), (std::vector<std::size_t>{0, 2}));
    turns_[2]->release();
    turns_[2]->release();
    EXPECT_EQ(handshakes_.busy(), 0U);
    EXPECT_EQ(handshakes_.waiting(), 0U);
}

TEST_F(HandshakesTest, CancelledBeforeItWaitsNeverWaits) {
    come("10.0.0.1");
    turns_[0]->cancel();
    settle();
    EXPECT_EQ(cancelled_, (std::vector<std::size_t>{0}));
    EXPECT_EQ(handshakes_.busy(), 0U);
}

TEST_F(HandshakesTest, ATurnEndsByItselfAfterItsTime) {
    come("10.0.0.1");
    come("10.0.0.1");
    settle();
    handshakes_.expire(std::chrono::steady_clock::now());
    EXPECT_EQ(now_in().size(), 1U);
    handshakes_.expire(std::chrono::steady_clock::now() + 1s);
    EXPECT_EQ(now_in(), (std::vector<std::size_t>{0, 1}));
    turns_[0]->release();  // long over
    EXPECT_EQ(handshakes_.busy(), 1U);
}

TEST_F(HandshakesTest, TheWorkersAreOtherThreads) {
    const auto here = std::this_thread::get_id();
    std::thread::id there;
    net::post(handshakes_.workers(), [&] {
        there = std::this_thread::get_id();
        net::post(io_, [] {});
    });
    const auto work = net::make_work_guard(io_);
    io_.run_one();
    EXPECT_NE(there, std::thread::id{});
    EXPECT_NE(there, here);
}

}  // namespace
}  // namespace lockstep
