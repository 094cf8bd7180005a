// Nodes that are lost, the spares in their place, and the nodes that a generation has.
#include "job/model/job_view.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/recovery_fixture.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST(Recovery, NodesThatAreLeftAreCounted) {
    History h{spec(kOn, 2)};
    EXPECT_EQ(usable_nodes(h.job), 4) << "no attempt yet";
    h.running();
    EXPECT_EQ(usable_nodes(h.job), 4);
    h.must(h.fault(CauseClass::node_lost, 0));
    EXPECT_EQ(usable_nodes(h.job), 3);
    EXPECT_EQ(h.add(h.fault(CauseClass::node_lost, 0)).error().code, Errc::conflict)
        << "it is known";
    EXPECT_EQ(h.add(h.fault(CauseClass::node_lost, 4)).error().code, Errc::conflict)
        << "there is none";
    EXPECT_EQ(usable_nodes(h.job), 3);
    EXPECT_EQ(due_of(h), ActionKind::restart);
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(h), ActionKind::restart) << "both spares take part";
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_EQ(usable_nodes(h.job), 1);
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    EXPECT_EQ(h.job.attempt()->lost.at(2).kind, CauseClass::node_lost);
}

TEST(Recovery, ASpareThatIsLostFailsNothing) {
    History h = running(kOff, 1);
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_FALSE(h.job.generation()->first_failure.has_value());
    EXPECT_FALSE(h.job.attempt()->fault.has_value());
    EXPECT_EQ(due_of(h), ActionKind::watch);
    EXPECT_EQ(h.job.state, JobState::running);
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

TEST(Recovery, ANodeThatTookASparesPlaceIsASpareThen) {
    History h = running(kOn, 1);
    h.must(h.fault(CauseClass::gpu_fault, 0));
    h.must(h.end_of_generation(CauseClass::gpu_fault, 5));
    EXPECT_FALSE(h.add(h.next_generation({0, 1})).has_value()) << "node 0 is lost";
    h.again({2, 1});
    EXPECT_EQ(h.job.claim_of_node(0)->node, "n2");
    EXPECT_EQ(rank_json(h.job, 0)["node"], "n2");
    EXPECT_EQ(rank_json(h.job, 3)["node"], "n1");
    EXPECT_EQ(due_of(h), ActionKind::watch);
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt) << "it had a part";
}

TEST(Recovery, ANodeLostBetweenGenerationsIsMadeUpForOrEndsTheAttempt) {
    History spared = running(kOn, 1);
    spared.fails(CauseClass::rank_exit, 5);
    spared.must(spared.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(spared), ActionKind::gather);
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    EXPECT_EQ(due(h.job, h.now).cause.kind, CauseClass::node_lost);
    EXPECT_FALSE(h.add(h.next_generation()).has_value()) << "not without its node";
}

TEST(Recovery, ANodeLostBeforeTheFirstGenerationEndsTheAttempt) {
    for (const auto& [recovery, expected] :
         {std::pair{kOff, ActionKind::stop}, std::pair{kOn, ActionKind::next_attempt}}) {
        History h{spec(recovery)};
        h.attempt();
        h.placed();
        h.claims();
        h.must(h.fault(CauseClass::node_lost, 0));
        EXPECT_EQ(due_of(h), expected);
        EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::node_lost);
    }
}

TEST(Recovery, FailedNodesAreLeftOut) {
    const auto lose = [](const std::string& recovery) {
        History h = running(recovery, 1);
        h.must(h.fault(CauseClass::node_lost, 1));
        h.must(h.end_of_generation(CauseClass::node_lost, 3));
        h.again({0, 2});
        auto gpu = h.end_of_generation(CauseClass::gpu_fault, 9);
        gpu.cause.node = "n0";
        h.must(gpu);
        h.must(h.attempt_fault(CauseClass::preempted));
        h.attempt_ends(CauseClass::preempted);
        h.attempt();
        h.placed();
        h.must(h.fault(CauseClass::node_lost, 1));  // it has not even called in
        return nodes_to_exclude(h.job);
    };
    EXPECT_EQ(lose(kOn), (std::vector<std::string>{"n1", "n0"})) << "each once";
    EXPECT_EQ(lose(R"(,"recovery":{"exclude_failed_nodes":false})"), std::vector<std::string>{});
    EXPECT_EQ(nodes_to_exclude(running(kOn).job), std::vector<std::string>{});
}

TEST(Slots, AGenerationKnowsItsNodes) {
    Generation plain;
    EXPECT_EQ(plain.slot_of(3), 3);
    EXPECT_EQ(plain.node_rank_of(3), 3);
    Generation moved;
    moved.slots = {4, 0, 2};
    EXPECT_EQ(moved.slot_of(0), 4);
    EXPECT_EQ(moved.slot_of(2), 2);
    EXPECT_EQ(moved.slot_of(3), -1);
    EXPECT_EQ(moved.slot_of(-1), -1);
    EXPECT_EQ(moved.node_rank_of(4), 0);
    EXPECT_EQ(moved.node_rank_of(0), 1);
    EXPECT_EQ(moved.node_rank_of(1), -1) << "a spare";
}

TEST(Slots, ClaimsAreFoundByTheNodeOfTheGeneration) {
    History h{spec(kOn, 1)};
    EXPECT_EQ(h.job.claim_of_node(0), nullptr) << "no attempt yet";
    h.attempt();
    h.placed();
    h.claims();
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n1") << "no generation yet";
    h.generation({2, 0});
    EXPECT_EQ(h.job.claim_of_node(0)->node, "n2");
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n0");
    EXPECT_EQ(h.job.claim_of_node(2), nullptr);
    EXPECT_EQ(h.job.claim_of_node(-1), nullptr);
}

TEST(Slots, OnlyNodesThatAreThereMakeAGeneration) {
    History h{spec(kOn, 2)};
    h.attempt();
    h.placed();
    h.claim(0);
    h.claim(1);
    h.claim(2);
    h.must(h.fault(CauseClass::node_lost, 1));
    const auto refused = [&](std::vector<std::int32_t> slots) {
        event::GenerationStarted started = h.next_generation();
        started.slots = std::move(slots);
        return !h.add(started).has_value();
    };
    EXPECT_TRUE(refused({0})) << "too few";
    EXPECT_TRUE(refused({0, 2, 2})) << "too many";
    EXPECT_TRUE(refused({0, 0})) << "one twice";
    EXPECT_TRUE(refused({0, 1})) << "lost";
    EXPECT_TRUE(refused({0, 3})) << "has not called in";
    EXPECT_TRUE(refused({0, -1}));
    EXPECT_TRUE(refused({0, 4}));
    EXPECT_TRUE(refused({})) << "with spares it has to be said";
    EXPECT_TRUE(h.job.attempt()->generations.empty());
    EXPECT_FALSE(refused({2, 0}));
}

}  // namespace
}  // namespace lockstep
