// The Slurm scheduler with a Slurm of the test's own: turns, the budget of queries, what is asked
// when.
#include "tests/support/sanitized.hpp"
#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

#include <iterator>
#include <set>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST_F(SlurmSchedulerTest, AThousandJobsAreFollowedByOneQueryACycleWithinTheBudget) {
    SlurmScheduler::Options options;
    options.submissions_per_second = 1e6;
    options.reads_per_second = 20;
    start(options);
    std::vector<AttemptRequest> jobs;
    // Under AddressSanitizer a thousand take a minute of this core, not 0.2 s.
    const int count = test::kSanitized ? 100 : 1000;
    for (int number = 0; number < count; ++number) {
        jobs.push_back(request(job_name(number)));
    }
    std::set<std::size_t> open;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        open.insert(i);
    }
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!open.empty()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        // The first in line: those behind them would only hear that it is not their turn.
        std::size_t asked = 0;
        for (auto at = open.begin(); at != open.end() && asked < 8; ++asked) {
            at = hand_over(jobs[*at]) ? open.erase(at) : std::next(at);
        }
        io_.restart();
        io_.run_for(1ms);
    }
    EXPECT_EQ(slurm_->ids, count);
    EXPECT_LE(slurm_->most_sending, 4);
    const int before = slurm_->queries;
    const auto begun = std::chrono::steady_clock::now();
    until([&] { return slurm_->queries >= before + 20; });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    EXPECT_LE(20, took.count() * 20 + 4 + 1) << "queries in " << took.count() << " s";
    changes_.clear();
    slurm_->state = "RUNNING";
    const int queries = slurm_->queries;
    until([&] { return changes_.size() == jobs.size(); });
    EXPECT_LE(slurm_->queries - queries, 2) << "seen within one cycle";
}

TEST_F(SlurmSchedulerTest, NothingIsHandedToASlurmThatDoesNotAnswer) {
    answers_ = false;
    start();
    ASSERT_TRUE(begun_.has_value()) << "the daemon starts all the same";
    AttemptRequest job = request(job_name(1));
    EXPECT_FALSE(hand_over(job));
    EXPECT_EQ(last_.kind, Handover::Kind::wait);
    EXPECT_THAT(last_.reason, HasSubstr("no controller"));
    EXPECT_EQ(slurm_->ids, 0);
    slurm_->answers = true;
    until([&] { return hand_over(job); });
    EXPECT_EQ(slurm_->ids, 1);
}

TEST_F(SlurmSchedulerTest, WhatIsLeftOfAJobThatIsOverIsEndedAfterAWhile) {
    SlurmScheduler::Options options;
    options.over_patience = 0s;
    options.reads_per_second = 1000;
    start(options);
    slurm_->state = "RUNNING";
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    scheduler_->over(job.job, 1);
    until([&] { return !slurm_->cancelled.empty(); });
    slurm_->state = "CANCELLED";
    until([&] { return scheduler_->counters().attempts == 0; });
}

TEST_F(SlurmSchedulerTest, AJobThatSlurmLostBeforeAnyAgentCameIsHandedInAgainAndNotForEver) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    slurm_->state = "FAILED";
    slurm_->exit_code = 1;
    AttemptRequest job = request(job_name(1));
    Observation last;
    until([&] {
        hand_over(job);
        last = wait<Observation>(scheduler_->poll(job.job, 1));
        return last.state == AllocationState::ended && !last.cause.message.empty();
    });
    EXPECT_EQ(slurm_->ids, 4);
    EXPECT_EQ(slurm_->details, 4) << "each is asked for once";
    EXPECT_THAT(last.cause.message, HasSubstr("Slurm job 4 failed (exit code 1)"));
}

TEST_F(SlurmSchedulerTest, WhatNobodyCameFromIsWrittenDownBeforeItIsCancelled) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.unclaimed = 0s;
    start(options);
    slurm_->state = "RUNNING";
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    until([&] { return !slurm_->cancelled.empty(); });
    EXPECT_EQ(*read_file(job.directory + "/abandoned", 64), "1");
}

// lockstepd was killed after that cancel: the next one must not take it for a person's.
TEST_F(SlurmSchedulerTest, ACancelOfAnEarlierDaemonIsNoPersons) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    slurm_->state = "CANCELLED";
    slurm_->started_at = 1'000;
    slurm_->ended_at = 1'200;
    AttemptRequest ours = request(job_name(1));
    ASSERT_TRUE(replace_file(ours.directory + "/abandoned", "1"));
    until([&] {
        hand_over(ours);
        return slurm_->ids >= 2;
    });
    AttemptRequest theirs = request(job_name(2));
    ASSERT_TRUE(replace_file(theirs.directory + "/abandoned", "1"));
    Observation seen;
    until([&] {
        hand_over(theirs);
        seen = wait<Observation>(scheduler_->poll(theirs.job, 1));
        return !seen.cause.message.empty();
    });
    EXPECT_THAT(seen.cause.message, HasSubstr("was cancelled outside Lockstep"));
}

TEST_F(SlurmSchedulerTest, AdmissionNamesTheFieldThatCanNeverFit) {
    start();
    const auto refused = [&](const char* text) {
        const auto spec = parse_spec(*parse_json(text));
        EXPECT_TRUE(spec.has_value()) << text;
        const auto admitted = scheduler_->admit(*spec);
        return admitted ? std::string{} : admitted.error().fields.at(0).pointer;
    };
    EXPECT_EQ(refused(R"({"name":"t","framework":"native"})"), "");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","slurm":{"partition":"x"}})"),
              "/slurm/partition");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","resources":{"nodes":5}})"),
              "/resources/nodes");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","resources":{"time_limit":"02:00:00"}})"),
              "/resources/time_limit");
}

TEST_F(SlurmSchedulerTest, NodesAreAskedForAtTheStartAndNotAtEachReading) {
    start();
    ASSERT_TRUE(begun_);
    EXPECT_EQ(slurm_->node_queries, 1);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(scheduler_->cluster().nodes.size(), 1U);
    }
    const Cluster cluster = scheduler_->cluster();
    EXPECT_EQ(cluster.nodes[0].state, "down*");
    EXPECT_FALSE(cluster.nodes[0].usable);
    EXPECT_EQ(cluster.nodes[0].reason, "Not responding");
    ASSERT_EQ(cluster.partitions.size(), 1U);
    EXPECT_EQ(cluster.partitions[0].max_time_seconds, 3600);
    EXPECT_EQ(slurm_->node_queries, 1);
}

// slurmctld was killed in the seconds around a job's end, and brings the job back.
TEST_F(SlurmSchedulerTest, AJobOfAnAttemptThatHasEndedIsCancelledByItsName) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.idle_most = 20ms;
    start(options);
    slurm_->state = "RUNNING";
    slurm_->names = {{7, job_name(7)}, {8, job_name(8)}, {9, job_name(9)}, {10, job_name(10)}};
    std::map<std::string, int> asked;
    scheduler_->know_ends([&](JobId job, std::int32_t attempt) -> Task<Result<UnixMillis>> {
        EXPECT_EQ(attempt, 1);
        ++asked[job.value];
        if (job.value == job_name(8)) {
            co_return fail(Errc::not_found, "another lockstepd's");
        }
        if (job.value == job_name(9)) {
            co_return UnixMillis{0};  // it goes on
        }
        // One ended long ago, the other this moment: its agents are on their way out.
        co_return clock_.wall() - (job.value == job_name(7) ? 61'000 : 0);
    });
    until([&] { return !slurm_->cancelled.empty(); });
    const int before = slurm_->queries;
    until([&] { return slurm_->queries >= before + 20; });
    EXPECT_THAT(slurm_->cancelled, testing::ElementsAre(7)) << "and not at each look";
    EXPECT_EQ(scheduler_->counters().leftovers, 2U);
    EXPECT_EQ(scheduler_->counters().leftovers_cancelled, 1U);
    EXPECT_EQ(asked[job_name(8)], 1) << "nobody else's job is asked about again and again";
    EXPECT_GT(asked[job_name(9)], 1);
    slurm_->state = "COMPLETING";
    until([&] { return scheduler_->counters().leftovers == 0; });
}

TEST_F(SlurmSchedulerTest, WithNothingToFollowSlurmIsAskedLessAndLess) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    options.idle_most = 10min;
    start(options);
    scheduler_->know_ends(
        [](JobId, std::int32_t) -> Task<Result<UnixMillis>> { co_return UnixMillis{0}; });
    const auto begun = std::chrono::steady_clock::now();
    until([&] { return std::chrono::steady_clock::now() - begun > 1500ms; });
    // At 10 ms until 100 ms have passed, then after each tenth of the time: 1.1^n.
    EXPECT_LE(slurm_->queries, 15 + 40);
    EXPECT_GE(slurm_->queries, 2);
}

}  // namespace
}  // namespace lockstep
