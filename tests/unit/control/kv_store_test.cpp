// size: every operation, sent once, sent again and replayed
#include "daemon/control/machine/kv_store.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Answers = std::vector<KvStore::Answer>;

class Exchange : public ::testing::Test {
  protected:
    static wire::KeyRequest make(std::uint64_t id, std::string_view op,
                                 std::vector<std::string> keys, std::int32_t rank = 0) {
        wire::KeyRequest request;
        request.id = id;
        request.op = wire::kv_op_of(op);
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

    wire::KeyReply cas(std::uint64_t id, const std::string& expected, const std::string& value,
                       std::int32_t node = 0) {
        auto request = make(id, "cas", {"k"});
        request.expected = base64_encode(expected);
        request.value = base64_encode(value);
        return ask(node, request)[0].reply;
    }
    wire::KeyReply set_once(std::uint64_t id, const std::string& key, const std::string& value) {
        auto request = make(id, "set", {key});
        request.value = base64_encode(value);
        request.once = true;
        return ask(0, request)[0].reply;
    }
    // As an agent tells it after the daemon's restart.
    void replay_set(std::int32_t node, const std::string& value, std::int64_t version,
                    bool once = false) {
        auto request = make(1, "set", {"k"});
        request.value = base64_encode(value);
        request.version = version;
        request.once = once;
        request.replay = true;
        EXPECT_TRUE(ask(node, request).empty());
    }
    std::string now(const std::string& key = "k") {
        const auto reply = ask(0, make(900, "get", {key}))[0].reply;
        return reply.ok ? *base64_decode(reply.value) : reply.error;
    }

    KvStore keys_{2};
    KvStore::TimePoint now_{};
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

TEST_F(Exchange, CasCreatesOnceAndSwapsWhatIsExpected) {
    const auto first = cas(1, "", "a");
    EXPECT_TRUE(first.ok && first.swapped);
    EXPECT_EQ(*base64_decode(first.value), "a");
    const auto second = cas(1, "", "b", 1);
    EXPECT_TRUE(second.ok);
    EXPECT_FALSE(second.swapped);
    EXPECT_EQ(*base64_decode(second.value), "a");
    EXPECT_TRUE(cas(2, "a", "c").swapped);
    EXPECT_FALSE(cas(3, "a", "d").swapped);
    EXPECT_EQ(now(), "c");
    auto nothing = make(4, "cas", {"none"});
    nothing.expected = "YQ==";
    const auto reply = ask(0, nothing)[0].reply;
    EXPECT_TRUE(reply.ok && !reply.swapped && !reply.has_value);
    EXPECT_EQ(now("none"), "not_found");
}

// The agent's connection was lost with the answer: the same request comes again.
TEST_F(Exchange, ACasThatSwappedSaysSoAgain) {
    EXPECT_TRUE(cas(1, "", "a").swapped);
    EXPECT_TRUE(cas(1, "a", "b", 1).swapped);
    const auto again = cas(1, "", "a");
    EXPECT_TRUE(again.swapped);
    EXPECT_EQ(now(), "b") << "it does not swap a second time";
}

// It was set a second time: over what another rank had set since, and what somebody had deleted.
TEST_F(Exchange, ASetThatIsSentAgainSetsNothing) {
    const auto first = set(1, "k", "a")[0].reply;
    EXPECT_EQ(set(1, "k", "a")[0].reply.version, first.version) << "nobody has set it since";
    auto other = make(1, "set", {"k"});
    other.value = base64_encode("b");
    EXPECT_TRUE(ask(1, other)[0].reply.ok) << "another node's request of that number";
    const auto again = set(1, "k", "a")[0].reply;
    EXPECT_TRUE(again.ok);
    EXPECT_EQ(again.version, first.version) << "by which it is older, should it be replayed";
    EXPECT_EQ(now(), "b");
    ask(0, make(2, "delete", {"k"}));
    EXPECT_TRUE(ask(1, other)[0].reply.ok);
    EXPECT_TRUE(set(1, "k", "a")[0].reply.ok);
    EXPECT_EQ(now(), "not_found");
    set(3, "k", "c");
    EXPECT_EQ(now(), "c");
    EXPECT_TRUE(set(1, "k", "a")[0].reply.ok);
    EXPECT_EQ(now(), "c") << "older than what its own node has set";
    EXPECT_TRUE(cas(7, "c", "d", 1).swapped);
    EXPECT_TRUE(set(3, "k", "c")[0].reply.ok);
    EXPECT_EQ(now(), "d");
}

TEST_F(Exchange, AMultiSetThatIsSentAgainSetsNothing) {
    auto request = make(1, "multi_set", {"a", "b"});
    request.values = {"MQ==", "Mg=="};
    const auto first = ask(0, request)[0].reply;
    auto other = make(1, "set", {"a"});
    other.value = base64_encode("new");
    EXPECT_TRUE(ask(1, other)[0].reply.ok);
    EXPECT_TRUE(ask(1, make(2, "delete", {"b"}))[0].reply.ok);
    const auto again = ask(0, request)[0].reply;
    EXPECT_TRUE(again.ok);
    EXPECT_EQ(again.version, first.version);
    EXPECT_EQ(now("a"), "new");
    EXPECT_EQ(now("b"), "not_found");
}

// It had been refused, so nothing of it was done.
TEST_F(Exchange, ASetThatWasRefusedMayBeSentAgain) {
    auto request = make(1, "set", {"k"});
    request.value = std::string(limits::kValueBytes * 2, 'A');
    EXPECT_EQ(ask(0, request)[0].reply.error, "invalid");
    EXPECT_TRUE(set(1, "k", "v")[0].reply.ok);
    EXPECT_EQ(now(), "v");
}

TEST_F(Exchange, ACasThatCreatesWakesWhoWaits) {
    EXPECT_TRUE(ask(1, make(7, "wait", {"k"})).empty());
    auto request = make(1, "cas", {"k"});
    request.value = "YQ==";
    EXPECT_EQ(ask(0, request).size(), 2U);
}

TEST_F(Exchange, AValueSetOnceNeverBecomesAnother) {
    EXPECT_TRUE(set_once(1, "k", "v").ok);
    EXPECT_TRUE(set_once(2, "k", "v").ok) << "the same value again";
    EXPECT_TRUE(set(3, "k", "v")[0].reply.ok);
    const auto other = set_once(4, "k", "w");
    EXPECT_EQ(other.error, "conflict");
    EXPECT_EQ(other.message, "k: was set once, to another value");
    EXPECT_EQ(set(5, "k", "w")[0].reply.error, "conflict");
    EXPECT_EQ(cas(6, "v", "w").error, "conflict");
    set_once(7, "n", "1");
    EXPECT_EQ(ask(0, make(8, "add", {"n"}))[0].reply.ok, true) << "adding 0 changes nothing";
    auto add = make(9, "add", {"n"});
    add.delta = 1;
    EXPECT_EQ(ask(0, add)[0].reply.error, "conflict");
    EXPECT_EQ(now(), "v");
    set(10, "plain", "x");
    EXPECT_EQ(set_once(11, "plain", "y").error, "conflict");
    EXPECT_EQ(now("plain"), "x");
}

TEST_F(Exchange, ReadsTellWhatCannotChangeAnyMore) {
    set_once(1, "once", "v");
    set(2, "any", "v");
    EXPECT_EQ(ask(0, make(3, "get", {"once"}))[0].reply.once, "1");
    EXPECT_EQ(ask(0, make(4, "get", {"any"}))[0].reply.once, "");
    EXPECT_EQ(ask(0, make(5, "multi_get", {"any", "once"}))[0].reply.once, "01");
}

TEST_F(Exchange, MultiSetSetsAllOrNothing) {
    auto request = make(1, "multi_set", {"a", "b"});
    request.values = {"MQ==", "Mg=="};
    EXPECT_TRUE(ask(1, make(2, "wait", {"a", "b"})).empty());
    EXPECT_EQ(ask(0, request).size(), 2U) << "the waiter is answered too";
    EXPECT_EQ(now("b"), "2");
    set_once(3, "c", "x");
    request = make(4, "multi_set", {"a", "c"});
    request.values = {"Mw==", "eQ=="};
    EXPECT_EQ(ask(0, request)[0].reply.error, "conflict");
    EXPECT_EQ(now("a"), "1");
    request.values = {"Mw==", std::string(limits::kValueBytes * 2, 'A')};
    EXPECT_EQ(ask(0, request)[0].reply.error, "invalid");
    request.values = {"Mw=="};
    EXPECT_EQ(ask(0, request)[0].reply.error, "invalid");
    request.keys = {"a", "a"};
    request.values = {"Mw==", "Mw=="};
    EXPECT_EQ(ask(0, request)[0].reply.error, "invalid");
    EXPECT_EQ(now("a"), "1");
}

TEST_F(Exchange, AnAnswerThatNoFrameHoldsIsRefused) {
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < 4; ++i) {
        keys.push_back("k" + std::to_string(i));
        EXPECT_TRUE(set(i, keys.back(), std::string(limits::kValueBytes, 'v'))[0].reply.ok);
    }
    const auto reply = ask(0, make(9, "multi_get", keys))[0].reply;
    EXPECT_EQ(reply.error, "exhausted");
    keys.resize(2);
    EXPECT_TRUE(ask(0, make(10, "multi_get", keys))[0].reply.ok);
}

TEST_F(Exchange, OfTwoNodesReplayedValuesTheLaterStays) {
    replay_set(1, "later", 20);
    replay_set(0, "earlier", 10);
    EXPECT_EQ(now(), "later");
    EXPECT_GT(set(2, "k", "new")[0].reply.version, 20);
    replay_set(1, "later", 20);
    EXPECT_EQ(now(), "new") << "what is set after the restart is newer than every replay";
}

TEST_F(Exchange, AnotherLifesVersionsAreSmaller) {
    const auto version = [](KvStore& keys) {
        auto request = make(1, "set", {"k"});
        return keys.request(0, request, {})[0].reply.version;
    };
    KvStore before{2, 1'700'000'000'000};
    KvStore after{2, 1'700'000'000'001};
    EXPECT_GT(version(after), version(before));
}

TEST_F(Exchange, AReplayedWriteOnceValueIsStillOne) {
    replay_set(0, "v", 10, true);
    EXPECT_EQ(set(2, "k", "w")[0].reply.error, "conflict");
    EXPECT_EQ(cas(3, "", "w").swapped, false);
}

// Node 0 had counted to 3, then node 1 set the counter.
TEST_F(Exchange, ReplayedAdditionsFromBeforeASetAreNotCountedAgain) {
    replay_set(1, "10", 20);
    auto add = make(5, "add", {"k"});
    add.delta = 3;
    add.replay = true;
    add.version = 15;
    ask(0, add);
    EXPECT_EQ(now(), "10");
    add.version = 25;
    ask(0, add);
    EXPECT_EQ(now(), "13");
}

// Each of 2,000 ranks arrives once and each arrival looked at every waiter: 4 million looks.
TEST_F(Exchange, ABarrierOfManyRanksOpensOnce) {
    constexpr std::int32_t kRanks = 2000;
    KvStore keys{kRanks};
    std::size_t answers = 0;
    for (int round = 0; round < 2; ++round) {
        for (std::int32_t rank = 0; rank < kRanks; ++rank) {
            auto request =
                make(static_cast<std::uint64_t>(round * kRanks + rank), "barrier", {"all"}, rank);
            const auto out = keys.request(rank / 8, request, now_);
            EXPECT_EQ(out.size(), rank + 1 == kRanks ? static_cast<std::size_t>(kRanks) : 0U);
            answers += out.size();
        }
    }
    EXPECT_EQ(answers, 2U * kRanks);
}

// A waiter stands at one of its keys: the others may come in any order, and it may give up.
TEST_F(Exchange, AWaiterForManyKeysIsAnsweredByTheLastOfThemInAnyOrder) {
    for (const bool backwards : {false, true}) {
        KvStore keys{2};
        std::vector<std::string> names;
        for (int i = 0; i < 50; ++i) {
            names.push_back("id/" + std::to_string(i));
        }
        for (std::uint64_t id = 1; id <= 3; ++id) {
            EXPECT_TRUE(keys.request(0, make(id, "wait", names), now_).empty());
        }
        EXPECT_TRUE(keys.request(0, make(3, "wait", {"never"}), now_).empty()) << "replaces 3";
        std::size_t answers = 0;
        for (std::size_t i = 0; i < names.size(); ++i) {
            EXPECT_EQ(answers, 0U);
            const auto& name = names[backwards ? names.size() - 1 - i : i];
            answers += keys.request(1, make(100 + i, "set", {name}), now_).size() - 1;
        }
        EXPECT_EQ(answers, 2U);
        const auto late = keys.expire(now_ + std::chrono::seconds{2});
        ASSERT_EQ(late.size(), 1U);
        EXPECT_EQ(late[0].reply.message, "missing: never");
        EXPECT_EQ(keys.request(1, make(200, "set", {"never"}), now_).size(), 1U);
    }
}

// One rank is a round ahead of the others, as after a barrier that timed out for it.
TEST_F(Exchange, ARankThatIsAheadCountsForTheNextRound) {
    ask(0, make(1, "barrier", {"b"}, 0));
    ask(0, make(2, "barrier", {"b"}, 0));
    EXPECT_EQ(ask(1, make(1, "barrier", {"b"}, 1)).size(), 2U) << "the first round is over";
    EXPECT_EQ(ask(1, make(2, "barrier", {"b"}, 1)).size(), 2U) << "and so is the second";
}

TEST_F(Exchange, ADeletedKeyIsGoneAndMayBeSetAgain) {
    set(1, "k", "v");
    const auto gone = ask(1, make(2, "delete", {"k"}))[0].reply;
    EXPECT_TRUE(gone.ok);
    EXPECT_EQ(gone.number, 1);
    EXPECT_EQ(now(), "not_found");
    EXPECT_EQ(keys_.keys(), 0U);
    EXPECT_EQ(ask(1, make(2, "delete", {"k"}))[0].reply.number, 1) << "asked again: still its own";
    EXPECT_EQ(ask(1, make(3, "delete", {"k"}))[0].reply.number, 0);
    set(4, "k", "w");
    EXPECT_EQ(now(), "w");
}

TEST_F(Exchange, WhatWasSetOnceIsNotDeleted) {
    EXPECT_TRUE(set_once(1, "k", "v").ok);
    EXPECT_EQ(ask(0, make(2, "delete", {"k"}))[0].reply.error, "conflict");
    EXPECT_EQ(now(), "v");
}

// The daemon was restarted, and the node that had set the key tells it after the one that deleted.
TEST_F(Exchange, AReplayOfWhatWasDeletedSinceSetsNothing) {
    auto request = make(7, "delete", {"k"});
    request.version = 20;
    request.replay = true;
    EXPECT_TRUE(ask(1, request).empty());
    replay_set(0, "old", 10);
    EXPECT_EQ(now(), "not_found");
    replay_set(0, "new", 30);
    EXPECT_EQ(now(), "new");
    EXPECT_TRUE(ask(1, request).empty());
    EXPECT_EQ(now(), "new") << "set after it was deleted";
}

TEST_F(Exchange, AWaitForADeletedKeyWaits) {
    set(1, "k", "v");
    ask(0, make(2, "delete", {"k"}));
    EXPECT_TRUE(ask(1, make(3, "wait", {"k"})).empty());
    EXPECT_EQ(set(4, "k", "w").size(), 2U);
}

TEST_F(Exchange, TheNewestValueStandsAlsoWhenAnOlderOneIsReplayedFirst) {
    replay_set(0, "earlier", 10);
    replay_set(1, "later", 20);
    EXPECT_EQ(now(), "later");
}

}  // namespace
}  // namespace lockstep
