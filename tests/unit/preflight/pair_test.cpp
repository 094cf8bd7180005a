// The test in pairs: who with whom, who is bad, and how far it is.
#include "daemon/control/machine/pair_state.hpp"
#include "job/base/limits.hpp"
#include "job/model/preflight/pair_outcome.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Groups = std::vector<std::vector<std::int32_t>>;

std::map<std::int32_t, std::string> names_of(std::int32_t count) {
    std::map<std::int32_t, std::string> out;
    for (std::int32_t slot = 0; slot < count; ++slot) {
        out[slot] = "n" + std::to_string(slot);
    }
    return out;
}

std::vector<std::int32_t> slots_of(std::int32_t count) {
    std::vector<std::int32_t> out;
    for (std::int32_t slot = 0; slot < count; ++slot) {
        out.push_back(slot);
    }
    return out;
}

// As the nodes would answer: a pair with a slow node is slow, one with a broken node fails.
PairRound played(Groups groups, const std::set<std::int32_t>& slow,
                 const std::set<std::int32_t>& broken = {}) {
    PairRound out{std::move(groups), {}};
    for (const auto& group : out.groups) {
        const auto any = [&](const std::set<std::int32_t>& of) {
            return std::any_of(group.begin(), group.end(),
                               [&](std::int32_t slot) { return of.contains(slot); });
        };
        for (const std::int32_t slot : group) {
            out.outcomes[slot] = any(broken)
                                     ? PairOutcome{-1, "lost", false}
                                     : PairOutcome{any(slow) ? 9'000 : 1'000 + slot, "", false};
        }
    }
    return out;
}

std::vector<std::string> verdict(std::int32_t count, const std::set<std::int32_t>& slow,
                                 const std::set<std::int32_t>& broken = {}) {
    const PairRound first = played(first_pairs(slots_of(count)), slow, broken);
    return lines(judge_pairs(names_of(count), first, played(second_pairs(first), slow, broken)));
}

TEST(PairTest, NeighboursMeetFirstAndTheBadMeetTheGoodThen) {
    EXPECT_EQ(first_pairs({3, 0, 2, 1}), (Groups{{0, 1}, {2, 3}}));
    EXPECT_EQ(first_pairs({7, 2, 5}), (Groups{{2, 5}, {7}}));
    EXPECT_EQ(first_pairs({}), Groups{});
    const PairRound first = played(first_pairs(slots_of(4)), {2});
    for (const auto& group : second_pairs(first)) {
        EXPECT_EQ(std::count_if(group.begin(), group.end(), [](auto slot) { return slot >= 2; }), 1)
            << "one that was slow, one that was not";
    }
}

TEST(PairTest, OneSlowOrBrokenNodeIsNamedAndItsPartnersAreNot) {
    for (std::int32_t count = 4; count <= 9; ++count) {
        for (std::int32_t bad = 0; bad < count; ++bad) {
            if (count % 2 == 1 && bad == count - 1) {
                continue;  // alone first: see below
            }
            SCOPED_TRACE(std::to_string(bad) + " of " + std::to_string(count));
            EXPECT_THAT(verdict(count, {bad}),
                        ElementsAre(HasSubstr("n" + std::to_string(bad) + " pair_test fail")));
            EXPECT_THAT(verdict(count, {}, {bad}),
                        ElementsAre(HasSubstr("n" + std::to_string(bad) + " pair_test fail")));
        }
        EXPECT_THAT(verdict(count, {}), IsEmpty());
    }
}

TEST(PairTest, TheWordsNameTimesAndPartners) {
    const PairRound first = played(first_pairs(slots_of(4)), {1});
    const auto found = judge_pairs(names_of(4), first, played(second_pairs(first), {1}));
    ASSERT_EQ(found.size(), 1U);
    EXPECT_THAT(
        words_of(found[0]),
        testing::MatchesRegex(
            "n1: the test in pairs: 9000 ms with n0, then 9000 ms with n[23]; expected with "
            "one of two partners a good end within 2 × the median of the nodes "
            "\\(1003 and [0-9]+ ms\\)"));
    EXPECT_EQ(preflight_cause(found[0], false), CauseClass::node_lost);
}

TEST(PairTest, OfTwoNodesNobodyKnowsWhichItIs) {
    EXPECT_THAT(verdict(2, {}, {1}),
                ElementsAre(HasSubstr("n0 pair_test warn"), HasSubstr("n1 pair_test warn")));
}

TEST(PairTest, IfMostFailItIsNotTheNodes) {
    for (const std::string& line : verdict(6, {}, {0, 1, 2, 3, 4, 5})) {
        EXPECT_THAT(line, HasSubstr(" pair_test warn: "));
    }
    EXPECT_EQ(verdict(6, {}, {0, 1, 2, 3, 4, 5}).size(), 6U);
}

TEST(PairTest, SlowIsTwiceTheMedianAndHalfASecond) {
    const auto slow = [](std::int64_t ms) {
        PairRound first{{{0, 1}, {2, 3}}, {}};
        PairRound second{{{0, 2}, {1, 3}}, {}};
        for (const std::int32_t slot : {0, 1, 2, 3}) {
            first.outcomes[slot] = second.outcomes[slot] = {slot == 3 ? ms : 600, "", false};
        }
        return !judge_pairs(names_of(4), first, second).empty();
    };
    EXPECT_FALSE(slow(1'200));
    EXPECT_TRUE(slow(1'201));
    PairRound quick{{{0, 1}, {2, 3}}, {}};
    for (const std::int32_t slot : {0, 1, 2, 3}) {
        quick.outcomes[slot] = {slot == 3 ? 510 : 10, "", false};
    }
    EXPECT_THAT(judge_pairs(names_of(4), quick, quick), IsEmpty()) << "that is another process";
    quick.outcomes[3].ms = 511;
    EXPECT_EQ(judge_pairs(names_of(4), quick, quick).size(), 1U);
}

TEST(PairTest, WithoutTheProgramNothingIsLookedAt) {
    PairRound first = played(first_pairs(slots_of(4)), {});
    first.outcomes[1] = {-1, "", true};
    first.outcomes[0] = {-1, "timed out", false};  // it waited for n1
    const auto groups = second_pairs(first);
    for (const auto& group : groups) {
        EXPECT_NE(group, (std::vector<std::int32_t>{0, 1}));
    }
    PairRound second = played(groups, {});
    second.outcomes[1] = {-1, "", true};
    EXPECT_THAT(lines(judge_pairs(names_of(4), first, second)),
                ElementsAre("n1 pair_test warn: lockstep-train is not installed: it was not tested "
                            "with others"));
}

// Any number of nodes, any of them bad, as long as the good are more than twice as many.
TEST(PairTest, PairsAreTrueAndTheVerdictIsFairForAnyNodes) {
    std::mt19937 random{20'260'722};
    for (int i = 0; i < 3'000; ++i) {
        const auto count = std::uniform_int_distribution<std::int32_t>{1, 40}(random);
        std::set<std::int32_t> slow;
        std::set<std::int32_t> broken;
        for (std::int32_t k = 0; k < count / 5; ++k) {
            const auto who = std::uniform_int_distribution<std::int32_t>{0, count - 1}(random);
            (random() % 2 == 0 ? slow : broken).insert(who);
        }
        const PairRound first = played(first_pairs(slots_of(count)), slow, broken);
        const PairRound second = played(second_pairs(first), slow, broken);
        std::vector<std::int32_t> seen;
        const auto before = first.partners();
        for (const auto& [slot, partner] : second.partners()) {
            seen.push_back(slot);
            if (partner >= 0 && count > 3) {
                EXPECT_NE(before.at(slot), partner) << "of " << count;
            }
        }
        EXPECT_EQ(seen, slots_of(count)) << "everybody once";
        for (const auto& group : second.groups) {
            EXPECT_TRUE(group.size() == 2 || (group.size() == 1 && count % 2 == 1));
        }
        for (const auto& found : judge_pairs(names_of(count), first, second)) {
            const auto is_bad = [&](std::int32_t slot) {
                return slow.contains(slot) || broken.contains(slot);
            };
            const bool met_only_bad =
                is_bad(before.at(found.slot)) && is_bad(second.partners().at(found.slot));
            EXPECT_TRUE(is_bad(found.slot) || met_only_bad || !found.fails)
                << words_of(found) << " of " << count;
        }
    }
}

TEST(PairTest, TasksTravelWhole) {
    const PairTask task{false, true, "secret", "10.0.0.1", {"10.0.0.2"}, 4711, "n2"};
    const auto back = parse_pair_task(to_json(task));
    ASSERT_TRUE(back);
    EXPECT_EQ(to_json(*back), to_json(task));
    EXPECT_FALSE(parse_pair_task({{"port", 70'000}}));
    EXPECT_FALSE(parse_pair_task(Json::array()));
}

class PairStateTest : public testing::Test {
  protected:
    void all_answer(std::int64_t ms = 100) {
        for (const auto& [slot, name] : state.names()) {
            state.tested(slot, state.round(), {ms, "", false});
        }
    }
    PairState state;
    PairState::Time now{std::chrono::hours{1}};
};

TEST_F(PairStateTest, TwoRoundsAndAVerdict) {
    EXPECT_FALSE(state.begun());
    EXPECT_EQ(state.begin(names_of(4), now), (Groups{{0, 1}, {2, 3}}));
    EXPECT_TRUE(state.begun());
    state.tested(0, 1, {100, "", false});
    EXPECT_EQ(state.next(now), nullptr);
    state.tested(1, 2, {100, "", false});  // of no round that runs
    all_answer();
    const auto* groups = state.next(now);
    ASSERT_NE(groups, nullptr);
    EXPECT_EQ(groups->size(), 2U);
    EXPECT_EQ(state.next(now), nullptr);
    EXPECT_FALSE(state.judge(now));
    all_answer();
    const auto findings = state.judge(now);
    ASSERT_TRUE(findings);
    EXPECT_THAT(*findings, IsEmpty());
    EXPECT_TRUE(state.done());
    EXPECT_FALSE(state.judge(now)) << "once";
}

TEST_F(PairStateTest, WhoDoesNotAnswerIsWaitedForAndNamed) {
    state.begin(names_of(4), now);
    for (const std::int32_t slot : {0, 1, 2}) {
        state.tested(slot, 1, {100, "", false});
    }
    EXPECT_EQ(state.next(now + limits::kPairPatience - std::chrono::seconds{1}), nullptr);
    now += limits::kPairPatience;
    ASSERT_NE(state.next(now), nullptr);
    for (const std::int32_t slot : {0, 1, 2}) {
        state.tested(slot, 2, {100, "", false});
    }
    state.tested(3, 1, {100, "", false});  // too late
    EXPECT_FALSE(state.judge(now));
    now += limits::kPairPatience;
    const auto findings = state.judge(now);
    ASSERT_TRUE(findings);
    EXPECT_THAT(lines(*findings),
                ElementsAre(HasSubstr("n3 pair_test fail: the test in pairs: failed "
                                      "with n2 (its agent has not answered)")));
}

TEST_F(PairStateTest, WhoLeavesIsNotWaitedFor) {
    state.begin(names_of(4), now);
    for (const std::int32_t slot : {0, 1, 2}) {
        state.tested(slot, 1, {100, "", false});
    }
    state.gone(3);
    EXPECT_NE(state.next(now), nullptr);
    all_answer();
    const auto findings = state.judge(now);
    ASSERT_TRUE(findings);
    EXPECT_THAT(*findings, IsEmpty()) << "it is back";
}

TEST_F(PairStateTest, OneNodeIsAlone) {
    EXPECT_EQ(state.begin(names_of(1), now), (Groups{{0}}));
    all_answer();
    ASSERT_NE(state.next(now), nullptr);
    all_answer(100'000);
    ASSERT_TRUE(state.judge(now));
}

}  // namespace
}  // namespace lockstep::test
