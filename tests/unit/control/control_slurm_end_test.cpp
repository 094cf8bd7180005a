// How an allocation ends while its agents are there, and whose doing it is said to be.
#include "tests/unit/control/control_slurm_fixture.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST_F(ControlSlurmTest, ATimeLimitGoesBeforeTheSignalThatItSent) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    ended(CauseClass::time_limit, "Slurm job 17 ran out of its time limit");
    wire::Exited out = exit(1, 0, -1);
    out.signal = SIGTERM;
    agents[0].say(out);
    for (const TestAgent& agent : agents) {
        until([&] { return agent.peer->last<wire::Stop>() != nullptr; }, "STOP");
        agent.session->on_closed();
    }
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "time_limit");
    EXPECT_EQ(show(id)["cause"]["rank"], 0);
}

TEST_F(ControlSlurmTest, RanksThatSomebodyElseStoppedWaitForTheSchedulersWord) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        wire::Exited out = exit(1, rank, -1);
        out.signal = SIGTERM;
        out.stopped = true;
        agents[static_cast<std::size_t>(rank)].say(out);
    }
    for (const TestAgent& agent : agents) {
        until([&] { return agent.peer->last<wire::Ack>() != nullptr; }, "heard");
    }
    EXPECT_EQ(state(id), "running") << "why is not known yet";
    ended(CauseClass::preempted, "Slurm job 17 was preempted");
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "preempted");
}

TEST_F(ControlSlurmTest, ASchedulerThatNeverSaysWhyIsNotWaitedForForEver) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        wire::Exited out = exit(1, rank, -1);
        out.signal = SIGTERM;
        out.stopped = true;
        agents[static_cast<std::size_t>(rank)].say(out);
    }
    until([&] { return agents[1].peer->last<wire::Ack>() != nullptr; }, "heard");
    EXPECT_EQ(state(id), "running");
    clock_.advance(std::chrono::seconds{61});
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["message"], "rank 0 on n0 was ended by SIGTERM");
}

// Seen under kills of slurmctld: it gave the job's number out again and had slurmd end the job,
// after its agents had called in.
TEST_F(ControlSlurmTest, AnAllocationThatSlurmTakesAwayBeforeStartIsAskedForAgain) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "placed");
    TestAgent agent = hello_from(0, "17");
    until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    scheduler_.seen.accident.emplace();
    scheduler_.seen.accident->kind = CauseClass::scheduler;
    scheduler_.seen.accident->message = "Slurm job 17 was ended by Slurm itself";
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    scheduler_.seen_until = 1;
    agent.session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "another attempt");
    EXPECT_EQ(show(id)["attempts"][0]["cause"]["class"], "node_lost");
    EXPECT_EQ(show(id)["attempts"][0]["cause"]["message"],
              "the agent of n0 ended without a result: Slurm job 17 was ended by Slurm itself");
}

TEST_F(ControlSlurmTest, TheNextAttemptIsBesideTheFirstOneWhateverTheRunsDirectoryIsNow) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "placed");
    shut_down();
    runs_name_ = "other";
    boot();
    TestAgent agent = hello_from(0, "17");
    until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    scheduler_.seen.accident.emplace();
    scheduler_.seen.accident->kind = CauseClass::scheduler;
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    scheduler_.seen_until = 1;
    agent.session->on_closed();
    until([&] { return std::filesystem::exists(folder_ / "runs" / id / "a2"); }, "its folder");
    until([&] { return show(id)["attempts"].size() == 2; }, "another attempt");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "other" / id));
}

TEST_F(ControlSlurmTest, AnEndThatNobodyIsNamedForIsAPersonsOnceTheRanksRun) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.seen.accident.emplace();
    scheduler_.seen.accident->kind = CauseClass::scheduler;
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    for (const TestAgent& agent : agents) {
        agent.session->on_closed();
    }
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
}

// Not every rank has said that it runs, but one may: "before its ranks had started" is not true,
// and what is asked for again then is recovery's matter.
TEST_F(ControlSlurmTest, AnEndThatNobodyIsNamedForIsAPersonsOnceStartMayHaveLeft) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    std::vector<TestAgent> agents{hello_from(0, "17"), hello_from(1, "17")};
    for (TestAgent& agent : agents) {
        wire::Join join;
        join.address = "127.0.0.1";
        join.port = 5000;
        agent.say(join);
    }
    for (TestAgent& agent : agents) {
        until([&] { return agent.peer->last<wire::World>() != nullptr; }, "WORLD");
        agent.say(wire::Ready{1});
    }
    until([&] { return agents[1].peer->last<wire::Start>() != nullptr; }, "START");
    scheduler_.seen.accident.emplace();
    scheduler_.seen.accident->kind = CauseClass::scheduler;
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    for (const TestAgent& agent : agents) {
        agent.session->on_closed();
    }
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
}

TEST_F(ControlSlurmTest, NoRankIsStartedBeforeItIsOnDiskThatItMayBe) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    EXPECT_THAT(kinds(id),
                ::testing::IsSupersetOf({"generation_started", "ranks_released", "ranks_started"}));
    const auto all = kinds(id);
    const auto at = [&](const char* kind) { return std::find(all.begin(), all.end(), kind); };
    EXPECT_LT(at("generation_started"), at("ranks_released"));
    EXPECT_LT(at("ranks_released"), at("ranks_started"));
}

// Seen on a real Slurm: a suspension stops the agents too, their connections end, and a minute
// later the job was over.
TEST_F(ControlSlurmTest, ASuspendedJobIsNotLostHoweverLongItStandsStill) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.seen.paused = true;
    scheduler_.seen.message = "Slurm job 17 is suspended: its ranks do not move";
    until([&] { return show(id).contains("pending_reason"); }, "it is told");
    EXPECT_EQ(show(id)["pending_reason"], scheduler_.seen.message);
    until([&] { return happened(id, "suspended"); }, "it is on disk");
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    clock_.advance(limits::kAgentLost * 5);
    const auto looked = scheduler_.polls;
    until([&] { return scheduler_.polls > looked + 1; }, "two looks");
    EXPECT_EQ(state(id), "running");
    // What a lockstepd that has just started hears before its first look at Slurm.
    scheduler_.seen.paused = false;
    scheduler_.seen.state = AllocationState::pending;
    const auto before = scheduler_.polls;
    until([&] { return scheduler_.polls > before + 1; }, "two looks");
    EXPECT_FALSE(told(id, "not suspended any more"));
    scheduler_.seen.state = AllocationState::running;
    until([&] { return !show(id).contains("pending_reason"); }, "it goes on");
    EXPECT_EQ(state(id), "running");
    until([&] { return told(id, "not suspended any more"); }, "and that");
    EXPECT_GE(show(id)["spans"]["suspended_seconds"].get<double>(), 300)
        << "as long as the clock says that it stood still";
    const auto all = kinds(id);
    EXPECT_EQ(std::count(all.begin(), all.end(), "suspended"), 2) << "said once each";
    // Who does not come back is lost, in the usual time.
    clock_.advance(limits::kAgentLost / 2);
    const auto later = scheduler_.polls;
    until([&] { return scheduler_.polls > later + 1; }, "two looks");
    EXPECT_EQ(state(id), "running");
    clock_.advance(limits::kAgentLost);
    until([&] { return happened(id, "fault"); }, "lost");
    clock_.advance(limits::kStopGrace * 2);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "node_lost");
}

class KilledForMemory : public ControlSlurmTest, public testing::WithParamInterface<const char*> {};

TEST_P(KilledForMemory, IsFoundInTheWordsThatSlurmLeft) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    const std::filesystem::path folder = scheduler_.last.directory;
    ASSERT_TRUE(write_file_atomic(folder / "agent-00000.log",
                                  "slurmstepd-n0: error: *** STEP 2.0 "
                                  "ON n0 CANCELLED AT … ***\n"));
    ASSERT_TRUE(write_file_atomic(folder / "agent-00001.log", GetParam()));
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.message = "Slurm job 17 failed";
    until([&] { return state(id) == "failed"; }, "failed");
    const Json cause = show(id)["cause"];
    EXPECT_EQ(cause["class"], "oom");
    EXPECT_EQ(cause["node"], "n1");
    EXPECT_EQ(cause["rank"], 1);
    EXPECT_THAT(cause["message"].get<std::string>(), HasSubstr("exceeded memory limit"));
}

// Of 22.05.8, and of 26.05.3, where slurmstepd leaves its name out, with two LogTimeFormats.
INSTANTIATE_TEST_SUITE_P(
    Releases, KilledForMemory,
    testing::Values("a rank that says oom-kill\nslurmstepd-n1: error: StepId=2.0 exceeded memory "
                    "limit (600 > 300), being killed\n",
                    "oom-kill\n[2026-11-25T20:02:59.450] error: StepId=1.0 exceeded memory limit "
                    "(600 > 300), being killed\n",
                    "[Nov 25 20:02:59] error: StepId=1.0 exceeded memory limit (600 > 300), being "
                    "killed\n"));

// Slurm sends its signals to the ranks of every node: the first that died is not where it was.
TEST_F(ControlSlurmTest, ALostNodeIsTheOneThatFellSilentAndNotTheFirstThatSlurmKilled) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    clock_.advance(std::chrono::seconds{20});
    wire::Beat beat;
    agents[0].say(beat);
    ended(CauseClass::node_lost, "Slurm job 17 lost a node");
    wire::Exited out = exit(1, 0, -1);
    out.signal = SIGTERM;
    agents[0].say(out);
    until([&] { return agents[0].peer->last<wire::Stop>() != nullptr; }, "STOP");
    agents[0].session->on_closed();
    clock_.advance(limits::kStopGrace * 2);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "node_lost");
    EXPECT_EQ(show(id)["cause"]["node"], "n1") << show(id)["cause"];
    EXPECT_FALSE(show(id)["cause"].contains("rank")) << show(id)["cause"];
    EXPECT_THAT(show(id)["cause"]["message"].get<std::string>(),
                HasSubstr("Slurm job 17 lost a node: n1, its agent has not been heard for 2"));
}

// The job had ended for Slurm, and its word came after the first that it had told to go was missed.
TEST_F(ControlSlurmTest, ALostNodeIsNotTheOneThatLeftBeforeSlurmsWordCame) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    clock_.advance(std::chrono::seconds{20});
    agents[0].say(wire::Beat{});
    agents[0].session->on_closed();
    ended(CauseClass::node_lost, "Slurm job 17 lost a node");
    until([&] { return told(id, "Slurm job 17 lost a node"); }, "Slurm's word is taken");
    agents[1].session->on_closed();
    clock_.advance(limits::kStopGrace * 2);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "node_lost");
    EXPECT_EQ(show(id)["cause"]["node"], "n1") << show(id)["cause"];
}

TEST_F(ControlSlurmTest, ASigtermThatNobodyCanExplainAnyMoreIsNotTakenForTheRanksOwnFault) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.seen.kind = Observation::Kind::absent;
    scheduler_.seen.message = "Slurm job 17 is no longer in Slurm";
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        wire::Exited out = exit(1, rank, -1);
        out.signal = SIGTERM;
        agents[static_cast<std::size_t>(rank)].say(out);
    }
    for (TestAgent& agent : agents) {
        until([&] { return agent.peer->last<wire::Ack>() != nullptr; }, "heard");
        agent.session->on_closed();
    }
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["message"],
              "rank 0 on n0 was ended by SIGTERM that Lockstep did not send: cancelled outside? "
              "Slurm job 17 is no longer in Slurm");
}

TEST_F(ControlSlurmTest, WhatSlurmStillEndsIsSaidOfAJobThatIsBeingCancelled) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.obeys = false;
    scheduler_.seen.ending = "n1";
    wait([&]() -> Task<void> {
        Caller caller = ada_;
        std::string job = id;
        co_await control_->commands().cancel(std::move(caller), std::move(job));
    }());
    until([&] { return show(id).value("pending_reason", "") == "waits for Slurm to end node n1"; },
          "it is said");
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    scheduler_.seen.ending.clear();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_FALSE(show(id).contains("pending_reason"));
}

// slurmd died: the node is NODE_FAIL to Slurm, and its ranks do not mind.
TEST_F(ControlSlurmTest, RanksThatOutliveTheirAllocationsNodeGoOnWithAWarning) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    ended(CauseClass::node_lost, "Slurm job 17 lost a node");
    const auto looked = scheduler_.polls;
    until([&] { return scheduler_.polls > looked + 2; }, "three looks");
    EXPECT_FALSE(show(id).contains("warnings")) << "they have their time to go";
    for (int i = 0; i < 3; ++i) {
        clock_.advance(std::chrono::seconds{2});
        for (TestAgent& agent : agents) {
            agent.say(wire::Beat{});
        }
        const auto before = scheduler_.polls;
        until([&] { return scheduler_.polls > before + 1; }, "two looks");
    }
    EXPECT_EQ(state(id), "running");
    ASSERT_TRUE(show(id).contains("warnings"));
    EXPECT_EQ(show(id)["warnings"].size(), 1U);
    EXPECT_THAT(show(id)["warnings"][0].get<std::string>(),
                HasSubstr("Slurm job 17 lost a node; its ranks are heard and go on"));
    context_->settings.keep_on_node_fail = false;
    until([&] { return agents[0].peer->last<wire::Stop>() != nullptr; }, "STOP");
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "node_lost");
}

TEST_F(ControlSlurmTest, RanksThatOutliveAnAllocationThatHasEndedOtherwiseAreEnded) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    ended(CauseClass::preempted, "Slurm job 17 was preempted");
    for (int i = 0; i < 2; ++i) {
        const auto before = scheduler_.polls;
        until([&] { return scheduler_.polls > before + 1; }, "two looks");
        EXPECT_EQ(agents[0].peer->last<wire::Stop>(), nullptr) << "they have their time to go";
        clock_.advance(limits::kAgentLost / 2);
        for (TestAgent& agent : agents) {
            agent.say(wire::Beat{});
        }
    }
    until([&] { return agents[0].peer->last<wire::Stop>() != nullptr; }, "STOP");
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "preempted");
}

TEST_F(ControlSlurmTest, WhenAnAttemptEndedIsKnownInThisDaemonsLifeAndInTheNext) {
    const auto end_of = [&](const std::string& id) {
        Result<UnixMillis> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            JobId job{id};
            out = co_await control_->end_of(std::move(job), 1);
        };
        wait(run());
        return out;
    };
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    const std::string over = submit()->id;
    until([&] { return state(over) == "cancelled"; }, "cancelled");
    scheduler_.seen.state = AllocationState::pending;
    const std::string waits = submit()->id;
    until([&] { return scheduler_id(waits) == "17"; }, "handed over");
    EXPECT_EQ(end_of(over).value_or(-1), clock_.wall());
    EXPECT_EQ(end_of(waits).value_or(-1), 0);
    EXPECT_EQ(end_of("ls-01J0000000000000000000000A").error().code, Errc::not_found);
    shut_down();
    boot();
    EXPECT_EQ(end_of(over).value_or(-1), clock_.wall());
    EXPECT_EQ(end_of(waits).value_or(-1), 0);
}

TEST_F(ControlSlurmTest, WhatSlurmStillEndsIsSaidOfAJobThatIsOver) {
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    const std::string id = submit()->id;
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_FALSE(show(id).contains("pending_reason"));
    scheduler_.left = "n4";
    EXPECT_EQ(show(id)["pending_reason"], "waits for Slurm to end node n4");
    scheduler_.left = "";
    EXPECT_EQ(show(id)["pending_reason"], "waits for Slurm to end its job");
    scheduler_.left.reset();
    EXPECT_FALSE(show(id).contains("pending_reason"));
}

}  // namespace
}  // namespace lockstep
