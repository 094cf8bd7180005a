// size: the table of what may happen to an attempt, and its simulation
#include "scheduler-integration/slurm/slurm_copies.hpp"
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
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
    EXPECT_NE(observe(one, true, "").state, AllocationState::ended);
}

TEST(SlurmAttempt, WhileSlurmIsSilentWhatWaitsIsUnreachableAndWhatRunsRuns) {
    SlurmAttempt one = sent(SubmitReply::Kind::accepted, 17);
    EXPECT_EQ(observe(one, false, "down").kind, Observation::Kind::unreachable);
    take_rows(one, {row(17, "RUNNING")}, kStart + 1s, kPatience);
    EXPECT_EQ(observe(one, false, "down").state, AllocationState::running);
    EXPECT_EQ(observe(one, false, "down").kind, Observation::Kind::state) << "its ranks go on";
}

// A Slurm that behaves as measured: it may take a request and not say so, take it only later (any
// time within the credential's lifetime), forget an acknowledged job that has not been saved, and
// answer "none" while it has not read a request. The daemon is killed at random. Whatever happens,
// no job is lost and no two copies are ever claimed.
struct World {
    struct Copy {
        std::int64_t id;
        SteadyTime appears;  // when slurmctld reads the request
        bool gone = false;
        bool started = false;
        bool refused = false;  // ended by Slurm before its agent could call
    };
    static constexpr std::array kAccidents{"CANCELLED", "NODE_FAIL", "FAILED"};
    std::mt19937_64 random;
    SteadyTime now = kStart;
    std::vector<Copy> copies;
    std::int64_t next_id = 1;
    // What the store keeps.
    UnixMillis intent_at = 0;
    std::string recorded;
    std::string claimed;

    bool chance(int percent) { return static_cast<int>(random() % 100) < percent; }
    void send(SlurmAttempt& attempt) {
        intent_at =
            std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
        recorded.clear();
        attempt.stage = Stage::sending;
        attempt.id = 0;
        const auto kind = random() % 5;
        SubmitReply answer = reply(SubmitReply::Kind::ambiguous);
        if (kind <= 1) {
            copies.push_back({next_id, now});
            answer = reply(SubmitReply::Kind::accepted, next_id++);
        } else if (kind == 2) {  // taken, maybe much later, and nothing said
            copies.push_back({next_id++, now + std::chrono::seconds{random() % 300}});
        } else if (kind == 3) {
            answer = reply(SubmitReply::Kind::not_submitted);
        }
        take_reply(attempt, answer, now);
        if (!chance(20)) {  // else: killed before it was recorded
            recorded = attempt.id != 0 ? std::to_string(attempt.id) : "";
        } else {
            attempt = take_up(saved(), now);
        }
    }
    AttemptRequest saved() const { return request(intent_at, false, recorded, claimed); }
    std::vector<SlurmJob> rows() const {
        std::vector<SlurmJob> out;
        for (const Copy& copy : copies) {
            if (!copy.gone && copy.appears <= now) {
                out.push_back(
                    copy.refused
                        ? ended_at_its_start(copy.id,
                                             kAccidents.at(static_cast<std::size_t>(copy.id) % 3))
                        : row(copy.id, copy.started ? "RUNNING" : "PENDING"));
            }
        }
        return out;
    }
};

TEST(SlurmAttempt, NothingIsLostAndNothingIsClaimedTwiceWhateverSlurmDoes) {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        World world;
        world.random.seed(seed);
        SlurmAttempt attempt = take_up(request(), world.now);
        std::set<std::string> claims;
        int refusals = 0;
        for (int round = 0; round < 2'000 && world.claimed.empty(); ++round) {
            world.now += std::chrono::seconds{1 + world.random() % 8};
            // A restart begins the quarantine anew: a daemon that never lives so long never sends.
            if (round < 300 && world.chance(3)) {
                attempt = take_up(world.saved(), world.now);  // kill -9, restart
            }
            if (world.chance(2)) {  // slurmctld dies: what was not saved is forgotten
                for (auto& copy : world.copies) {
                    copy.gone = copy.gone || (world.now - copy.appears < 5s && !copy.started &&
                                              copy.appears <= world.now);
                }
            }
            if (handover(attempt).kind == Handover::Kind::again) {
                ASSERT_TRUE(may_send(attempt));
                world.send(attempt);
            } else if (handover(attempt).kind == Handover::Kind::placed) {
                world.recorded = handover(attempt).id;
            }
            take_rows(attempt, world.rows(), world.now, kPatience);
            if (wants_detail(attempt)) {
                SlurmJobDetail detail;
                detail.exit_code = attempt.seen->state.base == SlurmBase::failed ? 1 : 0;
                take_detail(attempt, detail, kPatience);
            }
            if (wants_history(attempt, world.now)) {
                take_history(attempt, {}, world.now, kPatience);
            }
            for (const std::int64_t id : attempt.surplus) {
                for (auto& copy : world.copies) {
                    copy.gone = copy.gone || (copy.id == id && !copy.started);
                }
            }
            for (auto& copy : world.copies) {
                if (!copy.gone && !copy.refused && copy.appears <= world.now && world.chance(10)) {
                    if (!copy.started && refusals < 3 && world.chance(30)) {
                        copy.refused = true;
                        ++refusals;
                        continue;
                    }
                    copy.started = true;
                    // The agent's HELLO: the daemon takes one allocation and fences the others.
                    if (world.claimed.empty() && may_claim(attempt, copy.id)) {
                        world.claimed = std::to_string(copy.id);
                        attempt.claimed = copy.id;
                        claims.insert(world.claimed);
                    }
                }
            }
        }
        ASSERT_EQ(claims.size(), 1U)
            << "seed " << seed << ": lost; stage " << static_cast<int>(attempt.stage) << " id "
            << attempt.id << " " << attempt.message;
        const auto alive =
            std::count_if(world.copies.begin(), world.copies.end(),
                          [](const auto& copy) { return !copy.gone && !copy.refused; });
        ASSERT_EQ(alive, 1) << "seed " << seed;
        EXPECT_FALSE(may_send(attempt)) << "seed " << seed;
    }
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

}  // namespace
}  // namespace lockstep
