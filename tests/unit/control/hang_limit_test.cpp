// How long without a step is a hang where the job does not say it: by the steps that it has made.
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class HangLimitTest : public JobMachineTest {
  protected:
    static History job_of_two(const std::string& more = "") {
        return History{R"({"name":"t","framework":"command","command":["x"],
                           "resources":{"nodes":2},"preflight":{"mode":"off"},
                           "recovery":{"on":["rank_failure"]})" +
                       more + "}"};
    }
    void SetUp() override {
        History history = job_of_two();
        history.running();
        begin(history);
    }
    // Its ranks run; of the agents nobody says anything here, nor is it looked at them.
    void begin(const History& history) {
        at_.steady = at_.timers = std::chrono::steady_clock::time_point{std::chrono::seconds{100}};
        at_.wall = history.now;
        at_.series = &series_;
        machine_ = std::make_unique<JobMachine>(
            history.job, files_, [](std::int32_t, const std::string&) { return true; });
        generation_ = static_cast<std::uint32_t>(history.generation_number());
        wait(std::chrono::seconds{1});
    }
    // Both ranks make it, after so long without one.
    void step_after(std::chrono::seconds time) {
        wait(time);
        Batch batch;
        batch.seq = ++seq_;
        batch.generation = generation_;
        ++step_;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            batch.add_row(rank, step_, at_.wall_seconds());
            batch.set("step_seconds", static_cast<double>(time.count()));
        }
        ASSERT_EQ(series_.ingest(batch, 1, at_.wall_seconds()).rows, 2U);
    }
    // Rank 0 says it: 1 train, 2 eval. The other one waits for it.
    void phase(double code) {
        Batch batch;
        batch.seq = ++seq_;
        batch.generation = generation_;
        batch.add_row(0, -1, at_.wall_seconds());
        batch.set("phase_code", code);
        ASSERT_EQ(series_.ingest(batch, 1, at_.wall_seconds()).rows, 1U);
    }
    void wait(std::chrono::seconds time) {
        for (std::chrono::seconds passed{0}; passed < time; ++passed) {
            look_after(std::chrono::seconds{1});
        }
    }
    void look_after(std::chrono::milliseconds time) {
        pass(time);
        Draft draft = machine_->draft(at_);
        machine_->look(draft, runs(), false);
        machine_->stored(draft, at_);
        const Generation* live = job().live_generation();
        hung_ = hung_ || (live != nullptr && live->hang.has_value());
    }
    bool untold() const { return machine_->run().generation.hang_untold; }

    telemetry::JobSeries series_{2};
    bool hung_ = false;  // that was told, at some time

  private:
    std::uint64_t seq_ = 0;
    std::uint32_t generation_ = 1;
    std::int64_t step_ = 0;
};

// It was ten times the newest step, however long the others had taken: a save of 150 s was a hang.
TEST_F(HangLimitTest, IsTenTimesWhatStepsTakeOverTimeAndNotWhatTheNewestTook) {
    for (int number = 1; number <= 40; ++number) {
        step_after(std::chrono::seconds{number % 10 == 0 ? 90 : 10});
    }
    EXPECT_FALSE(hung_);
    step_after(std::chrono::seconds{10});
    wait(std::chrono::seconds{150});
    EXPECT_FALSE(hung_) << "ten times the 99th percentile is 900 s";
    wait(std::chrono::seconds{1000 - 150});
    EXPECT_TRUE(hung_);
}

TEST_F(HangLimitTest, IsTenTimesTheNewestStepWhileThereAreFew) {
    for (int number = 1; number <= 10; ++number) {
        step_after(std::chrono::seconds{number == 2 ? 50 : 10});
    }
    wait(std::chrono::seconds{95});
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{10});
    EXPECT_TRUE(hung_);
}

// A script that saves for 150 s at its fifth step was ended there three times, and failed.
TEST_F(HangLimitTest, IsThreeTimesAsLongWhereTheGenerationBeforeWasEndedAsAHang) {
    History history = job_of_two();
    history.running();
    history.fails(CauseClass::hang, 5);
    history.again();
    begin(history);
    for (int number = 1; number <= 5; ++number) {
        step_after(std::chrono::seconds{10});
    }
    wait(std::chrono::seconds{290});
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{20});
    EXPECT_TRUE(hung_);
}

// The first step after each evaluation counted as 300 s: the limit was 50 min.
TEST_F(HangLimitTest, WhatARankSaysIsAnEvaluationIsNoneOfTheSteps) {
    for (int epoch = 1; epoch <= 3; ++epoch) {
        phase(2);
        wait(std::chrono::seconds{300});
        phase(1);
        for (int number = 1; number <= 50; ++number) {
            step_after(std::chrono::seconds{1});
        }
    }
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{55});
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{25});
    EXPECT_TRUE(hung_);
}

// Ranks that got stuck for 20 min and went on made the next hang one after more than 3 h.
TEST_F(HangLimitTest, OneStallIsNotWhatStepsTake) {
    for (int number = 1; number <= 40; ++number) {
        step_after(std::chrono::seconds{number == 30 ? 1200 : 60});
        if (number == 30) {
            EXPECT_TRUE(hung_);
            hung_ = false;
        }
    }
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{590});
    EXPECT_FALSE(hung_);
    wait(std::chrono::seconds{80});
    EXPECT_TRUE(hung_);
}

// The next look, 0.1 s after that which saw it, took it for over: the alert resolved, and paged
// again.
TEST_F(HangLimitTest, OneThatIsNotToldLastsUntilStepsAreMade) {
    History history = job_of_two(R"(,"watch":{"hang_seconds":3})");
    history.running();
    begin(history);
    for (std::size_t told = 1; told <= limits::kAnomalyEvents; ++told) {
        step_after(std::chrono::seconds{1});
        wait(std::chrono::seconds{6});
        ASSERT_TRUE(job().live_generation()->hang) << told;
    }
    step_after(std::chrono::seconds{1});
    wait(std::chrono::seconds{6});
    EXPECT_FALSE(job().live_generation()->hang);
    ASSERT_TRUE(untold());
    look_after(std::chrono::milliseconds{100});
    EXPECT_TRUE(untold());
    look_after(std::chrono::milliseconds{100});
    EXPECT_TRUE(untold());
    wait(std::chrono::seconds{2});
    EXPECT_TRUE(untold());
    step_after(std::chrono::seconds{1});
    look_after(std::chrono::milliseconds{100});
    EXPECT_FALSE(untold());
}

TEST_F(HangLimitTest, IsTheUsualOneAtAnotherStepThanThatOfTheHangBefore) {
    History history = job_of_two();
    history.running();
    history.fails(CauseClass::hang, 5);
    history.again();
    begin(history);
    for (int number = 1; number <= 15; ++number) {
        step_after(std::chrono::seconds{10});
    }
    wait(std::chrono::seconds{110});
    EXPECT_TRUE(hung_);
}

class HangAtStartTest : public JobMachineTest {};

// Steps of 10 min in the generation before: it was looked at them after 100 min.
TEST_F(HangAtStartTest, RanksThatWaitAreLookedAtAsSoonAsEverHoweverLongStepsTookBefore) {
    telemetry::JobSeries series{2};
    at_.series = &series;
    Batch batch;
    batch.seq = 1;
    batch.generation = 0;  // before the one that starts
    for (std::int64_t step = 1; step <= 40; ++step) {
        batch.add_row(0, step, at_.wall_seconds() + 600.0 * static_cast<double>(step - 50));
        batch.set("step_seconds", 600.0);
    }
    ASSERT_EQ(series.ingest(batch, 1, at_.wall_seconds()).rows, 40U);
    ASSERT_GT(series.step_times().p99(), 500);
    start();
    bool asked = false;
    for (int second = 1; second <= 70 && !asked; ++second) {
        pass(std::chrono::seconds{1});
        for (const AgentPtr& one : agents_) {
            one->last_heard = at_.steady;
        }
        Draft draft = machine_->draft(at_);
        machine_->look(draft, runs(), false);
        asked = !sent<wire::Examine>(draft.at_once.take()).empty();
        machine_->stored(draft, at_);
        EXPECT_FALSE(asked && second < 55) << second;
    }
    EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace lockstep
