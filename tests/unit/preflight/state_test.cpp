// How far the pre-flight of an attempt is.
#include "daemon/control/machine/preflight_state.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class PreflightStateTest : public testing::Test {
  protected:
    void come(std::int32_t slot) { state.expect(slot, "n" + std::to_string(slot), now); }
    void say(std::int32_t slot, const NodeFacts& facts) {
        state.checked(slot, facts, spec_of(2), now);
    }
    void come_and_say(std::int32_t slot) {
        come(slot);
        say(slot, good_facts(slot));
    }
    // Everybody answers that all is well.
    void answer(const PreflightState::Round& round) {
        for (const auto& [slot, peers] : round.probes) {
            std::vector<ProbeResult> results;
            for (const ProbePeer& peer : peers) {
                results.push_back({slot, peer.slot, peer.addresses.front(), ""});
            }
            state.probed(slot, round.number, std::move(results));
        }
    }
    PreflightState state;
    PreflightState::Time now{std::chrono::hours{1}};
};

TEST_F(PreflightStateTest, OneNodeIsJudgedAtOnce) {
    come(0);
    EXPECT_FALSE(state.begin(spec_of(1), now));
    say(0, good_facts(0));
    const auto round = state.begin(spec_of(1), now);
    ASSERT_TRUE(round);
    EXPECT_THAT(round->probes, IsEmpty());
    const auto judgement = state.judge(spec_of(1), now);
    ASSERT_TRUE(judgement);
    EXPECT_THAT(judgement->findings, IsEmpty());
    EXPECT_TRUE(state.passed(0));
    EXPECT_TRUE(state.all_passed(spec_of(1)));
}

TEST_F(PreflightStateTest, NobodyPassesBeforeAllHaveMet) {
    come_and_say(0);
    EXPECT_FALSE(state.begin(spec_of(2), now));
    come_and_say(1);
    const auto round = state.begin(spec_of(2), now);
    ASSERT_TRUE(round);
    EXPECT_THAT(round->probes, SizeIs(2));
    EXPECT_EQ(round->probes.at(0).front().port, 5001);
    EXPECT_FALSE(state.judge(spec_of(2), now));
    state.probed(0, round->number, {{0, 1, "10.0.0.1", ""}});
    EXPECT_FALSE(state.judge(spec_of(2), now));
    state.probed(1, round->number + 1, {});  // of no round of ours
    EXPECT_FALSE(state.judge(spec_of(2), now));
    state.probed(1, round->number, {{1, 0, "10.0.0.0", ""}});
    ASSERT_TRUE(state.judge(spec_of(2), now));
    EXPECT_TRUE(state.passed(0) && state.passed(1));
    EXPECT_EQ(state.proven(1), "10.0.0.1");
}

TEST_F(PreflightStateTest, WhatAnotherTestRefusesHasNotPassed) {
    come_and_say(0);
    come_and_say(1);
    answer(*state.begin(spec_of(2), now));
    ASSERT_TRUE(state.judge(spec_of(2), now));
    EXPECT_FALSE(state.busy());
    state.refuse(1);
    EXPECT_TRUE(state.passed(0));
    EXPECT_FALSE(state.passed(1));
    EXPECT_FALSE(state.all_passed(spec_of(2)));
}

TEST_F(PreflightStateTest, WhatFailsHasNotPassed) {
    come_and_say(0);
    come_and_say(1);
    const auto round = state.begin(spec_of(2), now);
    state.probed(0, round->number, {{0, 1, "10.0.0.1", "refused"}});
    state.probed(1, round->number, {{1, 0, "10.0.0.0", ""}});
    const auto judgement = state.judge(spec_of(2), now);
    ASSERT_TRUE(judgement);
    ASSERT_THAT(judgement->findings, SizeIs(1));
    EXPECT_EQ(judgement->findings[0].node, "n1");
    EXPECT_TRUE(state.passed(0));
    EXPECT_FALSE(state.passed(1));
}

TEST_F(PreflightStateTest, ANodeThatNeverAnswersIsNamedAndHoldsNobodyUp) {
    come_and_say(0);
    come(1);
    EXPECT_FALSE(state.begin(spec_of(2), now));
    now += limits::kFactsPatience - std::chrono::seconds{1};
    EXPECT_FALSE(state.begin(spec_of(2), now)) << "it still has a second";
    now += std::chrono::seconds{1};
    ASSERT_TRUE(state.begin(spec_of(2), now));
    const auto judgement = state.judge(spec_of(2), now);
    ASSERT_TRUE(judgement);
    EXPECT_EQ(lines(judgement->findings),
              std::vector<std::string>{"n1 answer warn: its agent has not said what it found"});
    EXPECT_TRUE(state.passed(0) && state.passed(1));
}

TEST_F(PreflightStateTest, ANodeThatTestsItsGpusHasTheTimeOfThatTestToo) {
    JobSpec spec = spec_of(2);
    spec.resources.gpus_per_node = 1;
    spec.preflight.gpu_test = true;
    come_and_say(0);
    come(1);
    now += limits::kFactsPatience;
    EXPECT_FALSE(state.begin(spec, now));
    now += limits::kGpuTestTimeout;
    EXPECT_TRUE(state.begin(spec, now));
}

TEST_F(PreflightStateTest, ARoundEndsWithoutThoseThatDoNotAnswer) {
    come_and_say(0);
    come_and_say(1);
    const auto round = state.begin(spec_of(2), now);
    state.probed(0, round->number, {{0, 1, "10.0.0.1", ""}});
    now += limits::kProbePatience - std::chrono::milliseconds{1};
    EXPECT_FALSE(state.judge(spec_of(2), now)) << "it still has a moment";
    now += std::chrono::milliseconds{1};
    const auto judgement = state.judge(spec_of(2), now);
    ASSERT_TRUE(judgement);
    EXPECT_EQ(lines(judgement->findings),
              std::vector<std::string>{"n1 answer warn: its agent has not said whom it reached"});
}

TEST_F(PreflightStateTest, ASpareThatComesLateGetsARoundOfItsOwn) {
    const auto spec = spec_of(2, 1);
    come_and_say(0);
    come_and_say(1);
    EXPECT_FALSE(state.begin(spec, now)) << "it would tell which of two is not reached";
    now += std::chrono::milliseconds{999};
    EXPECT_FALSE(state.begin(spec, now));
    now += std::chrono::milliseconds{1};
    auto round = state.begin(spec, now);
    ASSERT_TRUE(round) << "the spare is not waited for any longer";
    answer(*round);
    ASSERT_TRUE(state.judge(spec, now));
    come_and_say(2);
    EXPECT_FALSE(state.passed(2));
    round = state.begin(spec, now);
    ASSERT_TRUE(round);
    EXPECT_THAT(round->probes.at(0), SizeIs(1)) << "only what is new";
    EXPECT_THAT(round->probes.at(2), SizeIs(2));
    answer(*round);
    EXPECT_EQ(state.judge(spec, now)->slots, std::set<std::int32_t>{2});
    EXPECT_TRUE(state.passed(2));
}

TEST_F(PreflightStateTest, ANodeThatGoesAwayInARoundIsNotBlamed) {
    come_and_say(0);
    come_and_say(1);
    const auto round = state.begin(spec_of(2), now);
    state.gone(1);
    state.probed(0, round->number, {{0, 1, "10.0.0.1", "refused"}});
    const auto judgement = state.judge(spec_of(2), now);
    ASSERT_TRUE(judgement);
    EXPECT_THAT(judgement->findings, IsEmpty());
    EXPECT_FALSE(state.passed(1));
    come_and_say(1);  // it is back, and says it again
    const auto again = state.begin(spec_of(2), now);
    ASSERT_TRUE(again);
    answer(*again);
    ASSERT_TRUE(state.judge(spec_of(2), now));
    EXPECT_TRUE(state.passed(1));
}

// It was back before the others had answered, and they, or it, were given up for what lay between.
TEST_F(PreflightStateTest, ANodeThatGoesAwayInARoundAndIsBackAtOnceHarmsNobody) {
    for (std::int32_t slot = 0; slot < 3; ++slot) {
        come_and_say(slot);
    }
    const auto round = state.begin(spec_of(3), now);
    ASSERT_TRUE(round);
    state.gone(1);
    come_and_say(1);
    state.probed(0, round->number, {{0, 1, "10.0.0.1", "refused"}, {0, 2, "10.0.0.2", ""}});
    state.probed(2, round->number, {{2, 0, "10.0.0.0", ""}, {2, 1, "10.0.0.1", "refused"}});
    const auto judgement = state.judge(spec_of(3), now);
    ASSERT_TRUE(judgement);
    EXPECT_THAT(lines(judgement->findings), IsEmpty());
    EXPECT_EQ(judgement->slots, (std::set<std::int32_t>{0, 2}));
    EXPECT_FALSE(state.passed(1));
    const auto again = state.begin(spec_of(3), now);
    ASSERT_TRUE(again);
    answer(*again);
    ASSERT_TRUE(state.judge(spec_of(3), now));
    EXPECT_TRUE(state.passed(1));
}

TEST_F(PreflightStateTest, EveryNodeIsAsManyAsTheRanksNeedAndNoneThatHadPassed) {
    const auto judge = [&](const JobSpec& spec) {
        auto round = state.begin(spec, now);
        if (!round) {
            now += std::chrono::seconds{1};  // for the spare
            round = state.begin(spec, now);
        }
        answer(*round);
        return state.judge(spec, now)->every_node;
    };
    come_and_say(0);
    come_and_say(1);
    EXPECT_TRUE(judge(spec_of(2, 1)));
    come_and_say(2);
    EXPECT_FALSE(judge(spec_of(2, 1))) << "two had passed";
    // One of three alone, because it fails and the others do not come.
    state = {};
    auto facts = good_facts(0);
    facts.ports_problem = "none is free";
    come(0);
    say(0, facts);
    now += std::chrono::seconds{3};
    EXPECT_FALSE(judge(spec_of(3)));
}

TEST_F(PreflightStateTest, ALateNodeIsConnectedToAllItsPeersAndNobodyElseIsAsked) {
    constexpr std::int32_t kNodes = 40;
    const auto spec = spec_of(kNodes, 1);
    for (std::int32_t slot = 0; slot <= kNodes; ++slot) {
        if (slot != 17) {
            come_and_say(slot);
        }
    }
    EXPECT_FALSE(state.begin(spec, now));
    now += std::chrono::seconds{1};
    answer(*state.begin(spec, now));
    ASSERT_TRUE(state.judge(spec, now));
    come_and_say(17);
    const auto round = state.begin(spec, now);
    ASSERT_TRUE(round);
    std::set<std::pair<std::int32_t, std::int32_t>> pairs;
    for (const auto& [from, peers] : round->probes) {
        for (const ProbePeer& peer : peers) {
            pairs.emplace(from, peer.slot);
        }
    }
    std::set<std::pair<std::int32_t, std::int32_t>> expected;
    for (std::int32_t from = 0; from <= kNodes; ++from) {
        for (const std::int32_t to : probe_peers(from, kNodes + 1)) {
            if (from == 17 || to == 17) {
                expected.emplace(from, to);
            }
        }
    }
    EXPECT_EQ(pairs, expected);
}

TEST_F(PreflightStateTest, AnAgentWithoutPreflightIsNotWaitedFor) {
    state.exempt(0);
    come_and_say(1);
    const auto round = state.begin(spec_of(2), now);
    ASSERT_TRUE(round);
    EXPECT_THAT(round->probes, IsEmpty());
    ASSERT_TRUE(state.judge(spec_of(2), now));
    EXPECT_TRUE(state.passed(0) && state.passed(1));
}

TEST_F(PreflightStateTest, WithAFailureTheRestIsWaitedForThreeSecondsOnly) {
    come(0);
    auto facts = good_facts(0);
    facts.ports_problem = "none is free";
    say(0, facts);
    EXPECT_FALSE(state.begin(spec_of(3), now));
    now += std::chrono::seconds{3};
    ASSERT_TRUE(state.begin(spec_of(3), now));
    EXPECT_THAT(state.judge(spec_of(3), now)->findings, SizeIs(1));
    EXPECT_FALSE(state.passed(0));
}

TEST_F(PreflightStateTest, ALostNodeIsForgotten) {
    come_and_say(0);
    come_and_say(1);
    state.lost(1);
    say(1, good_facts(1));
    EXPECT_EQ(state.facts(1), nullptr);
    ASSERT_TRUE(state.begin(spec_of(1, 1), now));
    EXPECT_EQ(state.judge(spec_of(1, 1), now)->slots, std::set<std::int32_t>{0});
}

}  // namespace
}  // namespace lockstep::test
