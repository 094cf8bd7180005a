// Who is lost, and who may be silent.
#include "daemon/control/machine/verdict.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <set>

namespace lockstep {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class LossWatchTest : public JobMachineTest {
  protected:
    void ended(std::int32_t slot, int code, const std::string& failure = "") {
        wire::Exited exited;
        exited.failure = failure;
        exited.event = 1;
        exited.generation = 1;
        exited.rank = slot;
        exited.exit_code = code;
        take(AgentInput{agents_[static_cast<std::size_t>(slot)], exited});
    }
    // The scheduler says that its agent is gone; it has left the result of that generation, in
    // which its rank exited with 3.
    Observation node_1_leaves(std::int32_t generation) {
        take(AgentGoneInput{agents_[1]});
        wire::Exited exited;
        exited.generation = generation;
        exited.rank = 1;
        exited.exit_code = 3;
        files_.results[1].generation = generation;
        files_.results[1].exits = {exited};
        pass(seconds{1});
        Observation out = runs();
        out.lost_nodes = {1};
        return out;
    }
    // So many seconds in which all but these are heard; what was lost.
    std::vector<std::string> pass_without(const std::set<std::int32_t>& silent, int time) {
        std::vector<std::string> out;
        for (int second = 0; second < time; ++second) {
            pass_one_second(silent);
            for (std::string& kind : look()) {
                out.push_back(std::move(kind));
            }
        }
        return out;
    }
    void pass_one_second(const std::set<std::int32_t>& silent) {
        pass(seconds{1});
        for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(agents_.size()); ++slot) {
            if (!silent.contains(slot)) {
                agents_[static_cast<std::size_t>(slot)]->last_heard = at_.steady;
            }
        }
    }
    // So many seconds in which the ranks are being ended and these are not heard; what was told.
    std::vector<std::string> abort_without(const std::set<std::int32_t>& silent, int time,
                                           const Observation& seen) {
        std::vector<std::string> out;
        for (int second = 0; second < time; ++second) {
            pass_one_second(silent);
            machine_->abort(Cause{}, at_);
            Draft draft = machine_->draft(at_);
            EXPECT_FALSE(machine_->look_while_aborting(draft, seen, true)) << "its ranks live";
            for (const Event& one : draft.events) {
                out.emplace_back(to_string(one.kind()));
            }
            machine_->stored(draft, at_);
        }
        return out;
    }
};

TEST_F(LossWatchTest, ANodeWhoseRanksHaveEndedMayGo) {
    start();
    look();
    ended(1, 0);
    ASSERT_EQ(job().live_generation()->exited_count, 1);
    EXPECT_THAT(pass_without({1}, 100), IsEmpty());
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    EXPECT_EQ(job().state, JobState::running) << "the other rank goes on";
}

// Else a hiccup of seconds at two nodes costs a job of one spare its whole allocation.
TEST_F(LossWatchTest, OnlyAsManyNodesAreLostEarlyAsThereAreSpares) {
    place(R"({"nodes":3,"spares":1})");
    start();
    look();
    constexpr int kEarly = 10;
    ASSERT_GT(seconds{kEarly}, limits::kAgentSilence);
    ASSERT_LT(seconds{kEarly}, limits::kAgentLost);
    EXPECT_THAT(pass_without({1, 2}, kEarly), ElementsAre("fault"));
    EXPECT_EQ(job().attempt()->lost.size(), 1U);
}

// What lies there of a generation that is over says nothing of this one's ranks.
TEST_F(LossWatchTest, TheResultOfAnotherGenerationIsNotRead) {
    start();
    look();
    EXPECT_THAT(look(node_1_leaves(7)), ElementsAre("fault"));
    EXPECT_EQ(job().live_generation()->exited_count, 0);
}

TEST_F(LossWatchTest, TheResultOfThisGenerationSaysWhatItsRanksDid) {
    start();
    look();
    EXPECT_THAT(look(node_1_leaves(1)), ElementsAre("rank_exited"));
    EXPECT_EQ(job().live_generation()->first_failure->exit_code, 3);
}

// With lockstep-exec each file takes a process: at the end of a job of 256 nodes nobody was
// answered for seconds.
TEST_F(LossWatchTest, ResultsAreReadOfThoseOnlyWhoseEndHasNotBeenHeard) {
    start();
    look();
    ended(0, 0);
    take(AgentGoneInput{agents_[0]});
    take(AgentGoneInput{agents_[1]});
    pass(seconds{1});
    Observation over;
    over.kind = Observation::Kind::state;
    over.state = AllocationState::ended;
    look(over);
    EXPECT_EQ(files_.results_read, 1) << "of node 1";
    place(R"({"nodes":2})");
    files_.results_read = 0;
    look(over);
    EXPECT_EQ(files_.results_read, 0) << "no agent has come, so no rank has run";
}

TEST_F(LossWatchTest, HoweverManyNodesAreLostAtATimeTheLogsAreSearchedOnce) {
    place(R"({"nodes":3})");
    start("17");
    look();
    take(AgentGoneInput{agents_[1]});
    take(AgentGoneInput{agents_[2]});
    pass(seconds{1});
    Observation seen = runs();
    seen.lost_nodes = {1, 2};
    look(seen);
    EXPECT_EQ(job().attempt()->lost.size(), 2U);
    EXPECT_EQ(files_.memory_read, 1);
}

// Of what ended them all no node is known to be the cause; none of them is kept from the next
// attempt.
TEST_F(LossWatchTest, AnAllocationThatIsLostWholeIsNoNodesFault) {
    start();
    look();
    take(AgentGoneInput{agents_[0]});
    take(AgentGoneInput{agents_[1]});
    Observation over;
    over.kind = Observation::Kind::state;
    over.state = AllocationState::ended;
    over.lost_nodes = {0, 1};
    over.message = "the partition went down";
    pass(seconds{1});
    EXPECT_THAT(look(over), ElementsAre("fault"));
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    over.lost_nodes = {1};
    place(R"({"nodes":2})");
    start();
    look();
    ended(0, 0);
    take(AgentGoneInput{agents_[0]});
    take(AgentGoneInput{agents_[1]});
    pass(seconds{1});
    look(over);
    EXPECT_TRUE(job().attempt()->lost.contains(1)) << "of two this one alone was lost";
}

// The scheduler speaks of all of its agents in one sentence.
TEST_F(LossWatchTest, ALostNodeIsToldOnceAndByItself) {
    place(R"({"nodes":2,"spares":1})");
    start();
    look();
    Observation seen = runs();
    seen.lost_nodes = {1};
    seen.message = "the agent of n11 was ended by signal 9; the agent of n1 was ended by signal 15";
    take(AgentGoneInput{agents_[1]});
    pass(seconds{1});
    look(seen);
    EXPECT_EQ(job().attempt()->lost.at(1).message, "the agent of n1 was ended by signal 15");
}

// After twenty seconds every node was given up, and the next attempt went without them.
TEST_F(LossWatchTest, NodesThatAreSuspendedWhileTheirRanksAreBeingEndedAreNotGivenUp) {
    start();
    look();
    ended(1, 3);
    ASSERT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
    constexpr int kPatience = 20;
    ASSERT_EQ(limits::kAbortPatience, seconds{kPatience});
    EXPECT_THAT(abort_without({}, kPatience - 1, runs()), IsEmpty());
    Observation paused = runs();
    paused.paused = true;
    paused.message = "Slurm job 17 is suspended: its ranks do not move";
    EXPECT_THAT(abort_without({0, 1}, 100, paused), ElementsAre("suspended"));
    EXPECT_EQ(machine_->pending_reason(), paused.message);
    EXPECT_THAT(abort_without({}, kPatience, runs()), ElementsAre("suspended"));
    EXPECT_EQ(machine_->pending_reason(), "");
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    EXPECT_THAT(abort_without({}, 1, runs()), ElementsAre("fault")) << "it has had its time again";
    EXPECT_TRUE(job().attempt()->lost.contains(0));
}

// The ranks of the other nodes lost their peers, and the job failed by them after a second.
TEST_F(LossWatchTest, ANodeThatTookItsPeersRanksWithItIsNoticedWhereOnlyItsLossIsRecoveredFrom) {
    place(R"({"nodes":2,"spares":1})", R"(["node_failure"])");
    start();
    look();
    pass_without({1}, 1);
    ended(0, 1, "network");
    for (int second = 0; second < 4 && job().attempt()->lost.empty(); ++second) {
        EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::watch) << second;
        pass_without({1}, 1);
    }
    EXPECT_TRUE(job().attempt()->lost.contains(1));
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
    EXPECT_EQ(machine_->what_is_due(at_).cause.kind, CauseClass::node_lost);
}

TEST_F(LossWatchTest, WithoutASpareItIsNoticedToo) {
    place(R"({"nodes":2})", R"(["node_failure"])");
    start();
    look();
    pass_without({1}, 1);
    ended(0, 1, "echo");
    pass_without({1}, 50);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::watch);
    pass_without({1}, 10);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::next_attempt);
    EXPECT_EQ(machine_->what_is_due(at_).cause.kind, CauseClass::node_lost);
}

TEST_F(LossWatchTest, WhereAllNodesAreHeardTheFailureOfRanksIsNotHeldBack) {
    place(R"({"nodes":2,"spares":1})", R"(["node_failure"])");
    start();
    look();
    ended(0, 1, "network");
    pass_without({}, 1);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::stop);
    place(R"({"nodes":2,"spares":1})", R"(["node_failure"])");
    start();
    look();
    ended(0, 1);
    pass_without({1}, 1);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::stop) << "a failure of its own";
}

// Seen: a slurmctld that was killed right after it had started a job had it in its queue again when
// it was back. lockstepd, which was killed as well, believed that before the job's agent had found
// it, and ended ranks that were well.
TEST_F(LossWatchTest, WhatTheSchedulerSaysToALockstepdThatHasJustStartedWaitsForTheAgents) {
    start();
    const Job before = job();
    machine_ = std::make_unique<JobMachine>(before, files_,
                                            [](std::int32_t, const std::string&) { return true; });
    Observation seen = runs();
    seen.state = AllocationState::ended;
    seen.message = seen.cause.message = "Slurm job 17 was put back into the queue";
    seen.cause.kind = CauseClass::preempted;
    EXPECT_THAT(look(seen), IsEmpty());
    for (seconds time{1}; time < limits::kAgentSilence; ++time) {
        pass(seconds{1});
        EXPECT_THAT(look(seen), IsEmpty());
    }
    agents_[0] = hello(0);
    pass(seconds{1});
    EXPECT_THAT(look(seen), ElementsAre("fault")) << "node 1 has had its time";
    EXPECT_FALSE(job().attempt()->lost.contains(0));
}

// A file server that stood still for some seconds made failures of ranks that had succeeded.
TEST_F(LossWatchTest, AnEndIsNotJudgedWhileWhatTheNodesHaveLeftCannotBeSeen) {
    start();
    look();
    for (const AgentPtr& one : agents_) {
        take(AgentGoneInput{one});
    }
    pass(seconds{1});
    files_.stands_still = true;
    Observation seen = runs();
    seen.state = AllocationState::ended;
    EXPECT_THAT(look(seen), IsEmpty());
    files_.stands_still = false;
    for (std::int32_t slot : {0, 1}) {
        wire::Exited exited;
        exited.generation = 1;
        exited.rank = slot;
        files_.results[slot].generation = 1;
        files_.results[slot].exits = {exited};
    }
    EXPECT_THAT(look(seen), ElementsAre("rank_exited", "rank_exited"));
}

TEST_F(LossWatchTest, AFileServerThatStaysAwayIsNotWaitedForWithoutEnd) {
    start();
    look();
    for (const AgentPtr& one : agents_) {
        take(AgentGoneInput{one});
    }
    files_.stands_still = true;
    Observation seen = runs();
    seen.state = AllocationState::ended;
    pass(limits::kAgentLost);
    EXPECT_THAT(look(seen), testing::Contains("fault"));
}

// Cancelled, it is a person's end, whatever the scheduler comes to say of it.
TEST(WantsVerdict, ACancelledJobDoesNot) {
    History history;
    history.allocation = "1";
    history.running();
    event::RankExited killed = history.exit(1, -1);
    killed.signal = SIGTERM;
    history.must(killed);
    ASSERT_FALSE(history.job.attempt()->allocation.empty());
    EXPECT_TRUE(wants_verdict(history.job));
    event::CancelRequested cancel;
    cancel.by = "ada";
    history.must(cancel);
    EXPECT_FALSE(wants_verdict(history.job));
}

// It may have had its nodes end what it does not know any more.
TEST_F(LossWatchTest, ASilentNodeOfAJobThatTheSchedulerHasLostSaysSo) {
    start();
    look();
    Observation seen;
    seen.kind = Observation::Kind::absent;
    seen.message = "Slurm has lost job 17";
    take(AgentGoneInput{agents_[0]});
    std::vector<std::string> kinds;
    for (seconds time{0}; time <= limits::kAgentLost; ++time) {
        pass(seconds{1});
        agents_[1]->last_heard = at_.steady;
        for (std::string& kind : look(seen)) {
            kinds.push_back(std::move(kind));
        }
    }
    EXPECT_THAT(kinds, ElementsAre("fault"));
    EXPECT_THAT(job().attempt()->lost.at(0).message,
                testing::EndsWith(" s; Slurm has lost job 17"));
}

TEST(WantsVerdict, ARanksCodeAtTheTimeLimitMayBeAHandlersOfItsSignal) {
    History history{R"({"name":"t","framework":"command","command":["x"],
                        "resources":{"nodes":2,"time_limit":"00:10:00"}})"};
    history.allocation = "1";
    history.running();
    const Job running = history.job;
    const auto with = [&](int code, std::int64_t after) {
        history.job = running;
        history.now = history.job.attempt()->placed_at + after * 1000;
        history.must(history.exit(1, code));
        return wants_verdict(history.job);
    };
    EXPECT_FALSE(with(1, 60));
    EXPECT_FALSE(with(1, 580)) << "20 s before the limit";
    EXPECT_TRUE(with(1, 600));
    EXPECT_TRUE(with(143, 60)) << "a shell's word for SIGTERM";
    EXPECT_FALSE(with(130, 60));
}

}  // namespace
}  // namespace lockstep
