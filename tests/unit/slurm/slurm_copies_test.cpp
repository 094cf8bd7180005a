// Several jobs of one attempt's name: which is the attempt's, which is no job at all, and that the
// end of one never takes the other along.
#include "scheduler-integration/slurm/slurm_copies.hpp"

#include "tests/unit/slurm/slurm_attempt_fixture.hpp"
#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Stage = SlurmAttempt::Stage;

constexpr const char* kNoSuchNodes =
    "Batch job submission failed: Requested node configuration is not available";

// What squeue shows of a job that slurmctld refused for its nodes.
SlurmJob refusal(std::int64_t id) {
    return row(id, "FAILED", "BadConstraints");
}

// Refused without n2; slurmctld has kept a record of that, number 4.
SlurmAttempt refused_without_n2() {
    SlurmAttempt one = take_up(request(), kStart);
    one.request.exclude = {"n2"};
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::rejected, 0, kNoSuchNodes), kStart);
    return one;
}

// Seen on a real Slurm, once in four runs: squeue was asked between the refusal and the second
// sbatch. The refusal's record was taken for the attempt's job, and the job for a surplus copy.
TEST(SlurmCopies, TheRecordOfARefusalIsNotTheAttemptThatIsHandedInWithoutTheExclusion) {
    SlurmAttempt one = refused_without_n2();
    ASSERT_EQ(handover(one).kind, Handover::Kind::again);
    take_rows(one, {refusal(4)}, kStart + 1s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again) << "before it is sent";
    one.stage = Stage::sending;
    take_rows(one, {refusal(4)}, kStart + 2s, kPatience);
    take_rows(one, {refusal(4)}, kStart + 3s, kPatience);
    EXPECT_EQ(one.id, 0) << "while it is sent";
    EXPECT_NE(observe(one, true, "").state, AllocationState::ended);
    take_reply(one, reply(SubmitReply::Kind::accepted, 5), kStart + 3s);
    EXPECT_EQ(handover(one).id, "5");
    take_rows(one, {refusal(4), row(5, "RUNNING")}, kStart + 4s, kPatience);
    EXPECT_EQ(one.id, 5);
    EXPECT_THAT(one.surplus, IsEmpty());
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
}

TEST(SlurmCopies, TheRecordOfARefusalIsNotTheAttemptAfterItsJobCameToNothing) {
    SlurmAttempt one = refused_without_n2();
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::accepted, 5), kStart + 1s);
    take_rows(one, {refusal(4), ended_at_its_start(5)}, kStart + 2s, kPatience);
    ASSERT_EQ(handover(one).kind, Handover::Kind::again) << "Slurm itself ended it";
    take_rows(one, {refusal(4), ended_at_its_start(5)}, kStart + 3s, kPatience);
    EXPECT_EQ(one.id, 0);
    EXPECT_TRUE(may_send(one));
}

// The intent of the second try is on disk, its job may still come.
TEST(SlurmCopies, TheNextDaemonDoesNotTakeTheRecordOfARefusalForTheJobItLooksFor) {
    SlurmAttempt one = take_up(request(123), kStart);
    take_rows(one, {refusal(4)}, kStart + 1s, kPatience);
    take_rows(one, {refusal(4)}, kStart + 2s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::wait);
    take_rows(one, {refusal(4), row(5, "PENDING")}, kStart + 3s, kPatience);
    EXPECT_EQ(handover(one).id, "5");
    EXPECT_THAT(one.surplus, IsEmpty());
}

// slurmctld has forgotten it by then; slurmdbd has not, and leaves out the reason.
TEST(SlurmCopies, AccountingsRecordOfARefusalIsNoJobEither) {
    for (const char* reason : {"BadConstraints", ""}) {
        SlurmAttempt one = take_up(request(123), kStart);
        take_rows(one, {}, kStart + 360s, kPatience);
        ASSERT_TRUE(wants_history(one, kStart + 360s));
        take_history(one, {row(4, "FAILED", reason)}, kStart + 360s, kPatience);
        EXPECT_EQ(handover(one).kind, Handover::Kind::again) << reason;
    }
}

TEST(SlurmCopies, AJobThatWasAcknowledgedAndIsRefusedLaterHasEnded) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 5);
    take_rows(one, {row(5, "PENDING", "Resources")}, kStart + 1s, kPatience);
    take_rows(one, {refusal(5)}, kStart + 2s, kPatience);
    take_rows(one, {refusal(5)}, kStart + 3s, kPatience);
    ASSERT_TRUE(one.ended());
    EXPECT_THAT(observe(one, true, "").cause.message, HasSubstr("Slurm job 5 failed"));
}

TEST(SlurmCopies, AnAcknowledgementGoesBeforeADeadJobThatSqueueShowedMeanwhile) {
    SlurmAttempt one = take_up(request(), kStart);
    one.stage = Stage::sending;
    take_rows(one, {row(4, "CANCELLED")}, kStart + 1s, kPatience);
    take_reply(one, reply(SubmitReply::Kind::accepted, 5), kStart + 2s);
    EXPECT_EQ(handover(one).id, "5");
    take_rows(one, {row(4, "CANCELLED"), row(5, "RUNNING")}, kStart + 3s, kPatience);
    EXPECT_EQ(one.id, 5);
    EXPECT_THAT(one.surplus, IsEmpty());
}

// Both run; an agent of each is about to call in.
TEST(SlurmCopies, AnAgentOfACopyThatIsBeingEndedDoesNotGetTheAttempt) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 5);
    const std::vector<SlurmJob> both{row(5, "RUNNING"), row(6, "RUNNING")};
    take_rows(one, both, kStart + 1s, kPatience);
    ASSERT_THAT(one.surplus, ElementsAre(6));
    EXPECT_FALSE(may_claim(one, 6)) << "it is being cancelled: the attempt would end with it";
    take_rows(one, both, kStart + 2s, kPatience);
    EXPECT_EQ(one.id, 5);
    EXPECT_THAT(one.surplus, ElementsAre(6));
    EXPECT_TRUE(may_claim(one, 5));
    one.claimed = 5;
    EXPECT_FALSE(may_claim(one, 6));
}

TEST(SlurmCopies, TheCopyWhoseAgentCallsInFirstIsNotEndedWhileItsClaimIsWrittenDown) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 5);
    ASSERT_TRUE(may_claim(one, 6)) << "nobody has seen two yet";
    const std::vector<SlurmJob> both{row(5, "RUNNING"), row(6, "RUNNING")};
    take_rows(one, both, kStart + 1s, kPatience);
    EXPECT_THAT(one.surplus, ElementsAre(5));
    EXPECT_FALSE(may_claim(one, 5));
    one.claimed = 6;
    take_rows(one, both, kStart + 2s, kPatience);
    EXPECT_EQ(one.id, 6);
    EXPECT_THAT(one.surplus, ElementsAre(5));
}

TEST(SlurmCopies, ACopyThatIsBeingEndedIsNotTakenUpWhenTheKeptOneComesToNothing) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 5);
    take_rows(one, {row(5, "RUNNING"), row(6, "RUNNING")}, kStart + 1s, kPatience);
    take_rows(one, {ended_at_its_start(5), row(6, "RUNNING")}, kStart + 2s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    // A slurmctld that was killed gives the number out once more.
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::accepted, 6), kStart + 3s);
    EXPECT_TRUE(may_claim(one, 6));
}

using SlurmSurplus = SlurmSchedulerTest;

// FakeSlurm does what slurmctld does: it refuses, and keeps a record of it.
TEST_F(SlurmSurplus, SqueueBetweenARefusalAndTheNextTryEndsNoJob) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    AttemptRequest job = request(job_name(1));
    job.exclude = {"n2"};
    slurm_->says = reply(SubmitReply::Kind::rejected, 0, kNoSuchNodes);
    until([&] {
        hand_over(job);
        return slurm_->submissions == 1 && last_.kind == Handover::Kind::again;
    });
    SlurmJob record = refusal(4);
    record.name = slurm::batch_job_name("t", job.job, 1);
    slurm_->others = {record};
    const int queries = slurm_->queries;
    until([&] { return slurm_->queries >= queries + 3; });
    slurm_->says.reset();
    slurm_->ids = 4;
    slurm_->state = "RUNNING";
    until([&] { return hand_over(job) && last_.id == "5"; });
    until([&] {
        return wait<Observation>(scheduler_->poll(job.job, 1)).state == AllocationState::running;
    });
    EXPECT_EQ(slurm_->submissions, 2);
    EXPECT_THAT(slurm_->cancelled, IsEmpty());
    EXPECT_EQ(scheduler_->counters().surplus, 0U);
}

TEST_F(SlurmSurplus, OnlyTheSurplusCopyIsCancelled) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    AttemptRequest job = request(job_name(1));
    slurm_->state = "RUNNING";
    until([&] { return hand_over(job); });
    slurm_->names[7] = job.job.value;  // a person has handed the script in, too
    until([&] { return slurm_->cancelled.size() >= 2; });
    EXPECT_FALSE(scheduler_->may_claim(job.job, 1, "7"));
    EXPECT_TRUE(scheduler_->may_claim(job.job, 1, "1"));
    EXPECT_THAT(slurm_->cancelled, testing::Each(7));
}

}  // namespace
}  // namespace lockstep
