// What Slurm's rows say about an attempt.
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SlurmAttempt, OfTwoCopiesTheOlderStaysAndTheOtherIsSurplus) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    take_rows(one, {row(19, "PENDING"), row(18, "PENDING")}, kStart + 1s, kPatience);
    EXPECT_EQ(one.id, 18);
    EXPECT_THAT(one.surplus, ElementsAre(19));
    // Unless an agent of the other one was first.
    one.claimed = 19;
    take_rows(one, {row(19, "RUNNING"), row(18, "RUNNING")}, kStart + 2s, kPatience);
    EXPECT_EQ(one.id, 19);
    EXPECT_THAT(one.surplus, ElementsAre(18));
    take_rows(one, {row(19, "RUNNING"), row(18, "CANCELLED")}, kStart + 3s, kPatience);
    EXPECT_THAT(one.surplus, IsEmpty());
}

TEST(SlurmAttempt, AnOldCancelledCopyDoesNotHideTheLivingOne) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    take_rows(one, {row(18, "CANCELLED"), row(20, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(one.id, 20);
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
}

TEST(SlurmAttempt, AStateThatMayStillChangeIsBelievedWhenItIsSaidTwice) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 1s, kPatience);
    EXPECT_FALSE(one.ended());
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 6s, kPatience);
    ASSERT_TRUE(one.ended());
    EXPECT_EQ(observe(one, true, "").cause.kind, CauseClass::node_lost);
}

// Its agents were told to stop, and say so with their exit code.
TEST(SlurmAttempt, AFailureThatLockstepHasAskedForNeedsNoSecondWord) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    one.ending = true;
    take_rows(one, {row(17, "FAILED")}, kStart + 1s, kPatience);
    EXPECT_FALSE(allocation_ended(observe(one, true, ""))) << "how it ended is asked for first";
    take_detail(one, {}, kPatience);
    EXPECT_TRUE(allocation_ended(observe(one, true, "")));
    SlurmAttempt other = sent(SubmitReply::Kind::accepted, 17);
    other.claimed = 17;
    take_rows(other, {row(17, "FAILED")}, kStart + 1s, kPatience);
    EXPECT_FALSE(other.ended());
}

TEST(SlurmAttempt, ARequeuedJobWhoseRanksHadStartedIsOverAndEnded) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    take_rows(one, {row(17, "RUNNING")}, kStart + 1s, kPatience);
    SlurmJob again = row(17, "PENDING", "BeginTime");
    again.restarts = 1;
    take_rows(one, {again}, kStart + 6s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.state, AllocationState::ended);
    EXPECT_EQ(seen.message, "Slurm job 17 was put back into the queue; its ranks are gone");
    EXPECT_EQ(seen.cause.kind, CauseClass::preempted) << "taken away: another attempt may follow";
    EXPECT_THAT(one.surplus, ElementsAre(17)) << "the second run must not start";
}

// Seen on a real Slurm: the agents called in within a second of their release, before the poll that
// had last seen the job wait was repeated; it was taken for requeued and cancelled.
TEST(SlurmAttempt, AnAnswerFromBeforeTheClaimIsNoRequeue) {
    for (const char* state : {"PENDING", "CONFIGURING"}) {
        SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
        take_rows(one, {row(17, state, "JobHeldUser")}, kStart + 1s, kPatience);
        one.claimed = 17;
        one.claimed_at = kStart + 2s;
        EXPECT_EQ(observe(one, true, "").state, AllocationState::running) << state;
        // Asked for before the claim, answered after it.
        take_rows(one, {row(17, "PENDING", "JobHeldUser")}, kStart + 1500ms, kPatience);
        EXPECT_EQ(observe(one, true, "").state, AllocationState::running) << state;
        EXPECT_THAT(one.surplus, IsEmpty()) << state;
        take_rows(one, {row(17, "PENDING", "JobHeldUser")}, kStart + 3s, kPatience);
        EXPECT_EQ(observe(one, true, "").state, AllocationState::ended) << state;
        EXPECT_THAT(one.surplus, ElementsAre(17)) << state;
    }
}

TEST(SlurmAttempt, WhoCancelledDecidesWhatItMeans) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    SlurmJob cancelled = row(17, "CANCELLED by 1000");
    cancelled.uid = 1000;
    take_rows(one, {cancelled}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(one, true, "").cause.kind, CauseClass::cancelled_by_user);
    EXPECT_THAT(observe(one, true, "").message, HasSubstr("outside Lockstep by uid 1000"));
    one.cancelled = true;
    EXPECT_EQ(observe(one, true, "").cause.kind, CauseClass::none) << "it was us";
}

TEST(SlurmAttempt, AnEndBeforeAnyAgentCalledInIsTheSchedulersFault) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    SlurmJob failed = row(17, "FAILED");
    failed.exit_code = 127;
    take_rows(one, {failed}, kStart + 1s, kPatience);
    take_rows(one, {failed}, kStart + 6s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.cause.kind, CauseClass::scheduler);
    EXPECT_THAT(seen.cause.message, HasSubstr("exit code 127"));
    EXPECT_THAT(seen.cause.message, HasSubstr("/runs/x/a1/batch.log"));
}

TEST(SlurmAttempt, ADeadlineIsSaidToBeOneAndIsNoTimeLimit) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    take_rows(one, {row(17, "DEADLINE")}, kStart + 1s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.state, AllocationState::ended);
    EXPECT_EQ(seen.cause.kind, CauseClass::scheduler);
    EXPECT_EQ(seen.cause.message, "Slurm job 17 was over its deadline");
    ASSERT_TRUE(seen.accident);
    EXPECT_EQ(seen.accident->kind, CauseClass::user_error) << "scheduler is asked for again";
    EXPECT_EQ(seen.accident->message,
              "Slurm job 17 was over its deadline before its ranks had started");
}

TEST(SlurmAttempt, WhatBeginsLaterOrAfterAnotherJobWaitsForNoNodes) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    for (const auto& [reason, later] : {std::pair{"BeginTime", true}, std::pair{"Dependency", true},
                                        std::pair{"Priority", false}}) {
        take_rows(one, {row(17, "PENDING", reason)}, kStart + 1s, kPatience);
        EXPECT_EQ(observe(one, true, "").later, later) << reason;
        EXPECT_FALSE(observe(one, true, "").held) << reason;
    }
}

TEST(SlurmAttempt, AnUnknownWordNeverEndsAJob) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {row(17, "FROBNICATED")}, kStart + 1s, kPatience);
    take_rows(one, {row(17, "FROBNICATED")}, kStart + 10s, kPatience);
    EXPECT_FALSE(one.ended());
    // Called running, it would have had five minutes for its nodes to meet, whether it has any or
    // not.
    EXPECT_EQ(observe(one, true, "").state, AllocationState::pending);
    EXPECT_EQ(observe(one, true, "").reason,
              "Slurm calls its state FROBNICATED, which Lockstep does not know");
    EXPECT_FALSE(nobody_came(one, kStart + 4000s, kPatience));
    one.claimed = 17;
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running) << "its agents say so";
}

TEST(SlurmAttempt, WhileSlurmIsSilentWhatWaitsIsUnreachableAndWhatRunsRuns) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    EXPECT_EQ(observe(one, false, "down").kind, Observation::Kind::unreachable);
    take_rows(one, {row(17, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(one, false, "down").state, AllocationState::running);
    EXPECT_EQ(observe(one, false, "down").kind, Observation::Kind::state) << "its ranks go on";
}

TEST(SlurmAttempt, AScriptThatWasSentASignalWasCancelledOutsideAndLostNoNode) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    one.ending = true;
    take_rows(one, {row(17, "FAILED", "NonZeroExitCode")}, kStart + 1s, kPatience);
    take_rows(one, {row(17, "FAILED", "NonZeroExitCode")}, kStart + 6s, kPatience);
    ASSERT_TRUE(wants_detail(one));
    SlurmJobDetail detail;
    detail.exit_code = 143;
    take_detail(one, detail, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.cause.kind, CauseClass::cancelled_by_user);
    EXPECT_THAT(seen.cause.message, HasSubstr("was cancelled outside Lockstep"));
    // By our own scancel it is no news.
    one.cancelled = true;
    EXPECT_EQ(observe(one, true, "").cause.kind, CauseClass::none);
}

TEST(SlurmAttempt, WhatSlurmStillEndsIsNamed) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    SlurmJob ending = row(17, "COMPLETING");
    ending.nodes = "bn4";
    take_rows(one, {ending}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
    EXPECT_EQ(observe(one, true, "").ending, "bn4");
    EXPECT_EQ(observe(one, true, "").message, "Slurm job 17 is over; Slurm is ending it");
}

// squeue -a shows it; it had been taken for lost.
TEST(SlurmAttempt, WhatAnotherClusterOfTheFederationRunsHasNotEnded) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    for (const auto at : {1s, 6s, 12s}) {
        take_rows(one, {row(17, "REVOKED")}, kStart + at, kPatience);
    }
    EXPECT_FALSE(one.ended());
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(observe(one, true, "").state, AllocationState::pending);
    EXPECT_EQ(observe(one, true, "").reason,
              "Slurm job 17 was taken over by another cluster of the federation");
    one.claimed = 17;
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
    EXPECT_EQ(observe(one, true, "").message, "") << "Slurm does not end it";
}

// srun imports the image before it starts the agent: the job was cancelled after three minutes,
// three times.
TEST(SlurmAttempt, AnImageThatTakesLongToImportIsWaitedFor) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.request.container.runtime = ContainerRuntime::pyxis;
    take_rows(one, {row(17, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_FALSE(nobody_came(one, kStart + 1s + 3'599s, kPatience));
    EXPECT_TRUE(nobody_came(one, kStart + 1s + 3'600s, kPatience));
    // Called running, it would have five minutes for all nodes to call in.
    EXPECT_EQ(observe(one, true, "").state, AllocationState::pending);
    EXPECT_EQ(observe(one, true, "").reason, "Slurm has given it nodes, which import its image");
    one.claimed = 17;
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
    one.claimed = 0;
    one.request.container.runtime = ContainerRuntime::apptainer;  // the agent does it
    EXPECT_TRUE(nobody_came(one, kStart + 181s, kPatience));
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
}

// A node that an administrator sets down: for 10 s the job was only said to run.
TEST(SlurmAttempt, WhatSlurmHasSaidOnceOfItsEndIsTold) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    SlurmJob failed = row(17, "NODE_FAIL");
    failed.nodes = "n[1-2]";
    take_rows(one, {failed}, kStart + 1s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.state, AllocationState::running);
    EXPECT_EQ(seen.ending, "n[1-2]");
    EXPECT_EQ(seen.message, "Slurm job 17 lost a node; Slurm is asked once more");
}

}  // namespace
}  // namespace lockstep
