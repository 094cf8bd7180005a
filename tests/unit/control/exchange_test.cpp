#include "daemon/control/exchange.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Answers = std::vector<KeyExchange::Answer>;

class Exchange : public ::testing::Test {
  protected:
    static wire::KeyRequest make(std::uint64_t id, std::string op, std::vector<std::string> keys,
                                 std::int32_t rank = 0) {
        wire::KeyRequest request;
        request.id = id;
        request.op = std::move(op);
        request.keys = std::move(keys);
        request.rank = rank;
        request.timeout_ms = 1000;
        return request;
    }
    Answers ask(std::int32_t node, const wire::KeyRequest& request) {
        return keys_.request(node, request, now_);
    }
    Answers set(std::uint64_t id, const std::string& key, const std::string& value) {
        auto request = make(id, "set", {key});
        request.value = base64_encode(value);
        return ask(0, request);
    }

    KeyExchange keys_{2};
    KeyExchange::TimePoint now_{};
};

TEST_F(Exchange, GivesBackWhatWasSet) {
    EXPECT_EQ(ask(0, make(1, "get", {"k"}))[0].reply.error, "not_found");
    EXPECT_TRUE(set(2, "k", "v")[0].reply.ok);
    const auto got = ask(1, make(1, "get", {"k"}));
    EXPECT_EQ(*base64_decode(got[0].reply.value), "v");
    EXPECT_EQ(got[0].node_rank, 1);
    const auto many = ask(1, make(2, "multi_get", {"k", "k"}));
    EXPECT_EQ(many[0].reply.values.size(), 2U);
}

TEST_F(Exchange, AWaiterIsAnsweredWhenTheLastKeyIsSet) {
    EXPECT_TRUE(ask(1, make(1, "wait", {"a", "b"})).empty());
    EXPECT_EQ(set(2, "a", "1").size(), 1U);
    const auto both = set(3, "b", "2");
    ASSERT_EQ(both.size(), 2U);
    EXPECT_EQ(both[1].node_rank, 1);
    EXPECT_TRUE(both[1].reply.ok);
}

TEST_F(Exchange, AWaiterIsToldWhatWasMissing) {
    set(1, "a", "1");
    ask(1, make(2, "wait", {"a", "b"}));
    EXPECT_TRUE(keys_.expire(now_ + std::chrono::milliseconds{999}).empty());
    const auto late = keys_.expire(now_ + std::chrono::milliseconds{1000});
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late[0].reply.error, "timed_out");
    EXPECT_EQ(late[0].reply.message, "missing: b");
    EXPECT_TRUE(keys_.expire(now_ + std::chrono::hours{1}).empty());
}

TEST_F(Exchange, CountersCountEachRequestOnce) {
    auto add = make(1, "add", {"n"});
    add.delta = 5;
    EXPECT_EQ(ask(0, add)[0].reply.number, 5);
    EXPECT_EQ(ask(0, add)[0].reply.number, 5);   // the same request again
    EXPECT_EQ(ask(1, add)[0].reply.number, 10);  // another node's request of that number
    EXPECT_EQ(*base64_decode(ask(0, make(2, "get", {"n"}))[0].reply.value), "10");
    set(3, "text", "x");
    EXPECT_EQ(ask(0, make(4, "add", {"text"}))[0].reply.error, "invalid");
    auto huge = make(5, "add", {"n"});
    huge.delta = INT64_MAX;
    EXPECT_EQ(ask(0, huge)[0].reply.error, "invalid");
}

TEST_F(Exchange, ABarrierOpensWhenEveryRankIsThereAndCanBeUsedAgain) {
    EXPECT_TRUE(ask(0, make(1, "barrier", {"b"}, 0)).empty());
    const auto open = ask(1, make(1, "barrier", {"b"}, 1));
    EXPECT_EQ(open.size(), 2U);
    EXPECT_TRUE(ask(1, make(2, "barrier", {"b"}, 1)).empty());
    EXPECT_EQ(ask(0, make(2, "barrier", {"b"}, 0)).size(), 2U);
}

TEST_F(Exchange, ABarrierThatTimesOutNamesTheMissingRanks) {
    ask(0, make(1, "barrier", {"b"}, 0));
    const auto late = keys_.expire(now_ + std::chrono::seconds{2});
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late[0].reply.message, "missing: rank 1");
}

// After a restart of the daemon: rank 0 had passed the barrier and replays that it was there, rank
// 1 had not been answered and asks again.
TEST_F(Exchange, AReplayedArrivalLetsTheOtherRankThrough) {
    auto replayed = make(1, "barrier", {"b"}, 0);
    replayed.replay = true;
    EXPECT_TRUE(ask(0, replayed).empty());
    const auto open = ask(1, make(1, "barrier", {"b"}, 1));
    ASSERT_EQ(open.size(), 1U);
    EXPECT_EQ(open[0].node_rank, 1);
}

TEST_F(Exchange, RefusesWhatIsTooLarge) {
    auto big = make(1, "set", {"k"});
    big.value = std::string(limits::kValueBytes * 2, 'A');
    EXPECT_EQ(ask(0, big)[0].reply.error, "invalid");
    EXPECT_EQ(ask(0, make(2, "get", {std::string(257, 'k')}))[0].reply.error, "invalid");
    EXPECT_EQ(ask(0, make(3, "get", {}))[0].reply.error, "invalid");
    EXPECT_EQ(ask(0, make(4, "drop", {"k"}))[0].reply.error, "invalid");
    std::size_t stored = 0;
    for (std::uint64_t i = 5; i < 200; ++i) {
        auto one = make(i, "set", {"k" + std::to_string(i)});
        one.value = std::string(limits::kValueBytes, 'A');
        const auto answer = ask(0, one);
        if (!answer[0].reply.ok) {
            EXPECT_EQ(answer[0].reply.error, "exhausted");
            break;
        }
        ++stored;
    }
    EXPECT_EQ(stored, limits::kKeyTotalBytes / limits::kValueBytes);
}

}  // namespace
}  // namespace lockstep
