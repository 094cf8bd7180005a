// What the scheduler's word on an end goes before, and what not.
#include "tests/unit/control/control_slurm_fixture.hpp"

#include <gmock/gmock.h>

#include <csignal>

namespace lockstep {
namespace {

class SlurmVerdictTest : public ControlSlurmTest {
  protected:
    // Both ranks, by themselves; each agent is told to stop.
    void all_exit(std::vector<TestAgent>& agents, int code) {
        for (const std::int32_t rank : {0, 1}) {
            agents[static_cast<std::size_t>(rank)].say(exit(1, rank, code));
        }
        for (const TestAgent& agent : agents) {
            until([&] { return agent.peer->last<wire::Stop>() != nullptr; }, "STOP");
        }
    }
    // What Slurm says of a job whose ranks failed.
    void ended_as_failed() {
        scheduler_.seen.state = AllocationState::ended;
        scheduler_.seen.message = "Slurm job 17 failed";
    }
    static void go(std::vector<TestAgent>& agents) {
        for (const TestAgent& agent : agents) {
            agent.session->on_closed();
        }
    }
};

// Its handler of SIGTERM had ended it before its agent had read its own SIGTERM.
TEST_F(SlurmVerdictTest, ATimeLimitGoesBeforeTheCodeOfARanksHandler) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    agents[0].say(exit(1, 0, 1));
    until([&] { return agents[1].peer->last<wire::Stop>() != nullptr; }, "STOP");
    ended(CauseClass::time_limit, "Slurm job 17 ran out of its time limit");
    go(agents);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "time_limit") << show(id)["cause"];
    EXPECT_EQ(show(id)["cause"]["rank"], 0);
}

// Which Slurm does not call a TIMEOUT: the job was over before its limit.
TEST_F(SlurmVerdictTest, AnExceptionBeforeTheLimitStaysTheRanks) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    agents[0].say(exit(1, 0, 1));
    until([&] { return agents[1].peer->last<wire::Stop>() != nullptr; }, "STOP");
    ended_as_failed();
    go(agents);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "rank_exit") << show(id)["cause"];
}

// Nor does what ended the rank long before the scheduler ended the allocation come of that.
TEST_F(SlurmVerdictTest, AnEndLongAfterTheRanksIsNotWhyTheyFailed) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    agents[0].say(exit(1, 0, 1));
    until([&] { return agents[1].peer->last<wire::Stop>() != nullptr; }, "STOP");
    clock_.advance(std::chrono::minutes{5});
    ended(CauseClass::time_limit, "Slurm job 17 ran out of its time limit");
    go(agents);
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "rank_exit") << show(id)["cause"];
}

// A job whose only rank a shell, or Slurm, said to be killed was shown as running for a minute
// more: its agents held the allocation whose end was waited for.
TEST_F(SlurmVerdictTest, WhereTheSchedulersWordIsWaitedForTheAgentsLeave) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    all_exit(agents, 128 + SIGKILL);
    for (const TestAgent& agent : agents) {
        EXPECT_EQ(agent.peer->last<wire::Stop>()->outcome, "failed");
    }
    EXPECT_EQ(state(id), "running") << "the end of the allocation is waited for";
    ended_as_failed();
    until([&] { return state(id) == "failed"; }, "failed, with no time gone by");
    EXPECT_EQ(show(id)["cause"]["class"], "rank_exit") << show(id)["cause"];
}

// Its ranks' handlers of SIGTERM had all ended them before an agent had read its own: the job had
// failed by its ranks, and was not taken up again.
TEST_F(SlurmVerdictTest, RanksThatEndAsTheirNodesAreTakenBackAreRecoveredFrom) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents, R"(},"recovery":{"on":["preemption"]},"labels":{)");
    all_exit(agents, 1);
    EXPECT_EQ(state(id), "running") << "the scheduler's word is waited for";
    ended(CauseClass::preempted, "Slurm job 17 was preempted");
    go(agents);
    until([&] { return show(id)["attempts"].size() > 1; }, "another attempt");
    EXPECT_EQ(show(id)["attempts"][0]["cause"]["class"], "preempted") << show(id)["attempts"];
}

TEST_F(SlurmVerdictTest, RanksThatFailByThemselvesEndTheJobThatOnlyPreemptionRecovers) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents, R"(},"recovery":{"on":["preemption"]},"labels":{)");
    all_exit(agents, 1);
    ended_as_failed();
    go(agents);
    until([&] { return state(id) == "failed"; }, "failed, with no time gone by");
    EXPECT_EQ(show(id)["cause"]["class"], "rank_exit") << show(id)["cause"];
}

TEST_F(SlurmVerdictTest, ANodeThatSlurmNamesIsLostThoughAnotherWasMissedFirst) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    ended(CauseClass::node_lost, "Slurm job 17 lost a node: n1 (down)");
    scheduler_.seen.cause.node = "n1";
    scheduler_.seen.nodes = {"n0", "n1"};
    go(agents);
    clock_.advance(limits::kStopGrace * 2);
    until([&] { return state(id) == "failed"; }, "failed");
    const Json job = show(id);
    EXPECT_EQ(job["cause"]["class"], "node_lost");
    EXPECT_EQ(job["cause"]["node"], "n1") << job["cause"];
    EXPECT_EQ(job["attempts"][0]["lost_nodes"], Json::array({"n1"}));
}

TEST_F(SlurmVerdictTest, ASigtermToAJobThatSlurmHasLostIsNobodysCancel) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.seen.kind = Observation::Kind::absent;
    scheduler_.seen.lost = true;
    scheduler_.seen.message = "Slurm has lost job 17, whose number is another job's now";
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        wire::Exited out = exit(1, rank, -1);
        out.signal = SIGTERM;
        agents[static_cast<std::size_t>(rank)].say(out);
    }
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["message"],
              "rank 0 on n0 was ended by SIGTERM that Lockstep did not send: Slurm has lost job "
              "17, whose number is another job's now");
}

TEST_F(SlurmVerdictTest, WhatIsBeingEndedSaysSoWhileItsRanksAreHeard) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    scheduler_.seen.ending = "n1";
    scheduler_.seen.message = "Slurm job 17 lost a node; Slurm is asked once more";
    until([&] { return show(id).contains("pending_reason"); }, "it is told");
    EXPECT_EQ(show(id)["pending_reason"], scheduler_.seen.message);
    scheduler_.seen.ending.clear();
    until([&] { return !show(id).contains("pending_reason"); }, "it is not any more");
    EXPECT_EQ(state(id), "running");
}

// Allocations that the scheduler takes away are asked for again, and the class of a deadline is
// its.
TEST_F(SlurmVerdictTest, AJobThatIsOverItsDeadlineBeforeStartIsNotHandedInAgain) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "placed");
    TestAgent agent = hello_from(0, "17");
    until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    scheduler_.seen.accident.emplace();
    scheduler_.seen.accident->kind = CauseClass::user_error;
    scheduler_.seen.accident->message =
        "Slurm job 17 was over its deadline before its ranks had started";
    ended(CauseClass::scheduler, "Slurm job 17 was over its deadline");
    agent.session->on_closed();
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
    EXPECT_EQ(show(id)["cause"]["class"], "user_error");
    EXPECT_EQ(show(id)["cause"]["message"],
              "Slurm job 17 was over its deadline before its ranks had started");
}

}  // namespace
}  // namespace lockstep
