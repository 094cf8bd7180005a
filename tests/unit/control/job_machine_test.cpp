// The machine of a job by itself: what it wants before and after an append, as data.
#include "daemon/control/machine/job_machine.hpp"

#include "tests/unit/control/job_machine_fixture.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(JobMachineTest, AnAgentIsTakenOnceItsHelloIsStoredAndNotBefore) {
    const auto link = std::make_shared<Agent>(1, "10.0.0.1");
    link->node_rank = 0;
    JobInput input = AgentInput{link, said(0)};
    Draft draft = machine_->draft(at_);
    machine_->take(draft, input);
    EXPECT_EQ(draft.events.size(), 1U);
    EXPECT_THAT(draft.at_once.list(), IsEmpty()) << "nothing is said before it is durable";
    EXPECT_FALSE(link->accepted);
    EXPECT_THAT(machine_->run().links, IsEmpty());
    EXPECT_THAT(job().attempt()->claims, IsEmpty()) << "the draft's alone";

    const std::vector<Effect> effects = machine_->stored(draft, at_).take();
    ASSERT_EQ(effects.size(), 1U);
    EXPECT_EQ(std::get<effect::Greet>(effects[0]).to, link);
    EXPECT_TRUE(link->accepted);
    EXPECT_EQ(machine_->run().links.at(0), link);
    EXPECT_EQ(job().attempt()->claims.at(0).node, "n0");
}

TEST_F(JobMachineTest, WorldThenStartLeaveOnceAllNodesAreThere) {
    agents_ = {hello(0), hello(1)};
    EXPECT_THAT(sent<wire::World>(take(AgentInput{agents_[0], join()})), IsEmpty());
    const auto worlds = take(AgentInput{agents_[1], join()});
    EXPECT_EQ(sent<wire::World>(worlds).size(), 2U);
    EXPECT_EQ(job().live_generation()->released_at, 0);
    EXPECT_THAT(take(AgentInput{agents_[0], wire::Ready{1}}), IsEmpty());
    const auto start = take(AgentInput{agents_[1], wire::Ready{1}});
    ASSERT_EQ(start.size(), 2U);
    const auto& first = std::get<effect::SendShared>(start[0]);
    const auto& second = std::get<effect::SendShared>(start[1]);
    EXPECT_EQ(first.text, second.text) << "encoded once for all";
    EXPECT_TRUE(std::holds_alternative<wire::Start>(wire::decode_daemon(*first.text).value()));
    EXPECT_NE(job().live_generation()->released_at, 0);
}

TEST_F(JobMachineTest, ANodeThatIsSilentForAMinuteIsLostByAWalkOverAllNodes) {
    start();
    EXPECT_THAT(look(), IsEmpty());
    pass(seconds{2});
    agents_[0]->last_heard = at_.steady;
    for (int tick = 0; tick < 58; ++tick) {
        EXPECT_THAT(look(), IsEmpty()) << tick;
        pass(seconds{1});
        agents_[0]->last_heard = at_.steady;
    }
    EXPECT_THAT(look(), ElementsAre("fault"));
    EXPECT_TRUE(job().attempt()->lost.contains(1));
    EXPECT_FALSE(job().attempt()->lost.contains(0));
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::next_attempt);
}

TEST_F(JobMachineTest, NobodyIsLostWhenTheDaemonItselfStoodStill) {
    start();
    EXPECT_THAT(look(), IsEmpty());
    pass(seconds{100});
    EXPECT_THAT(look(), IsEmpty()) << "it could not hear anybody";
}

TEST_F(JobMachineTest, WhatWasKnownOfAnAttemptGoesWithIt) {
    start();
    AttemptRun& known = machine_->run();
    known.submitted = known.intent_fresh = known.queue_checked = true;
    known.verdict_since = at_.steady;
    known.left[1] = Farewell{"SIGTERM", at_.steady};
    known.refused[1] = "another incarnation";
    machine_->stop(Cause{}, at_);
    Draft draft = machine_->draft(at_);
    Cause cause;
    cause.kind = CauseClass::preempted;
    event::FaultSeen fault;
    fault.attempt = 1;
    fault.generation = 1;
    fault.cause_class = CauseClass::preempted;
    ASSERT_TRUE(draft.add(fault));
    machine_->stored(draft, at_);
    Draft end = machine_->draft(at_);
    machine_->next_attempt(end, cause);
    const std::vector<Effect> effects = machine_->stored(end, at_).take();
    ASSERT_EQ(effects.size(), 3U);
    EXPECT_EQ(std::get<effect::AttemptOver>(effects[0]).attempt, 1);
    EXPECT_EQ(std::get<effect::Close>(effects[1]).link, agents_[0]);
    EXPECT_EQ(std::get<effect::Close>(effects[2]).link, agents_[1]);
    const AttemptRun& run = machine_->run();
    EXPECT_THAT(run.links, IsEmpty());
    EXPECT_THAT(run.processes, IsEmpty());
    EXPECT_FALSE(run.stopping);
    EXPECT_FALSE(run.submitted || run.intent_fresh || run.queue_checked || run.verdict_since);
    EXPECT_TRUE(run.left.empty() && run.refused.empty());
    EXPECT_FALSE(run.generation.released);
    EXPECT_EQ(run.rendezvous.live(), 0);
}

TEST_F(JobMachineTest, StopGivesRanksTheirGraceAlsoOnceTheJobIsOver) {
    start();
    const auto stops = machine_->say_stop("the job is over").take();
    ASSERT_EQ(sent<wire::Stop>(stops).size(), 2U);
    EXPECT_EQ(sent<wire::Stop>(stops)[0]->grace_ms,
              std::chrono::milliseconds{limits::kStopGrace}.count());
    EXPECT_THAT(machine_->say_stop("the job is over").take(), IsEmpty());
}

TEST_F(JobMachineTest, StopSaysWhatTheAttemptHasComeTo) {
    start();
    Draft cancel = machine_->draft(at_);
    event::CancelRequested asked;
    asked.by = "ann";
    ASSERT_TRUE(cancel.add(asked));
    machine_->stored(cancel, at_);
    const auto stops = machine_->stop(Cause{}, at_).take();
    ASSERT_EQ(sent<wire::Stop>(stops).size(), 2U);
    EXPECT_EQ(sent<wire::Stop>(stops)[1]->outcome, "cancelled");
}

TEST_F(JobMachineTest, StopOfWhatARankHasFailedSaysSoAlsoToAnAgentThatComesLate) {
    start();
    Draft draft = machine_->draft(at_);
    event::FaultSeen fault;
    fault.attempt = 1;
    fault.generation = 1;
    fault.rank = 0;
    fault.cause_class = CauseClass::rank_exit;
    ASSERT_TRUE(draft.add(fault));
    machine_->stored(draft, at_);
    const auto stops = machine_->stop(Cause{}, at_).take();
    ASSERT_EQ(sent<wire::Stop>(stops).size(), 2U);
    EXPECT_EQ(sent<wire::Stop>(stops)[0]->outcome, "failed");
    const auto late = std::make_shared<Agent>(1, "10.0.0.1");
    const auto answers = machine_->acknowledge_late(AgentInput{late, said(1)}, "it is over").take();
    ASSERT_EQ(sent<wire::Stop>(answers).size(), 1U);
    EXPECT_EQ(sent<wire::Stop>(answers)[0]->outcome, "failed");
}

TEST_F(JobMachineTest, AbortGoesOnceToEachConnection) {
    start();
    Cause cause;
    cause.message = "rank 1 failed";
    const auto first = machine_->abort(cause, at_).take();
    ASSERT_EQ(first.size(), 2U);
    EXPECT_THAT(machine_->abort(cause, at_).take(), IsEmpty());
    // The same node calls in again: it may not have heard it.
    take(AgentGoneInput{agents_[1]});
    const auto again = std::make_shared<Agent>(1, "10.0.0.1");
    again->node_rank = 1;
    wire::Hello back = said(1);
    back.generation = 1;
    back.ranks_running = true;
    take(AgentInput{again, back});
    const auto second = machine_->abort(cause, at_).take();
    ASSERT_EQ(second.size(), 1U);
    EXPECT_EQ(std::get<effect::SendShared>(second[0]).to, again);
}

class RestartAskedTest : public JobMachineTest {
  protected:
    // All nodes there, and the first rank has failed by itself.
    void first_rank_fails() {
        start();
        wire::Exited exited;
        exited.event = 1;
        exited.generation = 1;
        exited.exit_code = 3;
        take(AgentInput{agents_[0], exited});
    }
    Status ask() {
        Status out = fail(Errc::internal, "it was not answered");
        JobInput input = RestartInput{"ada", [&out](const Status& said) { out = said; }};
        Draft draft = machine_->draft(at_);
        machine_->take(draft, input);
        events_ = draft.events.size();
        machine_->stored(draft, at_);
        for (const auto& answer : draft.answers) {
            answer(Status{});
        }
        return out;
    }
    std::size_t events_ = 0;
};

// It was refused: nothing ran that could be started again, "the job is running".
TEST_F(RestartAskedTest, WhileAFailureIsBeingRecoveredFromItIsOnItsWayAlready) {
    first_rank_fails();
    ASSERT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
    const Status asked = ask();
    EXPECT_TRUE(asked.has_value()) << asked.error().message;
    EXPECT_EQ(events_, 0U) << "one restart does for both";
    EXPECT_EQ(machine_->what_is_due(at_).cause.kind, CauseClass::rank_exit);
}

TEST_F(RestartAskedTest, OfAJobThatItsFailureEndsItIsRefusedAndSaysSo) {
    place(R"({"nodes":2})", "[]");
    first_rank_fails();
    const Status asked = ask();
    ASSERT_FALSE(asked.has_value());
    EXPECT_EQ(asked.error().code, Errc::conflict);
    EXPECT_EQ(asked.error().message, "its ranks have failed and the job is ending");
}

// Found by the simulation: START was lost with a connection, and when the node was ready again,
// another one was away. That one comes back with its ranks and does not say READY any more.
TEST_F(JobMachineTest, StartThatWasLostIsSentAgainAlsoWhileAnotherNodeIsAway) {
    agents_ = {hello(0), hello(1)};
    for (const AgentPtr& one : agents_) {
        take(AgentInput{one, join()});
    }
    for (const AgentPtr& one : agents_) {
        take(AgentInput{one, wire::Ready{1}});
    }
    wire::Started started;
    started.generation = 1;
    take(AgentInput{agents_[1], started});
    take(AgentGoneInput{agents_[0]});  // and START with it
    take(AgentGoneInput{agents_[1]});
    agents_[0] = hello(0);
    EXPECT_EQ(sent<wire::World>(take(AgentInput{agents_[0], join()})).size(), 1U);
    const auto effects = take(AgentInput{agents_[0], wire::Ready{1}});
    EXPECT_EQ(sent<wire::Start>(effects).size(), 1U);
}

TEST_F(JobMachineTest, WhoIsMissingIsSaidOnceASecondAndTakenBack) {
    agents_ = {hello(0)};
    take(AgentInput{agents_[0], join()});
    look();
    EXPECT_EQ(machine_->pending_reason(), "") << "they have a second";
    pass(milliseconds{1000});
    look();
    EXPECT_EQ(machine_->pending_reason(), "waiting for 1 of 2 nodes: node 1 (not connected)");
    agents_.push_back(hello(1));
    take(AgentInput{agents_[1], join()});
    pass(milliseconds{1000});
    look();
    EXPECT_THAT(machine_->pending_reason(), HasSubstr("waiting for 2 of 2 nodes: n0 (not ready)"));
    run_ranks();
    look();
    EXPECT_EQ(machine_->pending_reason(), "");
}

// SaveRound

class SaveRoundTest : public JobMachineTest {
  protected:
    void ask() {
        asked_ =
            take(SaveInput{"ada", [this](const Status& status) { answers_.push_back(status); }});
    }
    std::vector<Effect> answer(std::size_t agent, std::int32_t round, std::int32_t rank = -1) {
        wire::CanSave out;
        out.generation = 1;
        out.round = round;
        out.rank = rank;
        out.problem = "does not catch SIGUSR2";
        return take(AgentInput{agents_[agent], out});
    }
    std::vector<Effect> asked_;
    std::vector<Status> answers_;
};

TEST_F(SaveRoundTest, AnAnswerOfARoundBeforeDoesNotCount) {
    start();
    ask();
    ASSERT_EQ(sent<wire::AskSave>(asked_).size(), 2U);
    EXPECT_EQ(sent<wire::AskSave>(asked_)[0]->round, 1);
    EXPECT_THAT(sent<wire::Save>(answer(0, 1)), IsEmpty());
    EXPECT_THAT(sent<wire::Save>(answer(1, 0)), IsEmpty()) << "of no round";
    EXPECT_EQ(sent<wire::Save>(answer(1, 1)).size(), 2U);
    EXPECT_THAT(machine_->pass(at_).take(), IsEmpty()) << "the round is over";
}

TEST_F(SaveRoundTest, WhoAsksMeanwhileIsAnsweredByTheSameRound) {
    start();
    ask();
    ask();
    EXPECT_THAT(sent<wire::AskSave>(asked_), IsEmpty()) << "it is under way";
    std::vector<Effect> effects = answer(0, 1, 0);
    std::size_t refused = 0;
    for (const Effect& one : effects) {
        if (const auto* told = std::get_if<effect::Answer>(&one)) {
            EXPECT_FALSE(told->status.has_value());
            ++refused;
        }
    }
    EXPECT_EQ(refused, 2U);
}

}  // namespace
}  // namespace lockstep
