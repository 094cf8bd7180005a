// What a node's agent says of ranks that its node does not run.
#include "daemon/control/machine/rank_owner.hpp"
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OwnRanksTest : public JobMachineTest {
  protected:
    void fault(std::size_t agent, std::int32_t rank) {
        wire::Fault out;
        out.event = 1;
        out.generation = 1;
        out.rank = rank;
        out.cause_class = "user_error";
        out.message = "no such file";
        take(AgentInput{agents_[agent], out});
    }
    static wire::Examined state_of(std::vector<std::int32_t> ranks, const std::string& state) {
        wire::Examined out;
        out.generation = 1;
        for (const std::int32_t rank : ranks) {
            out.ranks.push_back({rank, 100 + rank, state, ""});
        }
        return out;
    }
};

TEST_F(OwnRanksTest, AFaultNamesNoRankOfAnotherNode) {
    start();
    fault(0, 1);
    ASSERT_TRUE(job().generation()->first_failure);
    EXPECT_EQ(job().generation()->first_failure->rank, -1);
    EXPECT_EQ(job().generation()->first_failure->node, "n0");
}

TEST_F(OwnRanksTest, AFaultNamesARankOfItsNode) {
    start();
    fault(1, 1);
    ASSERT_TRUE(job().generation()->first_failure);
    EXPECT_EQ(job().generation()->first_failure->rank, 1);
    EXPECT_EQ(job().generation()->first_failure->node, "n1");
}

TEST_F(OwnRanksTest, ANodeHasStartedItsOwnRanksOnly) {
    start();
    wire::Started started;
    started.generation = 1;
    started.ranks = {{1, 11}};
    take(AgentInput{agents_[1], started});
    started.ranks = {{0, 10}, {1, 666}};
    take(AgentInput{agents_[0], started});
    ASSERT_NE(machine_->process(0), nullptr);
    EXPECT_EQ(machine_->process(0)->pid, 10);
    ASSERT_NE(machine_->process(1), nullptr);
    EXPECT_EQ(machine_->process(1)->pid, 11);
}

// The signal of the time limit.
TEST_F(OwnRanksTest, ARankOfAnotherNodeIsNotSaidToBeLeftOut) {
    start();
    wire::SaveAsked asked;
    asked.event = 1;
    asked.generation = 1;
    asked.rank = 1;
    asked.problem = "does not catch SIGUSR2";
    JobInput input = AgentInput{agents_[0], asked};
    Draft draft = machine_->draft(at_);
    machine_->take(draft, input);
    ASSERT_THAT(draft.events, SizeIs(1));
    const auto* told = std::get_if<event::CheckpointRequested>(&draft.events[0].data);
    ASSERT_NE(told, nullptr);
    EXPECT_EQ(told->rank, -1);
    EXPECT_EQ(told->message, "");
}

// It has not said that its own would take the signal either: nobody gets it.
TEST_F(OwnRanksTest, ARankOfAnotherNodeIsNotNamedAsTheOneThatCannotSave) {
    start();
    std::optional<Status> answered;
    take(SaveInput{"ada", [&answered](const Status& status) { answered = status; }});
    wire::CanSave cannot;
    cannot.generation = 1;
    cannot.round = 1;
    cannot.rank = 1;
    cannot.problem = "does not catch SIGUSR2";
    std::vector<Effect> effects = take(AgentInput{agents_[0], cannot});
    for (const Effect& one : effects) {
        if (const auto* answer = std::get_if<effect::Answer>(&one)) {
            answer->done(answer->status);
        }
    }
    ASSERT_TRUE(answered);
    ASSERT_FALSE(*answered);
    EXPECT_THAT(answered->error().message, HasSubstr("a rank on n0: does not catch SIGUSR2"));
    EXPECT_THAT(sent<wire::Save>(effects), IsEmpty());
}

TEST_F(OwnRanksTest, TheStateOfARankIsItsNodesToTell) {
    place(R"({"nodes":2,"ranks_per_node":2})");
    start();
    take(EvidenceInput{"ada", [](const Status&) {}});
    take(AgentInput{agents_[1], state_of({2, 3}, "S")});
    take(AgentInput{agents_[0], state_of({1, 3}, "Z")});
    for (const AgentPtr& agent : agents_) {
        wire::EvidenceSaved saved;
        saved.generation = 1;
        take(AgentInput{agent, saved});
    }
    Json ranks;
    Draft draft = machine_->draft(at_);
    machine_->look(draft, runs(), true);
    for (const Event& one : draft.events) {
        if (const auto* taken = std::get_if<event::EvidenceTaken>(&one.data)) {
            ranks = taken->ranks;
        }
    }
    std::map<std::int32_t, std::string> states;
    for (const Json& one : ranks) {
        states[one["rank"]] = one.value("state", "");
    }
    EXPECT_EQ(states, (std::map<std::int32_t, std::string>{{0, ""}, {1, "Z"}, {2, "S"}, {3, "S"}}));
}

// The file that an agent leaves when it goes.
TEST_F(OwnRanksTest, TheResultOfANodeEndsItsOwnRanksOnly) {
    place(R"({"nodes":3})");
    start();
    look();
    take(AgentGoneInput{agents_[1]});
    files_.results[1].generation = 1;
    for (const std::int32_t rank : {2, 1}) {
        wire::Exited exited;
        exited.generation = 1;
        exited.rank = rank;
        exited.exit_code = 3;
        files_.results[1].exits.push_back(exited);
    }
    pass(std::chrono::seconds{1});
    Observation gone = runs();
    gone.lost_nodes = {1};
    look(gone);
    ASSERT_NE(job().generation(), nullptr);
    EXPECT_EQ(job().generation()->exited_count, 1);
    ASSERT_TRUE(job().generation()->first_failure);
    EXPECT_EQ(job().generation()->first_failure->rank, 1);
}

// A spare's place in the allocation was taken for its rank: a job of two ranks had a "rank 2".
TEST(OnlyRankOf, IsTheRankThatTheNodeHadAndNotItsPlace) {
    Generation generation;
    generation.nodes = 2;
    generation.slots = {0, 2};
    EXPECT_EQ(only_rank_of(&generation, 1, 2), 1);
    EXPECT_EQ(only_rank_of(&generation, 1, 1), -1) << "it ran none";
    EXPECT_EQ(only_rank_of(&generation, 4, 2), -1) << "it ran four";
    EXPECT_EQ(only_rank_of(nullptr, 1, 2), -1);
}

}  // namespace
}  // namespace lockstep
