// A job that somebody renames in Slurm stays the attempt's, and another one of its number does not
// become it.
#include "scheduler-integration/slurm/slurm_renamed.hpp"

#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

namespace lockstep {
namespace {

using SlurmRenamedTest = SlurmSchedulerTest;

// scontrol update JobName=: its number stays, and the moment it was submitted.
TEST_F(SlurmRenamedTest, AJobThatSomebodyRenamesInSlurmIsFollowedAndCancelledByItsNewName) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    slurm_->submitted_at = 1000;
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    const auto looks = [this](int more) {
        const int before = slurm_->queries;
        until([&] { return slurm_->queries >= before + more; });
    };
    looks(2);
    slurm_->renamed = "mine";
    looks(5);
    Observation seen = wait<Observation>(scheduler_->poll(job.job, 1));
    EXPECT_EQ(seen.kind, Observation::Kind::state);
    EXPECT_EQ(scheduler_->counters().forgotten, 0U);
    EXPECT_TRUE(wait<Status>(scheduler_->cancel(job.job, 1)));
    EXPECT_THAT(slurm_->cancelled, testing::ElementsAre(1));

    // Of a later moment it is another job, which a slurmctld that has lost ours gave its number.
    slurm_->submitted_at = 2000;
    until([&] { return scheduler_->counters().forgotten == 1; });
}

TEST_F(SlurmRenamedTest, AJobThatHasItsOwnNameAgainIsCancelledByThat) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    const auto looks = [this](int more) {
        const int before = slurm_->queries;
        until([&] { return slurm_->queries >= before + more; });
    };
    slurm_->renamed = "mine";
    looks(5);
    slurm_->renamed.clear();
    looks(5);
    EXPECT_TRUE(wait<Status>(scheduler_->cancel(job.job, 1)));  // the fake compares the name
    EXPECT_THAT(slurm_->cancelled, testing::ElementsAre(1));
}

TEST_F(SlurmRenamedTest, AJobThatWasRenamedWhileNoLockstepdRanIsStillTheSameJob) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    prepare_ = [](FakeSlurm& slurm) { slurm.submitted_at = 1000; };
    start(options);
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    until([&] { return std::filesystem::exists(job.directory + "/slurm-job"); });
    TearDown();
    job.scheduler_id = "1";
    const auto start_with_renamed = [&](std::int64_t submitted_at) {
        prepare_ = [&job, submitted_at](FakeSlurm& slurm) {
            slurm.submitted_at = submitted_at;
            slurm.names[1] = job.job.value;
            slurm.renamed = "mine";
        };
        start(options);
        EXPECT_TRUE(hand_over(job));
    };
    start_with_renamed(1000);
    until([&] { return slurm_->queries >= 5; });
    EXPECT_EQ(wait<Observation>(scheduler_->poll(job.job, 1)).kind, Observation::Kind::state);
    EXPECT_EQ(scheduler_->counters().forgotten, 0U);
    EXPECT_TRUE(wait<Status>(scheduler_->cancel(job.job, 1)));  // the fake compares the name
    EXPECT_THAT(slurm_->cancelled, testing::ElementsAre(1));
    // Of another moment it is another job, with the number of ours, which is lost.
    TearDown();
    start_with_renamed(1001);
    until([&] { return scheduler_->counters().forgotten == 1; });
}

// It was tried once: on a full disk a job that was renamed later counted as lost.
TEST_F(SlurmRenamedTest, WhatCouldNotBeKeptOfAJobIsWrittenOnceThereIsRoom) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    prepare_ = [](FakeSlurm& slurm) { slurm.submitted_at = 1000; };
    start(options);
    AttemptRequest job = request(job_name(1));
    const std::filesystem::path file = job.directory + "/slurm-job";
    std::filesystem::create_directories(file / "in the way");  // rename(2) refuses
    until([&] { return hand_over(job); });
    const int before = slurm_->queries;
    until([&] { return slurm_->queries >= before + 3; });
    std::filesystem::remove_all(file);
    until([&] { return test::text_of(file) == "1 1000\n"; });
}

// slurmctld may have lost ours and given its number to somebody else's while no lockstepd looked.
TEST_F(SlurmRenamedTest, AJobOfAnotherNameIsNotTakenForTheOneOfALockstepdBefore) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    AttemptRequest job = request(job_name(1));
    job.scheduler_id = "1";
    slurm_->names[1] = job.job.value;
    slurm_->renamed = "theirs";
    slurm_->submitted_at = 2000;
    static_cast<void>(wait<Result<bool>>(scheduler_->adopt(job)));
    until([&] { return scheduler_->counters().forgotten == 1; });
    EXPECT_THAT(slurm_->cancelled, testing::IsEmpty());
}

// Seen on a real Slurm: slurmctld was killed, started and had given the number again, all in the
// second in which ours was submitted; the other job was cancelled as a surplus copy of ours.
TEST(SlurmRenamed, AJobOfTheSameSecondThatWaitsIsNotTheOneThatHasBegun) {
    SlurmAttempt attempt;
    attempt.name = "ours";
    attempt.stage = SlurmAttempt::Stage::known;
    attempt.id = 3;
    SlurmJob job;
    job.id = 3;
    job.submitted_at = 1000;
    job.state = parse_slurm_state("PENDING");
    attempt.seen = job;
    job.name = "another name";
    const auto rows = [&] {
        std::vector<SlurmJob> out;
        take_renamed(attempt, job, out);
        return out.size();
    };
    EXPECT_EQ(rows(), 1U) << "renamed while it waits";
    attempt.claimed = 3;
    EXPECT_EQ(rows(), 0U);
    job.state = parse_slurm_state("RUNNING");
    EXPECT_EQ(rows(), 1U) << "renamed while it runs";
}

TEST(SlurmRenamed, TheFileIsReadAsItIsWrittenAndNothingElseIs) {
    const auto again = parse_slurm_job(to_text(SlurmAttempt::Copy{17, 1'700'000'000}));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->id, 17);
    EXPECT_EQ(again->submitted_at, 1'700'000'000);
    for (const char* text : {"", "17", "17 18", "17\n", "x 18\n", "17 \n", " 18\n", "17 18 19\n"}) {
        EXPECT_FALSE(parse_slurm_job(text)) << text;
    }
}

}  // namespace
}  // namespace lockstep
