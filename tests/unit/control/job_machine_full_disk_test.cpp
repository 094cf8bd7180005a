// What a JobMachine makes of drafts that find no room on the disk.
#include "daemon/control/machine/job_machine.hpp"
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using ::testing::IsEmpty;

TEST_F(JobMachineTest, AHelloWhoseDraftIsDroppedIsTakenAgain) {
    const auto link = std::make_shared<Agent>(1, "10.0.0.1");
    link->node_rank = 0;
    for (int tries = 0; tries < 2; ++tries) {  // the disk is full
        JobInput input = AgentInput{link, said(0)};
        Draft draft = machine_->draft(at_);
        machine_->take(draft, input);
        EXPECT_EQ(draft.events.size(), 1U);
    }
    EXPECT_EQ(take(AgentInput{link, said(0)}).size(), 1U);
    EXPECT_EQ(job().attempt()->claims.size(), 1U);
}

TEST_F(JobMachineTest, TheTimeLimitIsToldAlsoIfItsFirstDraftWasDropped) {
    start();
    wire::SaveAsked asked;
    asked.event = 1;
    asked.generation = 1;
    asked.rank = 0;
    for (int tries = 0; tries < 3; ++tries) {
        JobInput input = AgentInput{agents_[0], asked};
        wire::SaveAsked other = asked;
        other.rank = -1;
        JobInput twice = AgentInput{agents_[1], other};
        Draft draft = machine_->draft(at_);
        machine_->take(draft, input);
        machine_->take(draft, twice);
        ASSERT_EQ(draft.events.size(), 1U) << "try " << tries;
        EXPECT_EQ(draft.events[0].kind(), EventKind::checkpoint_requested);
        if (tries == 2) {
            machine_->stored(draft, at_);
        }
    }
    wire::SaveAsked later = asked;
    later.rank = -1;
    JobInput again = AgentInput{agents_[0], later};
    Draft draft = machine_->draft(at_);
    machine_->take(draft, again);
    EXPECT_THAT(draft.events, IsEmpty()) << "once";
}

TEST_F(JobMachineTest, AProfileWhoseDraftWasDroppedIsAskedForOnce) {
    start();
    Status answer;
    ProfileInput wanted;
    wanted.by = "ada";
    wanted.seconds = 5;
    wanted.asked = std::make_shared<ProfileAsked>();
    wanted.done = [&answer](Status status) { answer = std::move(status); };
    std::vector<std::size_t> effects;
    for (int tries = 0; tries < 2; ++tries) {
        JobInput input = wanted;
        Draft draft = machine_->draft(at_);
        machine_->take(draft, input);
        effects.push_back(draft.at_once.take().size());
        ASSERT_EQ(draft.answers.size(), 1U);
        draft.answers[0](Status{});
        EXPECT_TRUE(answer) << "try " << tries << ": " << answer.error().message;
    }
    EXPECT_GT(effects[0], 0U);
    EXPECT_EQ(effects[1], 0U) << "the agents have been asked";
    EXPECT_EQ(wanted.asked->number, 1);
    wanted.asked = std::make_shared<ProfileAsked>();  // somebody else
    JobInput other = wanted;
    Draft draft = machine_->draft(at_);
    machine_->take(draft, other);
    draft.answers[0](Status{});
    EXPECT_FALSE(answer);
}

TEST_F(JobMachineTest, WhatIsFoundOnceBeginsTheNextDraftUntilItIsStored) {
    start();
    {
        Draft draft = machine_->draft(at_);
        event::FaultSeen fault;
        fault.cause_class = CauseClass::node_lost;
        lose_node(draft, 1, fault);
        draft.warn("slow");
        draft.found_once(0);
        draft.warn("found anew with every draft");
        machine_->not_stored(draft);
    }
    for (int tries = 0; tries < 3; ++tries) {
        Draft draft = machine_->draft(at_);
        ASSERT_EQ(draft.events.size(), 2U) << "try " << tries;
        if (tries < 2) {
            machine_->not_stored(draft);
        } else {
            EXPECT_EQ(sent<wire::Fenced>(machine_->stored(draft, at_).take()).size(), 1U);
        }
    }
    EXPECT_THAT(job().warnings, ::testing::ElementsAre("slow"));
    EXPECT_THAT(machine_->draft(at_).events, IsEmpty());
}

TEST_F(JobMachineTest, WhatWaitsForRoomKeepsNobodyWaitingWhoNeedsNone) {
    start();
    {
        Draft draft = machine_->draft(at_);
        lose_node(draft, 1, event::FaultSeen{});
        draft.found_once(0);
        machine_->not_stored(draft);
    }
    wire::KeyRequest request;
    request.generation = 1;
    request.op = wire::KvOp::get;
    request.keys = {"k"};
    std::vector<JobInput> inputs{AgentInput{agents_[0], request}};
    Draft keys = machine_->take_all(inputs, at_);
    EXPECT_THAT(keys.events, IsEmpty());
    const auto effects = machine_->stored(keys, at_).take();
    EXPECT_EQ(sent<wire::KeyReply>(effects).size(), 1U);
    EXPECT_EQ(sent<wire::Fenced>(effects).size(), 0U) << "the loss is not durable";
    inputs = {CancelInput{"ada", [](const Status&) {}}};
    EXPECT_EQ(machine_->take_all(inputs, at_).events.size(), 2U)
        << "what is appended begins with it";
}

// Its node counted as silent then, for a minute.
TEST_F(JobMachineTest, AByeWhoseDraftIsDroppedTogetherWithTheEndOfTheConnectionIsHeard) {
    start();
    wire::Bye bye;
    bye.reason = "SIGTERM";
    std::vector<JobInput> inputs{CancelInput{"ada", [](const Status&) {}},
                                 AgentInput{agents_[1], bye}, AgentGoneInput{agents_[1]}};
    std::vector<Effect> effects;
    for (int tries = 0; tries < 3; ++tries) {
        Draft draft = machine_->take_all(inputs, at_);
        ASSERT_EQ(draft.events.size(), 1U) << "try " << tries;
        std::vector<Effect> done = draft.at_once.take();
        if (tries < 2) {
            machine_->not_stored(draft);
        } else {
            for (Effect& one : machine_->stored(draft, at_).take()) {
                done.push_back(std::move(one));
            }
        }
        std::move(done.begin(), done.end(), std::back_inserter(effects));
    }
    ASSERT_TRUE(machine_->run().left.contains(1));
    EXPECT_EQ(machine_->run().left.at(1).reason, "SIGTERM");
    EXPECT_EQ(std::count_if(
                  effects.begin(), effects.end(),
                  [](const Effect& one) { return std::holds_alternative<effect::ExpectEnd>(one); }),
              1)
        << "the scheduler is asked why";
}

// It counted as joined again by then, and a generation could begin with it.
TEST_F(JobMachineTest, AByeBehindAJoinIsHeardAgainWithIt) {
    agents_ = {hello(0), hello(1)};
    wire::Bye bye;
    bye.reason = "SIGTERM";
    std::vector<JobInput> inputs{CancelInput{"ada", [](const Status&) {}},
                                 AgentInput{agents_[1], join()}, AgentInput{agents_[1], bye}};
    for (int tries = 0; tries < 2; ++tries) {
        Draft draft = machine_->take_all(inputs, at_);
        machine_->not_stored(draft);
        EXPECT_EQ(machine_->run().rendezvous.phase(1), Rendezvous::Phase::away) << "try " << tries;
    }
}

TEST_F(JobMachineTest, WhatNeedsNoRoomIsAnsweredOnceHoweverOftenTheAppendIsTried) {
    start();
    wire::Fault fault;  // ends the generation
    fault.generation = 1;
    fault.rank = 0;
    fault.cause_class = to_string(CauseClass::rank_exit);
    take(AgentInput{agents_[0], fault});
    Draft over = machine_->draft(at_);
    ASSERT_TRUE(machine_->end_generation(over, machine_->what_is_due(at_).cause,
                                         JobMachine::AfterEnd::next_generation));
    machine_->stored(over, at_);
    wire::TableRequest table;
    table.generation = 1;
    std::vector<JobInput> inputs{CancelInput{"ada", [](const Status&) {}},
                                 AgentInput{agents_[0], wire::Ready{1}},
                                 AgentInput{agents_[1], table}};
    std::size_t aborts = 0;
    for (int tries = 0; tries < 3; ++tries) {
        Draft draft = machine_->take_all(inputs, at_);
        ASSERT_EQ(draft.events.size(), 1U) << "try " << tries;
        aborts += sent<wire::Abort>(draft.at_once.take()).size();
        machine_->not_stored(draft);
    }
    EXPECT_EQ(aborts, 2U) << "of each agent that has not heard of the end";
    EXPECT_EQ(inputs.size(), 1U) << "the command is all that waits for room";
}

}  // namespace
}  // namespace lockstep
