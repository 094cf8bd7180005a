// What the store answers, to whom and when: the semantics torch's own server has.
#include "job/agent/torch_store/tcp_store_state.hpp"

#include "tests/unit/agent/tcp_store_streams.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::test {
namespace {

struct StoreTest : testing::Test, TcpStoreState::Replies {
    TcpStoreState state{caps()};
    std::map<TcpStoreState::Id, std::string> boxes;

    static TcpStoreCaps caps() {
        TcpStoreCaps out;
        out.keys = 100;
        out.bytes = 100'000;
        out.reply_bytes = 10'000;
        return out;
    }
    std::string& to(TcpStoreState::Id id) override { return boxes[id]; }

    Status ask(TcpStoreState::Id id, StoreOp op, std::vector<std::string_view> parts,
               std::int64_t number = 0) {
        StoreQuery query;
        query.op = op;
        query.parts = std::move(parts);
        query.number = number;
        return state.apply(id, query, *this);
    }
    // What the connection was told since it was asked last.
    std::string told(TcpStoreState::Id id) { return std::exchange(boxes[id], {}); }
    std::string answer(TcpStoreState::Id id, StoreOp op, std::vector<std::string_view> parts,
                       std::int64_t number = 0) {
        EXPECT_TRUE(ask(id, op, std::move(parts), number));
        return told(id);
    }
};

const std::string kGo = code(0);

TEST_F(StoreTest, AnswersARecordedClientOfTheNewestRevision) {
    TcpStoreParser parser;
    StoreQuery query;
    const std::string stream = new_client();
    parser.begin(stream);
    while (parser.next(query) == TcpStoreParser::Step::query) {
        ASSERT_TRUE(state.apply(1, query, *this));
    }
    parser.end();
    const std::string all = told(1);
    ASSERT_TRUE(all.starts_with(new_replies())) << testing::PrintToString(all);
    const std::string keys = all.substr(new_replies().size());
    ASSERT_EQ(keys.substr(0, 8), raw(std::int64_t{4}));
    for (const char* key : {"init/", "/a", "/c", "/barrier"}) {
        EXPECT_THAT(keys, testing::HasSubstr(text(key)));
    }
    EXPECT_EQ(keys.size(),
              8 + text("init/").size() + 2 * text("/a").size() + text("/barrier").size());
}

TEST_F(StoreTest, AddsToWhatASetHasWritten) {
    EXPECT_EQ(answer(1, StoreOp::add, {"n"}, -3), raw(std::int64_t{-3}));
    EXPECT_EQ(answer(1, StoreOp::get, {"n"}), text("-3"));
    ASSERT_TRUE(ask(1, StoreOp::set, {"n", " 41x"}));
    EXPECT_EQ(answer(2, StoreOp::add, {"n"}, 1), raw(std::int64_t{42}));
    ASSERT_TRUE(ask(1, StoreOp::set, {"n", "words"}));
    EXPECT_FALSE(ask(2, StoreOp::add, {"n"}, 1));
    ASSERT_TRUE(ask(1, StoreOp::set, {"n", "9223372036854775807"}));
    EXPECT_EQ(answer(2, StoreOp::add, {"n"}, 1), raw(INT64_MIN)) << "as two's complement";
}

TEST_F(StoreTest, AValueIsExchangedOnlyForTheExpectedOne) {
    EXPECT_EQ(answer(1, StoreOp::compare_set, {"k", "x", "new"}), text("x")) << "torch's own lie";
    EXPECT_EQ(state.keys(), 0U);
    EXPECT_EQ(answer(1, StoreOp::compare_set, {"k", "", "new"}), text("new"));
    EXPECT_EQ(answer(2, StoreOp::compare_set, {"k", "old", "other"}), text("new"));
    EXPECT_EQ(answer(2, StoreOp::compare_set, {"k", "new", "other"}), text("other"));
}

TEST_F(StoreTest, AWaitEndsWhenTheLastKeyIsThere) {
    ASSERT_TRUE(ask(1, StoreOp::set, {"a", "1"}));
    EXPECT_EQ(answer(2, StoreOp::wait, {"a"}), kGo);
    EXPECT_EQ(answer(2, StoreOp::wait, {"a", "b", "c", "c"}), "");
    EXPECT_EQ(answer(3, StoreOp::wait, {"b"}), "");
    ASSERT_TRUE(ask(1, StoreOp::set, {"b", ""}));
    EXPECT_EQ(told(2), "");
    EXPECT_EQ(told(3), kGo);
    EXPECT_EQ(answer(1, StoreOp::add, {"c"}, 1), raw(std::int64_t{1}));
    EXPECT_EQ(told(2), kGo);
    ASSERT_TRUE(ask(1, StoreOp::set, {"c", "again"}));
    EXPECT_EQ(told(2), "") << "once";
}

TEST_F(StoreTest, EveryWayToMakeAKeyWakesWhoWaitsForIt) {
    struct Way {
        StoreOp op;
        std::vector<std::string_view> parts;
    };
    for (const Way& way : {Way{StoreOp::set, {"k", "v"}}, Way{StoreOp::add, {"k"}},
                           Way{StoreOp::compare_set, {"k", "", "v"}},
                           Way{StoreOp::append, {"k", "v"}}, Way{StoreOp::multi_set, {"k", "v"}},
                           Way{StoreOp::queue_push, {"k", "v"}}, Way{StoreOp::barrier, {"k"}}}) {
        EXPECT_EQ(answer(2, StoreOp::wait, {"k"}), "");
        ASSERT_TRUE(ask(1, way.op, way.parts));
        EXPECT_EQ(told(2), kGo) << static_cast<int>(way.op);
        EXPECT_EQ(answer(2, StoreOp::check, {"k"}), code(0));
        answer(1, StoreOp::delete_key, {"k"});
        answer(1, StoreOp::queue_pop, {"k"});
        EXPECT_EQ(answer(2, StoreOp::check, {"k"}), code(1));
    }
    EXPECT_EQ(state.bytes(), 0U);
}

TEST_F(StoreTest, ACancelledWaitIsNotAnsweredLater) {
    EXPECT_EQ(answer(1, StoreOp::wait, {"k", "l"}), "");
    EXPECT_EQ(answer(1, StoreOp::cancel_wait, {}), code(1));
    EXPECT_EQ(answer(1, StoreOp::wait, {"m"}), "");
    ASSERT_TRUE(ask(2, StoreOp::multi_set, {"k", "", "l", ""}));
    EXPECT_EQ(told(1), "");
    ASSERT_TRUE(ask(2, StoreOp::set, {"m", ""}));
    EXPECT_EQ(told(1), kGo);
    EXPECT_EQ(answer(1, StoreOp::cancel_wait, {}), code(1)) << "it came too late, and is answered";
}

TEST_F(StoreTest, WaitingAgainAndAgainCostsNothingThatStays) {
    ASSERT_TRUE(ask(9, StoreOp::wait, {"never"}));
    const std::size_t before = state.bytes();
    for (int round = 0; round < 10'000; ++round) {
        ASSERT_TRUE(ask(1, StoreOp::wait, {"never", "ever"}));
        ASSERT_TRUE(ask(1, StoreOp::cancel_wait, {}));
    }
    EXPECT_EQ(state.bytes(), before);
    state.forget(9);
    EXPECT_EQ(state.bytes(), 0U);
    ASSERT_TRUE(ask(2, StoreOp::set, {"never", ""}));
    EXPECT_EQ(told(9), "") << "the number may be another connection's now";
}

TEST_F(StoreTest, ABarrierOpensForAllWhenTheLastArrives) {
    EXPECT_EQ(answer(1, StoreOp::barrier, {"b"}, 3), "");
    EXPECT_EQ(answer(2, StoreOp::barrier, {"b"}, 3), "");
    EXPECT_EQ(answer(3, StoreOp::barrier, {"b"}, 3), kGo);
    EXPECT_EQ(told(1), kGo);
    EXPECT_EQ(told(2), kGo);
    EXPECT_EQ(answer(1, StoreOp::barrier, {"b"}, 3), kGo) << "it stays open";
}

TEST_F(StoreTest, APushWakesOneOfThoseWhoWaitForTheQueue) {
    EXPECT_EQ(answer(1, StoreOp::wait, {"q"}), "");
    EXPECT_EQ(answer(2, StoreOp::wait, {"q"}), "");
    ASSERT_TRUE(ask(3, StoreOp::queue_push, {"q", "first"}));
    EXPECT_EQ(told(1) + told(2), kGo);
    ASSERT_TRUE(ask(3, StoreOp::queue_push, {"q", "second"}));
    EXPECT_EQ(told(1) + told(2), kGo);
    EXPECT_EQ(answer(1, StoreOp::queue_length, {"q"}), raw(std::int64_t{2}));
    EXPECT_EQ(answer(1, StoreOp::queue_pop, {"q"}), raw(std::int64_t{2}) + text("first"));
    EXPECT_EQ(answer(2, StoreOp::queue_pop, {"q"}), raw(std::int64_t{1}) + text("second"));
    EXPECT_EQ(answer(2, StoreOp::queue_pop, {"q"}), raw(std::int64_t{0}));
    EXPECT_EQ(answer(2, StoreOp::count_keys, {}), raw(std::int64_t{0})) << "a queue is no key";
}

TEST_F(StoreTest, TellsWatchersOfTorchUpTo20WhatBecomesOfAKey) {
    EXPECT_EQ(answer(1, StoreOp::watch_key, {"k"}), code(3));
    ASSERT_TRUE(ask(2, StoreOp::set, {"k", "v"}));
    EXPECT_EQ(told(1), code(1) + text("k") + text("") + text("v"));
    answer(2, StoreOp::append, {"k", "w"});
    EXPECT_EQ(told(1), code(0) + text("k") + text("v") + text("vw"));
    answer(2, StoreOp::delete_key, {"k"});
    EXPECT_EQ(told(1), code(2) + text("k") + text("vw") + text(""));
    state.forget(1);
    ASSERT_TRUE(ask(2, StoreOp::set, {"k", "v"}));
    EXPECT_EQ(told(1), "");
}

TEST_F(StoreTest, ACapRefusesTheQueryAndLeavesTheStoreAsItIs) {
    ASSERT_TRUE(ask(1, StoreOp::set, {"k", std::string(60'000, 'v')}));
    const std::size_t before = state.bytes();
    const std::string large(60'000, 'w');
    for (const auto op : {StoreOp::set, StoreOp::append, StoreOp::queue_push, StoreOp::multi_set}) {
        const auto refused = ask(2, op, {"l", large});
        ASSERT_FALSE(refused) << static_cast<int>(op);
        EXPECT_EQ(refused.error().code, Errc::exhausted);
    }
    EXPECT_FALSE(ask(2, StoreOp::wait, {large}));
    EXPECT_FALSE(ask(2, StoreOp::watch_key, {large}));
    EXPECT_EQ(state.bytes(), before);
    EXPECT_TRUE(ask(2, StoreOp::set, {"k", large})) << "in its place";
    EXPECT_FALSE(ask(2, StoreOp::multi_get, {"k", "k", "k"})) << "a reply of 180,000 bytes";
    EXPECT_EQ(told(2), "");
    answer(1, StoreOp::delete_key, {"k"});
    for (int key = 0; key < 100; ++key) {
        ASSERT_TRUE(ask(1, StoreOp::set, {std::to_string(key), ""}));
    }
    EXPECT_FALSE(ask(1, StoreOp::set, {"one more", ""}));
    EXPECT_TRUE(ask(1, StoreOp::set, {"99", "again"}));
    EXPECT_EQ(state.keys(), 100U);
}

}  // namespace
}  // namespace lockstep::test
