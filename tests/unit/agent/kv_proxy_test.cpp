#include "job/agent/kv/kv_proxy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace lockstep {
namespace {

constexpr std::chrono::steady_clock::time_point kNow{};  // where no time is left to count

using testing::IsEmpty;
using testing::SizeIs;

wire::KeyRequest request(const std::string& op, const std::string& key, std::int64_t delta = 0,
                         const std::string& value = "") {
    wire::KeyRequest out;
    out.op = wire::kv_op_of(op);
    out.keys = {key};
    out.delta = delta;
    out.value = value;
    return out;
}

class KvProxyTest : public testing::Test {
  protected:
    KvProxyTest() { broker.start_generation(2); }
    wire::KeyRequest ask(const wire::KeyRequest& what, std::int32_t rank = 0) {
        KvProxy::Origin origin;
        origin.rank = rank;
        origin.connection = 5;
        origin.id = 70;
        origin.op = what.op;
        last = broker.ask(origin, what);
        return last.send.value_or(wire::KeyRequest{});
    }
    void answer(const wire::KeyRequest& asked, bool ok = true, const std::string& error = "") {
        wire::KeyReply reply;
        reply.id = asked.id;
        reply.ok = ok;
        reply.error = error;
        EXPECT_THAT(broker.answered(reply).origins, SizeIs(1));
    }
    static wire::KeyReply value(const wire::KeyRequest& asked, const std::string& text,
                                const std::string& once = "") {
        wire::KeyReply reply;
        reply.id = asked.id;
        reply.ok = reply.has_value = true;
        reply.value = text;
        reply.once = once;
        return reply;
    }
    KvProxy::Asked last;
    KvProxy broker;
};

TEST_F(KvProxyTest, NumbersRequestsAndFindsWhoAsked) {
    const auto one = ask(request("get", "a"), 3);
    const auto two = ask(request("get", "b"), 4);
    EXPECT_NE(one.id, two.id);
    EXPECT_EQ(one.generation, 2);
    EXPECT_EQ(two.rank, 4);
    wire::KeyReply reply;
    reply.id = two.id;
    const auto origins = broker.answered(reply).origins;
    ASSERT_THAT(origins, SizeIs(1));
    EXPECT_EQ(origins[0].rank, 4);
    EXPECT_EQ(origins[0].connection, 5U);
    EXPECT_EQ(origins[0].id, 70);
    EXPECT_THAT(broker.answered(reply).origins, IsEmpty()) << "a second reply is for nobody";
}

TEST_F(KvProxyTest, TheSameDaemonGetsOnlyWhatItHasNotAnswered) {
    answer(ask(request("set", "k", 0, "v")));
    const auto open = ask(request("wait", "x"));
    const auto again = broker.after_reconnect(false, kNow);
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].id, open.id);
    EXPECT_FALSE(again[0].replay);
}

TEST_F(KvProxyTest, ANewDaemonIsToldWhatChangedKeys) {
    answer(ask(request("set", "k", 0, "old")));
    answer(ask(request("set", "k", 0, "new")));
    answer(ask(request("add", "n", 2)));
    answer(ask(request("add", "n", 3)));
    answer(ask(request("get", "k")));
    answer(ask(request("set", "refused", 0, "x")), false, "exhausted");
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_EQ(again[0].value, "new");
    EXPECT_TRUE(again[0].replay);
    EXPECT_EQ(again[1].op, wire::KvOp::add);
    EXPECT_EQ(again[1].delta, 5);
}

TEST_F(KvProxyTest, ASetForgetsWhatWasCountedBefore) {
    answer(ask(request("add", "n", 2)));
    answer(ask(request("set", "n", 0, "MTA=")));
    answer(ask(request("add", "n", 3)));
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_EQ(again[0].op, wire::KvOp::set);
    EXPECT_EQ(again[1].delta, 3);
}

TEST_F(KvProxyTest, EveryArrivalAtABarrierIsToldAgainAlsoOneThatTimedOut) {
    answer(ask(request("barrier", "b"), 0));
    answer(ask(request("barrier", "b"), 0));
    answer(ask(request("barrier", "b"), 1), false, "timed_out");
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(3));
    EXPECT_EQ(again[0].rank, 0);
    EXPECT_NE(again[0].id, again[1].id);
    EXPECT_EQ(again[2].rank, 1);
    EXPECT_EQ(again[2].generation, 2);
}

TEST_F(KvProxyTest, ANewGenerationStartsEmptyButNumbersGoOn) {
    const auto old = ask(request("set", "k"));
    broker.start_generation(3);
    EXPECT_THAT(broker.after_reconnect(true, kNow), IsEmpty());
    EXPECT_GT(ask(request("set", "k")).id, old.id);
}

TEST_F(KvProxyTest, ConcurrentReadsOfAWriteOnceKeyAreOneRequest) {
    const auto sent = ask(request("get", "k"), 0);
    for (std::int32_t rank = 1; rank < 8; ++rank) {
        ask(request("get", "k"), rank);
        EXPECT_FALSE(last.send || last.answer) << rank;
    }
    const auto answered = broker.answered(value(sent, "dg==", "1"));
    EXPECT_THAT(answered.origins, SizeIs(8));
    EXPECT_FALSE(answered.again);
    EXPECT_EQ(broker.waiting(), 0U);
}

// Rank 1 asked after rank 0's read was sent: what the daemon said may be from before a change that
// rank 1 has heard of.
TEST_F(KvProxyTest, AReadThatJoinedIsAskedAgainIfTheValueCanChange) {
    const auto sent = ask(request("get", "k"), 0);
    ask(request("get", "k"), 1);
    ask(request("get", "k"), 2);
    wire::KeyReply missing;
    missing.id = sent.id;
    missing.error = "not_found";
    auto answered = broker.answered(missing);
    ASSERT_THAT(answered.origins, SizeIs(1));
    EXPECT_EQ(answered.origins[0].rank, 0);
    ASSERT_TRUE(answered.again);
    EXPECT_EQ(answered.again->rank, 1);
    EXPECT_GT(answered.again->id, sent.id);
    answered = broker.answered(value(*answered.again, "dg=="));
    EXPECT_THAT(answered.origins, SizeIs(2)) << "both had asked before it was sent";
    EXPECT_FALSE(answered.again);
}

TEST_F(KvProxyTest, WriteOnceValuesAreAnsweredHere) {
    broker.answered(value(ask(request("get", "k")), "dg==", "1"));
    auto once = request("set", "mine", 0, "bQ==");
    once.once = true;
    answer(ask(once));
    auto both = request("multi_get", "k");
    both.keys.emplace_back("mine");
    ask(both, 1);
    ASSERT_TRUE(last.answer);
    EXPECT_FALSE(last.send);
    EXPECT_THAT(last.answer->values, testing::ElementsAre("dg==", "bQ=="));
    ask(request("get", "mine"), 1);
    ASSERT_TRUE(last.answer);
    EXPECT_EQ(last.answer->value, "bQ==");
    ask(request("wait", "mine"), 1);
    EXPECT_TRUE(last.answer && last.answer->ok);
    EXPECT_EQ(broker.waiting(), 0U);
    ask(request("get", "other"));
    EXPECT_TRUE(last.send);
    auto none = request("multi_get", "");
    none.keys.clear();
    ask(none);
    EXPECT_TRUE(last.send) << "no keys: the daemon refuses it";
    broker.start_generation(3);
    ask(request("get", "k"));
    EXPECT_TRUE(last.send) << "another generation's keys are others";
}

TEST_F(KvProxyTest, WhatCanChangeOrWasRefusedIsNotKept) {
    broker.answered(value(ask(request("get", "k")), "dg=="));
    ask(request("get", "k"));
    EXPECT_TRUE(last.send);
    auto once = request("set", "other", 0, "bQ==");
    once.once = true;
    answer(ask(once), false, "conflict");
    ask(request("get", "other"));
    EXPECT_TRUE(last.send);
    auto mixed = request("multi_get", "a");
    mixed.keys.emplace_back("b");
    wire::KeyReply reply;
    reply.id = ask(mixed).id;
    reply.ok = true;
    reply.values = {"YQ==", "Yg=="};
    reply.once = "01";
    broker.answered(reply);
    ask(request("get", "a"));
    EXPECT_TRUE(last.send);
    ask(request("get", "b"));
    EXPECT_TRUE(last.answer);
}

TEST(KvCache, IsBoundedAndLetsTheOldestGo) {
    KvCache cache{30};
    cache.put("a", std::string(9, 'x'));
    cache.put("b", std::string(9, 'y'));
    cache.put("c", std::string(9, 'z'));
    EXPECT_EQ(cache.bytes(), 30U);
    cache.put("large", std::string(30, 'x'));
    EXPECT_FALSE(cache.contains("large"));
    cache.put("d", "1");
    EXPECT_FALSE(cache.contains("a"));
    EXPECT_TRUE(cache.contains("b") && cache.contains("d"));
    EXPECT_EQ(cache.bytes(), 22U);
    cache.clear();
    EXPECT_EQ(cache.bytes(), 0U);
    EXPECT_EQ(cache.find("b"), nullptr);
}

TEST_F(KvProxyTest, ACasThatSwappedIsReplayedAsTheSetItCameTo) {
    auto swap = request("cas", "k", 0, "bmV3");
    swap.expected = "b2xk";
    wire::KeyReply reply;
    reply.id = ask(swap).id;
    reply.ok = reply.swapped = true;
    reply.version = 77;
    broker.answered(reply);
    reply.id = ask(request("cas", "lost", 0, "eA==")).id;
    reply.swapped = false;
    broker.answered(reply);
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(1)) << "the one that did not swap changed nothing";
    EXPECT_EQ(again[0].op, wire::KvOp::set);
    EXPECT_EQ(again[0].value, "bmV3");
    EXPECT_EQ(again[0].expected, "");
    EXPECT_EQ(again[0].version, 77);
    EXPECT_TRUE(again[0].replay);
}

TEST_F(KvProxyTest, AnUnansweredCasIsSentAgainAsCas) {
    auto swap = request("cas", "k", 0, "bmV3");
    swap.expected = "b2xk";
    const auto sent = ask(swap);
    answer(ask(request("set", "k", 0, "b2xk")));
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_EQ(again[0].op, wire::KvOp::set);
    EXPECT_EQ(again[1].op, wire::KvOp::cas);
    EXPECT_EQ(again[1].id, sent.id);
    EXPECT_EQ(again[1].expected, "b2xk");
    EXPECT_FALSE(again[1].replay);
}

TEST_F(KvProxyTest, AReplayKeepsWriteOnceAndTheVersion) {
    auto once = request("set", "k", 0, "dg==");
    once.once = true;
    wire::KeyReply reply;
    reply.id = ask(once).id;
    reply.ok = true;
    reply.version = 5;
    broker.answered(reply);
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_TRUE(again[0].once);
    EXPECT_EQ(again[0].version, 5);
}

TEST_F(KvProxyTest, AMultiSetIsReplayedKeyByKey) {
    auto all = request("multi_set", "a");
    all.keys.emplace_back("b");
    all.values = {"MQ==", "Mg=="};
    answer(ask(all));
    answer(ask(request("set", "a", 0, "Mw==")));
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_THAT(again[0].keys, testing::ElementsAre("b"));
    EXPECT_EQ(again[0].value, "Mg==");
    EXPECT_THAT(again[1].keys, testing::ElementsAre("a"));
    EXPECT_EQ(again[1].value, "Mw==");
    EXPECT_THAT(again[0].values, IsEmpty());
}

}  // namespace

class SharedWaitTest : public KvProxyTest {
  protected:
    using TimePoint = std::chrono::steady_clock::time_point;
    static TimePoint at(int second) { return TimePoint{std::chrono::seconds{second}}; }
    KvProxy::Asked wait_of(std::int32_t rank, int deadline) {
        KvProxy::Origin origin;
        origin.rank = rank;
        origin.op = wire::KvOp::wait;
        origin.deadline = at(deadline);
        return broker.ask(origin, request("wait", "a"));
    }
    static wire::KeyReply timed_out(std::uint64_t id) {
        wire::KeyReply reply;
        reply.id = id;
        reply.error = "timed_out";
        return reply;
    }
};

TEST_F(SharedWaitTest, TheRanksOfANodeWaitForTheSameKeysInOneRequest) {
    const auto first = wait_of(0, 30);
    ASSERT_TRUE(first.send);
    for (std::int32_t rank = 1; rank < 8; ++rank) {
        const auto joined = wait_of(rank, 30 + rank);
        EXPECT_FALSE(joined.send);
        EXPECT_FALSE(joined.answer);
    }
    wire::KeyReply reply;
    reply.id = first.send->id;
    reply.ok = true;
    EXPECT_THAT(broker.answered(reply, at(5)).origins, SizeIs(8));
    EXPECT_EQ(broker.waiting(), 0U);
}

TEST_F(SharedWaitTest, WhoeverMayWaitLongerGoesOnWaiting) {
    const auto first = wait_of(0, 30);
    wait_of(1, 50);
    wait_of(2, 40);
    const auto over = broker.answered(timed_out(first.send->id), at(30));
    ASSERT_THAT(over.origins, SizeIs(1));
    EXPECT_EQ(over.origins[0].rank, 0);
    ASSERT_TRUE(over.again);
    EXPECT_EQ(over.again->timeout_ms, 10'001) << "until the next of them has waited long enough";
    const auto next = broker.answered(timed_out(over.again->id), at(41));
    ASSERT_THAT(next.origins, SizeIs(1));
    EXPECT_EQ(next.origins[0].rank, 2);
    ASSERT_TRUE(next.again);
    EXPECT_EQ(next.again->timeout_ms, 9'001);
}

TEST_F(SharedWaitTest, AWaitThatEndsEarlierIsARequestOfItsOwn) {
    const auto patient = wait_of(0, 300);
    const auto hasty = wait_of(1, 1);
    ASSERT_TRUE(hasty.send);
    const auto over = broker.answered(timed_out(hasty.send->id), at(1));
    ASSERT_THAT(over.origins, SizeIs(1));
    EXPECT_EQ(over.origins[0].rank, 1);
    EXPECT_FALSE(over.again);
    EXPECT_EQ(broker.waiting(), 1U);
    EXPECT_EQ(broker.after_reconnect(false, kNow).front().id, patient.send->id);
}

// It got its whole time again; the rank, which gives up by its own clock, was blamed.
TEST_F(SharedWaitTest, AfterAReconnectABarrierAndAWaitHaveOnlyWhatIsLeftOfTheirTime) {
    KvProxy::Origin origin;
    origin.op = wire::KvOp::barrier;
    origin.deadline = at(60);
    auto barrier = request("barrier", "b");
    barrier.timeout_ms = 60'000;
    broker.ask(origin, barrier);
    wait_of(1, 50);
    wait_of(2, 70);  // joins the wait of rank 1, which ends first
    for (const auto& [second, lost, of_barrier, of_wait] :
         std::vector<std::tuple<int, bool, std::int64_t, std::int64_t>>{
             {20, false, 40'000, 30'000},
             {20, true, 40'000, 30'000},
             {61, false, 1, 1},
             // The other nodes, which tell a new daemon who has arrived, need a moment, too.
             {59, true, 3'000, 1},
             {61, true, 2'000, 1}}) {
        const auto again = broker.after_reconnect(lost, at(second));
        ASSERT_THAT(again, SizeIs(2));
        EXPECT_EQ(again[0].timeout_ms, of_barrier) << second << lost;
        EXPECT_EQ(again[1].timeout_ms, of_wait) << second << lost;
    }
}

TEST_F(KvProxyTest, ANewDaemonIsToldOfADeletedKeyOnlyThatItIs) {
    answer(ask(request("set", "a")));
    answer(ask(request("delete", "a")));
    const auto again = broker.after_reconnect(true, kNow);
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].op, wire::KvOp::erase);
    EXPECT_TRUE(again[0].replay);
}

}  // namespace lockstep
