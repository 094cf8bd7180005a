// size: turns, the budget of queries and what is asked when, with one Slurm of the test's own
// The Slurm scheduler with a Slurm of the test's own: turns, the budget of queries, what is asked
// when.
#include "tests/support/log_lines.hpp"
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
    // Counted with the last change: on a busy machine, queries that are answered at once follow
    // each other before this looks.
    int seen = 0;
    scheduler_->on_change([&](const JobId& job, std::int32_t) {
        ++changes_[job.value];
        seen = changes_.size() == jobs.size() && seen == 0 ? slurm_->queries : seen;
    });
    until([&] { return changes_.size() == jobs.size(); });
    EXPECT_LE(seen - queries, 2) << "seen within one cycle";
    scheduler_->on_change([](const JobId&, std::int32_t) {});  // the other one has this test's own
}

// Intents that could not be stored: four such jobs stopped every submission for ever.
TEST_F(SlurmSchedulerTest, ATurnThatNoIntentFollowsGoesToTheNextInLine) {
    SlurmScheduler::Options options;
    start(options);
    std::vector<AttemptRequest> stuck;
    for (std::size_t number = 0; number < options.submissions_at_once; ++number) {
        stuck.push_back(request(job_name(static_cast<int>(number))));
    }
    const auto ask_in_vain = [&] {
        for (const AttemptRequest& one : stuck) {
            EXPECT_NE(wait<Handover>(scheduler_->submit(one)).kind, Handover::Kind::placed);
        }
    };
    ask_in_vain();
    AttemptRequest other = request(job_name(99));
    EXPECT_FALSE(hand_over(other));
    EXPECT_EQ(last_.kind, Handover::Kind::wait);
    EXPECT_THAT(last_.reason, HasSubstr("waiting for its turn"));
    until([&] {
        ask_in_vain();
        return hand_over(other);
    });
    EXPECT_EQ(slurm_->ids, 1);
}

// squeue shows it again before its intent was written.
TEST_F(SlurmSchedulerTest, ATurnIsGivenBackByAJobThatIsThereAfterAll) {
    SlurmScheduler::Options options;
    options.submissions_at_once = 1;
    options.reads_per_second = 1000;
    options.between_empty = 0s;
    start(options);
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    slurm_->hides = true;
    until([&] { return wait<Handover>(scheduler_->submit(job)).kind == Handover::Kind::again; });
    slurm_->hides = false;
    until([&] { return wait<Handover>(scheduler_->submit(job)).kind == Handover::Kind::placed; });
    AttemptRequest other = request(job_name(2));
    until([&] { return hand_over(other); });
    EXPECT_EQ(slurm_->submissions, 2);
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

// The name in Slurm has the job's id in small letters: whoever looked for a job in the journal by
// its id missed that Slurm had taken or refused it.
TEST_F(SlurmSchedulerTest, WhatSlurmAnswersIsLoggedUnderTheJobsOwnId) {
    const test::LogLines log;
    const auto logged = [&log](const std::string& words, int number) {
        return log.text().find(" msg=\"" + words + "\" job=" + job_name(number) + " name=t-") !=
               std::string::npos;
    };
    start();
    AttemptRequest taken = request(job_name(1));
    until([&] { return hand_over(taken); });
    until([&] { return logged("handed to Slurm", 1); });
    slurm_->says = SubmitReply{};
    slurm_->says->kind = SubmitReply::Kind::rejected;
    AttemptRequest refused = request(job_name(2));
    until([&] {
        hand_over(refused);
        return logged("Slurm refuses a job", 2);
    });
    slurm_->says->kind = SubmitReply::Kind::ambiguous;
    AttemptRequest unclear = request(job_name(3));
    until([&] {
        hand_over(unclear);
        return logged("a submission of unknown outcome", 3);
    });
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

// An administrator has set it DOWN: agents hear a SIGTERM on all nodes alike.
TEST_F(SlurmSchedulerTest, TheNodeThatAJobLostIsNamedWithSlurmsReason) {
    SlurmScheduler::Options options;
    options.reads_per_second = 1000;
    start(options);
    slurm_->state = "RUNNING";
    AttemptRequest job = request(job_name(1));
    until([&] { return hand_over(job); });
    scheduler_->claimed(job.job, 1, "1");
    slurm_->state = "NODE_FAIL";
    Observation last;
    until([&] {
        last = wait<Observation>(scheduler_->poll(job.job, 1));
        return last.state == AllocationState::ended;
    });
    EXPECT_EQ(last.cause.kind, CauseClass::node_lost);
    EXPECT_EQ(last.cause.node, "n1");
    EXPECT_EQ(last.cause.message, "Slurm job 1 lost a node: n1 (Not responding)");
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

// They may all be in its queue.
TEST_F(SlurmSchedulerTest, WhatSqueueNeverShowsIsCancelledAndTheAttemptRefused) {
    start_with_a_squeue_that_hides();
    AttemptRequest job = request(job_name(1));
    until([&] {
        hand_over(job);
        return last_.kind == Handover::Kind::refused && slurm_->cancelled.size() == 3;
    });
    EXPECT_THAT(last_.reason, HasSubstr("squeue has never shown it"));
    EXPECT_THAT(slurm_->cancelled, testing::ElementsAre(1, 2, 3));
    EXPECT_EQ(slurm_->submissions, 3);
}

// A cancel by a person must not leave behind what had not been shown.
TEST_F(SlurmSchedulerTest, ACancelEndsWhatSqueueHasNotShownToo) {
    start_with_a_squeue_that_hides();
    AttemptRequest job = request(job_name(1));
    until([&] {
        hand_over(job);
        return slurm_->submissions == 2 && last_.kind == Handover::Kind::placed;
    });
    // The first was forgotten where its scancel failed, and got nodes later.
    slurm_->cannot_cancel = 1;
    EXPECT_FALSE(wait<Status>(scheduler_->cancel(job.job, 1)));
    EXPECT_THAT(slurm_->cancelled, testing::Not(testing::Contains(1)));
    slurm_->cannot_cancel = 0;
    ASSERT_TRUE(wait<Status>(scheduler_->cancel(job.job, 1)));
    EXPECT_THAT(slurm_->cancelled, testing::IsSupersetOf({1, 2}));
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
    until(
        [&] { return std::chrono::steady_clock::now() - begun > 1500ms && slurm_->queries >= 2; });
    // At 10 ms until 100 ms have passed, then after each tenth of the time: 1.1^n.
    EXPECT_LE(slurm_->queries, 15 + 40);
}

TEST_F(SlurmSchedulerTest, AnEstimateIsTheStartOrTheRefusalAndSubmitsNothing) {
    start();
    AttemptRequest job = request(job_name(41));
    auto none = wait(scheduler_->estimate(job));
    ASSERT_TRUE(none);
    EXPECT_FALSE(*none) << "there is no way to ask";
    slurm_->test_only = TestOnlyReply{};
    slurm_->test_only->accepted = true;
    slurm_->test_only->start = 1'795'237'809;
    slurm_->test_only->nodes = "n[1-2]";
    slurm_->test_only->partition = "main";
    const auto start = wait(scheduler_->estimate(job));
    ASSERT_TRUE(start && *start);
    EXPECT_EQ((*start)->start, 1'795'237'809'000);
    EXPECT_EQ((*start)->nodes, "n[1-2]");
    EXPECT_EQ((*start)->refusal, "");
    EXPECT_EQ(slurm_->estimated, scheduler_->script(job).value().value());
    slurm_->test_only = TestOnlyReply{};
    slurm_->test_only->message = "Requested node configuration is not available";
    const auto refused = wait(scheduler_->estimate(job));
    ASSERT_TRUE(refused && *refused);
    EXPECT_EQ((*refused)->start, 0);
    EXPECT_EQ((*refused)->refusal, "Requested node configuration is not available");
    EXPECT_EQ(slurm_->submissions, 0);
}

TEST_F(SlurmSchedulerTest, EstimatesThatHangAreFewAndHoldUpNothing) {
    start();
    slurm_->hangs = true;
    const AttemptRequest job = request(job_name(42));
    int over = 0;
    const auto ask = [&]() -> Task<void> {
        AttemptRequest copy = job;
        co_await scheduler_->estimate(std::move(copy));
        ++over;
    };
    net::co_spawn(io_, ask(), net::detached);
    net::co_spawn(io_, ask(), net::detached);
    until([&] { return slurm_->estimates == 2; });
    const auto third = wait(scheduler_->estimate(job));
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().code, Errc::exhausted);
    const int before = slurm_->queries;
    AttemptRequest tracked = request(job_name(43));
    slurm_->hangs = false;
    until([&] { return over == 2 && hand_over(tracked); });
    until([&] { return slurm_->queries > before; });
}

TEST_F(SlurmSchedulerTest, HowLongSlurmLetsWaitAndWhyIsMeasuredOnceForEachStart) {
    std::vector<std::pair<std::string, double>> waits;
    SlurmScheduler::Options options;
    options.waited = [&](const std::string& partition, double seconds) {
        waits.emplace_back(partition, seconds);
    };
    start(options);
    AttemptRequest job = request(job_name(44));
    until([&] { return hand_over(job); });
    const std::map<std::string, std::uint64_t> one{{"Resources", 1}};
    until([&] { return scheduler_->counters().pending_reasons == one; });
    using Jobs = std::map<std::pair<std::string, std::string>, std::uint64_t>;
    EXPECT_EQ(scheduler_->counters().jobs, (Jobs{{{"main", "PENDING"}, 1}}));
    const std::int64_t now = clock_.wall() / 1000 + 1;
    slurm_->submitted_at = now - 90;
    slurm_->started_at = now;
    slurm_->state = "RUNNING";
    until([&] { return !waits.empty(); });
    const int after = slurm_->queries;
    until([&] { return slurm_->queries > after + 1; });
    EXPECT_EQ(waits, (std::vector<std::pair<std::string, double>>{{"main", 90}}));
    EXPECT_TRUE(scheduler_->counters().pending_reasons.empty());
    EXPECT_EQ(scheduler_->counters().jobs, (Jobs{{{"main", "RUNNING"}, 1}}));
    slurm_->state = "COMPLETED";
    until([&] { return scheduler_->counters().jobs.empty(); });
}

TEST(SlurmCountersTest, PartitionsBeyondTheBoundAreCountedTogether) {
    SlurmCounters counters;
    for (std::size_t i = 0; i < limits::kWaitReasons + 2; ++i) {
        counters.count_jobs({"p" + std::to_string(100 + i), "RUNNING"}, 1);
    }
    counters.count_jobs({"p100", "PENDING"}, 1);
    EXPECT_EQ(counters.jobs.at({"other", "RUNNING"}), 2U);
    EXPECT_EQ(counters.jobs.at({"p100", "PENDING"}), 1U) << "a partition that has its place";
    EXPECT_EQ(counters.jobs.size(), limits::kWaitReasons + 2);
}

TEST_F(SlurmSchedulerTest, AStartOfBeforeThisDaemonIsNotCountedAgain) {
    int waits = 0;
    SlurmScheduler::Options options;
    options.waited = [&](const std::string&, double) { ++waits; };
    prepare_ = [this](FakeSlurm& slurm) {
        slurm.state = "RUNNING";
        slurm.submitted_at = clock_.wall() / 1000 - 100;
        slurm.started_at = clock_.wall() / 1000 - 10;
    };
    start(options);
    AttemptRequest job = request(job_name(45));
    until([&] { return hand_over(job); });
    const int after = slurm_->queries;
    until([&] { return slurm_->queries > after + 2; });
    EXPECT_EQ(waits, 0);
}

}  // namespace
}  // namespace lockstep
