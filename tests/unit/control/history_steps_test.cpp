// How long a job's steps took, after a restart of the daemon.
#include "daemon/control/history/history_steps.hpp"

#include "job/base/limits.hpp"
#include "tests/unit/control/stored_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using telemetry::JobSeries;
using testing::HasSubstr;

constexpr double kEpoch = 1'700'000'000.0;

// A job whose steps take a second, and after every fifth of them its second rank evaluates for two
// minutes and says so. The first only reports steps.
class EvaluatingJob {
  public:
    explicit EvaluatingJob(JobSeries& series) : series_(series) {}
    void steps(int count) {
        for (int i = 0; i < count; ++i) {
            time_ += 1;
            for (const std::uint32_t rank : {0U, 1U}) {
                say(rank, ++step_of_[rank], "loss", 1.0);
            }
            if (step_of_[1] % 5 == 0) {
                phase(2);
                time_ += 120;
                phase(1);
            }
        }
    }

  private:
    void phase(double code) { say(1, -1, "phase_code", code); }
    void say(std::uint32_t rank, std::int64_t step, const char* metric, double value) {
        Batch batch;
        batch.seq = ++seq_[rank];
        batch.generation = 1;
        batch.node_rank = rank;
        batch.add_row(rank, step, time_);
        batch.set(metric, value);
        series_.ingest(batch, 1, 0);
    }

    JobSeries& series_;
    double time_ = kEpoch;
    std::int64_t step_of_[2] = {0, 0};
    std::uint64_t seq_[2] = {0, 0};
};

// Those of the lowest rank of a chunk alone were left out: each of the others' was a step of two
// minutes, and a hang was told that much later.
TEST(HistorySteps, OfNoRanksEvaluationAreTakenForAStepPastARestart) {
    for (const bool whole : {true, false}) {
        JobSeries live{2};
        live.keep_history();
        EvaluatingJob job{live};
        job.steps(52);
        ASSERT_LT(live.step_times().p99(), 1.2);
        JobSeries back{2};
        restore_history(JobId{"j"}, flushed(live, whole), back);
        EXPECT_EQ(back.step_times().steps(), live.step_times().steps());
        EXPECT_EQ(back.step_times().p99(), live.step_times().p99());
    }
}

TEST(HistorySteps, AnEvaluationThatTheRestartFellIntoIsNoStepEither) {
    JobSeries live{2};
    live.keep_history();
    EvaluatingJob before{live};
    before.steps(50);  // no step came after the last one
    JobSeries back{2};
    restore_history(JobId{"j"}, flushed(live, true), back);
    EXPECT_EQ(encode_step_times(back), encode_step_times(live));
    Batch next;
    next.seq = 1'000;
    next.generation = 1;
    next.add_row(0, 51, kEpoch + 10'000);
    next.set("loss", 1.0);
    next.add_row(0, 52, kEpoch + 10'001);
    next.set("loss", 1.0);
    for (JobSeries* one : {&live, &back}) {
        one->ingest(next, 1, 0);
        EXPECT_LT(one->step_times().p99(), 1.2);
    }
    EXPECT_EQ(encode_step_times(back), encode_step_times(live));
}

TEST(HistorySteps, TheNewestOfManyStayInTheirOrder) {
    telemetry::StepTimes::State state;
    state.start = {1, 2};
    state.step = 5'000;
    state.at = kEpoch + 0.125;
    state.seconds = 0.5;
    state.counts = true;
    for (std::size_t i = 0; i < telemetry::StepTimes::kWindow + 100; ++i) {
        state.newest.push_back(static_cast<std::uint8_t>(i % 251));
    }
    JobSeries series{1};
    series.restore_step_times(telemetry::StepTimes::from(state));
    state.newest.erase(state.newest.begin(), state.newest.begin() + 100);
    const std::string text = encode_step_times(series);
    EXPECT_THAT(text, HasSubstr("steptimes 1 2 5000 1700000000.125 0.5 1 0 100 101 102 "));
    EXPECT_LE(text.size(), 4'200U);
    JobSeries back{1};
    ASSERT_TRUE(restore_step_times(text, back).has_value());
    EXPECT_EQ(back.step_times().state().newest, state.newest);
    EXPECT_EQ(encode_step_times(back), text);
    EXPECT_TRUE(restore_state(text, back).has_value()) << "it is no bad line";
}

TEST(HistorySteps, ABadLineIsAnErrorAndLeavesWhatTheRowsHaveMade) {
    EXPECT_EQ(encode_step_times(JobSeries{1}), "") << "no step was reported";
    std::string many;
    for (std::size_t i = 0; i <= telemetry::StepTimes::kWindow; ++i) {
        many += " 1";
    }
    for (const std::string& bad :
         {std::string{"steptimes 1 1 7 5 1 1\n"}, std::string{"steptimes 1 1 7 5 1 1 2\n"},
          std::string{"steptimes 1 1 7 nan 1 1 0\n"}, std::string{"steptimes 1 1 7 5 inf 1 0\n"},
          std::string{"steptimes 1 1 7 5 1 1 0 256\n"}, std::string{"steptimes 1 1 7 5 1 1 0 1"},
          "steptimes 1 1 7 5 1 1 0" + many + "\n"}) {
        JobSeries back{2};
        EvaluatingJob job{back};
        job.steps(30);
        const std::string before = encode_step_times(back);
        EXPECT_FALSE(restore_step_times(bad, back).has_value()) << bad;
        EXPECT_EQ(encode_step_times(back), before) << bad;
    }
}

}  // namespace
}  // namespace lockstep
