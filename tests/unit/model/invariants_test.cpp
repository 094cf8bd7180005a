#include "job/model/invariants.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Job job_with_attempt() {
    Job job;
    job.spec.resources.nodes = 2;
    job.state = JobState::queued;
    Attempt attempt;
    attempt.number = 1;
    job.attempts.push_back(attempt);
    return job;
}

Generation ended(std::int32_t ranks) {
    Generation out;
    out.number = 1;
    out.exited.assign(static_cast<std::size_t>(ranks), true);
    out.exited_count = ranks;
    return out;
}

event::Finished finished(JobState state, CauseClass cause = CauseClass::none) {
    event::Finished out;
    out.state = state;
    out.cause.kind = cause;
    return out;
}

TEST(Invariants, ASecondAttemptWaitsForTheEndOfTheFirst) {
    Job job = job_with_attempt();
    EXPECT_EQ(broken_by(job, event::AttemptCreated{2, "", ""}), Invariant::one_live_attempt);
    job.attempts[0].finished_at = 1;
    EXPECT_EQ(broken_by(job, event::AttemptCreated{2, "", ""}), std::nullopt);
    EXPECT_EQ(broken_by(job, event::AttemptCreated{1, "", ""}), Invariant::one_live_attempt);
}

TEST(Invariants, AnAttemptIsOfOneAllocation) {
    Job job = job_with_attempt();
    event::AgentClaimed claim;
    claim.attempt = 1;
    claim.allocation = "17";
    EXPECT_EQ(broken_by(job, claim), std::nullopt);
    job.attempts[0].claims[0] = {};
    job.attempts[0].allocation = "16";
    EXPECT_EQ(broken_by(job, claim), Invariant::one_live_attempt);
    // And once claimed it is not handed in again.
    EXPECT_EQ(broken_by(job, event::AttemptSubmitting{1, 2}), Invariant::one_live_attempt);
}

TEST(Invariants, TheIntentIsOnDiskBeforeTheAcknowledgement) {
    Job job = job_with_attempt();
    EXPECT_EQ(broken_by(job, event::AttemptSubmitted{1, "17"}), Invariant::intent_comes_first);
    job.attempts[0].submissions = 1;
    EXPECT_EQ(broken_by(job, event::AttemptSubmitted{1, "17"}), std::nullopt);
}

TEST(Invariants, SilenceIsNoEnd) {
    Job job = job_with_attempt();
    for (const JobState state : {JobState::succeeded, JobState::failed, JobState::cancelled}) {
        EXPECT_EQ(broken_by(job, finished(state, CauseClass::internal)),
                  Invariant::end_needs_evidence);
    }
    job.attempts[0].generations.push_back(ended(4));
    EXPECT_EQ(broken_by(job, finished(JobState::succeeded)), std::nullopt);
    EXPECT_EQ(broken_by(job, finished(JobState::failed, CauseClass::internal)),
              Invariant::end_needs_evidence);
    job.attempts[0].generations[0].exited_count = 3;
    EXPECT_EQ(broken_by(job, finished(JobState::succeeded)), Invariant::end_needs_evidence);
    job.attempts[0].fault = Cause{};
    EXPECT_EQ(broken_by(job, finished(JobState::failed, CauseClass::scheduler)), std::nullopt);
    EXPECT_EQ(broken_by(job, finished(JobState::failed)), Invariant::end_needs_evidence)
        << "without a cause";
}

TEST(Invariants, ACancelOrAFailedDependencyIsEvidence) {
    Job job;
    EXPECT_EQ(broken_by(job, finished(JobState::cancelled, CauseClass::cancelled_by_user)),
              Invariant::end_needs_evidence);
    job.cancel_requested_at = 1;
    EXPECT_EQ(broken_by(job, finished(JobState::cancelled, CauseClass::cancelled_by_user)),
              std::nullopt);
    job.cancel_requested_at = 0;
    job.blocked = Cause{};
    EXPECT_EQ(broken_by(job, finished(JobState::failed, CauseClass::dependency)), std::nullopt);
}

TEST(Invariants, RanksStartWhenEveryNodeIsClaimed) {
    Job job = job_with_attempt();
    event::GenerationStarted start;
    start.attempt = 1;
    start.generation = 1;
    job.attempts[0].claims[0] = {};
    EXPECT_EQ(broken_by(job, start), Invariant::ranks_need_a_claim);
    job.attempts[0].claims[1] = {};
    EXPECT_EQ(broken_by(job, start), std::nullopt);
    job.attempts[0].finished_at = 1;
    EXPECT_EQ(broken_by(job, start), Invariant::ranks_need_a_claim);
}

TEST(Invariants, SparesThatHaveNotCalledInAreNotWaitedFor) {
    Job job = job_with_attempt();
    job.spec.resources.spares = 1;
    event::GenerationStarted start;
    start.attempt = 1;
    start.generation = 1;
    job.attempts[0].claims[0] = {};
    EXPECT_EQ(broken_by(job, start), Invariant::ranks_need_a_claim);
    job.attempts[0].claims[2] = {};
    EXPECT_EQ(broken_by(job, start), std::nullopt);
    job.attempts[0].claims[1] = {};
    EXPECT_EQ(broken_by(job, start), std::nullopt);
}

TEST(Invariants, ALostNodeIsEvidence) {
    Job job = job_with_attempt();
    EXPECT_EQ(broken_by(job, finished(JobState::failed, CauseClass::node_lost)),
              Invariant::end_needs_evidence);
    job.attempts[0].lost[1] = Cause{};
    job.attempts[0].last_lost = Cause{};
    EXPECT_EQ(broken_by(job, finished(JobState::failed, CauseClass::node_lost)), std::nullopt);
}

}  // namespace
}  // namespace lockstep
