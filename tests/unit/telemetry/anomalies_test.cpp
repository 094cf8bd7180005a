// size: simulated runs of one kind, one after the other
// Scripted runs, one step a second if nothing else is said, looked at after every step: what must
// be told, and what must not.
#include "daemon/telemetry/series/anomalies.hpp"

#include "tests/unit/telemetry/names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace lockstep::telemetry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What a rank reports of a step.
struct Losses {
    double busy = 1;
    double comm = 0.2;
    double data = 0.05;
    double loss = 1;
    double grad_norm = kAbsent;
    double phase = kAbsent;  // 1 train, 2 eval, 3 checkpoint
    bool silent = false;
};
using Script = std::function<void(Losses& report, std::size_t rank, std::int64_t step)>;

class Training {
  public:
    explicit Training(std::size_t ranks, std::size_t per_node = 1)
        : job_(ranks), per_node_(per_node), exited_(ranks) {}

    // Until before `step`; every rank's report is in before it is looked at.
    std::vector<Anomaly>& to(std::int64_t step, const Script& script = nullptr) {
        for (; step_ < step; ++step_, now_ += step_seconds) {
            send(script);
            look();
        }
        return found_;
    }
    // No rank reports for so long.
    void pause(double seconds) {
        for (const double until = now_ + seconds; now_ < until; now_ += 1) {
            look();
        }
    }
    // All start again from a step.
    void restart(std::int64_t step) {
        ++generation_;
        step_ = step;
        since_ = now_;
        watch_.restart();
    }
    void daemon_restarts() {
        watch_ = AnomalyWatch{};
        watch_.resume(job_);
    }
    std::vector<std::string> kinds() const {
        std::vector<std::string> out;
        for (const Anomaly& one : found_) {
            out.emplace_back(to_string(one.kind));
        }
        return out;
    }
    const std::vector<Anomaly>& found() const { return found_; }
    std::vector<bool>& exited() { return exited_; }
    AnomalyWatch& watch() { return watch_; }
    double step_seconds = 1;

  private:
    void send(const Script& script) {
        Batch batch;
        batch.seq = ++seq_;
        batch.generation = generation_;
        for (std::size_t rank = 0; rank < job_.world_size(); ++rank) {
            Losses report;
            report.loss = 1 + noise_(dice_);
            report.busy = 1 + noise_(dice_);
            if (script) {
                script(report, rank, step_);
            }
            if (report.silent) {
                continue;
            }
            batch.add_row(static_cast<std::uint32_t>(rank), step_, now_);
            batch.set("loss", report.loss);
            batch.set("busy_seconds", report.busy);
            batch.set("comm_wait_seconds", report.comm);
            batch.set("data_wait_seconds", report.data);
            batch.set("step_seconds", report.busy + report.comm + report.data);
            if (!is_absent(report.grad_norm)) {
                batch.set("grad_norm", report.grad_norm);
            }
            if (!is_absent(report.phase)) {
                batch.set("phase_code", report.phase);
            }
        }
        job_.ingest(batch, 1, now_);
    }
    void look() {
        AnomalyWatch::Facts facts;
        facts.now = now_;
        facts.since = since_;
        facts.ranks_per_node = per_node_;
        facts.exited = &exited_;
        for (Anomaly& one : watch_.look(job_, compute_job_stats(job_, now_), facts)) {
            found_.push_back(std::move(one));
        }
    }

    JobSeries job_;
    std::size_t per_node_;
    std::vector<bool> exited_;
    AnomalyWatch watch_;
    std::vector<Anomaly> found_;
    std::mt19937_64 dice_{7};
    std::uniform_real_distribution<double> noise_{-0.02, 0.02};
    std::uint64_t seq_ = 0;
    std::uint32_t generation_ = 1;
    std::int64_t step_ = 0;
    double now_ = 1'000'000;
    double since_ = 1'000'000;
};

TEST(Anomalies, AHealthyRunHasNone) {
    Training run{8, 4};
    // Two hours; the loss falls, and the learning rate's warm-up lets it rise a little first.
    run.to(7200, [](Losses& r, std::size_t, std::int64_t step) {
        r.loss += step < 100 ? 1 + 0.002 * static_cast<double>(step)
                             : 1.2 * std::exp(-static_cast<double>(step - 100) / 2000.0);
        r.grad_norm = 1 + 0.1 * std::sin(static_cast<double>(step));
    });
    EXPECT_THAT(run.found(), IsEmpty());
    EXPECT_EQ(run.watch().straggler_ranks(), 0U);
    EXPECT_LT(std::abs(run.watch().loss_z().value_or(99)), 6);
}

TEST(Anomalies, ASlowRankIsNamedWithWhatTakesIt) {
    Training run{8};
    run.to(200, [](Losses& r, std::size_t rank, std::int64_t step) {
        if (rank == 5 && step >= 50) {
            r.busy = 1.6;
            r.comm = 0;
        }
    });
    ASSERT_THAT(run.kinds(), ElementsAre("straggler"));
    EXPECT_EQ(run.found()[0].rank, 5);
    EXPECT_GE(run.found()[0].step, 80) << "20 steps and 30 s";
    EXPECT_LT(run.found()[0].step, 110);
    EXPECT_THAT(run.found()[0].message, HasSubstr("most of it computing"));
    EXPECT_EQ(run.watch().straggler_ranks(), 1U);
}

TEST(Anomalies, ARankThatIsSlowAgainIsToldAgain) {
    Training run{8};
    const auto slow = [](Losses& r, std::size_t rank, std::int64_t) {
        r.busy = rank == 5 ? 1.6 : r.busy;
    };
    run.to(100, slow);
    run.to(300);
    run.to(400, slow);
    EXPECT_THAT(run.kinds(), ElementsAre("straggler", "straggler"));
}

TEST(Anomalies, HalfOfANodeIsTheNodesFault) {
    Training run{16, 4};
    run.to(200, [](Losses& r, std::size_t rank, std::int64_t) {
        r.busy = rank == 8 || rank == 10 ? 1.8 : r.busy;
    });
    ASSERT_THAT(run.kinds(), ElementsAre("slow_node"));
    EXPECT_EQ(run.found()[0].rank, 8) << "the node's first";
}

TEST(Anomalies, AFirstStepThatCompilesIsNoStraggler) {
    Training run{8};
    run.to(300, [](Losses& r, std::size_t rank, std::int64_t step) {
        r.busy = rank == 2 && step == 0 ? 120 : r.busy;
    });
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(Anomalies, AnEvaluationOfOneRankIsNoStraggler) {
    Training run{4};
    run.to(300, [](Losses& r, std::size_t rank, std::int64_t step) {
        if (rank == 0 && step >= 100 && step < 180) {
            r.phase = 2;
            r.busy = 5;
        } else if (rank == 0 && step >= 180) {
            r.phase = 1;
        }
    });
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(Anomalies, ACheckpointOfAllRanksIsNothing) {
    Training run{4};
    run.to(200);
    run.pause(300);
    run.to(400);
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(Anomalies, ARestartForgivesWhatTheLastGenerationDid) {
    Training run{4};
    run.to(25, [](Losses& r, std::size_t rank, std::int64_t) { r.busy = rank == 3 ? 2 : r.busy; });
    run.restart(10);
    run.to(30, [](Losses& r, std::size_t rank, std::int64_t) { r.busy = rank == 3 ? 2 : r.busy; });
    EXPECT_THAT(run.found(), IsEmpty()) << "20 s slow, twice, is not 30 s";
}

TEST(Anomalies, TheFirstRankWithANanIsNamedWithItsStep) {
    Training run{4};
    run.to(60, [](Losses& r, std::size_t rank, std::int64_t step) {
        // After the all-reduce every rank has it.
        if ((rank == 2 && step >= 40) || step >= 42) {
            r.loss = kNan;
        }
    });
    ASSERT_THAT(run.kinds(), ElementsAre("nonfinite")) << "told once";
    EXPECT_EQ(run.found()[0].rank, 2);
    EXPECT_EQ(run.found()[0].step, 40);
    EXPECT_EQ(run.found()[0].message, "loss is NaN");
}

TEST(Anomalies, AfterARestartOfTheDaemonItIsNotToldAgain) {
    Training run{2};
    const auto nan = [](Losses& r, std::size_t, std::int64_t step) {
        r.loss = step >= 10 ? kNan : r.loss;
    };
    run.to(20, nan);
    run.daemon_restarts();
    run.to(40, nan);
    EXPECT_THAT(run.kinds(), ElementsAre("nonfinite"));
}

TEST(Anomalies, AnInfiniteGradientIsAnotherThanANanLoss) {
    Training run{2};
    run.to(30, [](Losses& r, std::size_t rank, std::int64_t step) {
        r.grad_norm = rank == 1 && step == 20 ? std::numeric_limits<double>::infinity() : 1;
        r.loss = step == 25 ? kNan : r.loss;
    });
    ASSERT_THAT(run.kinds(), ElementsAre("nonfinite", "nonfinite"));
    EXPECT_EQ(run.found()[0].message, "grad_norm is infinite");
    EXPECT_EQ(run.found()[0].rank, 1);
    EXPECT_EQ(run.found()[1].message, "loss is NaN");
}

// What a rank had of one metric was taken for news of another.
TEST(Anomalies, AfterAGenerationOnlyTheMetricThatIsBadAgainIsTold) {
    Training run{2};
    run.to(40, [](Losses& r, std::size_t rank, std::int64_t step) {
        r.grad_norm = rank == 1 && step >= 20 && step < 25 ? kNan : 1;
    });
    run.restart(35);
    run.to(60, [](Losses& r, std::size_t rank, std::int64_t step) {
        r.grad_norm = 1;
        r.loss = rank == 1 && step == 50 ? kNan : r.loss;
    });
    ASSERT_THAT(run.kinds(), ElementsAre("nonfinite", "nonfinite"));
    EXPECT_EQ(run.found()[0].step, 20);
    EXPECT_EQ(run.found()[1].message, "loss is NaN");
    EXPECT_EQ(run.found()[1].step, 50);
}

TEST(Anomalies, TheStepOfASecondNanIsItsOwn) {
    Training run{2};
    const auto nan_at = [](std::int64_t at) {
        return [at](Losses& r, std::size_t, std::int64_t step) {
            r.grad_norm = step < 10 ? kNan : 1;
            r.loss = step == at ? kNan : r.loss;
        };
    };
    run.to(40, nan_at(30));
    run.restart(40);
    run.to(60, nan_at(50));
    ASSERT_THAT(run.kinds(), ElementsAre("nonfinite", "nonfinite", "nonfinite"));
    EXPECT_EQ(run.found()[1].step, 30);
    EXPECT_EQ(run.found()[2].step, 50);
}

// Hundreds of slow ranks made hundreds of walks over all ranks at once.
TEST(Anomalies, OfManySlowRanksEightAreToldAtALookAndAllInTheEnd) {
    Training run{64};
    std::size_t before = 0;
    std::size_t most = 0;
    for (std::int64_t step = 1; step <= 100; ++step) {
        const auto& found = run.to(step, [](Losses& r, std::size_t rank, std::int64_t) {
            r.busy = rank < 20 ? 2 : r.busy;
        });
        most = std::max(most, found.size() - before);
        before = found.size();
    }
    EXPECT_EQ(most, 8U);
    EXPECT_THAT(run.kinds(), testing::AllOf(testing::SizeIs(20), testing::Each("straggler")));
    for (const Anomaly& one : run.found()) {
        EXPECT_THAT(one.message, HasSubstr("most of it computing"));
    }
}

TEST(Anomalies, ASpikeOfOneStepIsToldOnceAndTheNextOneToo) {
    Training run{4};
    run.to(400, [](Losses& r, std::size_t, std::int64_t step) {
        r.loss += step == 200 || step == 300 ? 3 : 0;
    });
    ASSERT_THAT(run.kinds(), ElementsAre("loss_spike", "loss_spike"));
    EXPECT_EQ(run.found()[0].step, 200);
    EXPECT_EQ(run.found()[1].step, 300);
    EXPECT_THAT(run.found()[0].message, HasSubstr("standard deviations above its mean of 1"));
}

TEST(Anomalies, TheFirstStepsAndALossThatFallsAreNoSpike) {
    Training run{2};
    run.to(300, [](Losses& r, std::size_t, std::int64_t step) {
        r.loss += step < 20 ? 10 : 0;  // starts high
        r.loss -= step == 200 ? 0.9 : 0;
    });
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(Anomalies, GoingBackToACheckpointIsNoSpike) {
    Training run{2};
    const auto falling = [](Losses& r, std::size_t, std::int64_t step) {
        r.loss += 4 * std::exp(-static_cast<double>(step) / 100.0);
    };
    run.to(400, falling);
    run.restart(100);
    run.to(400, falling);
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(Anomalies, AGradientNormThatExplodesIsTold) {
    Training run{2};
    run.to(200, [](Losses& r, std::size_t, std::int64_t step) {
        r.grad_norm = step == 150 ? 100 : 1 + 0.05 * std::sin(static_cast<double>(step));
    });
    ASSERT_THAT(run.kinds(), ElementsAre("grad_norm_spike"));
    EXPECT_EQ(run.found()[0].step, 150);
}

TEST(Anomalies, ALossThatGrowsForMinutesDiverges) {
    Training run{2};
    run.to(5400, [](Losses& r, std::size_t, std::int64_t step) {
        r.loss += step < 2400 ? 0 : 0.001 * static_cast<double>(step - 2400);
    });
    EXPECT_THAT(run.kinds(), testing::Contains("divergence"));
    for (const Anomaly& one : run.found()) {
        if (one.kind == AnomalyKind::divergence) {
            EXPECT_THAT(one.message, HasSubstr("the lowest mean before was"));
        }
    }
}

// Of the minutes of a noisy loss the lowest is far below what it is on average, the more so the
// fewer steps a minute has: at a step a minute a flat loss diverged most of the day.
TEST(Anomalies, ANoisyLossThatIsFlatDoesNotDivergeHoweverLongItsStepsTake) {
    for (const auto& [seconds, steps] : {std::pair{0.5, 14'400}, std::pair{60.0, 1'440}}) {
        Training run{2};
        run.step_seconds = seconds;
        std::mt19937_64 dice{11};
        std::normal_distribution<double> noise{0, 0.3};
        double off = 0;
        const auto noisy = [&](Losses& r, std::size_t rank, std::int64_t) {
            off = rank == 0 ? noise(dice) : off;
            r.loss = 1 + off;
        };
        run.to(steps, noisy);
        EXPECT_THAT(run.kinds(), testing::Not(testing::Contains("divergence"))) << seconds;
        run.to(steps + static_cast<std::int64_t>(1800 / seconds),
               [&](Losses& r, std::size_t rank, std::int64_t step) {
                   noisy(r, rank, step);
                   r.loss += 2;
               });
        EXPECT_THAT(run.kinds(), testing::Contains("divergence")) << seconds;
    }
}

TEST(Anomalies, ALossThatDivergesAgainAfterGoingBackIsToldAgain) {
    Training run{2};
    double each = 0.001;
    const auto grows = [&](Losses& r, std::size_t, std::int64_t step) {
        r.loss += step < 2400 ? 0 : each * static_cast<double>(step - 2400);
    };
    const auto told = [&] {
        const auto kinds = run.kinds();
        return std::count(kinds.begin(), kinds.end(), "divergence");
    };
    run.to(4800, grows);
    const auto before = told();
    ASSERT_GE(before, 1);
    run.restart(2400);
    each = 0.01;  // in the first ten minutes already
    run.to(3600, grows);
    EXPECT_GT(told(), before);
}

TEST(Anomalies, WaitingForDataIsToldAfterTenMinutes) {
    Training run{2};
    const auto starved = [](Losses& r, std::size_t, std::int64_t) { r.data = 0.5; };
    run.to(500, starved);
    run.to(600);
    run.to(1150, starved);
    EXPECT_THAT(run.found(), IsEmpty()) << "eight minutes, twice";
    run.to(1400, starved);
    ASSERT_THAT(run.kinds(), ElementsAre("data_starved"));
    EXPECT_THAT(run.found()[0].message, HasSubstr("% of the step time"));
}

TEST(Anomalies, ARankThatSaysNothingWhileOthersDoIsNamedOnce) {
    Training run{4};
    run.to(300, [](Losses& r, std::size_t rank, std::int64_t step) {
        r.silent = rank == 3 && step >= 100 && step < 200;
    });
    ASSERT_THAT(run.kinds(), ElementsAre("rank_silent"));
    EXPECT_EQ(run.found()[0].rank, 3);
    EXPECT_EQ(run.found()[0].step, 99);
    EXPECT_THAT(run.found()[0].message, HasSubstr("no report for 3"));
}

TEST(Anomalies, ARankThatHasEndedOrEvaluatesIsNotSilent) {
    Training run{4};
    run.to(300, [&](Losses& r, std::size_t rank, std::int64_t step) {
        r.silent = rank >= 2 && step >= 100;
        r.phase = rank == 3 && step == 99 ? 2 : kAbsent;
        if (step == 100) {
            run.exited()[2] = true;
        }
    });
    EXPECT_THAT(run.found(), IsEmpty());
}

// "2 other ranks report", of two that had ended.
TEST(Anomalies, ARankIsNotSilentBesideOthersThatHaveEnded) {
    Training run{3};
    run.to(300, [&](Losses& r, std::size_t rank, std::int64_t step) {
        r.silent = step >= (rank == 0 ? 100 : 110);
        if (step == 110) {
            run.exited()[1] = run.exited()[2] = true;
        }
    });
    EXPECT_THAT(run.found(), IsEmpty());
}

TEST(SpikeWatch, HasNoWordInItsWarmUpAndNoneForWhatIsNoNumber) {
    SpikeWatch watch;
    for (std::uint64_t i = 0; i < SpikeWatch::kWarmUp; ++i) {
        watch.add(i % 2 == 0 ? 1 : 3);
        EXPECT_EQ(watch.z(), std::nullopt);
    }
    watch.add(kNan);
    EXPECT_EQ(watch.z(), std::nullopt);
    watch.add(2);
    ASSERT_TRUE(watch.z().has_value());
    EXPECT_NEAR(*watch.z(), 0, 0.5);
    watch.add(30);
    EXPECT_GT(*watch.z(), 6);
}

}  // namespace
}  // namespace lockstep::telemetry
