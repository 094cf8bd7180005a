#include "job/model/spans.hpp"

#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace lockstep {
namespace {

double sum(const JobTime& time) {
    return std::accumulate(time.seconds.begin(), time.seconds.end(), 0.0);
}

double wall(const Job& job, UnixMillis now) {
    const UnixMillis end = job.finished_at != 0 ? job.finished_at : now;
    return static_cast<double>(std::max(end, job.submitted_at) - job.submitted_at) / 1000.0;
}

// Submitted 1 s, queued until 2 s later, launch 2 s, rendezvous 2 s: one event a second.
History running_history() {
    History h{R"({"name":"t","framework":"command","command":["x"],
                  "resources":{"nodes":2,"ranks_per_node":2},"recovery":{}})"};
    h.running();
    return h;
}

event::GenerationStarted resumed(const History& h, std::int64_t step) {
    event::GenerationStarted out = h.next_generation();
    out.resumed_from_step = step;
    return out;
}

TEST(Spans, BeforeAnythingRunsItIsTheQueue) {
    History h;
    const JobTime time = job_time(h.job, {}, h.now + 5000);
    EXPECT_EQ(time.of(Span::queue), 5);
    EXPECT_EQ(sum(time), 5);
    EXPECT_FALSE(time.ettr.has_value());
    EXPECT_FALSE(time.lost_steps.has_value());
}

TEST(Spans, EverySecondOfARunHasItsPlace) {
    const History h = running_history();
    const UnixMillis ran = h.job.started_at;
    const GenerationReport report{1, 1, 1, 101, ran + 10'000, ran + 60'000, 5.0};
    const JobTime time = job_time(h.job, std::vector{report}, ran + 80'000);
    EXPECT_EQ(time.of(Span::queue), 2);       // attempt_created, attempt_placed
    EXPECT_EQ(time.of(Span::launch), 2);      // two claims
    EXPECT_EQ(time.of(Span::rendezvous), 2);  // generation_started, ranks_started
    EXPECT_EQ(time.of(Span::init), 10);
    EXPECT_EQ(time.of(Span::productive), 65);
    EXPECT_EQ(time.of(Span::checkpoint), 5);
    EXPECT_EQ(time.of(Span::stalled), 0);
    EXPECT_EQ(time.of(Span::lost), 0);
    EXPECT_EQ(sum(time), 86);
    ASSERT_TRUE(time.ettr.has_value());
    EXPECT_DOUBLE_EQ(*time.ettr, 65.0 / 80.0) << "the first queue is no part of it";
    EXPECT_EQ(time.generations.at(0).step, 101);
    EXPECT_FALSE(time.lost_steps.has_value()) << "nobody has started after it";
}

TEST(Spans, ARestartFrom40After52StepsLosesTwelve) {
    History h = running_history();
    const UnixMillis ran = h.job.started_at;
    h.now = ran + 70'000 - 1000;
    h.must(h.fault(CauseClass::rank_exit));                  // 70 s after the start
    h.must(h.end_of_generation(CauseClass::rank_exit, 52));  // 71 s
    h.must(resumed(h, 40));                                  // 72 s
    h.ranks_started();                                       // 73 s
    const GenerationReport first{1, 1, 1, 52, ran + 10'000, ran + 61'000, 0};  // 1 s a step
    const GenerationReport second{1, 2, 41, 43, ran + 80'000, ran + 82'000, 0};
    const JobTime time = job_time(h.job, std::vector{second, first}, ran + 82'000);
    EXPECT_EQ(time.lost_steps, 12);
    EXPECT_EQ(time.find(1, 1)->lost_steps, 12);
    EXPECT_FALSE(time.find(1, 2)->lost_steps.has_value());
    EXPECT_EQ(time.of(Span::init), 10 + 7);
    EXPECT_DOUBLE_EQ(time.of(Span::productive), 39 + 2);
    EXPECT_DOUBLE_EQ(time.of(Span::lost), 12 + 10) << "and from step 52 to the end";
    EXPECT_EQ(time.of(Span::rendezvous), 2 + 2);
    EXPECT_DOUBLE_EQ(sum(time), wall(h.job, ran + 82'000));
    EXPECT_DOUBLE_EQ(*time.ettr, 41.0 / 82.0);

    LiveView live;
    live.now = ran + 82'000;
    live.reports = {first, second};
    const Json view = job_json(h.job, live);
    EXPECT_EQ(view["lost_steps"], 12);
    EXPECT_EQ(view["attempts"][0]["generations"][0]["lost_steps"], 12);
    EXPECT_EQ(view["attempts"][0]["generations"][0]["step"], 52);
    EXPECT_FALSE(view["attempts"][0]["generations"][1].contains("lost_steps"));
    EXPECT_EQ(view["attempts"][0]["generations"][1]["step"], 43);
    EXPECT_EQ(view["spans"].size(), kSpans);
}

// Lost steps of all generations for (resumed from, first step reported, last step).
std::optional<std::int64_t> lost(const std::vector<std::array<std::int64_t, 3>>& generations) {
    History h = running_history();
    std::vector<GenerationReport> reports;
    for (std::size_t i = 0; i < generations.size(); ++i) {
        const auto [from, first, last] = generations[i];
        if (i > 0) {
            h.fails(CauseClass::rank_exit, generations[i - 1][2]);
            h.must(resumed(h, from));
            h.ranks_started();
        }
        if (first >= 0) {
            const auto number = static_cast<std::int32_t>(i) + 1;
            reports.push_back({1, number, first, last, h.now + 100, h.now + 900, 0});
        }
    }
    const JobTime time = job_time(h.job, reports, h.now + 1000);
    EXPECT_NEAR(sum(time), wall(h.job, h.now + 1000), 1e-6);
    return time.lost_steps;
}

TEST(Spans, StepsAreLostOnceWhoeverGoesBack) {
    EXPECT_EQ(lost({{-1, 1, 50}}), std::nullopt);
    EXPECT_EQ(lost({{-1, 1, 50}, {50, 51, 60}}), 0) << "nothing is lost, and that is known";
    EXPECT_EQ(lost({{-1, 1, 52}, {40, -1, -1}}), 12) << "known before its first step";
    EXPECT_EQ(lost({{-1, 1, 52}, {40, 41, 47}, {40, 41, 60}}), 12 + 7);
    EXPECT_EQ(lost({{-1, 1, 52}, {40, 41, 60}, {20, 21, 30}}), 32 + 20)
        << "the second one's checkpoint was no good: more of the first goes";
    EXPECT_EQ(lost({{-1, 1, 52}, {-1, 1, 9}}), 52) << "from scratch";
    EXPECT_EQ(lost({{-1, 0, 52}, {-1, 0, 9}}), 53) << "steps that count from 0";
    EXPECT_EQ(lost({{-1, 1, 52}, {-1, -1, -1}}), std::nullopt) << "not known yet";
    EXPECT_EQ(lost({{-1, 1, 52}, {-1, 53, 60}}), 0) << "the script has its own checkpoints";
    EXPECT_EQ(lost({{-1, 1, 52}, {40, 1, 60}}), 52) << "the script ignored the checkpoint";
    EXPECT_EQ(lost({{-1, 1, 52}, {40, 60, 80}}), 12) << "it reports every 20th step";
    EXPECT_EQ(lost({{-1, -1, -1}, {40, 41, 47}}), std::nullopt) << "how far it came is not known";
}

event::Suspended suspended(bool over) {
    return {1, over, "Slurm job 17 is suspended"};
}

TEST(Spans, WhatIsSuspendedIsNeitherProductiveNorStalledNorInTheRatio) {
    History h = running_history();
    const UnixMillis ran = h.job.started_at;
    h.now = ran + 19'000;
    h.must(suspended(false));  // 20 s after the start
    EXPECT_TRUE(h.job.attempt()->suspended());
    EXPECT_FALSE(h.add(suspended(false)).has_value()) << "it is known";
    const std::vector<GenerationReport> until{{1, 1, 1, 11, ran + 10'000, ran + 20'000, 0}};
    const JobTime still = job_time(h.job, until, ran + 320'000);
    EXPECT_EQ(still.of(Span::suspended), 300);
    EXPECT_EQ(still.of(Span::productive), 10);
    EXPECT_EQ(still.of(Span::stalled), 0) << "no rank can make a step";
    EXPECT_DOUBLE_EQ(still.ettr.value(), 10.0 / 20.0);
    EXPECT_DOUBLE_EQ(sum(still), wall(h.job, ran + 320'000));
    h.now = ran + 319'000;
    h.must(suspended(true));
    EXPECT_FALSE(h.job.attempt()->suspended());
    const std::vector<GenerationReport> reports{{1, 1, 1, 51, ran + 10'000, ran + 360'000, 5}};
    const JobTime time = job_time(h.job, reports, ran + 360'000);
    EXPECT_EQ(time.of(Span::suspended), 300);
    EXPECT_EQ(time.of(Span::init), 10);
    EXPECT_EQ(time.of(Span::productive), 45);
    EXPECT_EQ(time.of(Span::checkpoint), 5);
    EXPECT_DOUBLE_EQ(time.ettr.value(), 45.0 / 60.0);
    EXPECT_DOUBLE_EQ(sum(time), wall(h.job, ran + 360'000));
    EXPECT_EQ(job_time(h.job, reports, ran + 419'999).of(Span::stalled), 0);
    EXPECT_EQ(job_time(h.job, reports, ran + 420'000).of(Span::stalled), 60);
    // The 50 steps took 50 s: 20 of them are done again.
    h.now = ran + 360'000;
    h.fails(CauseClass::rank_exit, 51);
    h.must(resumed(h, 31));
    const JobTime again = job_time(h.job, reports, h.now);
    EXPECT_EQ(again.lost_steps, 20);
    EXPECT_DOUBLE_EQ(again.of(Span::productive), 30 - 5);
    EXPECT_DOUBLE_EQ(sum(again), wall(h.job, h.now));
}

TEST(Spans, ASuspensionEndsWithItsAttempt) {
    History h = running_history();
    h.must(suspended(false));
    const UnixMillis from = h.now;
    h.must(event::AttemptEnded{1, {}});
    const UnixMillis to = h.now;
    EXPECT_EQ(h.job.attempts[0].suspensions.at(0).to, to);
    EXPECT_FALSE(h.add(suspended(true)).has_value());
    EXPECT_DOUBLE_EQ(job_time(h.job, {}, h.now + 50'000).of(Span::suspended),
                     static_cast<double>(to - from) / 1000.0);
}

TEST(Spans, AHangIsStalledUpToItsEnd) {
    History h = running_history();
    const UnixMillis ran = h.job.started_at;
    const std::vector<GenerationReport> reports{{1, 1, 1, 11, ran + 1000, ran + 11'000, 0}};
    EXPECT_EQ(job_time(h.job, reports, ran + 70'999).of(Span::stalled), 0);
    const JobTime seen = job_time(h.job, reports, ran + 71'000);
    EXPECT_EQ(seen.of(Span::stalled), 60) << "before anybody calls it a hang";
    h.now = ran + 89'000;
    h.must(h.fault(CauseClass::hang));
    h.must(h.end_of_generation(CauseClass::hang, 11));
    const JobTime time = job_time(h.job, reports, ran + 95'000);
    EXPECT_EQ(time.of(Span::stalled), 80);
    EXPECT_EQ(time.of(Span::productive), 10);
    EXPECT_EQ(time.of(Span::lost), 0);
    EXPECT_EQ(sum(time), wall(h.job, ran + 95'000));
    const JobTime silent = job_time(h.job, {}, ran + 95'000);
    EXPECT_EQ(silent.of(Span::stalled), 91) << "it hung before its first step";
    EXPECT_FALSE(silent.ettr.has_value()) << "nobody said a step";
}

TEST(Spans, SlowStepsAreNoStall) {
    const History h = running_history();
    const UnixMillis ran = h.job.started_at;
    const std::vector<GenerationReport> reports{{1, 1, 1, 3, ran + 1000, ran + 61'000, 0}};
    EXPECT_EQ(job_time(h.job, reports, ran + 360'999).of(Span::stalled), 0) << "30 s a step";
    EXPECT_EQ(job_time(h.job, reports, ran + 361'000).of(Span::stalled), 300);
}

TEST(Spans, TheQueueBetweenAttemptsCountsAgainstTheRatio) {
    History h = running_history();
    const UnixMillis ran = h.job.started_at;
    h.now = ran + 9000;
    h.must(h.end_of_generation(CauseClass::preempted, 10));  // 10 s
    h.attempt_ends(CauseClass::preempted);                   // 11 s
    h.now = ran + 99'000;
    h.attempt();  // 100 s
    h.placed();   // 101 s
    const std::vector<GenerationReport> reports{{1, 1, 1, 10, ran, ran + 10'000, 0}};
    const JobTime time = job_time(h.job, reports, ran + 111'000);
    EXPECT_EQ(time.of(Span::queue), 2 + 90);
    EXPECT_EQ(time.of(Span::launch), 2 + 10);
    EXPECT_EQ(time.of(Span::lost), 1) << "an attempt that winds up";
    EXPECT_DOUBLE_EQ(*time.ettr, 10.0 / 111.0);
    EXPECT_EQ(sum(time), wall(h.job, ran + 111'000));
}

TEST(Spans, AFinalJobStandsStill) {
    History h = running_history();
    const UnixMillis ran = h.job.started_at;
    h.now = ran + 49'000;
    h.must(h.end_of_generation(CauseClass::none, 10));
    h.attempt_ends(CauseClass::none);
    h.must(event::Finished{JobState::succeeded, {}, 10});
    const std::vector<GenerationReport> reports{{1, 1, 1, 10, ran + 5000, ran + 45'000, 0}};
    const JobTime time = job_time(h.job, reports, ran + 900'000);
    EXPECT_EQ(sum(time), wall(h.job, 0));
    EXPECT_EQ(time.of(Span::productive), 45) << "what it did after its last step, too";
    EXPECT_EQ(time.seconds, job_time(h.job, reports, 0).seconds);
}

TEST(Spans, ClocksThatDisagreeMakeNothingNegative) {
    const History h = running_history();
    const UnixMillis ran = h.job.started_at;
    for (const auto& [first, last] : std::vector<std::pair<UnixMillis, UnixMillis>>{
             {ran - 50'000, ran - 40'000}, {ran + 90'000, ran + 99'000}, {ran + 9000, ran + 1}}) {
        const std::vector<GenerationReport> reports{{1, 1, 1, 9, first, last, 1e9}};
        const JobTime time = job_time(h.job, reports, ran + 30'000);
        EXPECT_NEAR(sum(time), 36, 1e-6);
        for (const double seconds : time.seconds) {
            EXPECT_GE(seconds, 0);
        }
    }
    EXPECT_EQ(sum(job_time(h.job, {}, h.job.submitted_at - 5)), 0);
}

// Any life of a job with any reports: the spans are the wall time.
TEST(Spans, AddUpToTheWallTime) {
    std::mt19937_64 engine{7};
    const auto roll = [&](int below) {
        return static_cast<int>(engine() % static_cast<unsigned>(below));
    };
    const std::array kCauses{CauseClass::rank_exit, CauseClass::hang, CauseClass::node_lost,
                             CauseClass::restart_requested};
    std::size_t lossy = 0;
    std::size_t stalled = 0;
    for (int walk = 0; walk < 500; ++walk) {
        SCOPED_TRACE(walk);
        History h{R"({"name":"t","framework":"command","command":["x"],
                      "resources":{"nodes":2,"ranks_per_node":2,"spares":1},"recovery":{}})"};
        std::vector<GenerationReport> reports;
        const auto check = [&] {
            const UnixMillis now = h.now + roll(90'000);
            const JobTime time = job_time(h.job, reports, now);
            ASSERT_NEAR(sum(time), wall(h.job, now), 1e-6);
            for (const double seconds : time.seconds) {
                ASSERT_GE(seconds, -1e-9);
            }
            ASSERT_TRUE(!time.ettr || (*time.ettr >= 0 && *time.ettr <= 1));
            ASSERT_GE(time.lost_steps.value_or(0), 0);
            lossy += time.lost_steps.value_or(0) > 0 ? 1 : 0;
            stalled += time.of(Span::stalled) > 0 ? 1 : 0;
        };
        const int attempts = 1 + roll(3);
        for (int a = 0; a < attempts; ++a) {
            h.now += roll(100'000);
            h.attempt();
            check();
            h.placed();
            h.claims();
            check();
            const int generations = roll(4);
            for (int g = 0; g < generations; ++g) {
                h.now += roll(20'000);
                h.must(resumed(h, roll(60) - 10));
                check();
                if (roll(6) != 0) {
                    h.ranks_started();
                }
                if (roll(5) != 0) {
                    const std::int64_t first = roll(50);
                    const UnixMillis at = h.now + roll(20'000) - 5000;
                    reports.push_back({h.attempt_number(), h.generation_number(), first,
                                       first + roll(60), at, at + roll(60'000),
                                       static_cast<double>(roll(30))});
                }
                h.now += roll(90'000);
                check();
                h.must(
                    h.end_of_generation(kCauses[static_cast<std::size_t>(roll(4))], roll(100) - 1));
                check();
            }
            h.attempt_ends(CauseClass::preempted);
            check();
        }
        h.must(event::Finished{JobState::failed, {}, -1});
        check();
        if (HasFatalFailure()) {
            return;
        }
    }
    EXPECT_GT(lossy, 500U);
    EXPECT_GT(stalled, 500U);
}

}  // namespace
}  // namespace lockstep
