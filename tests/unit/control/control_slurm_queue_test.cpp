// An attempt until its agents call in: handed over, sought, held, refused, a second copy of itself.
#include "scheduler-integration/slurm/slurm_attempt.hpp"
#include "tests/support/log_lines.hpp"
#include "tests/unit/control/control_slurm_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ControlSlurmTest, AnIntentIsStoredBeforeTheSchedulerIsAsked) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.seen.reason = "the nodes it needs are busy";
    const std::string id = submit()->id;
    until([&] { return show(id).value("pending_reason", "") == "the nodes it needs are busy"; },
          "it waits in the queue");
    EXPECT_THAT(kinds(id), ElementsAre("submitted", "attempt_created", "attempt_submitting",
                                       "attempt_submitted"));
    EXPECT_EQ(scheduler_.submissions, 1);
    EXPECT_GT(scheduler_.last.intent_at, 0);
    EXPECT_EQ(scheduler_id(id), "17");
}

TEST_F(ControlSlurmTest, AfterARestartAnIntentWithoutAnIdIsLookedForAndNotRepeated) {
    scheduler_.handover.kind = Handover::Kind::wait;  // the daemon dies before it hears of the id
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    shut_down();
    scheduler_.seen.state = AllocationState::pending;
    boot();
    until([&] { return show(id).value("pending_reason", "") == "looking for it"; }, "it is sought");
    EXPECT_EQ(scheduler_.submissions, 1);
    scheduler_.unsure = Handover::Kind::placed;
    until([&] { return scheduler_id(id) == "17"; }, "adopted");
    EXPECT_EQ(scheduler_.submissions, 1);
}

TEST_F(ControlSlurmTest, AJobThatTheSchedulerForgotIsHandedOverUnderANewIntent) {
    scheduler_.seen.state = AllocationState::pending;
    const std::string id = submit()->id;
    until([&] { return scheduler_id(id) == "17"; }, "placed");
    scheduler_.seen.kind = Observation::Kind::absent;
    scheduler_.unsure = Handover::Kind::again;
    scheduler_.handover.id = "18";
    until([&] { return scheduler_.submissions == 2; }, "handed over again");
    scheduler_.seen.kind = Observation::Kind::state;
    until([&] { return scheduler_id(id) == "18"; }, "new id");
    EXPECT_THAT(kinds(id),
                ElementsAre("submitted", "attempt_created", "attempt_submitting",
                            "attempt_submitted", "attempt_submitting", "attempt_submitted"));
}

// It was asked for at each look and never submitted: the intent had no place in "held".
TEST_F(ControlSlurmTest, AHeldJobThatTheSchedulerForgotIsHandedOverUnderANewIntent) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.seen.held = true;
    scheduler_.seen.reason = "held by an administrator";
    const std::string id = submit()->id;
    until([&] { return state(id) == "held"; }, "held");
    scheduler_.seen.held = false;
    scheduler_.seen.kind = Observation::Kind::absent;
    scheduler_.unsure = Handover::Kind::again;
    scheduler_.handover.id = "18";
    until([&] { return scheduler_.submissions == 2; }, "handed over again");
    scheduler_.seen.kind = Observation::Kind::state;
    until([&] { return scheduler_id(id) == "18"; }, "new id");
    EXPECT_EQ(state(id), "queued");
    EXPECT_THAT(kinds(id), ElementsAre("submitted", "attempt_created", "attempt_submitting",
                                       "attempt_submitted", "held", "attempt_submitting",
                                       "attempt_submitted"));
}

TEST_F(ControlSlurmTest, ARefusalEndsTheJobWithTheSchedulersWords) {
    scheduler_.handover = {Handover::Kind::refused, "", "Invalid account"};
    const std::string id = submit()->id;
    scheduler_.seen.kind = Observation::Kind::absent;
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "scheduler");
    EXPECT_EQ(show(id)["cause"]["message"], "Invalid account");
}

// The journal had a line for a job only once something was wrong with it, and one that failed was
// as loud as one that succeeded.
TEST_F(ControlSlurmTest, TheLogSaysOfAJobWhoSubmittedAndCancelledItAndWarnsOfOneThatFailed) {
    const test::LogLines log;
    scheduler_.seen.state = AllocationState::pending;
    const std::string id = submit()->id;
    until([&] { return scheduler_id(id) == "17"; }, "placed");
    EXPECT_THAT(log.text(),
                HasSubstr("level=info msg=\"job submitted\" job=" + id + " name=t user=ada\n"));
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id); };
    wait(cancel());
    EXPECT_THAT(log.text(), HasSubstr("level=info msg=\"cancel requested\" job=" + id +
                                      " user=ada slurm_job_id=17\n"));
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_THAT(log.text(),
                HasSubstr("level=info msg=\"job finished\" job=" + id + " state=cancelled"));

    scheduler_.handover = {Handover::Kind::refused, "", "Invalid account", ""};
    scheduler_.seen.kind = Observation::Kind::absent;
    const std::string bad = submit()->id;
    until([&] { return state(bad) == "failed"; }, "failed");
    EXPECT_THAT(log.text(),
                HasSubstr("level=warn msg=\"job finished\" job=" + bad + " state=failed"));
}

TEST_F(ControlSlurmTest, AJobIsHeldAndReleasedAsTheSchedulerSays) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.seen.held = true;
    scheduler_.seen.reason = "held by an administrator";
    scheduler_.seen.expected_start = 1'800'000'000'000;
    const std::string id = submit()->id;
    until([&] { return state(id) == "held"; }, "held");
    EXPECT_EQ(show(id)["pending_reason"], "held by an administrator");
    EXPECT_EQ(show(id)["expected_start"], "2027-01-15T08:00:00.000Z");
    const std::string series =
        "\nlockstep_job_start_estimate_timestamp_seconds{job_id=\"" + id + "\"} 1800000000\n";
    EXPECT_THAT(metrics_text(), HasSubstr(series));
    EXPECT_THAT(metrics_text({"bob", false, true}), Not(HasSubstr(id))) << "it is ada's";
    scheduler_.seen.held = false;
    until([&] { return state(id) == "queued"; }, "released");
}

// It was taken for one that runs, and failed after five minutes: none of its nodes had called in.
TEST_F(ControlSlurmTest, AJobInAStateThatNobodyKnowsWaitsUntilItsAgentsCallIn) {
    SlurmAttempt attempt;
    attempt.id = 17;
    attempt.stage = SlurmAttempt::Stage::known;
    attempt.seen.emplace();
    attempt.seen->id = 17;
    attempt.seen->state = parse_slurm_state("FROBNICATED");
    attempt.last_verdict = attempt.seen->verdict();
    scheduler_.seen = observe(attempt, true, "");
    const std::string words = "Slurm calls its state FROBNICATED, which Lockstep does not know";
    const std::string id = submit()->id;
    until([&] { return show(id).value("pending_reason", "") == words; }, "it waits");
    clock_.advance(2 * limits::kGatherTimeout);
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    EXPECT_EQ(state(id), "queued");
    EXPECT_FALSE(happened(id, "attempt_placed"));
    TestAgent first = hello_from(0, "17");
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(state(id), "starting");
    EXPECT_EQ(scheduler_.cancels, 0);
}

TEST_F(ControlSlurmTest, AnAllocationThatEndsInTheQueueIsTheCause) {
    ended(CauseClass::cancelled_by_user, "Slurm job 17 was cancelled outside Lockstep");
    const std::string id = submit()->id;
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_EQ(show(id)["cause"]["message"], "Slurm job 17 was cancelled outside Lockstep");
}

TEST_F(ControlSlurmTest, AnAllocationThatStartsAndEndsBeforeAnyAgentCameIsTheCauseToo) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "placed");
    ended(CauseClass::scheduler, "Slurm job 17 failed (exit code 127)");
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "scheduler");
    EXPECT_EQ(show(id)["cause"]["message"], "Slurm job 17 failed (exit code 127)");
}

TEST_F(ControlSlurmTest, ASecondCopyOfAnAttemptIsFencedAndTheSchedulerIsToldWhichStays) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    TestAgent first = hello_from(0, "18");  // not the acknowledged one: it was first all the same
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(scheduler_.claimed_by, "18");
    TestAgent other = hello_from(1, "17");
    until([&] { return other.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_THAT(other.peer->last<wire::Fenced>()->message, HasSubstr("runs in allocation 18"));
    EXPECT_EQ(scheduler_id(id), "18");
}

// Seen beside compilers: both copies had started when Slurm was asked, which told of the other one.
TEST_F(ControlSlurmTest, TheCopyThatCallsInFirstIsNamedAlsoOnceTheOtherWasSeenToRun) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "17 is placed");
    TestAgent first = hello_from(0, "18");
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(scheduler_id(id), "18");
}

// Its agents were told to stop and ended well: Slurm showed a job that had run nothing as
// COMPLETED.
TEST_F(ControlSlurmTest, ACopyThatStartsWhenTheJobIsOverIsFenced) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    agents[0].say(exit(1, 0, 0));
    agents[1].say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    TestAgent late = hello_from(0, "18");
    until([&] { return late.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_EQ(late.peer->last<wire::Fenced>()->message,
              "the job is over; it ran in allocation 17, this is 18");
    TestAgent again = hello_from(0, "17");
    until([&] { return again.peer->last<wire::Stop>() != nullptr; }, "STOP");
    EXPECT_EQ(again.peer->last<wire::Fenced>(), nullptr) << "it delivers what it still has";
}

// It would have the attempt for the moment that its end takes, and the copy that stays would be
// ended for it.
TEST_F(ControlSlurmTest, ACopyThatIsBeingEndedDoesNotGetTheAttemptByCallingInFirst) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    scheduler_.surplus = "18";
    TestAgent ended = hello_from(0, "18");
    until([&] { return ended.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_THAT(ended.peer->last<wire::Fenced>()->message,
                HasSubstr("allocation 18 is a second copy of attempt 1 and is being ended"));
    EXPECT_FALSE(happened(id, "agent_claimed"));
    TestAgent kept = hello_from(0, "17");
    until([&] { return kept.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(scheduler_.claimed_by, "17");
}

TEST_F(ControlSlurmTest, WhatIsSaidOfAHandoverIsAWarningOnce) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.handover.warning = "it may run on n1 again";
    const std::string id = submit()->id;
    until([&] { return show(id).contains("warnings"); }, "warned");
    const auto looked = scheduler_.polls;
    until([&] { return scheduler_.polls > looked + 2; }, "three looks");
    EXPECT_EQ(show(id)["warnings"], Json::array({"it may run on n1 again"}));
}

// A suspension of hours is no interval between two reports: a hang was seen after three times that.
TEST_F(ControlSlurmTest, TheGapOfASuspensionIsNoIntervalBetweenReportsNorAfterARestart) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    auto report = [&, seq = std::uint64_t{0}]() mutable {
        Batch rows;
        rows.seq = ++seq;
        rows.generation = 1;
        for (int row = 0; row < 2; ++row) {
            clock_.advance(std::chrono::seconds{5});
            rows.add_row(0, static_cast<std::int64_t>(2 * seq) + row,
                         static_cast<double>(clock_.wall()) / 1000);
            rows.set("loss", 0.5);
        }
        agents[0].session->on_binary(encode_batch(rows));
        until(
            [&] {
                const auto* ack = agents[0].peer->last<wire::Ack>();
                return ack != nullptr && ack->batch == seq;
            },
            "kept");
    };
    const auto interval = [&] { return context_->series.find(id)->rank(0).interval().value_or(0); };
    report();
    const double usual = interval();
    EXPECT_NEAR(usual, 5, 0.1);
    scheduler_.seen.paused = true;
    scheduler_.seen.message = "Slurm job 17 is suspended: its ranks do not move";
    until([&] { return happened(id, "suspended"); }, "it is on disk");
    clock_.advance(std::chrono::hours{3});
    scheduler_.seen.paused = false;
    until([&] { return told(id, "not suspended any more"); }, "it goes on");
    report();
    EXPECT_NEAR(interval(), 5, 0.1);
    shut_down();
    boot();
    until([&] { return context_->series.find(id) != nullptr; }, "what was kept is read back");
    until([&] { return context_->series.find(id)->rank(0).reports() == 4; }, "all of it");
    EXPECT_NEAR(interval(), 5, 0.1);
}

// Nodes that stand still cannot meet: LockstepRendezvousStuck rang.
TEST_F(ControlSlurmTest, NodesOfASuspendedJobHaveNotBeenMeetingAllTheTime) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    TestAgent first = hello_from(0, "17");
    until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    first.say(wire::Join{"127.0.0.1", 5000, 1, 0, 0});
    const auto age = [&] {
        const std::string line = "\nlockstep_rendezvous_age_seconds{job_id=\"" + id + "\"} ";
        const std::string text = metrics_text();
        const auto at = text.find(line);
        return at == std::string::npos ? -1.0 : std::stod(text.substr(at + line.size()));
    };
    clock_.advance(std::chrono::seconds{20});
    EXPECT_GE(age(), 20);
    scheduler_.seen.paused = true;
    scheduler_.seen.message = "Slurm job 17 is suspended: its ranks do not move";
    until([&] { return happened(id, "suspended"); }, "it is on disk");
    clock_.advance(std::chrono::seconds{200});
    EXPECT_EQ(age(), 0);
    scheduler_.seen.paused = false;
    until([&] { return told(id, "not suspended any more"); }, "it goes on");
    clock_.advance(std::chrono::seconds{10});
    EXPECT_EQ(age(), 10);
}

}  // namespace
}  // namespace lockstep
