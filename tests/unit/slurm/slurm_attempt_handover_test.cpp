// Whether an attempt is handed to Slurm, again or for the first time.
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using Stage = SlurmAttempt::Stage;

TEST(SlurmAttempt, AsksForAnIntentBeforeTheFirstTry) {
    const SlurmAttempt one = take_up(request(), kStart);
    EXPECT_EQ(one.name, "first-01j0000000000000000000000a-a1");
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_TRUE(may_send(one));
}

TEST(SlurmAttempt, AnAcknowledgedJobIsPlacedAndWaitsInWords) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    EXPECT_EQ(handover(one).kind, Handover::Kind::placed);
    EXPECT_EQ(handover(one).id, "17");
    EXPECT_FALSE(may_send(one));
    take_rows(one, {row(17, "PENDING", "Resources")}, kStart + 1s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.state, AllocationState::pending);
    EXPECT_EQ(seen.id, "17");
    EXPECT_FALSE(seen.reason.empty());
    EXPECT_FALSE(seen.held);
}

TEST(SlurmAttempt, WhatIsToEndIsNotHandedIn) {
    SlurmAttempt one = take_up(request(), kStart);
    ASSERT_TRUE(may_send(one));
    one.cancel_wanted = true;
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(handover(one).kind, Handover::Kind::wait);
    one.cancel_wanted = false;
    one.over = true;
    EXPECT_FALSE(may_send(one));
}

TEST(SlurmAttempt, ALostReplyIsNeverRepeatedWhileItMayStillArrive) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    EXPECT_EQ(handover(one).kind, Handover::Kind::wait);
    EXPECT_THAT(handover(one).reason, HasSubstr("Socket timed out"));
    for (auto at = 1s; at < 360s; at += 5s) {
        take_rows(one, {}, kStart + at, kPatience);
        EXPECT_FALSE(wants_history(one, kStart + at));
        EXPECT_FALSE(may_send(one)) << at.count();
    }
    // It turns up at last: adopted, not sent again.
    take_rows(one, {row(17, "PENDING")}, kStart + 359s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::placed);
}

TEST(SlurmAttempt, AfterTheCredentialsLifetimeNotThereIsBelievedAndANewIntentAskedFor) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    take_rows(one, {}, kStart + 360s, kPatience);
    ASSERT_TRUE(wants_history(one, kStart + 360s));
    EXPECT_EQ(handover(one).kind, Handover::Kind::wait) << "accounting is asked first";
    take_history(one, {}, kStart + 360s, kPatience);
    EXPECT_EQ(one.stage, Stage::gone);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_TRUE(may_send(one));
}

TEST(SlurmAttempt, AccountingThatKnowsItsEndEndsTheDoubt) {
    SlurmAttempt one = sent(SubmitReply::Kind::ambiguous);
    take_rows(one, {}, kStart + 360s, kPatience);
    take_history(one, {row(17, "COMPLETED")}, kStart + 360s, kPatience);
    EXPECT_TRUE(one.ended());
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(observe(one, true, "").state, AllocationState::ended);
}

TEST(SlurmAttempt, AnAnswerThatWasAskedForBeforeTheTryEndedProvesNothing) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.last_try_end = kStart + 100s;
    take_rows(one, {}, kStart + 50s, kPatience);
    take_rows(one, {}, kStart + 99s, kPatience);
    EXPECT_EQ(one.empty_answers, 0);
}

TEST(SlurmAttempt, WhatCertainlyDidNotReachSlurmMayBeTriedAgainAtOnce) {
    SlurmAttempt one = sent(SubmitReply::Kind::not_submitted);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_TRUE(may_send(one));
}

TEST(SlurmAttempt, ARefusalIsFinalAndInSlurmsWords) {
    SlurmAttempt one = take_up(request(), kStart);
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::rejected, 0, "Invalid account"), kStart);
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused);
    EXPECT_EQ(handover(one).reason, "/slurm/account: Invalid account");
    EXPECT_TRUE(one.nothing_left());
    // Slurm 22.05 leaves a record of what it refuses for its constraints.
    take_rows(one, {row(17, "FAILED", "BadConstraints")}, kStart + 1s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused);
}

TEST(SlurmAttempt, AtTheLimitOfSubmittedJobsItIsTriedAgainLater) {
    SlurmAttempt one = sent(SubmitReply::Kind::later);
    EXPECT_EQ(one.stage, Stage::safe);
    EXPECT_GT(one.not_before, kStart);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
}

TEST(SlurmAttempt, ARefusalNamesTheFieldItIsAbout) {
    SlurmAttempt one = take_up(request(), kStart);
    one.stage = Stage::sending;
    take_reply(one, reply(SubmitReply::Kind::rejected, 0, "Invalid feature specification"), kStart);
    EXPECT_EQ(handover(one).reason, "/slurm/constraint: Invalid feature specification");
}

TEST(SlurmAttempt, ARestartedDaemonDoubtsWhatItHasNoIdOf) {
    const SlurmAttempt one = take_up(request(123), kStart);
    EXPECT_EQ(one.stage, Stage::in_doubt);
    EXPECT_FALSE(may_send(one));
    const SlurmAttempt known = take_up(request(123, false, "17"), kStart);
    EXPECT_EQ(handover(known).id, "17");
    const SlurmAttempt claimed = take_up(request(123, false, "17", "18"), kStart);
    EXPECT_EQ(handover(claimed).id, "18") << "the claim goes before the acknowledgement";
}

TEST(SlurmAttempt, WhatIsOnlyFollowedIsLookedForAndNeverHandedIn) {
    AttemptRequest asked = request();
    asked.follow_only = "of a backup";
    SlurmAttempt one = take_up(asked, kStart);
    EXPECT_EQ(one.stage, Stage::in_doubt)
        << "also without an intent: it may have been handed in since";
    take_rows(one, {}, kStart + 400s, kPatience);
    ASSERT_TRUE(wants_history(one, kStart + 400s));
    take_history(one, {}, kStart + 400s, kPatience);
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused);
    EXPECT_NE(handover(one).reason.find("of a backup"), std::string::npos);
    SlurmAttempt there = take_up(asked, kStart);
    take_rows(there, {row(17, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(handover(there).id, "17");
    EXPECT_FALSE(nobody_came(there, kStart + 1000s, kPatience))
        << "its agents may not know where we are";
}

TEST(SlurmAttempt, WhatIsOnlyFollowedAndSlurmItselfEndedHasEnded) {
    AttemptRequest asked = request(1, false, "17");
    asked.follow_only = "of a backup";
    SlurmAttempt one = take_up(asked, kStart);
    take_rows(one, {ended_at_its_start(17, "NODE_FAIL")}, kStart + 1s, kPatience);
    take_rows(one, {ended_at_its_start(17, "NODE_FAIL")}, kStart + 7s, kPatience);
    EXPECT_TRUE(one.ended());
    EXPECT_FALSE(may_send(one));
}

TEST(SlurmAttempt, AForgottenJobNeedsTwoEmptyAnswersAndNoAccounting) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {row(17, "PENDING")}, kStart + 1s, kPatience);
    take_rows(one, {}, kStart + 10s, kPatience);
    take_rows(one, {}, kStart + 12s, kPatience);
    EXPECT_FALSE(wants_history(one, kStart + 12s)) << "two answers at the same moment are one";
    take_rows(one, {row(17, "PENDING")}, kStart + 13s, kPatience);
    take_rows(one, {}, kStart + 20s, kPatience);
    EXPECT_FALSE(wants_history(one, kStart + 20s)) << "it was there in between";
    take_rows(one, {}, kStart + 25s, kPatience);
    ASSERT_TRUE(wants_history(one, kStart + 25s));
    take_history(one, {}, kStart + 25s, kPatience);
    EXPECT_EQ(observe(one, true, "").kind, Observation::Kind::absent);
    EXPECT_TRUE(may_send(one)) << "its request was answered: nothing is in flight";
}

// slurmctld was killed before it had saved the job.
TEST(SlurmAttempt, ALostJobWhoseNumberIsAnothersSaysSo) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    one.number_taken = true;
    take_rows(one, {}, kStart + 10s, kPatience);
    take_rows(one, {}, kStart + 20s, kPatience);
    take_history(one, {}, kStart + 20s, kPatience);
    const Observation seen = observe(one, true, "");
    EXPECT_EQ(seen.kind, Observation::Kind::absent);
    EXPECT_TRUE(seen.lost);
    EXPECT_EQ(seen.message, "Slurm has lost job 17, whose number is another job's now");
}

TEST(SlurmAttempt, AClaimedJobIsNeverSentAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    one.claimed = 17;
    take_rows(one, {}, kStart + 10s, kPatience);
    take_rows(one, {}, kStart + 20s, kPatience);
    take_history(one, {}, kStart + 20s, kPatience);
    EXPECT_EQ(observe(one, true, "").kind, Observation::Kind::absent);
    EXPECT_FALSE(may_send(one));
    EXPECT_NE(handover(one).kind, Handover::Kind::again);
}

TEST(SlurmAttempt, AccountingThatStillCallsAForgottenJobAliveIsOverruledAfterAMinute) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    take_rows(one, {}, kStart + 10s, kPatience);
    take_rows(one, {}, kStart + 15s, kPatience);
    take_history(one, {row(17, "RUNNING")}, kStart + 15s, kPatience);
    EXPECT_EQ(one.stage, Stage::known);
    take_rows(one, {}, kStart + 70s, kPatience);
    take_history(one, {row(17, "RUNNING")}, kStart + 70s, kPatience);
    EXPECT_EQ(one.stage, Stage::gone);
}

TEST(SlurmAttempt, AManualOneIsHeldUntilAPersonHandsItIn) {
    AttemptRequest asked = request();
    asked.submission = Submission::manual;
    SlurmAttempt one = take_up(asked, kStart);
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(handover(one).kind, Handover::Kind::placed);
    EXPECT_TRUE(observe(one, true, "").held);
    EXPECT_THAT(observe(one, true, "").reason, HasSubstr("sbatch /runs/x/a1/batch.sh"));
    take_rows(one, {row(17, "PENDING")}, kStart + 1s, kPatience);
    EXPECT_FALSE(observe(one, true, "").held);
    EXPECT_EQ(observe(one, true, "").id, "17");
}

// It was "pending, held" for ever, and the job that was cancelled never ended.
TEST(SlurmAttempt, AManualOneThatNobodyHasHandedInIsAbsentOnceItIsCancelled) {
    AttemptRequest asked = request();
    asked.submission = Submission::manual;
    const SlurmAttempt held = take_up(asked, kStart);
    SlurmAttempt cancelled = held;
    cancelled.cancel_wanted = true;
    EXPECT_EQ(observe(cancelled, true, "").kind, Observation::Kind::absent);
    SlurmAttempt over = held;
    over.over = true;
    EXPECT_EQ(observe(over, true, "").kind, Observation::Kind::absent);
    EXPECT_TRUE(over.nothing_left()) << "it is not followed any longer";
    // A script that is handed in all the same is seen, so that it is ended.
    take_rows(cancelled, {row(17, "PENDING")}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(cancelled, true, "").id, "17");
    EXPECT_EQ(observe(cancelled, true, "").kind, Observation::Kind::state);
}

TEST(SlurmAttempt, WithTooFewNodesWithoutThoseThatFailedItGoesWithThemAndSaysSo) {
    AttemptRequest second = request();
    second.attempt = 2;
    second.exclude = {"bn3", "bn4"};
    SlurmAttempt one = take_up(second, kStart);
    one.stage = Stage::sending;
    take_reply(
        one, reply(SubmitReply::Kind::rejected, 0, "Requested node configuration is not available"),
        kStart);
    EXPECT_TRUE(one.without_exclusion);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    EXPECT_THAT(handover(one).warning, HasSubstr("attempt 2 without bn3, bn4 (Requested node"));
    one.stage = Stage::sending;
    take_reply(
        one, reply(SubmitReply::Kind::rejected, 0, "Requested node configuration is not available"),
        kStart);
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused) << "nothing more can be left out";
}

// A job that waited, that somebody cancelled and that slurmctld forgot, while lockstepd was away.
TEST(SlurmAttempt, WhatVanishedWhileNobodyLookedIsToldOfAndSentAgainOrEndsAsTheSiteWants) {
    SlurmPatience patience = kPatience;
    patience.min_job_age = 300s;
    const auto vanished = [&](std::chrono::seconds age) {
        SlurmAttempt one = take_up(request(1, false, "17"), kStart, age);
        take_rows(one, {}, kStart + 1s, patience);
        take_rows(one, {}, kStart + 7s, patience);
        EXPECT_TRUE(wants_history(one, kStart + 7s));
        take_history(one, {}, kStart + 7s, patience);
        return one;
    };
    EXPECT_EQ(vanished(200s).stage, Stage::gone);
    EXPECT_EQ(vanished(200s).warning, "") << "it would still be known: slurmctld lost it";
    EXPECT_THAT(handover(vanished(298s)).warning, HasSubstr("cancelled outside?"))
        << "slurmctld's seconds are whole ones";
    EXPECT_EQ(vanished(600s).stage, Stage::gone);
    EXPECT_THAT(handover(vanished(600s)).warning, HasSubstr("cancelled outside? It is submitted"));
    patience.doubt_ends = true;
    EXPECT_EQ(vanished(200s).stage, Stage::gone);
    const Handover end = handover(vanished(600s));
    EXPECT_EQ(end.kind, Handover::Kind::refused);
    EXPECT_THAT(end.reason, HasSubstr("Slurm job 17 is no longer in Slurm; lockstepd was away"));
    patience.accounting = true;
    EXPECT_EQ(vanished(600s).stage, Stage::gone) << "accounting would know of a cancel";
}

TEST(SlurmAttempt, WhatVanishedWhileSomebodyLookedWasForgottenHoweverLongItHadWaited) {
    SlurmPatience patience = kPatience;
    patience.min_job_age = 300s;
    patience.doubt_ends = true;
    SlurmAttempt one = take_up(request(1, false, "17"), kStart, 600s);
    for (auto at = 1s; at < 1000s; at += 100s) {
        take_rows(one, {row(17, "PENDING")}, kStart + at, patience);
    }
    take_rows(one, {}, kStart + 1000s, patience);
    take_rows(one, {}, kStart + 1006s, patience);
    take_history(one, {}, kStart + 1006s, patience);
    EXPECT_EQ(one.stage, Stage::gone);
    EXPECT_EQ(one.warning, "");
}

// 2 of 20,000 jobs under kills of slurmctld and lockstepd: no lockstepd lived for the three minutes
// after which nobody_came(), and the time of an allocation in which nothing ran passed.
TEST(SlurmAttempt, AJobWhoseTimePassedWithoutAnAgentIsHandedInAgain) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    SlurmJob late = row(17, "TIMEOUT");
    SlurmAttempt claimed = one;
    take_rows(one, {late}, kStart + 1s, kPatience);
    take_rows(one, {late}, kStart + 2s, kPatience);
    EXPECT_EQ(handover(one).kind, Handover::Kind::again);
    ASSERT_EQ(one.stillborn.size(), 1U);
    EXPECT_EQ(one.stillborn.front().how, "Slurm job 17 ran out of its time limit");
    // One whose ranks ran has had its time.
    claimed.claimed = 17;
    take_rows(claimed, {late}, kStart + 1s, kPatience);
    take_rows(claimed, {late}, kStart + 2s, kPatience);
    EXPECT_TRUE(claimed.ended());
    EXPECT_EQ(observe(claimed, true, "").cause.kind, CauseClass::time_limit);
}

// Of a partition that had been hidden: a copy every 10 s, without end.
TEST(SlurmAttempt, WhatSqueueNeverShowsIsHandedInThreeTimesAndNoMore) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    auto now = kStart;
    const auto never_appears = [&] {
        take_rows(one, {}, now += 10s, kPatience);
        take_rows(one, {}, now += 10s, kPatience);
        ASSERT_TRUE(wants_history(one, now));
        take_history(one, {}, now, kPatience);
    };
    const auto hand_in = [&](std::int64_t id) {
        ASSERT_EQ(handover(one).kind, Handover::Kind::again) << id;
        one.stage = Stage::sending;
        take_reply(one, reply(SubmitReply::Kind::accepted, id), now);
    };
    never_appears();
    hand_in(18);
    // Once it is shown nothing is hidden: what disappears then has been lost.
    take_rows(one, {row(18, "PENDING")}, now += 1s, kPatience);
    never_appears();
    for (const std::int64_t id : {19, 20}) {
        hand_in(id);
        never_appears();
    }
    hand_in(21);
    never_appears();
    EXPECT_FALSE(may_send(one));
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused);
    EXPECT_EQ(handover(one).reason,
              "Slurm has taken it 3 times, the last time as job 21, and squeue has never shown it: "
              "it is not submitted again");
    EXPECT_EQ(observe(one, true, "").kind, Observation::Kind::absent);
    EXPECT_THAT(one.unseen, testing::ElementsAre(17, 19, 20, 21)) << "17 may be in the queue, too";
}

}  // namespace
}  // namespace lockstep
