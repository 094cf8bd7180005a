// Jobs that come to nothing: Slurm ended them, nobody had claimed them, and they are handed in
// again.
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Stage = SlurmAttempt::Stage;

// Seen with a slurmctld that was killed: it gave a number out again whose old job was still on the
// node; slurmd refused the new one and cancelled it as root, before any agent had called in.
TEST(SlurmStillborn, WhatSlurmItselfEndsAtItsStartIsHandedInAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {ended_at_its_start(17)}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(one, true, "").kind, Observation::Kind::absent);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    // Its record is still there while the next one is on its way, and after that.
    one.stage = Stage::sending;
    take_rows(one, {ended_at_its_start(17)}, kStart + 2s, kPatience);
    EXPECT_EQ(one.id, 0);
    take_reply(one, reply(SubmitReply::Kind::accepted, 18), kStart + 2s);
    take_rows(one, {ended_at_its_start(17), row(18, "RUNNING")}, kStart + 3s, kPatience);
    EXPECT_EQ(one.id, 18);
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
    EXPECT_THAT(one.surplus, IsEmpty());
}

// On a busy machine squeue shows its end before sbatch has said its number.
TEST(SlurmStillborn, WhatSlurmEndsWhileSbatchIsStillAtItIsHandedInAgainToo) {
    SlurmAttempt one = take_up(request(), kStart);
    one.stage = Stage::sending;
    take_rows(one, {ended_at_its_start(17)}, kStart + 1s, kPatience);
    EXPECT_FALSE(one.ended()) << "a person has not ended it";
    EXPECT_FALSE(may_send(one)) << "a second sbatch beside the first";
    EXPECT_EQ(observe(one, true, "").state, AllocationState::pending);
    take_reply(one, reply(SubmitReply::Kind::accepted, 17), kStart + 2s);
    take_rows(one, {ended_at_its_start(17)}, kStart + 3s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_TRUE(may_send(one));
    EXPECT_EQ(one.stillborn.size(), 1U);
}

TEST(SlurmStillborn, WhatAPersonEndsWhileSbatchIsStillAtItHasEnded) {
    SlurmAttempt one = take_up(request(), kStart);
    one.stage = Stage::sending;
    take_rows(one, {ended_at_its_start(17, "CANCELLED by 1000")}, kStart + 1s, kPatience);
    if (wants_detail(one)) {
        take_detail(one, {}, kPatience);
    }
    take_reply(one, reply(SubmitReply::Kind::accepted, 17), kStart + 2s);
    take_rows(one, {ended_at_its_start(17, "CANCELLED by 1000")}, kStart + 3s, kPatience);
    if (wants_detail(one)) {
        take_detail(one, {}, kPatience);
    }
    EXPECT_TRUE(one.ended());
    EXPECT_FALSE(may_send(one));
}

TEST(SlurmStillborn, TheNumberOfAStillbornJobMayComeAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {ended_at_its_start(17)}, kStart + 1s, kPatience);
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::accepted, 17), kStart + 2s);
    SlurmJob again = row(17, "RUNNING");
    again.submitted_at = 2'000;
    take_rows(one, {again}, kStart + 3s, kPatience);
    EXPECT_EQ(observe(one, true, "").state, AllocationState::running);
}

TEST(SlurmStillborn, SlurmIsAskedForAStillbornJobOnlyThreeTimesMore) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    auto now = kStart;
    std::vector<SlurmJob> rows;
    for (std::int64_t id = 17; id < 20; ++id) {
        rows.push_back(ended_at_its_start(id));
        take_rows(one, rows, now += 1s, kPatience);
        ASSERT_EQ(handover(one).kind, Handover::Kind::again) << id;
        one.stage = Stage::sending;
        take_reply(one, reply(SubmitReply::Kind::accepted, id + 1), now);
    }
    rows.push_back(ended_at_its_start(20));
    take_rows(one, rows, now += 1s, kPatience);
    ASSERT_TRUE(one.ended());
    EXPECT_EQ(observe(one, true, "").state, AllocationState::ended);
    EXPECT_THAT(observe(one, true, "").cause.message,
                AllOf(HasSubstr("job 20 was cancelled outside Lockstep"),
                      HasSubstr("; 3 before it failed as well")));
}

// Seen in 1 of 1,200 jobs under kills of slurmctld: it called a job running whose launch had never
// reached the node, and the job's time passed without a rank.
TEST(SlurmStillborn, ARunningJobThatNobodyCameFromIsGivenUpAndHandedInAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {row(17, "CONFIGURING")}, kStart + 1s, kPatience);
    take_rows(one, {row(17, "RUNNING")}, kStart + 600s, kPatience);
    EXPECT_FALSE(nobody_came(one, kStart + 779s, kPatience)) << "nodes may take long to start";
    ASSERT_TRUE(nobody_came(one, kStart + 780s, kPatience));
    SlurmAttempt claimed = one;
    claimed.claimed = 17;
    EXPECT_FALSE(nobody_came(claimed, kStart + 780s, kPatience));
    one.abandoned = true;
    EXPECT_FALSE(nobody_came(one, kStart + 800s, kPatience)) << "cancelled once";
    take_rows(one, {row(17, "COMPLETING")}, kStart + 781s, kPatience);
    EXPECT_NE(handover(one).kind, Handover::Kind::again);
    SlurmJob ended = row(17, "CANCELLED by 1000");
    take_rows(one, {ended}, kStart + 785s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_FALSE(one.abandoned);
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::accepted, 18), kStart + 786s);
    take_rows(one, {ended, row(18, "RUNNING")}, kStart + 787s, kPatience);
    EXPECT_EQ(one.id, 18);
    EXPECT_FALSE(nobody_came(one, kStart + 790s, kPatience)) << "its own time begins anew";
}

TEST(SlurmStillborn, ACancelThatAPersonMayHaveMeantStands) {
    const auto stands = [](const SlurmJob& job, bool claimed = false, bool ours = false) {
        SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
        one.claimed = claimed ? 17 : 0;
        one.cancelled = ours;
        take_rows(one, {job}, kStart + 1s, kPatience);
        if (wants_detail(one)) {
            take_detail(one, {}, kPatience);
        }
        return one.ended();
    };
    EXPECT_FALSE(stands(ended_at_its_start(17))) << "the case that is Slurm's";
    EXPECT_FALSE(stands(ended_at_its_start(17, "CANCELLED by 0")));
    EXPECT_TRUE(stands(ended_at_its_start(17, "CANCELLED by 1000"))) << "the owner";
    EXPECT_TRUE(stands(ended_at_its_start(17), true)) << "its ranks had started";
    EXPECT_TRUE(stands(ended_at_its_start(17), false, true)) << "we asked for it";
    SlurmJob queued = ended_at_its_start(17);
    queued.started_at = 0;
    EXPECT_TRUE(stands(queued)) << "it had no nodes yet";
    SlurmJob old = ended_at_its_start(17);
    old.ended_at = old.started_at + 31;
    EXPECT_TRUE(stands(old)) << "long enough for a person to look and end it";
}

// How a try ends: Slurm's row, said twice where it has to be, and what it answers when it is asked
// for that job.
SlurmAttempt after(const SlurmJob& job, const SlurmJobDetail& detail = {}) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, job.id);
    take_rows(one, {row(job.id, "RUNNING")}, kStart + 1s, kPatience);
    take_rows(one, {job}, kStart + 2s, kPatience);
    take_rows(one, {job}, kStart + 3s, kPatience);
    if (wants_detail(one)) {
        take_detail(one, detail, kPatience);
    }
    return one;
}

bool is_handed_in_again(const SlurmAttempt& one) {
    return handover(one).kind == Handover::Kind::again && may_send(one);
}

SlurmJobDetail exited(int code, int signal = 0) {
    SlurmJobDetail out;
    out.exit_code = code;
    out.signal = signal;
    return out;
}

// Seen in 4 of 2,000 jobs: a slurmctld that came back started them once more, on another node.
TEST(SlurmStillborn, ALostNodeIsHandedInAgainOnceItIsSaidTwice) {
    for (const char* state : {"NODE_FAIL", "BOOT_FAIL"}) {
        SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
        take_rows(one, {row(17, state)}, kStart + 1s, kPatience);
        EXPECT_FALSE(is_handed_in_again(one)) << state << ": Slurm may still put it back";
        take_rows(one, {row(17, state)}, kStart + 2s, kPatience);
        EXPECT_TRUE(is_handed_in_again(one)) << state;
        EXPECT_EQ(observe(one, true, "").kind, Observation::Kind::absent);
    }
}

TEST(SlurmStillborn, AJobThatIsBackInTheQueueIsNotHandedInAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 1s, kPatience);
    SlurmJob back = row(17, "PENDING", "BeginTime");
    back.restarts = 1;
    take_rows(one, {back}, kStart + 2s, kPatience);
    EXPECT_FALSE(is_handed_in_again(one));
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(handover(one).id, "17");
}

// Seen: 1, srun wanted its step while slurmctld was away; 2, slurmd had cleared away the script of
// a number that was given out again; 75, Slurm put the job back by itself.
TEST(SlurmStillborn, AScriptThatDiedOfSlurmIsHandedInAgain) {
    for (const int code : {1, 2, 3, 5, 75}) {
        EXPECT_TRUE(is_handed_in_again(after(row(17, "FAILED", "NonZeroExitCode"), exited(code))))
            << code;
    }
}

TEST(SlurmStillborn, WhatAPersonHasToMendIsToldAtOnceWithItsExitCode) {
    for (const int code : {4, 64, 126, 127, 137}) {
        const SlurmAttempt one = after(row(17, "FAILED", "NonZeroExitCode"), exited(code));
        ASSERT_TRUE(one.ended()) << code;
        EXPECT_FALSE(is_handed_in_again(one)) << code;
        EXPECT_THAT(observe(one, true, "").cause.message,
                    HasSubstr("failed (exit code " + std::to_string(code) +
                              ") before any agent had called in; see /runs/x/a1/batch.log"));
    }
    EXPECT_TRUE(after(row(17, "FAILED", "BadConstraints"), exited(1)).ended())
        << "a refusal that comes late";
    EXPECT_TRUE(after(row(17, "FAILED")).ended()) << "Slurm cannot say any more";
}

TEST(SlurmStillborn, TheExitCodeIsAskedForOnceAndOnlyWhereItMatters) {
    const SlurmJob failed = row(17, "FAILED", "NonZeroExitCode");
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {failed}, kStart + 1s, kPatience);
    EXPECT_FALSE(wants_detail(one)) << "not confirmed";
    EXPECT_EQ(observe(one, true, "").state, AllocationState::pending) << "it does not run, either";
    take_rows(one, {failed}, kStart + 2s, kPatience);
    EXPECT_TRUE(wants_detail(one));
    EXPECT_FALSE(one.ended());
    SlurmAttempt claimed = one;
    claimed.claimed = 17;
    EXPECT_FALSE(wants_detail(claimed)) << "its ranks say how it ended";
    EXPECT_TRUE(claimed.ended());
    SlurmAttempt ours = one;
    ours.cancel_wanted = true;
    EXPECT_FALSE(wants_detail(ours));
    EXPECT_TRUE(ours.ended());
    take_detail(one, exited(127), kPatience);
    take_rows(one, {failed}, kStart + 3s, kPatience);
    EXPECT_FALSE(wants_detail(one));
    EXPECT_TRUE(one.ended());
    // Rows of accounting and of slurmrestd have the code.
    SlurmJob told = failed;
    told.exit_code = 1;
    SlurmAttempt other = sent(SubmitReply::Kind::accepted, 17);
    take_rows(other, {told}, kStart + 1s, kPatience);
    take_rows(other, {told}, kStart + 2s, kPatience);
    EXPECT_TRUE(is_handed_in_again(other));
}

TEST(SlurmStillborn, AScriptThatNeverStartedOrWasKilledIsHandedInAgain) {
    EXPECT_TRUE(is_handed_in_again(after(row(17, "FAILED", "JobLaunchFailure"))));
    EXPECT_TRUE(is_handed_in_again(after(row(17, "FAILED", "NodeDown"))));
    EXPECT_TRUE(is_handed_in_again(after(row(17, "FAILED"), exited(0, 53))));
    EXPECT_TRUE(is_handed_in_again(after(row(17, "FAILED"), exited(0, 9))));
}

TEST(SlurmStillborn, ItsMemoryItsDeadlineAndPreemptionAreEnds) {
    for (const char* state : {"OUT_OF_MEMORY", "DEADLINE", "PREEMPTED"}) {
        const SlurmAttempt one = after(row(17, state));
        EXPECT_TRUE(one.ended()) << state;
        EXPECT_FALSE(is_handed_in_again(one)) << state;
    }
}

// Read in slurmctld 22.05: killed before it had saved a job, it gives the number to another one,
// and believes the first one's node, which still repeats that it has ended well.
TEST(SlurmStillborn, AnEndWithZeroBeforeAnyAgentCalledInIsThatOfAnEarlierJobOfItsNumber) {
    SlurmJob soon = ended_at_its_start(17, "COMPLETED");
    soon.exit_code = 0;
    EXPECT_TRUE(is_handed_in_again(after(soon)));
    soon.ended_at = soon.started_at + 31;
    EXPECT_FALSE(is_handed_in_again(after(soon))) << "Slurm's repetitions have long ended";
}

// Seen: slurmd found a job on its node that Slurm had put back into the queue meanwhile, and
// cancelled it as root.
TEST(SlurmStillborn, RootsCancelIsSlurmsWheneverTheJobHadStarted) {
    SlurmJob late = ended_at_its_start(17, "CANCELLED by 0");
    late.ended_at = late.started_at + 100;
    late.uid = 1000;
    EXPECT_TRUE(is_handed_in_again(after(late)));
    late.uid = 0;
    EXPECT_FALSE(is_handed_in_again(after(late))) << "root's own jobs: root is a person";
    late.state = parse_slurm_state("CANCELLED");
    EXPECT_FALSE(is_handed_in_again(after(late)));
    SlurmJobDetail twice;
    twice.restarts = 1;
    EXPECT_TRUE(is_handed_in_again(after(late, twice))) << "Slurm had started it twice";
    late.state = parse_slurm_state("CANCELLED by 1000");
    EXPECT_FALSE(is_handed_in_again(after(late, twice))) << "a person, whatever Slurm had done";
}

TEST(SlurmStillborn, WhatAPersonHandsInThePersonHandsInAgain) {
    AttemptRequest asked = request();
    asked.submission = Submission::manual;
    SlurmAttempt one = take_up(asked, kStart);
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 1s, kPatience);
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 2s, kPatience);
    EXPECT_TRUE(one.ended());
    EXPECT_EQ(observe(one, true, "").cause.kind, CauseClass::node_lost);
}

TEST(SlurmStillborn, WhatWasClaimedOrIsNotWantedAnyMoreIsNotHandedInAgain) {
    const auto stands = [](auto change) {
        SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
        change(one);
        take_rows(one, {row(17, "NODE_FAIL")}, kStart + 1s, kPatience);
        take_rows(one, {row(17, "NODE_FAIL")}, kStart + 2s, kPatience);
        return one.ended() && !may_send(one);
    };
    EXPECT_FALSE(stands([](SlurmAttempt&) {})) << "the case that is Slurm's";
    EXPECT_TRUE(stands([](SlurmAttempt& one) { one.claimed = 17; }));
    EXPECT_TRUE(stands([](SlurmAttempt& one) { one.cancelled = true; }));
    EXPECT_TRUE(stands([](SlurmAttempt& one) { one.cancel_wanted = true; }));
    EXPECT_TRUE(stands([](SlurmAttempt& one) { one.over = true; }));
}

// The fourth time it is the end, in the words of the last one.
TEST(SlurmStillborn, ThreeTimesIsEnoughAndTheLastEndIsTold) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    std::vector<SlurmJob> rows;
    auto now = kStart;
    for (std::int64_t id = 17; id <= 20; ++id) {
        SlurmJob failed = row(id, "FAILED", "NonZeroExitCode");
        failed.submitted_at = id;
        rows.push_back(failed);
        take_rows(one, rows, now += 1s, kPatience);
        take_rows(one, rows, now += 1s, kPatience);
        ASSERT_TRUE(wants_detail(one)) << id;
        take_detail(one, exited(1), kPatience);
        if (id == 20) {
            break;
        }
        ASSERT_TRUE(is_handed_in_again(one)) << id;
        one.stage = Stage::sending;
        take_reply(one, reply(SubmitReply::Kind::accepted, id + 1), now);
        std::vector<SlurmJob> waiting = rows;
        waiting.push_back(row(id + 1, "PENDING", "Resources"));
        take_rows(one, waiting, now += 1s, kPatience);
        EXPECT_THAT(observe(one, true, "").reason,
                    HasSubstr("submitted again: Slurm job " + std::to_string(id) +
                              " failed (exit code 1) before any agent had called in"));
    }
    ASSERT_TRUE(one.ended());
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.cause.kind, CauseClass::scheduler);
    EXPECT_EQ(seen.cause.message,
              "Slurm job 20 failed (exit code 1) before any agent had called in; 3 before it "
              "failed as well; see /runs/x/a1/batch.log");
}

TEST(SlurmStillborn, AccountingsWordIsEnough) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {}, kStart + 10s, kPatience);
    take_rows(one, {}, kStart + 20s, kPatience);
    ASSERT_TRUE(wants_history(one, kStart + 20s));
    take_history(one, {row(17, "NODE_FAIL")}, kStart + 20s, kPatience);
    EXPECT_TRUE(is_handed_in_again(one));
}

// What was found in doubt may be an earlier try's; the last one may still come.
TEST(SlurmStillborn, ADoubtOutlivesTheJobThatWasFoundInIt) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 1s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::wait) << "recorded, it would end the doubt";
    take_rows(one, {row(17, "NODE_FAIL")}, kStart + 2s, kPatience);
    EXPECT_EQ(one.stage, Stage::in_doubt);
    EXPECT_FALSE(may_send(one));
    take_rows(one, {row(17, "NODE_FAIL"), row(18, "PENDING")}, kStart + 100s, kPatience);
    EXPECT_EQ(handover(one).id, "18");
}

TEST(SlurmStillborn, ADeadJobDoesNotHideALivingOne) {
    SlurmAttempt one = take_up(request(123, false, "17"), kStart);
    take_rows(one, {row(17, "NODE_FAIL"), row(18, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(one.id, 18);
    EXPECT_THAT(one.surplus, IsEmpty());
    SlurmAttempt ended = take_up(request(123, false, "17"), kStart);
    take_rows(ended, {row(17, "OUT_OF_MEMORY"), row(18, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(ended.id, 17) << "that one was the job's own end";
}

// An agent of the old job lives all the same: on a node that slurmctld does not hear.
TEST(SlurmStillborn, ALateClaimOfTheOldJobStopsTheNewOne) {
    SlurmAttempt one = after(row(17, "NODE_FAIL"));
    ASSERT_TRUE(is_handed_in_again(one));
    SlurmAttempt before = one;
    before.claimed = 17;
    EXPECT_FALSE(may_send(before));
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::accepted, 18), kStart + 4s);
    one.claimed = 17;
    take_rows(one, {row(17, "NODE_FAIL"), row(18, "PENDING")}, kStart + 5s, kPatience);
    EXPECT_EQ(one.id, 17);
    EXPECT_THAT(one.surplus, testing::ElementsAre(18));
}

}  // namespace
}  // namespace lockstep
