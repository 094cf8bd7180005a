#include "job/agent/key_broker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

wire::KeyRequest request(const std::string& op, const std::string& key, std::int64_t delta = 0,
                         const std::string& value = "") {
    wire::KeyRequest out;
    out.op = op;
    out.keys = {key};
    out.delta = delta;
    out.value = value;
    return out;
}

class KeyBrokerTest : public testing::Test {
  protected:
    KeyBrokerTest() { broker.start_generation(2); }
    wire::KeyRequest ask(const wire::KeyRequest& what, std::int32_t rank = 0) {
        KeyBroker::Origin origin;
        origin.rank = rank;
        origin.connection = 5;
        origin.id = 70;
        origin.op = what.op;
        return broker.ask(origin, what);
    }
    void answer(const wire::KeyRequest& asked, bool ok = true, const std::string& error = "") {
        wire::KeyReply reply;
        reply.id = asked.id;
        reply.ok = ok;
        reply.error = error;
        EXPECT_TRUE(broker.answered(reply));
    }
    KeyBroker broker;
};

TEST_F(KeyBrokerTest, NumbersRequestsAndFindsWhoAsked) {
    const auto one = ask(request("get", "a"), 3);
    const auto two = ask(request("get", "a"), 4);
    EXPECT_NE(one.id, two.id);
    EXPECT_EQ(one.generation, 2);
    EXPECT_EQ(two.rank, 4);
    wire::KeyReply reply;
    reply.id = two.id;
    const auto origin = broker.answered(reply);
    ASSERT_TRUE(origin);
    EXPECT_EQ(origin->rank, 4);
    EXPECT_EQ(origin->connection, 5U);
    EXPECT_EQ(origin->id, 70);
    EXPECT_FALSE(broker.answered(reply)) << "a second reply is for nobody";
}

TEST_F(KeyBrokerTest, TheSameDaemonGetsOnlyWhatItHasNotAnswered) {
    answer(ask(request("set", "k", 0, "v")));
    const auto open = ask(request("wait", "x"));
    const auto again = broker.after_reconnect(false);
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].id, open.id);
    EXPECT_FALSE(again[0].replay);
}

TEST_F(KeyBrokerTest, ANewDaemonIsToldWhatChangedKeys) {
    answer(ask(request("set", "k", 0, "old")));
    answer(ask(request("set", "k", 0, "new")));
    answer(ask(request("add", "n", 2)));
    answer(ask(request("add", "n", 3)));
    answer(ask(request("get", "k")));
    answer(ask(request("set", "refused", 0, "x")), false, "exhausted");
    const auto again = broker.after_reconnect(true);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_EQ(again[0].value, "new");
    EXPECT_TRUE(again[0].replay);
    EXPECT_EQ(again[1].op, "add");
    EXPECT_EQ(again[1].delta, 5);
}

TEST_F(KeyBrokerTest, ASetForgetsWhatWasCountedBefore) {
    answer(ask(request("add", "n", 2)));
    answer(ask(request("set", "n", 0, "MTA=")));
    answer(ask(request("add", "n", 3)));
    const auto again = broker.after_reconnect(true);
    ASSERT_THAT(again, SizeIs(2));
    EXPECT_EQ(again[0].op, "set");
    EXPECT_EQ(again[1].delta, 3);
}

TEST_F(KeyBrokerTest, EveryArrivalAtABarrierIsToldAgainAlsoOneThatTimedOut) {
    answer(ask(request("barrier", "b"), 0));
    answer(ask(request("barrier", "b"), 0));
    answer(ask(request("barrier", "b"), 1), false, "timed_out");
    const auto again = broker.after_reconnect(true);
    ASSERT_THAT(again, SizeIs(3));
    EXPECT_EQ(again[0].rank, 0);
    EXPECT_NE(again[0].id, again[1].id);
    EXPECT_EQ(again[2].rank, 1);
    EXPECT_EQ(again[2].generation, 2);
}

TEST_F(KeyBrokerTest, ANewGenerationStartsEmptyButNumbersGoOn) {
    const auto old = ask(request("set", "k"));
    broker.start_generation(3);
    EXPECT_THAT(broker.after_reconnect(true), IsEmpty());
    EXPECT_GT(ask(request("set", "k")).id, old.id);
}

}  // namespace
}  // namespace lockstep
