// A node's machine: orders of the daemon in, what is to be done out. That the rules of fencing are
// enough is the simulation's matter (tests/unit/control/rendezvous_simulation_test.cpp).
#include "job/agent/machine/node_machine.hpp"

#include "job/agent/machine/start_cause.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class NodeMachineTest : public testing::Test {
  protected:
    NodeEffects take(NodeInput input) {
        now_.steady += std::chrono::milliseconds{1};
        return machine_.take(input, now_);
    }
    NodeEffects welcome(std::int32_t generation = 0, bool fixed = true) {
        node_input::Welcomed input;
        input.daemon = "d1";
        input.generation = generation;
        input.job = NodeJob{};
        input.job->fixed = fixed;
        return take(std::move(input));
    }
    static wire::World world(std::int32_t generation, std::string table = "") {
        wire::World out;
        out.generation = generation;
        out.local_ranks = 1;
        out.nodes = 1;
        out.table = std::move(table);
        return out;
    }
    // Ranks of the generation run.
    void run(std::int32_t generation) {
        take(world(generation));
        take(node_input::RanksPrepared{});
        take(wire::Start{generation});
        take(node_input::RanksStarted{generation, {{0, 100}}});
        ASSERT_TRUE(machine_.ranks_run());
    }
    std::int32_t joined() {
        for (const NodeEffect& effect : take(node_input::PortsHeld{})) {
            if (const auto* last = std::get_if<node_effect::SendLast>(&effect)) {
                return last->join.generation;
            }
        }
        return -1;
    }
    template <class E>
    static int count(const NodeEffects& effects) {
        int out = 0;
        for (const NodeEffect& effect : effects) {
            out += std::holds_alternative<E>(effect) ? 1 : 0;
        }
        return out;
    }
    template <class M>
    static int said(const NodeEffects& effects) {
        int out = 0;
        for (const NodeEffect& effect : effects) {
            if (const auto* send = std::get_if<node_effect::Send>(&effect)) {
                out += std::holds_alternative<M>(send->message) ? 1 : 0;
            } else if (const auto* report = std::get_if<node_effect::Report>(&effect)) {
                std::visit(
                    [&](const auto& one) {
                        out += std::is_same_v<std::decay_t<decltype(one)>, M> ? 1 : 0;
                    },
                    report->event);
            }
        }
        return out;
    }

    NodeTime now_{std::chrono::steady_clock::time_point{std::chrono::hours{1}}, 1'700'000'000'000};
    NodeMachine machine_{"i1", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
};

TEST_F(NodeMachineTest, JoinsIsReadyAndStartsWhenItIsToldTo) {
    EXPECT_EQ(count<node_effect::HoldPorts>(welcome()), 1);
    EXPECT_EQ(joined(), 0);
    const NodeEffects prepares = take(world(1));
    EXPECT_EQ(count<node_effect::BeginGeneration>(prepares), 1);
    EXPECT_EQ(count<node_effect::PrepareRanks>(prepares), 1);
    EXPECT_EQ(said<wire::Ready>(take(node_input::RanksPrepared{})), 1);
    EXPECT_EQ(count<node_effect::StartRanks>(take(wire::Start{1})), 1);
    EXPECT_EQ(said<wire::Started>(take(node_input::RanksStarted{1, {{0, 100}}})), 1);
}

TEST_F(NodeMachineTest, WithoutPortsThereIsNoJoin) {
    welcome();
    EXPECT_TRUE(take(node_input::PortsMissing{"none is free"}).empty());
}

TEST_F(NodeMachineTest, JoinDoesNotSayThatRanksAreOverWhichLive) {
    welcome();
    run(1);
    EXPECT_EQ(count<node_effect::HoldPorts>(welcome(2)), 1);
    EXPECT_EQ(joined(), 0);
}

TEST_F(NodeMachineTest, AbortIsAnsweredWithDoneAndJoinOnceTheRanksHaveEnded) {
    welcome();
    run(1);
    const NodeEffects aborts = take(wire::Abort{1, "a failure", 700});
    EXPECT_EQ(count<node_effect::HoldPorts>(aborts), 0);
    EXPECT_EQ(said<wire::Done>(aborts), 0);
    ASSERT_EQ(count<node_effect::StopRanks>(aborts), 1);
    const NodeEffects ended = take(node_input::RanksEnded{});
    EXPECT_EQ(said<wire::Done>(ended), 1);
    EXPECT_EQ(count<node_effect::SaveResult>(ended), 1);
    EXPECT_EQ(count<node_effect::HoldPorts>(ended), 1);
    EXPECT_EQ(joined(), 1);
}

TEST_F(NodeMachineTest, AnAbortOfAnotherGenerationIsNotObeyed) {
    welcome();
    run(2);
    EXPECT_TRUE(take(wire::Abort{1, "late", 0}).empty());
    EXPECT_TRUE(machine_.ranks_run());
}

TEST_F(NodeMachineTest, AWorldThatWaitsForTheSetupIsForgottenWithItsConnection) {
    take(node_input::SetupBegun{});
    welcome();
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(world(1))), 0);
    take(node_input::Disconnected{});
    EXPECT_EQ(count<node_effect::HoldPorts>(welcome(1)), 1);
    EXPECT_EQ(joined(), 0);
    // The daemon has what JOIN says, and sends the WORLD again if its generation still lives.
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(node_input::SetupEnded{})), 0);
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(world(1))), 1);
}

TEST_F(NodeMachineTest, AWorldThatWaitedForItsTableIsNotPreparedBesideItsRanks) {
    welcome();
    take(world(1));
    take(node_input::RanksPrepared{});
    EXPECT_EQ(said<wire::TableRequest>(take(world(1, "digest"))), 1);
    take(wire::Start{1});
    take(node_input::RanksStarted{1, {{0, 100}}});
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(wire::Table{"digest", {"h"}, {}, {}})), 0);
    EXPECT_TRUE(machine_.ranks_run());
}

TEST_F(NodeMachineTest, ANewerWorldWaitsForTheEndOfTheRanksThatItReplaces) {
    welcome();
    run(1);
    const NodeEffects effects = take(world(2));
    EXPECT_EQ(count<node_effect::PrepareRanks>(effects), 0);
    EXPECT_EQ(count<node_effect::StopRanks>(effects), 1);
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(node_input::RanksEnded{})), 1);
    EXPECT_EQ(machine_.generation(), 2);
    EXPECT_TRUE(machine_.started().empty());
}

// It would be READY for what is over, and nobody would say ABORT again (seed 91,928 of the
// simulation).
// The ABORT of the first generation was lost with its connection.
TEST_F(NodeMachineTest, AnOlderWorldIsIgnoredThoughItsGenerationWasNeverAborted) {
    welcome();
    run(1);
    take(world(2));
    take(node_input::RanksEnded{});
    take(node_input::RanksPrepared{});
    take(wire::Start{2});
    take(node_input::RanksStarted{2, {{0, 200}}});
    ASSERT_TRUE(machine_.ranks_run());
    EXPECT_TRUE(take(world(1)).empty());
    EXPECT_EQ(count<node_effect::BeginGeneration>(take(node_input::RanksEnded{})), 0);
}

TEST_F(NodeMachineTest, AWorldThatWaitedAndWasAbortedIsNotPreparedWhenItComesAgain) {
    welcome();
    take(node_input::SetupBegun{});
    take(world(1));
    EXPECT_EQ(count<node_effect::HoldPorts>(take(wire::Abort{1, "a failure", 0})), 1);
    take(world(1));
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(node_input::SetupEnded{})), 0);
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(world(1))), 0);
    EXPECT_EQ(count<node_effect::PrepareRanks>(take(world(2))), 1);
}

TEST_F(NodeMachineTest, AWorldThatIsAbortedWhileTheRanksBeforeEndIsNotPrepared) {
    welcome();
    run(1);
    take(world(2));
    take(wire::Abort{2, "a failure", 0});
    const NodeEffects ended = take(node_input::RanksEnded{});
    EXPECT_EQ(count<node_effect::PrepareRanks>(ended), 0);
    EXPECT_EQ(count<node_effect::HoldPorts>(ended), 1);
}

// The driver answers behind all effects of an input: BeginGeneration, which removes the file, too.
TEST_F(NodeMachineTest, TheResultOfAGenerationIsNoResultOfTheNext) {
    welcome();
    run(1);
    take(world(2));
    EXPECT_EQ(count<node_effect::SaveResult>(take(node_input::RanksEnded{})), 1);
    take(node_input::ResultSaved{1});
    take(node_input::RanksPrepared{});
    take(node_input::ShutDown{});
    EXPECT_EQ(count<node_effect::SaveResult>(take(node_input::LeavingBegun{})), 1);
}

TEST_F(NodeMachineTest, RanksAreNotTakenForThoseOfTheNextGeneration) {
    welcome();
    take(world(1));
    take(node_input::RanksPrepared{});
    take(wire::Start{1});
    take(world(2));
    take(node_input::RanksEnded{});  // the last of srun's tasks had ended when it came
    EXPECT_TRUE(take(node_input::RanksStarted{1, {{0, 100}}}).empty());
    EXPECT_TRUE(machine_.started().empty());
}

TEST_F(NodeMachineTest, RanksThatCannotBePreparedAreAFaultAndAResult) {
    welcome();
    take(world(1));
    const NodeEffects effects = take(node_input::RanksPrepared{"no such program"});
    EXPECT_EQ(said<wire::Fault>(effects), 1);
    EXPECT_EQ(said<wire::Done>(effects), 1);
    EXPECT_EQ(count<node_effect::SaveResult>(effects), 1);
    EXPECT_EQ(said<wire::Ready>(effects), 0);
}

// A node without room for its ranks' logs ended the job as its user's error: no restart, no spare,
// no other attempt.
TEST_F(NodeMachineTest, ANodesOwnTroubleWithItsRanksIsNotTheJobsError) {
    const auto said_cause = [&](const Error& error) {
        machine_ = NodeMachine{"i1", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
        welcome();
        take(world(1));
        for (const NodeEffect& effect :
             take(node_input::RanksPrepared{error.message, cause_of_start(error)})) {
            const auto* report = std::get_if<node_effect::Report>(&effect);
            const auto* fault =
                report == nullptr ? nullptr : std::get_if<wire::Fault>(&report->event);
            if (fault != nullptr) {
                return fault->cause_class;
            }
        }
        return std::string{};
    };
    for (const int number : {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN, EIO, ESTALE}) {
        EXPECT_EQ(said_cause(errno_error("open", number)), "node_lost") << number;
    }
    EXPECT_EQ(said_cause({Errc::conflict, "the master port is not held"}), "node_lost");
    EXPECT_EQ(said_cause(errno_error("open", ENOENT)), "user_error");
    EXPECT_EQ(said_cause(errno_error("open", EACCES)), "user_error");
    EXPECT_EQ(said_cause({Errc::invalid, "the command is empty"}), "user_error");
}

TEST_F(NodeMachineTest, LeavesWhenAllWasAcknowledgedAndAtTheLatestAfterItsTime) {
    welcome();
    EXPECT_EQ(count<node_effect::Leave>(take(node_input::ShutDown{{}, "SIGTERM"})), 1);
    EXPECT_EQ(said<wire::Bye>(take(node_input::LeavingBegun{})), 1);
    EXPECT_TRUE(take(node_input::LeavingLook{false}).empty());
    EXPECT_EQ(count<node_effect::Exit>(take(node_input::LeavingLook{true})), 1);

    NodeMachine late{"i2", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
    late.take(node_input::ShutDown{}, now_);
    now_.steady += std::chrono::seconds{5};
    EXPECT_EQ(count<node_effect::Exit>(late.take(node_input::LeavingLook{false}, now_)), 1);
}

// How the agent leaves after what it was told, its ranks having run.
class NodeMachineEnd : public NodeMachineTest {
  protected:
    NodeEffects leave(NodeInput told, bool fixed = true) {
        machine_ = NodeMachine{"i1", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
        welcome(0, fixed);
        run(1);
        take(std::move(told));
        take(node_input::RanksEnded{});
        return take(node_input::LeavingLook{true});
    }
    static int code(const NodeEffects& effects) {
        return effects.empty() ? -1 : std::get<node_effect::Exit>(effects.back()).code;
    }
};

// Slurm showed a job that had failed as COMPLETED: no --mail-type=FAIL, and afterok went on.
TEST_F(NodeMachineEnd, TheExitCodeIsWhatTheAttemptHasComeTo) {
    EXPECT_EQ(code(leave(wire::Stop{"over", 0, "succeeded"})), 0);
    EXPECT_EQ(code(leave(wire::Stop{"over", 0, "failed"})), kAgentFailed);
    EXPECT_EQ(code(leave(wire::Stop{"over", 0, "cancelled"})), kAgentCancelled);
    EXPECT_EQ(code(leave(wire::Stop{"over", 0})), 0) << "an older lockstepd does not say";
}

TEST_F(NodeMachineEnd, ToldToEndFromOutsideItHasFailedUnlessTheOthersMayGoOn) {
    EXPECT_EQ(code(leave(node_input::ShutDown{{}, "SIGTERM"})), kAgentFailed);
    EXPECT_EQ(code(leave(node_input::ShutDown{{}, "SIGTERM"}, false)), 0);
    NodeMachine idle{"i2", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
    idle.take(node_input::ShutDown{}, now_);
    EXPECT_EQ(code(idle.take(node_input::LeavingLook{true}, now_)), 0) << "it had no ranks";
}

TEST_F(NodeMachineEnd, OnlyWhereAnAgentMayBeLostOnTheWayIsTheOutcomeWrittenDown) {
    EXPECT_EQ(count<node_effect::SaveOutcome>(leave(wire::Stop{"over", 0, "succeeded"}, false)), 1);
    EXPECT_EQ(count<node_effect::SaveOutcome>(leave(wire::Stop{"over", 0, "succeeded"})), 0);
    EXPECT_EQ(count<node_effect::SaveOutcome>(leave(wire::Stop{"over", 0, "cancelled"}, false)), 1);
    EXPECT_EQ(count<node_effect::SaveOutcome>(leave(wire::Stop{"over", 0, "failed"}, false)), 0);
}

TEST_F(NodeMachineEnd, OneThatIsFencedWhileItLeavesEndsAsItWasToldBefore) {
    welcome();
    run(1);
    take(wire::Stop{"over", 0, "failed"});
    take(node_input::RanksEnded{});
    EXPECT_EQ(code(take(wire::Fenced{1, "the attempt is over"})), kAgentFailed);
}

TEST_F(NodeMachineEnd, AnOrphanEndsAsItsRanksDid) {
    const auto ends = [&](std::int32_t exit_code) {
        machine_ = NodeMachine{"i1", {std::chrono::seconds{10}, std::chrono::seconds{5}}};
        welcome();
        run(1);
        wire::Exited exited;
        exited.generation = 1;
        exited.exit_code = exit_code;
        take(node_input::RankExited{exited});
        take(node_input::RanksEnded{});
        take(node_input::ResultSaved{1});
        return code(take(node_input::Orphaned{"nobody"}));
    };
    EXPECT_EQ(ends(0), 0);
    EXPECT_EQ(ends(3), kAgentFailed);
}

TEST_F(NodeMachineTest, AFencedNodeKillsItsRanksAndGoesOnceTheyHaveEnded) {
    welcome();
    run(1);
    EXPECT_EQ(count<node_effect::StopRanks>(take(wire::Fenced{1, "superseded"})), 1);
    EXPECT_TRUE(take(node_input::LeavingLook{true}).empty());
    take(node_input::RanksEnded{});
    const NodeEffects effects = take(node_input::LeavingLook{false});
    ASSERT_EQ(effects.size(), 1U);
    EXPECT_EQ(std::get<node_effect::Exit>(effects.front()).code, kAgentFenced);
}

TEST_F(NodeMachineTest, AWarningIsSaidOncePerGeneration) {
    welcome();
    run(1);
    EXPECT_EQ(said<wire::Warned>(take(node_input::WarningSeen{0, "w"})), 1);
    EXPECT_EQ(said<wire::Warned>(take(node_input::WarningSeen{1, "w"})), 0);
    take(node_input::RanksEnded{});
    run(2);
    EXPECT_EQ(said<wire::Warned>(take(node_input::WarningSeen{0, "w"})), 1);
}

}  // namespace
}  // namespace lockstep
