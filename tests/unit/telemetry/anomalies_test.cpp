// Scripted runs: what must be found, and what must not.
#include "daemon/telemetry/anomalies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

namespace lockstep::telemetry {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
    double loss = 1;
    double busy = 0.8;
    double comm = 0.1;
    double data = 0.02;
    std::optional<double> grad_norm = std::nullopt;
    bool silent = false;
};

// Ranks that report once a step, a step a second unless said otherwise.
class Scripted {
  public:
    explicit Scripted(std::size_t ranks) : job(ranks), ranks_(ranks) {
        for (std::size_t i = 0; i < ranks; ++i) {
            nodes.push_back(static_cast<std::int32_t>(i / 4));
        }
    }
    using Shape = std::function<void(std::int64_t step, std::size_t rank, Row& row)>;
    void steps(std::int64_t count, const Shape& shape = {}, double seconds = 1) {
        for (std::int64_t i = 0; i < count; ++i, ++step) {
            now += seconds;
            Batch batch;
            batch.seq = ++seq_;
            batch.generation = generation;
            for (std::size_t rank = 0; rank < ranks_; ++rank) {
                Row row;
                row.loss = 1 + 0.01 * noise_(random_);
                row.busy += 0.01 * noise_(random_);
                if (shape) {
                    shape(step, rank, row);
                }
                if (row.silent) {
                    continue;
                }
                batch.add_row(static_cast<std::uint32_t>(rank), step, now);
                batch.set("loss", row.loss);
                batch.set("busy_seconds", row.busy);
                batch.set("comm_wait_seconds", row.comm);
                batch.set("data_wait_seconds", row.data);
                batch.set("step_seconds", row.busy + row.comm + row.data);
                if (row.grad_norm) {
                    batch.set("grad_norm", *row.grad_norm);
                }
            }
            job.ingest(batch, 1, now);
            look();
        }
    }
    // Nobody reports.
    void pause(int seconds, bool training) {
        for (int i = 0; i < seconds; ++i) {
            now += 1;
            look(training);
        }
    }
    void look(bool training = true) {
        const JobStats stats = compute_job_stats(job, now);
        JobPicture picture;
        picture.series = &job;
        picture.stats = &stats;
        picture.now = now;
        picture.training = training;
        picture.nodes = nodes;
        for (const Anomaly& one : watch.update(picture)) {
            found.push_back(one);
        }
    }
    std::vector<Anomaly> of(AnomalyKind kind) const {
        std::vector<Anomaly> out;
        for (const Anomaly& one : found) {
            if (one.kind == kind) {
                out.push_back(one);
            }
        }
        return out;
    }

    JobSeries job;
    AnomalyWatch watch;
    std::vector<std::int32_t> nodes;
    std::vector<Anomaly> found;
    std::uint32_t generation = 1;
    std::int64_t step = 0;
    double now = 1'000'000;

  private:
    std::size_t ranks_;
    std::uint64_t seq_ = 0;
    std::mt19937 random_{5};
    std::normal_distribution<double> noise_;
};

TEST(Anomalies, AHealthyRunHasNone) {
    Scripted run{8};
    run.steps(1500);
    EXPECT_TRUE(run.found.empty());
}

TEST(Anomalies, ASlowRankIsAStragglerByItsBusyTimeAndSaysWhereTheTimeGoes) {
    Scripted run{8};
    run.steps(100);
    const auto slow = [](std::int64_t, std::size_t rank, Row& row) {
        row.busy += rank == 5 ? 0.6 : 0;
        row.comm += rank == 5 ? 0 : 0.6;
    };
    run.steps(20, slow);
    EXPECT_TRUE(run.found.empty()) << "not before 20 steps and 30 s";
    run.steps(60, slow);
    ASSERT_EQ(run.found.size(), 1U);
    EXPECT_EQ(run.found[0].kind, AnomalyKind::straggler);
    EXPECT_EQ(run.found[0].rank, 5);
    EXPECT_EQ(run.found[0].excess, Excess::compute);
    EXPECT_LT(run.found[0].value, 0.75);
    run.steps(100);
    ASSERT_EQ(run.found.size(), 2U);
    EXPECT_TRUE(run.found[1].over);
}

TEST(Anomalies, ANodeIsSlowWhenHalfOfItsRanksAre) {
    Scripted run{16};
    run.steps(100);
    run.steps(80, [](std::int64_t, std::size_t rank, Row& row) {
        row.busy += rank == 4 || rank == 6 ? 0.8 : 0;
    });
    EXPECT_EQ(run.of(AnomalyKind::straggler).size(), 2U);
    const auto nodes = run.of(AnomalyKind::slow_node);
    ASSERT_EQ(nodes.size(), 1U);
    EXPECT_EQ(nodes[0].node, 1);
}

TEST(Anomalies, ASlowFirstStepOfOneRankIsNoStraggler) {
    Scripted run{8};
    run.steps(200, [](std::int64_t step, std::size_t rank, Row& row) {
        row.busy += step == 0 && rank == 3 ? 60 : 0;
    });
    EXPECT_TRUE(run.found.empty());
}

TEST(Anomalies, AllRanksSlowAtOnceIsNoStraggler) {
    Scripted run{8};
    run.steps(100);
    run.steps(
        200, [](std::int64_t, std::size_t, Row& row) { row.busy += 2; }, 3);
    EXPECT_TRUE(run.of(AnomalyKind::straggler).empty());
}

TEST(Anomalies, TheFirstRankWithANonfiniteLossIsNamedWithItsStep) {
    Scripted run{8};
    run.steps(50, [](std::int64_t step, std::size_t rank, Row& row) {
        if ((rank == 6 && step >= 40) || step >= 42) {
            row.loss = kNan;
        }
    });
    const auto found = run.of(AnomalyKind::nonfinite);
    ASSERT_EQ(found.size(), 1U) << "once, not with every step";
    EXPECT_EQ(found[0].rank, 6);
    EXPECT_EQ(found[0].step, 40);
}

TEST(Anomalies, ALossSpikeIsOneAnomalyAndEnds) {
    Scripted run{4};
    run.steps(300);
    run.steps(3, [](std::int64_t, std::size_t, Row& row) { row.loss = 3; });
    run.steps(300);
    const auto found = run.of(AnomalyKind::loss_spike);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].step, 300);
    EXPECT_GT(found[0].value, 6);
    EXPECT_TRUE(found[1].over);
}

TEST(Anomalies, AGradientNormSpikeIsToldApart) {
    Scripted run{4};
    std::mt19937 random{2};
    std::normal_distribution<double> noise{2, 0.1};
    run.steps(300, [&](std::int64_t step, std::size_t, Row& row) {
        row.grad_norm = step == 250 ? 40 : noise(random);
    });
    EXPECT_EQ(run.of(AnomalyKind::grad_norm_spike).size(), 2U);
    EXPECT_TRUE(run.of(AnomalyKind::loss_spike).empty());
}

TEST(Anomalies, AFallingLossAndItsWarmUpAreNoSpike) {
    Scripted run{4};
    run.steps(2000, [](std::int64_t step, std::size_t, Row& row) {
        row.loss += step < 60 ? 0.05 * static_cast<double>(step)
                              : 6.0 / (1.0 + 0.01 * static_cast<double>(step - 60));
    });
    EXPECT_TRUE(run.found.empty());
}

TEST(Anomalies, ARestartFromACheckpointIsNoSpikeAndNobodyIsSilent) {
    Scripted run{4};
    const auto falling = [](std::int64_t step, std::size_t, Row& row) {
        row.loss += 4.0 / (1.0 + 0.005 * static_cast<double>(step));
    };
    run.steps(500, falling);
    run.pause(45, false);
    run.generation = 2;
    run.step = 100;
    run.steps(500, falling);
    EXPECT_TRUE(run.found.empty());
}

TEST(Anomalies, ACheckpointOrAnEvaluationIsNoAnomaly) {
    Scripted run{4};
    run.steps(200);
    run.pause(300, false);
    run.look(false);
    run.steps(200);
    run.pause(120, true);  // nobody said that it is one: still no rank's fault
    run.steps(100);
    EXPECT_TRUE(run.found.empty());
}

TEST(Anomalies, ALossThatClimbsForTenMinutesDiverges) {
    Scripted run{2};
    run.steps(1200);
    run.steps(2400, [](std::int64_t step, std::size_t, Row& row) {
        row.loss += 0.001 * static_cast<double>(step - 1200);
    });
    const auto found = run.of(AnomalyKind::divergence);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_GT(found[0].value, found[0].limit);
    EXPECT_TRUE(run.of(AnomalyKind::data_starvation).empty());
}

TEST(Anomalies, WaitingForDataForTenMinutesIsStarvationAndAWhileIsNot) {
    Scripted run{2};
    const auto starved = [](std::int64_t, std::size_t, Row& row) { row.data = 0.5; };
    run.steps(100);
    run.steps(300, starved);
    run.steps(100);
    EXPECT_TRUE(run.found.empty());
    run.steps(700, starved);
    ASSERT_EQ(run.found.size(), 1U);
    EXPECT_EQ(run.found[0].kind, AnomalyKind::data_starvation);
    run.steps(100);
    EXPECT_TRUE(run.found.back().over);
}

TEST(Anomalies, ARankThatStopsReportingIsSilentWhileTheOthersGoOn) {
    Scripted run{4};
    run.steps(100);
    const auto quiet = [](std::int64_t, std::size_t rank, Row& row) { row.silent = rank == 2; };
    run.steps(25, quiet);
    EXPECT_TRUE(run.found.empty());
    run.steps(10, quiet);
    ASSERT_EQ(run.found.size(), 1U);
    EXPECT_EQ(run.found[0].kind, AnomalyKind::silent_rank);
    EXPECT_EQ(run.found[0].rank, 2);
    EXPECT_EQ(run.found[0].step, 99);
    run.steps(5);
    EXPECT_TRUE(run.found.back().over);
}

}  // namespace
}  // namespace lockstep::telemetry
