// size: one promise a test, each on the same fixture
// What Lockstep promises of jobs in Slurm, each with the mistake of one line that would break it.
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"
#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SlurmPromises : public SlurmSchedulerTest {
  protected:
    void begin(std::chrono::seconds quarantine = 1s) {
        SlurmScheduler::Options options;
        options.reads_per_second = 1000;
        options.quarantine = quarantine;
        start(options);
    }
    Observation look(const AttemptRequest& job) {
        return wait<Observation>(scheduler_->poll(job.job, 1));
    }
    // So many running jobs whose ranks are ending; `done`: their work is.
    std::vector<AttemptRequest> ending(int count, bool done) {
        slurm_->state = "RUNNING";
        std::vector<AttemptRequest> jobs;
        for (int i = 0; i < count; ++i) {
            jobs.push_back(request(job_name(i)));
            until([&] { return hand_over(jobs.back()); });
            scheduler_->claimed(jobs.back().job, 1, last_.id);
        }
        for (const AttemptRequest& job : jobs) {
            scheduler_->expect_end(job.job, 1, done);
        }
        return jobs;
    }
    bool all_ended(const std::vector<AttemptRequest>& jobs) {
        return std::all_of(jobs.begin(), jobs.end(), [&](const AttemptRequest& job) {
            return look(job).state == AllocationState::ended;
        });
    }
    static SubmitReply no(SubmitReply::Kind kind, const std::string& words) {
        SubmitReply out;
        out.kind = kind;
        out.message = words;
        return out;
    }
};

TEST_F(SlurmPromises, WhatRunsRunsOnWhileSlurmIsDown) {
    begin();
    slurm_->state = "RUNNING";
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    until([&] { return look(job).state == AllocationState::running; });
    slurm_->answers = false;
    const int before = slurm_->queries;
    until([&] { return slurm_->queries > before + 1; });
    EXPECT_EQ(look(job).kind, Observation::Kind::state);
    EXPECT_EQ(look(job).state, AllocationState::running);
}

// Purged from squeue, and slurmdbd does not say: the job may have run. Handed in again, it would
// run twice.
TEST_F(SlurmPromises, WithoutAnAnswerOfAccountingNoJobCountsAsNeverBeen) {
    prepare_ = [](FakeSlurm& slurm) {
        slurm.accounting = true;
        slurm.accounting_answers = false;
    };
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    slurm_->names.clear();
    until([&] { return slurm_->histories >= 3; });
    EXPECT_EQ(look(job).kind, Observation::Kind::state);
    EXPECT_EQ(slurm_->submissions, 1);
    slurm_->accounting_answers = true;  // it knows nothing of it: forgotten, then
    until([&] { return look(job).kind == Observation::Kind::absent; });
    until([&] { return hand_over(job); });
    EXPECT_EQ(slurm_->submissions, 2);
}

// Each ended job was a question of its own, all of them at one answer and beside the budget.
TEST_F(SlurmPromises, QuestionsAboutManyEndedJobsKeepToTheBudget) {
    constexpr int kJobs = 40;
    constexpr double kRate = 50;
    const auto begun = std::chrono::steady_clock::now();
    SlurmScheduler::Options options;
    options.reads_per_second = kRate;
    options.submissions_per_second = 1000;
    start(options);
    const auto jobs = ending(kJobs, false);
    slurm_->state = "FAILED";
    until([&] { return all_ended(jobs); });
    EXPECT_EQ(slurm_->details, kJobs);
    EXPECT_LE(slurm_->most_details, 4) << "at one answer";
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    // The burst, and what one round may be ahead.
    EXPECT_LE(slurm_->queries + slurm_->details, 4 + 5 + kRate * took.count());
}

TEST_F(SlurmPromises, WhatItsRanksHaveToldDoesNotWaitForItsTurnToBeAskedAboutForLong) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.submissions_per_second = 1000;
    options.detail_patience = 0s;
    start(options);
    const auto jobs = ending(9, false);
    slurm_->state = "FAILED";
    until([&] { return all_ended(jobs); });
    EXPECT_EQ(slurm_->details, 4);
}

// Each waited for its turn, of a few a minute, or two minutes: `run --wait` and `after` with it.
TEST_F(SlurmPromises, ManySuccessesAreOverAtOneAnswer) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.submissions_per_second = 1000;
    start(options);
    const auto jobs = ending(60, true);
    until([&] { return look(jobs.front()).state == AllocationState::running; });
    slurm_->state = "COMPLETED";
    until([&] { return look(jobs.front()).state == AllocationState::ended; });
    EXPECT_TRUE(all_ended(jobs));
    EXPECT_EQ(slurm_->details, 0);
}

// Ranks that save and end with 0 when they are told to make room: Slurm calls that a success, too.
TEST_F(SlurmPromises, ASuccessOfRanksThatHaveNotDoneTheirWorkIsAskedForItsPreemption) {
    begin();
    const auto jobs = ending(1, false);
    slurm_->state = "COMPLETED";
    until([&] { return all_ended(jobs); });
    EXPECT_EQ(slurm_->details, 1);
}

// squeue does not tell their exit codes, and Slurm forgets them after MinJobAge: of many, most were
// judged without.
TEST_F(SlurmPromises, JobsThatNobodyHasClaimedAreAskedAboutFirstAndMoreOfThem) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.submissions_per_second = 1000;
    start(options);
    slurm_->details_hang = true;
    slurm_->state = "RUNNING";
    std::vector<AttemptRequest> jobs;
    for (int i = 0; i < 61; ++i) {
        jobs.push_back(request(job_name(i)));
        until([&] { return hand_over(jobs.back()); });
        if (i == 30) {  // in the middle, by its key
            scheduler_->claimed(jobs.back().job, 1, last_.id);
        }
    }
    const std::int64_t claimed = 31;
    slurm_->exit_code = 127;
    slurm_->state = "FAILED";
    until([&] { return slurm_->details == 15; });
    scheduler_->expect_end(jobs[30].job, 1, false);
    const int before = slurm_->queries;
    until([&] { return slurm_->queries >= before + 3; });
    EXPECT_EQ(slurm_->details, 15) << "a quarter";
    slurm_->details_hang = false;
    until([&] { return all_ended(jobs); });
    ASSERT_EQ(slurm_->asked_about.size(), jobs.size());
    const auto& asked = slurm_->asked_about;
    EXPECT_GE(std::find(asked.begin(), asked.end(), claimed) - asked.begin(), 57);
    EXPECT_EQ(slurm_->submissions, 61) << "none of them was Slurm's own doing";
}

// 32 questions at once would be more than a minute without squeue at the usual rate.
TEST_F(SlurmPromises, ManyQuestionsDoNotHoldUpTheNextQuery) {
    SlurmScheduler::Options options;
    options.reads_per_second = 5;
    options.submissions_per_second = 1000;
    start(options);
    slurm_->details_hang = true;
    std::vector<AttemptRequest> jobs;
    for (int i = 0; i < 128; ++i) {
        jobs.push_back(request(job_name(i)));
        until([&] { return hand_over(jobs.back()); });
    }
    slurm_->state = "FAILED";
    until([&] { return slurm_->details == 32; });
    const int before = slurm_->queries;
    const auto begun = std::chrono::steady_clock::now();
    until([&] { return slurm_->queries > before; });
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 4s);
    slurm_->details_hang = false;
}

// slurmdbd hangs: no job's state was looked at for as long as all questions took, one after
// another.
TEST_F(SlurmPromises, AnAccountingThatHangsHoldsUpOnlyWhatItIsAskedAbout) {
    prepare_ = [](FakeSlurm& slurm) {
        slurm.accounting = true;
        slurm.accounting_hangs = true;
    };
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    slurm_->state = "RUNNING";
    AttemptRequest purged = request(job_name(1));
    until([&] { return hand_over(purged); });
    const std::int64_t number = slurm_->ids;
    AttemptRequest other = request(job_name(2));
    until([&] { return hand_over(other); });
    until([&] { return look(other).state == AllocationState::running; });
    scheduler_->claimed(other.job, 1, last_.id);
    slurm_->names.erase(number);
    until([&] { return slurm_->histories == 1; });
    scheduler_->expect_end(other.job, 1, false);
    slurm_->state = "COMPLETED";
    until([&] { return look(other).state == AllocationState::ended; });
    EXPECT_EQ(slurm_->histories, 1) << "asked once at a time";
    EXPECT_EQ(look(purged).kind, Observation::Kind::state) << "its absence is not proven";
    slurm_->accounting_hangs = false;
    until([&] { return look(purged).kind == Observation::Kind::absent; });
}

TEST_F(SlurmPromises, AScriptThatCannotBeWrittenIsTriedAgainAndRefusesNothing) {
    begin();
    AttemptRequest job = request(job_name(1));
    std::filesystem::remove_all(job.directory);
    until([&] {
        hand_over(job);
        return last_.kind == Handover::Kind::again && job.intent_at != 0;
    });
    for (int i = 0; i < 20; ++i) {
        hand_over(job);
        EXPECT_NE(last_.kind, Handover::Kind::refused) << last_.reason;
        io_.restart();
        io_.run_for(2ms);
    }
    EXPECT_EQ(slurm_->submissions, 0);
    std::filesystem::create_directories(job.directory);
    until([&] { return hand_over(job); });
    EXPECT_EQ(slurm_->submissions, 1);
}

// slurmctld remembers a finished job for MinJobAge: it is looked at thrice in that time, even if
// the longest pause is a minute.
TEST_F(SlurmPromises, FinishedJobsAreLookedAtBeforeTheyArePurged) {
    prepare_ = [](FakeSlurm& slurm) { slurm.min_job_age = 3; };
    quick_ = false;
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.poll_min = 40s;
    options.poll_max = 60s;
    start(options);
    slurm_->state = "RUNNING";
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    until([&] { return look(job).state == AllocationState::running; });
    const int before = slurm_->queries;
    const auto begun = std::chrono::steady_clock::now();
    until([&] { return slurm_->queries >= before + 2; });
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 20s);
}

// Other users may name theirs as they like.
TEST_F(SlurmPromises, AJobOfAnotherNameIsNotTheAttemptsWhateverItsNameEndsIn) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    slurm_->names.clear();
    SlurmJob other;
    other.id = 900;
    other.name = slurm::batch_job_name("other", job.job, 1);
    other.state = parse_slurm_state("RUNNING");
    other.nodes = "n1";
    slurm_->others = {other};
    until([&] { return look(job).kind == Observation::Kind::absent; });
    EXPECT_THAT(slurm_->cancelled, IsEmpty());
}

// --- refusals in a site's own words

TEST(SlurmDenied, ARefusalInUnknownWordsIsBelievedOnceTheQueueDoesNotShowTheJob) {
    SlurmAttempt one = sent(SubmitReply::Kind::denied);
    EXPECT_EQ(one.stage, SlurmAttempt::Stage::in_doubt);
    take_rows(one, {}, kStart - 1s, kPatience);
    EXPECT_EQ(one.stage, SlurmAttempt::Stage::in_doubt) << "asked before sbatch had ended";
    take_rows(one, {}, kStart + 1s, kPatience);
    EXPECT_EQ(one.stage, SlurmAttempt::Stage::refused);
    EXPECT_EQ(handover(one).kind, Handover::Kind::refused);
    EXPECT_EQ(handover(one).reason, "Socket timed out");
}

TEST(SlurmDenied, AJobThatIsThereAllTheSameIsTakenUp) {
    SlurmAttempt one = sent(SubmitReply::Kind::denied);
    take_rows(one, {row(17, "PENDING")}, kStart + 1s, kPatience);
    EXPECT_EQ(one.id, 17);
    EXPECT_EQ(handover(one).kind, Handover::Kind::placed);
}

// slurmctld keeps a record of some of the jobs that it refuses.
TEST(SlurmDenied, TheRecordOfTheRefusalIsNoJob) {
    SlurmAttempt one = sent(SubmitReply::Kind::denied);
    take_rows(one, {row(17, "FAILED", "BadConstraints")}, kStart + 1s, kPatience);
    EXPECT_EQ(one.stage, SlurmAttempt::Stage::refused);
    EXPECT_EQ(one.id, 0);
}

TEST(SlurmDenied, AWrapperThatFailsInItsOwnWordsIsBelievedTheSecondTime) {
    SubmitReply failed = reply(SubmitReply::Kind::ambiguous, 0, "you have no budget left");
    failed.ended_badly = true;
    SlurmAttempt one = take_up(request(), kStart);
    for (int turn = 1; turn <= 2; ++turn) {
        one.stage = SlurmAttempt::Stage::sending;
        const SteadyTime at = kStart + turn * 1000s;
        take_reply(one, failed, at);
        take_rows(one, {}, at + 359s, kPatience);
        EXPECT_FALSE(wants_history(one, at + 359s)) << "its request may still be on the way";
        take_rows(one, {}, at + 361s, kPatience);
        ASSERT_TRUE(wants_history(one, at + 361s));
        take_history(one, {}, at + 361s, kPatience);
        EXPECT_EQ(one.stage, turn == 1 ? SlurmAttempt::Stage::gone : SlurmAttempt::Stage::refused);
    }
    EXPECT_EQ(handover(one).reason, "you have no budget left");
}

TEST_F(SlurmPromises, ASitesRefusalIsToldWithinAQuery) {
    begin();
    slurm_->says = no(SubmitReply::Kind::denied, "no allocation: see the front desk");
    AttemptRequest job = request(job_name(1));
    until([&] {
        hand_over(job);
        return last_.kind == Handover::Kind::refused;
    });
    EXPECT_EQ(last_.reason, "no allocation: see the front desk");
    EXPECT_EQ(slurm_->submissions, 1);
    EXPECT_EQ(scheduler_->counters().unclear, 0U);
    EXPECT_EQ(scheduler_->counters().refused, 1U);
}

// --- the end of what is in doubt

TEST_F(SlurmPromises, WhatIsInDoubtIsCancelledAtOnceAndEndedWhenItAppears) {
    begin(60s);  // it appears before it is given up, also if the machine stands still
    slurm_->says = no(SubmitReply::Kind::ambiguous, "Socket timed out");
    AttemptRequest job = request(job_name(1));
    until([&] {
        hand_over(job);
        return last_.reason.find("not known yet") != std::string::npos;
    });
    EXPECT_EQ(look(job).kind, Observation::Kind::state);
    EXPECT_TRUE(wait<Status>(scheduler_->cancel(job.job, 1)));
    EXPECT_EQ(look(job).kind, Observation::Kind::absent) << "nobody need wait for it";
    scheduler_->over(job.job, 1);
    slurm_->names[17] = job.job.value;  // slurmctld has read the request by now
    until([&] { return !slurm_->cancelled.empty(); });
    EXPECT_EQ(slurm_->cancelled.front(), 17);
    slurm_->state = "CANCELLED";
    until([&] { return scheduler_->counters().attempts == 0; });
    EXPECT_EQ(slurm_->submissions, 1);
}

// Each that hangs had a turn of four until it was killed after three minutes.
TEST_F(SlurmPromises, SubmissionsThatHangHoldUpNoOthersOnceTheirJobsAreThere) {
    begin();
    slurm_->hangs = true;
    std::vector<AttemptRequest> hanging;
    for (int number = 1; number <= 4; ++number) {
        hanging.push_back(request(job_name(number)));
    }
    until([&] {
        for (AttemptRequest& one : hanging) {
            hand_over(one);
        }
        return slurm_->now_sending == 4;
    });
    slurm_->hangs = true;
    AttemptRequest last = request(job_name(5));
    hand_over(last);
    EXPECT_EQ(last_.kind, Handover::Kind::wait);
    for (int number = 1; number <= 4; ++number) {
        slurm_->names[number] = job_name(number);
    }
    slurm_->ids = 4;
    until([&] {
        for (AttemptRequest& one : hanging) {
            hand_over(one);
        }
        hand_over(last);
        return slurm_->now_sending == 5;
    });
    slurm_->hangs = false;
    EXPECT_EQ(scheduler_->counters().unclear, 0U);
}

// --- the last words of a script that ended before any agent came

TEST_F(SlurmPromises, TheLastLineOfTheBatchLogIsInTheCause) {
    begin();
    slurm_->state = "FAILED";
    slurm_->exit_code = 127;
    AttemptRequest job = request(job_name(1));
    ASSERT_TRUE(replace_file(job.directory + "/batch.log",
                             "some\nsrun: error: n1: task 0: Exited with exit code 127\n"));
    ASSERT_TRUE(
        replace_file(job.directory + "/agent-00000.log",
                     "lockstep-agent: error while loading shared libraries: libfoo.so.1\n"));
    Observation seen;
    until([&] {
        hand_over(job);
        seen = look(job);
        return !seen.cause.message.empty();
    });
    EXPECT_THAT(seen.cause.message,
                HasSubstr("(exit code 127) before any agent had called in: lockstep-agent: "
                          "error while loading shared libraries: libfoo.so.1; see "));
}

// It was called a Slurm that does not answer, which held up all jobs, and each try left an intent.
TEST_F(SlurmSchedulerTest, ABatchScriptThatCannotBeWrittenIsNoSilenceOfSlurms) {
    start();
    AttemptRequest job = request(job_name(1));
    std::filesystem::remove(job.directory);
    int intents = 0;
    for (int asked = 0; asked < 20; ++asked) {
        hand_over(job);
        intents += last_.kind == Handover::Kind::again ? 1 : 0;
        const auto next = clock_.steady() + 12ms;  // poll_min, then it is tried again
        until([&] { return clock_.steady() >= next; });
    }
    until([&] { return !hand_over(job) && last_.kind == Handover::Kind::wait; });
    EXPECT_EQ(intents, 1);
    EXPECT_EQ(last_.kind, Handover::Kind::wait);
    EXPECT_THAT(last_.reason, testing::AllOf(testing::StartsWith("cannot write the batch script: "),
                                             HasSubstr("No such file or directory")));
    EXPECT_TRUE(wait<Status>(scheduler_->ping()).has_value());
    AttemptRequest other = request(job_name(2));
    until([&] { return hand_over(other); });
    std::filesystem::create_directories(job.directory);
    until([&] { return hand_over(job); });
    EXPECT_EQ(slurm_->ids, 2);
}

}  // namespace
}  // namespace lockstep
