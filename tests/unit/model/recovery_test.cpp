// size: every cause, with and without recovery, in one table, and the special cases
#include "job/model/recovery.hpp"

#include "job/model/invariants.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kOff = "";
constexpr const char* kOn = R"(,"recovery":{})";

// Two nodes with two ranks each, and spares.
std::string spec(const std::string& recovery, int spares = 0) {
    return R"({"name":"t","framework":"command","command":["x"],
               "resources":{"nodes":2,"ranks_per_node":2,"spares":)" +
           std::to_string(spares) + "}" + recovery + "}";
}

History running(const std::string& recovery, int spares = 0) {
    History h{spec(recovery, spares)};
    h.running();
    return h;
}

RecoveryPlan plan(const Job& job) {
    const auto reason = reason_to_stop(job);
    EXPECT_TRUE(reason.has_value());
    return reason ? plan_recovery(job, *reason) : RecoveryPlan{};
}

ActionKind due_of(const History& h) {
    return due(h.job, h.now).kind;
}

std::vector<CauseClass> faults() {
    std::vector<CauseClass> out;
    for (std::size_t i = 0; i < kCauseClasses; ++i) {
        const auto kind = static_cast<CauseClass>(i);
        if (kind != CauseClass::none && kind != CauseClass::restart_requested &&
            kind != CauseClass::node_returned) {
            out.push_back(kind);
        }
    }
    return out;
}

// Written by hand, apart from the code: what each is recovered from as, if it is.
std::optional<RecoveryTrigger> expected_trigger(CauseClass kind) {
    const std::map<CauseClass, RecoveryTrigger> known{
        {CauseClass::rank_exit, RecoveryTrigger::rank_failure},
        {CauseClass::rank_signal, RecoveryTrigger::rank_failure},
        {CauseClass::oom, RecoveryTrigger::rank_failure},
        {CauseClass::node_lost, RecoveryTrigger::node_failure},
        {CauseClass::gpu_fault, RecoveryTrigger::node_failure},
        {CauseClass::hang, RecoveryTrigger::hang},
        {CauseClass::preempted, RecoveryTrigger::preemption},
        {CauseClass::time_limit, RecoveryTrigger::time_limit}};
    const auto found = known.find(kind);
    return found == known.end() ? std::nullopt : std::optional{found->second};
}

bool ends_the_allocation(RecoveryTrigger trigger) {
    return trigger == RecoveryTrigger::preemption || trigger == RecoveryTrigger::time_limit;
}

TEST(Recovery, EveryCauseHasItsTriggerOrNone) {
    for (std::size_t i = 0; i < kCauseClasses; ++i) {
        const auto kind = static_cast<CauseClass>(i);
        EXPECT_EQ(trigger_of(kind), expected_trigger(kind)) << to_string(kind);
    }
}

// Every cause × {off, on, only that, all but that} × spares × {of the ranks, of a node, of the
// allocation while ranks run, of the allocation between generations}.
TEST(Recovery, EveryCauseInEverySituation) {
    enum class Where { ranks, node, allocation, between };
    const auto recover = [](std::optional<RecoveryTrigger> trigger, Where where, int spares) {
        if (!trigger) {
            return Recovery::none;
        }
        const bool stays = !ends_the_allocation(*trigger) &&
                           (where == Where::ranks || (where == Where::node && spares > 0));
        return stays ? Recovery::generation : Recovery::attempt;
    };
    for (const CauseClass kind : faults()) {
        const auto trigger = expected_trigger(kind);
        std::string others;
        for (std::size_t i = 0; i < kRecoveryTriggers; ++i) {
            const auto one = static_cast<RecoveryTrigger>(i);
            if (one != trigger) {
                others += std::string{others.empty() ? "" : ","} + '"' +
                          std::string{to_string(one)} + '"';
            }
        }
        const std::string only =
            trigger ? '"' + std::string{to_string(*trigger)} + '"' : std::string{};
        const std::vector<std::pair<std::string, bool>> specs{
            {kOff, false},
            {kOn, true},
            {R"(,"recovery":{"on":[)" + only + "]}", true},
            {R"(,"recovery":{"on":[)" + others + "]}", false}};
        for (const auto& [recovery, wanted] : specs) {
            for (const int spares : {0, 1}) {
                for (const Where where :
                     {Where::ranks, Where::node, Where::allocation, Where::between}) {
                    SCOPED_TRACE(std::string{to_string(kind)} + recovery + " spares " +
                                 std::to_string(spares) + " where " +
                                 std::to_string(static_cast<int>(where)));
                    History h = running(recovery, spares);
                    if (where == Where::between) {
                        h.must(h.end_of_generation(CauseClass::restart_requested, 5));
                    }
                    h.must(where == Where::ranks  ? h.fault(kind)
                           : where == Where::node ? h.fault(kind, 1)
                                                  : h.attempt_fault(kind));
                    const Recovery expected =
                        wanted ? recover(trigger, where, spares) : Recovery::none;
                    EXPECT_EQ(plan(h.job).kind, expected);
                    EXPECT_EQ(plan(h.job).why, "");
                    EXPECT_EQ(due_of(h), expected == Recovery::generation ? ActionKind::restart
                                         : expected == Recovery::attempt  ? ActionKind::next_attempt
                                                                          : ActionKind::stop);
                    EXPECT_EQ(due(h.job, h.now).cause.kind, kind);
                    EXPECT_EQ(outcome(h.job).cause.kind, kind);
                    EXPECT_FALSE(broken_by(h.job, outcome(h.job)));
                }
            }
        }
    }
}

TEST(Recovery, ALossThatIsNoNumberIsAnsweredAsTheJobSays) {
    const auto of = [](const char* word, int max_restarts = 3) {
        return R"(,"recovery":{"on":[],"on_nonfinite_loss":")" + std::string{word} +
               R"(","max_restarts":)" + std::to_string(max_restarts) + "}";
    };
    History stop = running(of("stop"));
    stop.must(stop.fault(CauseClass::nonfinite_loss));
    EXPECT_EQ(due_of(stop), ActionKind::stop);
    EXPECT_EQ(outcome(stop.job).cause.kind, CauseClass::nonfinite_loss);

    History again = running(of("restart"));
    again.must(again.fault(CauseClass::nonfinite_loss));
    EXPECT_EQ(due_of(again), ActionKind::restart);
    again.must(again.end_of_generation(CauseClass::nonfinite_loss, 40));
    EXPECT_EQ(restarts_used(again.job), 1);

    History spent = running(of("restart", 0));
    spent.must(spent.fault(CauseClass::nonfinite_loss));
    EXPECT_EQ(due_of(spent), ActionKind::stop);

    History other = running(of("restart"));  // and nothing else is recovered from
    other.must(other.fault(CauseClass::hang));
    EXPECT_EQ(due_of(other), ActionKind::stop);
}

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

TEST(Recovery, ARankThatExitsStartsTheNextGeneration) {
    History h = running(kOn);
    h.must(h.exit(3, 1));
    EXPECT_EQ(due_of(h), ActionKind::restart);
    EXPECT_EQ(due(h.job, h.now).cause.rank, 3);
    h.must(h.end_of_generation(CauseClass::rank_exit, 40));
    EXPECT_EQ(h.job.state, JobState::restarting);
    EXPECT_EQ(h.job.generation()->step, 40);
    EXPECT_EQ(h.job.live_generation(), nullptr);
    EXPECT_EQ(due_of(h), ActionKind::gather);
    h.generation();
    EXPECT_EQ(h.job.state, JobState::starting);
    EXPECT_EQ(h.job.generation()->number, 2);
    h.ranks_started();
    EXPECT_EQ(h.job.state, JobState::running);
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(due_of(h), ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

// Every rank has ended, one of them badly: still a restart, not the end.
TEST(Recovery, RanksThatHaveAllEndedAreStartedAgain) {
    History on = running(kOn);
    History off = running(kOff);
    for (int rank = 0; rank < 4; ++rank) {
        on.must(on.exit(rank, rank == 2 ? 1 : 0));
        off.must(off.exit(rank, rank == 2 ? 1 : 0));
    }
    EXPECT_EQ(due_of(on), ActionKind::restart);
    EXPECT_EQ(due_of(off), ActionKind::conclude);
}

TEST(Recovery, RestartsAreCountedOverAllAttempts) {
    History h = running(R"(,"recovery":{"max_restarts":3,"max_attempts":3})");
    h.fails(CauseClass::rank_exit, 10);
    h.again();
    h.fails(CauseClass::hang, 20);
    h.again();
    EXPECT_EQ(restarts_used(h.job), 2);
    h.must(h.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    h.must(h.end_of_generation(CauseClass::preempted, 30));
    h.attempt_ends(CauseClass::preempted);
    EXPECT_EQ(h.job.state, JobState::requeued);
    EXPECT_EQ(due_of(h), ActionKind::create_attempt);
    h.running();
    EXPECT_EQ(h.job.attempt()->number, 2);
    EXPECT_EQ(h.job.generation()->number, 1) << "generations count anew in each attempt";
    EXPECT_EQ(restarts_used(h.job), 2) << "a preemption is no restart";
    h.must(h.fault(CauseClass::oom));
    EXPECT_EQ(due_of(h), ActionKind::restart);
    h.must(h.end_of_generation(CauseClass::oom, 40));
    h.again();
    EXPECT_EQ(restarts_used(h.job), 3);
    h.must(h.exit(1, 7));
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(plan(h.job).why, "restarted 3 times already");
    EXPECT_EQ(outcome(h.job).cause.message,
              "rank 1 on n0 exited with code 7 (restarted 3 times already)");
    EXPECT_EQ(outcome(h.job).state, JobState::failed);
}

TEST(Recovery, NoRestartsMeansNone) {
    History h = running(R"(,"recovery":{"max_restarts":0})");
    h.must(h.exit(0, 1));
    EXPECT_EQ(due_of(h), ActionKind::stop);
    History preempted = running(R"(,"recovery":{"max_restarts":0})");
    preempted.must(preempted.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(due_of(preempted), ActionKind::next_attempt) << "that is the attempts' matter";
}

TEST(Recovery, AttemptsAreCounted) {
    History h = running(R"(,"recovery":{"max_attempts":2})");
    h.must(h.attempt_fault(CauseClass::time_limit));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    h.must(h.end_of_generation(CauseClass::time_limit));
    h.attempt_ends(CauseClass::time_limit);
    h.running();
    h.must(h.attempt_fault(CauseClass::time_limit));
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.message, "it failed (attempt 2 of 2)");
    History once = running(R"(,"recovery":{"max_attempts":1})");
    once.must(once.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(due_of(once), ActionKind::stop);
    EXPECT_EQ(outcome(once.job).cause.message, "it failed") << "nobody asked for a second one";
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

TEST(Recovery, NodesThatAreLeftAreCounted) {
    History h{spec(kOn, 2)};
    EXPECT_EQ(usable_nodes(h.job), 4) << "no attempt yet";
    h.running();
    EXPECT_EQ(usable_nodes(h.job), 4);
    h.must(h.fault(CauseClass::node_lost, 0));
    EXPECT_EQ(usable_nodes(h.job), 3);
    EXPECT_EQ(h.add(h.fault(CauseClass::node_lost, 0)).error().code, Errc::conflict)
        << "it is known";
    EXPECT_EQ(h.add(h.fault(CauseClass::node_lost, 4)).error().code, Errc::conflict)
        << "there is none";
    EXPECT_EQ(usable_nodes(h.job), 3);
    EXPECT_EQ(due_of(h), ActionKind::restart);
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(h), ActionKind::restart) << "both spares take part";
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_EQ(usable_nodes(h.job), 1);
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    EXPECT_EQ(h.job.attempt()->lost.at(2).kind, CauseClass::node_lost);
}

TEST(Recovery, ASpareThatIsLostFailsNothing) {
    History h = running(kOff, 1);
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_FALSE(h.job.generation()->first_failure.has_value());
    EXPECT_FALSE(h.job.attempt()->fault.has_value());
    EXPECT_EQ(due_of(h), ActionKind::watch);
    EXPECT_EQ(h.job.state, JobState::running);
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

TEST(Recovery, ANodeThatTookASparesPlaceIsASpareThen) {
    History h = running(kOn, 1);
    h.must(h.fault(CauseClass::gpu_fault, 0));
    h.must(h.end_of_generation(CauseClass::gpu_fault, 5));
    EXPECT_FALSE(h.add(h.next_generation({0, 1})).has_value()) << "node 0 is lost";
    h.again({2, 1});
    EXPECT_EQ(h.job.claim_of_node(0)->node, "n2");
    EXPECT_EQ(rank_json(h.job, 0)["node"], "n2");
    EXPECT_EQ(rank_json(h.job, 3)["node"], "n1");
    EXPECT_EQ(due_of(h), ActionKind::watch);
    h.must(h.fault(CauseClass::node_lost, 2));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt) << "it had a part";
}

TEST(Recovery, ANodeLostBetweenGenerationsIsMadeUpForOrEndsTheAttempt) {
    History spared = running(kOn, 1);
    spared.fails(CauseClass::rank_exit, 5);
    spared.must(spared.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(spared), ActionKind::gather);
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    EXPECT_EQ(due(h.job, h.now).cause.kind, CauseClass::node_lost);
    EXPECT_FALSE(h.add(h.next_generation()).has_value()) << "not without its node";
}

TEST(Recovery, ANodeLostBeforeTheFirstGenerationEndsTheAttempt) {
    for (const auto& [recovery, expected] :
         {std::pair{kOff, ActionKind::stop}, std::pair{kOn, ActionKind::next_attempt}}) {
        History h{spec(recovery)};
        h.attempt();
        h.placed();
        h.claims();
        h.must(h.fault(CauseClass::node_lost, 0));
        EXPECT_EQ(due_of(h), expected);
        EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::node_lost);
    }
}

TEST(Recovery, ACancelWins) {
    History failed = running(kOn);
    failed.must(failed.exit(0, 1));
    failed.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(failed), ActionKind::stop);
    History between = running(kOn);
    between.fails(CauseClass::rank_exit, 5);
    between.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(between), ActionKind::stop);
    EXPECT_EQ(outcome(between.job).state, JobState::cancelled);
    History preempted = running(kOn);
    preempted.must(preempted.attempt_fault(CauseClass::preempted));
    preempted.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(preempted), ActionKind::stop);
    History restart = running(kOn);
    restart.must(event::RestartRequested{1, 1, "bob"});
    restart.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(restart), ActionKind::stop);
    EXPECT_EQ(outcome(restart.job).state, JobState::cancelled);
}

TEST(Recovery, ACancelBetweenAttemptsEndsTheJob) {
    History h = running(kOn);
    h.must(h.attempt_fault(CauseClass::preempted));
    h.must(h.end_of_generation(CauseClass::preempted));
    h.attempt_ends(CauseClass::preempted);
    EXPECT_EQ(due_of(h), ActionKind::create_attempt);
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(h), ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
    EXPECT_FALSE(broken_by(h.job, outcome(h.job)));
}

// The attempt may end before anybody says that its generation has: what failed in it is no reason
// any more once another attempt is to come.
TEST(Recovery, AGenerationEndsWithItsAttempt) {
    History h = running(kOn);
    h.must(h.fault(CauseClass::node_lost, 0));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    h.attempt_ends(CauseClass::node_lost);
    EXPECT_FALSE(h.job.generation()->open());
    EXPECT_EQ(h.job.generation()->cause.kind, CauseClass::node_lost);
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
}

TEST(Recovery, APersonsRestartIsNotCounted) {
    History h = running(R"(,"recovery":{"max_restarts":1})");
    for (int i = 1; i <= 5; ++i) {
        h.must(event::RestartRequested{1, i, "ada"});
        EXPECT_FALSE(h.add(event::RestartRequested{1, i, "bob"}).has_value()) << "asked already";
        EXPECT_EQ(due_of(h), ActionKind::restart);
        EXPECT_EQ(due(h.job, h.now).cause.message, "restart asked for by ada");
        h.must(h.end_of_generation(CauseClass::restart_requested, 5));
        EXPECT_EQ(h.job.restart_requested_by, "");
        EXPECT_EQ(due_of(h), ActionKind::gather);
        h.again();
    }
    EXPECT_EQ(restarts_used(h.job), 0);
    EXPECT_FALSE(h.add(event::RestartRequested{1, 5, "ada"}).has_value()) << "of an old one";
}

TEST(Recovery, APersonsRestartNeedsNoRecoveryInTheSpec) {
    History h = running(kOff);
    h.must(event::RestartRequested{1, 1, "ada"});
    EXPECT_EQ(due_of(h), ActionKind::restart);
    h.must(h.exit(0, 1));
    EXPECT_EQ(due_of(h), ActionKind::stop) << "it failed by itself first";
}

TEST(Recovery, AnEndedGenerationIsHistory) {
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    h.must(h.fault(CauseClass::hang));
    EXPECT_EQ(due_of(h), ActionKind::gather);
    EXPECT_EQ(h.job.generation()->cause.kind, CauseClass::rank_exit);
    EXPECT_FALSE(h.add(h.exit(0, 1)).has_value());
    EXPECT_FALSE(h.add(event::CheckpointSaved{1, 1, 9, "p"}).has_value());
    EXPECT_FALSE(h.add(h.end_of_generation(CauseClass::hang)).has_value());
    event::FaultSeen late = h.fault(CauseClass::hang);
    h.again();
    h.must(late);
    EXPECT_EQ(due_of(h), ActionKind::watch) << "it was the one before";
    EXPECT_FALSE(h.job.attempt()->fault.has_value());
    EXPECT_EQ(h.job.checkpoint_step, -1);
}

TEST(Recovery, AGenerationThatNeverMeetsAgainEndsTheJob) {
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    const Action action = due(h.job, h.now + 300'000);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->message, "the nodes did not meet again within 300 s");
    h.must(*action.fault);
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::rendezvous_timeout);
}

TEST(Recovery, FailedNodesAreLeftOut) {
    const auto lose = [](const std::string& recovery) {
        History h = running(recovery, 1);
        h.must(h.fault(CauseClass::node_lost, 1));
        h.must(h.end_of_generation(CauseClass::node_lost, 3));
        h.again({0, 2});
        auto gpu = h.end_of_generation(CauseClass::gpu_fault, 9);
        gpu.cause.node = "n0";
        h.must(gpu);
        h.must(h.attempt_fault(CauseClass::preempted));
        h.attempt_ends(CauseClass::preempted);
        h.attempt();
        h.placed();
        h.must(h.fault(CauseClass::node_lost, 1));  // it has not even called in
        return nodes_to_exclude(h.job);
    };
    EXPECT_EQ(lose(kOn), (std::vector<std::string>{"n1", "n0"})) << "each once";
    EXPECT_EQ(lose(R"(,"recovery":{"exclude_failed_nodes":false})"), std::vector<std::string>{});
    EXPECT_EQ(nodes_to_exclude(running(kOn).job), std::vector<std::string>{});
}

TEST(Slots, AGenerationKnowsItsNodes) {
    Generation plain;
    EXPECT_EQ(plain.slot_of(3), 3);
    EXPECT_EQ(plain.node_rank_of(3), 3);
    Generation moved;
    moved.slots = {4, 0, 2};
    EXPECT_EQ(moved.slot_of(0), 4);
    EXPECT_EQ(moved.slot_of(2), 2);
    EXPECT_EQ(moved.slot_of(3), -1);
    EXPECT_EQ(moved.slot_of(-1), -1);
    EXPECT_EQ(moved.node_rank_of(4), 0);
    EXPECT_EQ(moved.node_rank_of(0), 1);
    EXPECT_EQ(moved.node_rank_of(1), -1) << "a spare";
}

TEST(Slots, ClaimsAreFoundByTheNodeOfTheGeneration) {
    History h{spec(kOn, 1)};
    EXPECT_EQ(h.job.claim_of_node(0), nullptr) << "no attempt yet";
    h.attempt();
    h.placed();
    h.claims();
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n1") << "no generation yet";
    h.generation({2, 0});
    EXPECT_EQ(h.job.claim_of_node(0)->node, "n2");
    EXPECT_EQ(h.job.claim_of_node(1)->node, "n0");
    EXPECT_EQ(h.job.claim_of_node(2), nullptr);
    EXPECT_EQ(h.job.claim_of_node(-1), nullptr);
}

TEST(Slots, OnlyNodesThatAreThereMakeAGeneration) {
    History h{spec(kOn, 2)};
    h.attempt();
    h.placed();
    h.claim(0);
    h.claim(1);
    h.claim(2);
    h.must(h.fault(CauseClass::node_lost, 1));
    const auto refused = [&](std::vector<std::int32_t> slots) {
        event::GenerationStarted started = h.next_generation();
        started.slots = std::move(slots);
        return !h.add(started).has_value();
    };
    EXPECT_TRUE(refused({0})) << "too few";
    EXPECT_TRUE(refused({0, 2, 2})) << "too many";
    EXPECT_TRUE(refused({0, 0})) << "one twice";
    EXPECT_TRUE(refused({0, 1})) << "lost";
    EXPECT_TRUE(refused({0, 3})) << "has not called in";
    EXPECT_TRUE(refused({0, -1}));
    EXPECT_TRUE(refused({0, 4}));
    EXPECT_TRUE(refused({})) << "with spares it has to be said";
    EXPECT_TRUE(h.job.attempt()->generations.empty());
    EXPECT_FALSE(refused({2, 0}));
}

}  // namespace
}  // namespace lockstep
