// Every cause, with and without recovery, in one table, and how often it is recovered from.
#include "job/model/invariants.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/recovery_fixture.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

RecoveryPlan plan(const Job& job) {
    const auto reason = reason_to_stop(job);
    EXPECT_TRUE(reason.has_value());
    return reason ? plan_recovery(job, *reason) : RecoveryPlan{};
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

// It was failing already when it was told to stop, and its failure was an earlier one: the job was
// started again, against what its specification says.
TEST(Recovery, ARankThatFailsAtALossThatIsNoNumberDoesNotChangeWhatFollowsFromThat) {
    History h = running(R"(,"recovery":{"on":["rank_failure"],"on_nonfinite_loss":"stop"})");
    h.must(h.fault(CauseClass::nonfinite_loss));
    h.must(h.exit(1, 1, h.now - 5000));
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::nonfinite_loss);
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

}  // namespace
}  // namespace lockstep
