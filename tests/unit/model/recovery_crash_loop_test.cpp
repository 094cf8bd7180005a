#include "job/model/invariants.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/recovery_fixture.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST(Recovery, ALossThatIsNoNumberAtTheSameStepAgainIsACrashLoop) {
    History h = running(R"(,"recovery":{"on_nonfinite_loss":"restart","max_restarts":9})");
    for (int i = 0; i < kCrashLoop; ++i) {
        if (i > 0) {
            h.again();
        }
        h.must(h.fault(CauseClass::nonfinite_loss));
        h.must(h.end_of_generation(CauseClass::nonfinite_loss, 40));
    }
    EXPECT_TRUE(crash_loop(*h.job.attempt()));
    EXPECT_EQ(due_of(h), ActionKind::stop);
}

TEST(Recovery, ThreeGenerationsThatEndAtTheSameStepAreACrashLoop) {
    History h = running(R"(,"recovery":{"max_restarts":100})");
    h.fails(CauseClass::rank_exit, 41);
    h.again();
    h.fails(CauseClass::rank_signal, 40);
    EXPECT_FALSE(crash_loop(*h.job.attempt()));
    EXPECT_EQ(due_of(h), ActionKind::gather);
    h.again();
    h.fails(CauseClass::hang, 42);
    EXPECT_TRUE(crash_loop(*h.job.attempt()));
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::hang);
    EXPECT_EQ(outcome(h.job).cause.message,
              "crash loop: 3 generations in a row ended at step 42; the last one: it failed");
    EXPECT_FALSE(broken_by(h.job, outcome(h.job)));
}

// Steps at which generations ended, and why, told as a crash loop or not.
bool loops(const std::vector<std::pair<CauseClass, std::int64_t>>& ends) {
    History h = running(R"(,"recovery":{"max_restarts":100})");
    for (std::size_t i = 0; i < ends.size(); ++i) {
        if (i > 0) {
            h.again();
        }
        if (ends[i].first == CauseClass::restart_requested) {
            h.must(event::RestartRequested{1, h.generation_number(), "ada"});
            h.must(h.end_of_generation(ends[i].first, ends[i].second));
        } else {
            h.fails(ends[i].first, ends[i].second);
        }
    }
    EXPECT_EQ(due_of(h) == ActionKind::stop, crash_loop(*h.job.attempt()));
    return crash_loop(*h.job.attempt());
}

TEST(Recovery, WhatIsNoCrashLoop) {
    constexpr auto kExit = CauseClass::rank_exit;
    EXPECT_TRUE(loops({{kExit, 5}, {kExit, 5}, {kExit, 5}}));
    EXPECT_TRUE(loops({{kExit, 5}, {kExit, 5}, {kExit, 7}})) << "two steps are chance";
    EXPECT_TRUE(loops({{kExit, 7}, {kExit, 9}, {kExit, 8}}));
    EXPECT_FALSE(loops({{kExit, 5}, {kExit, 5}, {kExit, 8}})) << "steps were gained";
    EXPECT_FALSE(loops({{kExit, 2}, {kExit, 5}, {kExit, 5}}));
    EXPECT_TRUE(loops({{kExit, 1}, {kExit, 5}, {kExit, 5}, {kExit, 5}})) << "the newest count";
    EXPECT_FALSE(loops({{kExit, 5}, {kExit, 5}}));
    EXPECT_TRUE(loops({{kExit, -1}, {kExit, -1}, {kExit, -1}})) << "none made a step";
    EXPECT_FALSE(loops({{kExit, 5}, {CauseClass::restart_requested, 5}, {kExit, 5}}))
        << "a person's restart breaks the chain";
    EXPECT_FALSE(loops({{kExit, 5}, {kExit, 5}, {CauseClass::restart_requested, 5}}));
    EXPECT_TRUE(loops({{CauseClass::oom, 5}, {CauseClass::hang, 5}, {kExit, 5}}));
    EXPECT_FALSE(loops({{CauseClass::node_lost, 5}, {kExit, 5}, {kExit, 5}}))
        << "a node says nothing of the job";
}

TEST(Recovery, GenerationsThatNeverMadeAStepSaySo) {
    History h = running(R"(,"recovery":{"max_restarts":100})");
    for (int i = 0; i < 3; ++i) {
        if (i > 0) {
            h.again();
        }
        h.fails(CauseClass::rank_exit, -1);
    }
    EXPECT_EQ(outcome(h.job).cause.message,
              "crash loop: 3 generations in a row ended before their first step; the last one: it "
              "failed");
}

// A job whose script reports no step was ended after its third daily failure, with 47 restarts
// left.
TEST(Recovery, LongGenerationsWithoutAKnownStepAreNoCrashLoop) {
    for (const std::int64_t step : {-1, 40}) {
        History h = running(R"(,"recovery":{"max_restarts":100})");
        for (int i = 0; i < 3; ++i) {
            if (i > 0) {
                h.again();
            }
            h.now += kLongGeneration;
            h.fails(CauseClass::rank_exit, step);
        }
        EXPECT_FALSE(crash_loop(*h.job.attempt())) << step;
        EXPECT_EQ(due_of(h), ActionKind::gather) << step;
    }
}

TEST(Recovery, LongGenerationsFromOneCheckpointToOneStepAreACrashLoop) {
    History h = running(R"(,"recovery":{"max_restarts":100})");
    for (int i = 0; i < 4; ++i) {
        if (i > 0) {
            auto next = h.next_generation();
            next.resumed_from_step = 900;
            h.must(next);
            h.ranks_started();
        }
        h.now += kLongGeneration;
        h.fails(CauseClass::rank_exit, 950);
        EXPECT_EQ(crash_loop(*h.job.attempt()), i == 3) << i;
    }
}

// Losses printed without a step are counted from 0 in each generation: 40 prints, three times, each
// from a newer checkpoint, were "at step 40".
TEST(Recovery, StepsThatAreCountedAnewFromNewerCheckpointsAreNoCrashLoop) {
    for (const std::int64_t step : {-1, 40}) {
        History h = running(R"(,"recovery":{"max_restarts":100})");
        for (int i = 0; i < 4; ++i) {
            if (i > 0) {
                auto next = h.next_generation();
                next.resumed_from_step = 1000 * i;
                h.must(next);
                h.ranks_started();
            }
            h.fails(CauseClass::rank_exit, step);
            EXPECT_FALSE(crash_loop(*h.job.attempt())) << i;
        }
    }
    // Known steps: what begins at a newer checkpoint and ends at the same step is a loop.
    History h = running(R"(,"recovery":{"max_restarts":100})");
    for (const std::int64_t from : {20, 30, 40}) {
        if (from > 20) {
            auto next = h.next_generation();
            next.resumed_from_step = from;
            h.must(next);
            h.ranks_started();
        }
        h.fails(CauseClass::rank_exit, 41);
    }
    EXPECT_TRUE(crash_loop(*h.job.attempt()));
}

// Generations of another allocation say nothing about this one.
TEST(Recovery, ACrashLoopIsOfOneAttempt) {
    History h = running(R"(,"recovery":{"max_restarts":100})");
    h.fails(CauseClass::rank_exit, 5);
    h.again();
    h.fails(CauseClass::rank_exit, 5);
    h.must(h.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    h.attempt_ends(CauseClass::preempted);
    h.running();
    h.fails(CauseClass::rank_exit, 5);
    EXPECT_EQ(due_of(h), ActionKind::gather);
}

}  // namespace
}  // namespace lockstep
