#include "daemon/control/machine/hang_watch.hpp"

#include "job/base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::seconds;

class HangWatchTest : public ::testing::Test {
  protected:
    void report(std::int32_t rank, std::int64_t step, double time = 1000.0,
                std::uint32_t generation = 1) {
        Batch batch;
        batch.seq = ++seq_;
        batch.generation = generation;
        batch.add_row(static_cast<std::uint32_t>(rank), step, time);
        batch.set("loss", 0.5);
        EXPECT_EQ(series_.ingest(batch, 1, time).rows, 1U);
    }
    // 1 train, 2 eval, 3 checkpoint.
    void phase(std::int32_t rank, double code, std::uint32_t generation = 1) {
        Batch batch;
        batch.seq = ++seq_;
        batch.generation = generation;
        batch.add_row(static_cast<std::uint32_t>(rank), -1, 1000.0);
        batch.set("phase_code", code);
        EXPECT_EQ(series_.ingest(batch, 1, 1000.0).rows, 1U);
    }
    // Where the job does not say how long a hang is.
    bool hangs(int at) {
        const HangWatch::TimePoint now{seconds{at}};
        return watch_.look(&series_, now, hang_limit(0, 0.5, seconds{130}), stepped_).has_value();
    }
    std::optional<HangWatch::Verdict> look(int at) {
        return watch_.look(&series_, HangWatch::TimePoint{seconds{at}}, seconds{10}, stepped_);
    }
    telemetry::JobSeries series_{3};
    HangWatch watch_;
    bool stepped_ = false;  // what is there at the first look is of another generation

  private:
    std::uint64_t seq_ = 0;
};

TEST_F(HangWatchTest, BeforeTheFirstStepTheStacksAreWorthALookNowAndThen) {
    const auto at = [&](int second) {
        const auto verdict = look(second);
        EXPECT_TRUE(!verdict ||
                    (verdict->starting && verdict->step == -1 && verdict->behind.empty()));
        return verdict ? verdict->silence.count() : 0;
    };
    EXPECT_EQ(at(100), 0);
    EXPECT_EQ(at(159), 0) << "a job's own limit of 10 s is for steps";
    EXPECT_EQ(at(160), 60);
    EXPECT_EQ(at(219), 0);
    EXPECT_EQ(at(220), 120);
    EXPECT_EQ(at(339), 0);
    EXPECT_EQ(at(340), 240);
    EXPECT_EQ(at(580), 480);
    EXPECT_EQ(at(100'000), 0) << "a job that reports nothing is let be";
}

TEST_F(HangWatchTest, AJobsOwnLimitMakesTheFirstLookLaterNotSooner) {
    const auto at = [&](int second) {
        return watch_.look(nullptr, HangWatch::TimePoint{seconds{second}}, seconds{600}, false)
            .has_value();
    };
    EXPECT_FALSE(at(0));
    EXPECT_FALSE(at(599));
    EXPECT_TRUE(at(600));
}

TEST_F(HangWatchTest, WhatStacksShowBeforeTheFirstStepCountsIfTheNextLookShowsTheSame) {
    const auto now = [](int second) { return HangWatch::TimePoint{seconds{second}}; };
    EXPECT_FALSE(look(0));
    EXPECT_TRUE(look(60));
    EXPECT_FALSE(watch_.confirmed("rank 1 is in load", now(60)));
    EXPECT_FALSE(look(64));
    EXPECT_TRUE(look(65));
    EXPECT_FALSE(watch_.confirmed("rank 1 is in build", now(65))) << "it gets on";
    EXPECT_FALSE(look(69));
    EXPECT_TRUE(look(70));
    EXPECT_TRUE(watch_.confirmed("rank 1 is in build", now(70)));
    EXPECT_FALSE(look(119)) << "nothing more to confirm";
    EXPECT_TRUE(look(120));
    EXPECT_FALSE(watch_.confirmed("", now(120)));
    EXPECT_FALSE(look(125));
}

// The first report, of a GPU or without a step, is no step.
TEST_F(HangWatchTest, AJobOfWhichNobodyHasReportedIsOneWithoutSteps) {
    const auto at = [](int second) { return HangWatch::TimePoint{seconds{second}}; };
    EXPECT_FALSE(watch_.look(nullptr, at(0), seconds{10}, false));
    EXPECT_FALSE(look(1));
    EXPECT_FALSE(look(30));
    EXPECT_TRUE(watch_.still(nullptr));
}

TEST_F(HangWatchTest, IsAHangAfterTheLimitWithoutAStepAndNamesWhoIsBehind) {
    EXPECT_FALSE(look(0));
    for (const std::int32_t rank : {0, 1, 2}) {
        report(rank, 7);
    }
    EXPECT_FALSE(look(1));
    report(0, 8);
    report(2, 8);
    EXPECT_FALSE(look(5));
    EXPECT_FALSE(look(14));
    const auto verdict = look(15);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->silence, seconds{10});
    EXPECT_EQ(verdict->step, 8);
    EXPECT_THAT(verdict->behind, testing::ElementsAre(1));
}

// A checkpoint had taken long; while the ranks were asked they went on, and were ended for it.
TEST_F(HangWatchTest, KnowsWhetherTheRanksWentOnAfterTheVerdict) {
    EXPECT_FALSE(look(0));
    report(0, 7);
    EXPECT_FALSE(look(1));
    ASSERT_TRUE(look(11));
    EXPECT_TRUE(watch_.still(&series_));
    report(0, 8);
    EXPECT_FALSE(watch_.still(&series_));
}

// It is asked with whatever an agent says, and each look is a walk over 98,304 ranks.
TEST_F(HangWatchTest, LooksFourTimesASecondAtMost) {
    const auto at = [](int milliseconds) {
        return HangWatch::TimePoint{std::chrono::milliseconds{milliseconds}};
    };
    const auto hangs = [&](int milliseconds) {
        return watch_.look(&series_, at(milliseconds), seconds{1}, stepped_).has_value();
    };
    EXPECT_FALSE(hangs(0));
    report(0, 7);
    EXPECT_FALSE(hangs(249)) << "the step is not seen yet";
    EXPECT_FALSE(hangs(250)) << "now it is";
    EXPECT_FALSE(hangs(1'249));
    EXPECT_FALSE(hangs(1'250)) << "looked at a moment ago";
    EXPECT_TRUE(hangs(1'500));
}

TEST_F(HangWatchTest, AStepOfAnyRankStartsThePatienceAnew) {
    EXPECT_FALSE(look(0));
    for (int step = 1; step < 10; ++step) {
        report(step % 3, step);
        EXPECT_FALSE(look(step * 9)) << step;
    }
    EXPECT_TRUE(look(9 * 9 + 10));
}

TEST_F(HangWatchTest, RanksThatNeverReportAreNotCalledBehind) {
    EXPECT_FALSE(look(0));
    report(0, 3);
    EXPECT_FALSE(look(1));
    const auto verdict = look(20);
    ASSERT_TRUE(verdict);
    EXPECT_TRUE(verdict->behind.empty());
}

TEST_F(HangWatchTest, StepsOfTheGenerationBeforeDoNotCount) {
    EXPECT_FALSE(look(0));
    report(0, 3);
    EXPECT_FALSE(look(1));
    watch_.reset();
    EXPECT_FALSE(look(50));
    EXPECT_FALSE(look(109)) << "the next generation is still importing";
    report(0, 4);
    EXPECT_FALSE(look(110));
    EXPECT_TRUE(look(120));
}

// It was never noticed, so recovery from hangs ended with the first one.
TEST_F(HangWatchTest, AHangAtTheStepAtWhichTheGenerationBeforeHungIsOne) {
    report(0, 5);
    report(1, 4);
    watch_.reset();
    EXPECT_FALSE(look(50));
    report(0, 5);  // from the checkpoint of step 4
    stepped_ = true;
    EXPECT_FALSE(look(51));
    EXPECT_FALSE(look(60));
    const auto verdict = look(61);
    ASSERT_TRUE(verdict);
    EXPECT_FALSE(verdict->starting);
    EXPECT_EQ(verdict->step, 5);
    EXPECT_THAT(verdict->behind, ::testing::ElementsAre(1));
}

// The ranks of a small job had made all their steps before it was looked at for the first time.
TEST_F(HangWatchTest, StepsMadeBeforeTheFirstLookCount) {
    stepped_ = true;
    report(0, 3);
    EXPECT_FALSE(look(0));
    EXPECT_FALSE(look(9));
    EXPECT_TRUE(look(10));
}

// A script that prints every 500th step, 125 s, was taken to hang after the first minute of each,
// and ended where recovery is on for that.
TEST_F(HangWatchTest, AStepThatIsReportedEveryTwoMinutesIsNoHangBetween) {
    EXPECT_FALSE(hangs(0));
    EXPECT_TRUE(hangs(60)) << "the stacks of the start";
    report(0, 500, 1000);
    EXPECT_FALSE(hangs(130));
    EXPECT_FALSE(hangs(519)) << "the first report took 130 s";
    watch_.reset();  // nobody could be heard for a while
    stepped_ = true;
    EXPECT_FALSE(hangs(520));
    EXPECT_FALSE(hangs(520 + 389));
    report(0, 1000, 1125);
    EXPECT_FALSE(hangs(1000));
    EXPECT_FALSE(hangs(1000 + 374));
    EXPECT_TRUE(hangs(1000 + 375));
}

TEST_F(HangWatchTest, TheRankThatReportsMostOftenTellsHowOftenReportsCome) {
    EXPECT_FALSE(hangs(0));
    report(0, 1, 1000);
    report(1, 1, 1000);
    report(0, 2, 1001);
    report(1, 2, 1900);
    EXPECT_FALSE(hangs(1));
    EXPECT_FALSE(hangs(60));
    EXPECT_TRUE(hangs(61));
}

// Each evaluation of more than a minute was a hang, and where recovery is on for that the job was
// ended in it again and again, as a crash loop.
TEST_F(HangWatchTest, AnEvaluationOfMinutesIsNoHangAndThePatienceBeginsBehindIt) {
    stepped_ = true;
    report(0, 5, 1000);
    report(1, 5, 1000);
    report(0, 6, 1001);
    EXPECT_FALSE(hangs(0));
    phase(1, 2);
    EXPECT_FALSE(hangs(60));
    EXPECT_FALSE(hangs(500));
    phase(1, 1);
    EXPECT_FALSE(hangs(501));
    EXPECT_FALSE(hangs(559)) << "the first step behind it takes its time, too";
    EXPECT_TRUE(hangs(560));
}

TEST_F(HangWatchTest, ARankThatSavesForTenTimesAsLongIsStuck) {
    stepped_ = true;
    report(0, 5, 1000);
    report(0, 6, 1001);
    EXPECT_FALSE(hangs(0));
    phase(0, 3);
    EXPECT_FALSE(hangs(300));
    EXPECT_FALSE(hangs(599));
    EXPECT_TRUE(hangs(600));
    report(0, 7, 1002);
    EXPECT_FALSE(hangs(601)) << "it went on";
    EXPECT_FALSE(hangs(700)) << "it has not said that it trains again";
}

TEST_F(HangWatchTest, ThatARankPreparesIsNoReasonToMakeNoSteps) {
    stepped_ = true;
    report(0, 5, 1000);
    report(0, 6, 1001);
    phase(1, 0);
    EXPECT_FALSE(hangs(0));
    EXPECT_TRUE(hangs(60));
}

TEST_F(HangWatchTest, AJobsOwnLimitIsForItsEvaluationsAsWell) {
    stepped_ = true;
    report(0, 5);
    EXPECT_FALSE(look(0));
    phase(0, 2);
    EXPECT_FALSE(look(9));
    EXPECT_TRUE(look(10));
}

// A rank that was ended in its evaluation, whose next process never says that it trains.
TEST_F(HangWatchTest, TheEvaluationOfTheGenerationBeforeSparesNobody) {
    stepped_ = true;
    report(0, 5, 1000);
    phase(0, 2);
    watch_.reset();
    report(0, 5, 1010, 2);
    report(0, 6, 1011, 2);
    EXPECT_FALSE(hangs(100));
    EXPECT_FALSE(hangs(159));
    EXPECT_TRUE(hangs(160));
}

TEST(HangLimit, IsTheJobsOwnOrTenTimesItsStepsAndAMinuteAtLeast) {
    EXPECT_EQ(hang_limit(5, 100.0).seconds, seconds{5});
    EXPECT_FALSE(hang_limit(5, 100.0).grows);
    EXPECT_FALSE(hang_limit(5, 100.0).spares);
    EXPECT_EQ(hang_limit(0, 0.0).seconds, limits::kHangLeast);
    EXPECT_TRUE(hang_limit(0, 0.0).grows);
    EXPECT_TRUE(hang_limit(0, 0.0).spares);
    EXPECT_EQ(hang_limit(0, 30.0).seconds, seconds{300});
    EXPECT_EQ(hang_limit(0, std::numeric_limits<double>::quiet_NaN()).seconds, limits::kHangLeast);
}

}  // namespace
}  // namespace lockstep
