// How long without a step is a hang where the job does not say it: by the steps that it has made.
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::seconds;

class HangLimitTest : public JobMachineTest {
  protected:
    static History job_of_two() {
        return History{R"({"name":"t","framework":"command","command":["x"],
                           "resources":{"nodes":2},"preflight":{"mode":"off"},
                           "recovery":{"on":["rank_failure"]}})"};
    }
    void SetUp() override {
        History history = job_of_two();
        history.running();
        begin(history);
    }
    // Its ranks run; of the agents nobody says anything here, nor is it looked at them.
    void begin(const History& history) {
        at_.steady = at_.timers = std::chrono::steady_clock::time_point{seconds{100}};
        at_.wall = history.now;
        at_.series = &series_;
        machine_ = std::make_unique<JobMachine>(
            history.job, files_, [](std::int32_t, const std::string&) { return true; });
        generation_ = static_cast<std::uint32_t>(history.generation_number());
        wait(seconds{1});
    }
    // Both ranks make it, after so long without one.
    void step_after(seconds time) {
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
    void wait(seconds time) {
        for (seconds passed{0}; passed < time; ++passed) {
            pass(seconds{1});
            Draft draft = machine_->draft(at_);
            machine_->look(draft, runs(), false);
            machine_->stored(draft, at_);
            const Generation* live = job().live_generation();
            hung_ = hung_ || (live != nullptr && live->hang.has_value());
        }
    }

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
        step_after(seconds{number % 10 == 0 ? 90 : 10});
    }
    EXPECT_FALSE(hung_);
    step_after(seconds{10});
    wait(seconds{150});
    EXPECT_FALSE(hung_) << "ten times the 99th percentile is 900 s";
    wait(seconds{1000 - 150});
    EXPECT_TRUE(hung_);
}

TEST_F(HangLimitTest, IsTenTimesTheNewestStepWhileThereAreFew) {
    for (int number = 1; number <= 10; ++number) {
        step_after(seconds{number == 2 ? 50 : 10});
    }
    wait(seconds{95});
    EXPECT_FALSE(hung_);
    wait(seconds{10});
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
        step_after(seconds{10});
    }
    wait(seconds{290});
    EXPECT_FALSE(hung_);
    wait(seconds{20});
    EXPECT_TRUE(hung_);
}

TEST_F(HangLimitTest, IsTheUsualOneAtAnotherStepThanThatOfTheHangBefore) {
    History history = job_of_two();
    history.running();
    history.fails(CauseClass::hang, 5);
    history.again();
    begin(history);
    for (int number = 1; number <= 15; ++number) {
        step_after(seconds{10});
    }
    wait(seconds{110});
    EXPECT_TRUE(hung_);
}

}  // namespace
}  // namespace lockstep
