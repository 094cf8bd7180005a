#include "scheduler-integration/slurm/slurm_state.hpp"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

using enum SlurmPhase;

SlurmState words(std::vector<std::string_view> list) {
    return parse_slurm_states(list);
}

template <class T>
std::vector<T> all(std::size_t count, std::size_t from = 0) {
    std::vector<T> out;
    for (std::size_t i = from; i < count; ++i) {
        out.push_back(static_cast<T>(i));
    }
    return out;
}

bool is_over(SlurmBase base) {
    return base != SlurmBase::none && base != SlurmBase::pending && base != SlurmBase::running &&
           base != SlurmBase::suspended;
}

TEST(SlurmState, EveryWordAndEveryCodeIsRecognised) {
    std::set<std::string_view> codes;
    for (const SlurmBase base : all<SlurmBase>(kSlurmBases, 1)) {
        EXPECT_EQ(parse_slurm_state(to_string(base)).base, base);
        EXPECT_EQ(parse_slurm_state(compact_code(base)).base, base);
        EXPECT_FALSE(parse_slurm_state(compact_code(base)).foreign);
        EXPECT_TRUE(codes.insert(compact_code(base)).second) << compact_code(base);
    }
    for (const SlurmFlag flag : all<SlurmFlag>(kSlurmFlags)) {
        EXPECT_TRUE(parse_slurm_state(to_string(flag)).has(flag));
        if (!compact_code(flag).empty()) {
            EXPECT_TRUE(parse_slurm_state(compact_code(flag)).has(flag));
            EXPECT_TRUE(codes.insert(compact_code(flag)).second) << compact_code(flag);
        }
    }
}

TEST(SlurmState, ReadsWhatSacctMakesOfCancelledAndWhatColumnsCutOff) {
    EXPECT_EQ(parse_slurm_state("CANCELLED by 1000").base, SlurmBase::cancelled);
    EXPECT_EQ(parse_slurm_state("CANCELLED by 1000").cancelled_by, 1000);
    EXPECT_EQ(parse_slurm_state("CANCELLED by 0").cancelled_by, 0);
    EXPECT_EQ(parse_slurm_state("CANCELLED+").base, SlurmBase::cancelled);
    EXPECT_EQ(parse_slurm_state("CANCELLED+").cancelled_by, std::nullopt);
    EXPECT_EQ(parse_slurm_state("CANCELLED by+").base, SlurmBase::cancelled);
    EXPECT_EQ(parse_slurm_state("CANCELLED by 10+").cancelled_by, std::nullopt);
    EXPECT_EQ(parse_slurm_state("OUT_OF_ME+").base, SlurmBase::out_of_memory);
    EXPECT_EQ(parse_slurm_state("COMPLETED").base, SlurmBase::completed);
    EXPECT_TRUE(parse_slurm_state("COMPLETI+").has(SlurmFlag::completing));
    // Two words begin like this: which one it is would be a guess.
    EXPECT_TRUE(parse_slurm_state("COMPLET+").foreign);
    EXPECT_TRUE(parse_slurm_state("REQUEUE_+").foreign);
}

TEST(SlurmState, WhatIsNotKnownIsForeignAndEndsNothing) {
    for (const std::string_view word :
         {"", "+", "completed", "COMPLETED ", "DONE", "COMPLETEDX", "CANCELLED_BY", " by 7",
          "COMPLETED;FAILED", "CANCELLEDby"}) {
        const SlurmState state = parse_slurm_state(word);
        EXPECT_TRUE(state.foreign) << word;
        EXPECT_EQ(judge(state).phase, unknown) << word;
        EXPECT_FALSE(judge(state).terminal) << word;
    }
    EXPECT_TRUE(words({}).foreign);
    EXPECT_TRUE(words({"FAILED", "COMPLETED"}).foreign) << "two base states";
    EXPECT_FALSE(judge(words({"FAILED", "SOMETHING_NEW"})).terminal);
    EXPECT_EQ(words({"FAILED", "SOMETHING_NEW"}).raw, "FAILED+SOMETHING_NEW");
}

TEST(SlurmState, EveryBaseStateWithoutFlagsHasItsPhase) {
    const std::vector<std::tuple<std::string_view, SlurmPhase, SlurmEnd, bool, bool>> table{
        {"PENDING", queued, SlurmEnd::none, false, false},
        {"RUNNING", running, SlurmEnd::none, false, false},
        {"SUSPENDED", paused, SlurmEnd::none, false, false},
        {"COMPLETED", ended, SlurmEnd::ok, true, false},
        {"CANCELLED", ended, SlurmEnd::cancelled, true, false},
        {"FAILED", ended, SlurmEnd::failed, true, true},
        {"TIMEOUT", ended, SlurmEnd::time_limit, true, true},
        {"NODE_FAIL", ended, SlurmEnd::node_fail, true, true},
        {"PREEMPTED", ended, SlurmEnd::preempted, true, true},
        {"BOOT_FAIL", ended, SlurmEnd::boot_fail, true, true},
        {"DEADLINE", ended, SlurmEnd::deadline, true, false},
        {"OUT_OF_MEMORY", ended, SlurmEnd::oom, true, true},
    };
    EXPECT_EQ(table.size(), kSlurmBases - 1);
    for (const auto& [word, phase, end, terminal, confirm] : table) {
        EXPECT_EQ(judge(parse_slurm_state(word)), (SlurmVerdict{phase, end, terminal, confirm}))
            << word;
    }
}

TEST(SlurmState, EveryFlagAloneHasItsPhaseAndNoneIsTerminal) {
    const std::vector<std::pair<SlurmFlag, SlurmPhase>> table{
        {SlurmFlag::completing, finishing},   {SlurmFlag::stage_out, finishing},
        {SlurmFlag::configuring, starting},   {SlurmFlag::expediting, requeueing},
        {SlurmFlag::resizing, running},       {SlurmFlag::requeued, requeueing},
        {SlurmFlag::requeue_fed, requeueing}, {SlurmFlag::requeue_hold, held},
        {SlurmFlag::special_exit, held},      {SlurmFlag::stopped, paused},
        {SlurmFlag::revoked, ended},          {SlurmFlag::resv_del_hold, held},
        {SlurmFlag::signaling, running},      {SlurmFlag::launch_failed, unknown},
        {SlurmFlag::reconfig_fail, unknown},  {SlurmFlag::power_up_node, starting},
        {SlurmFlag::getenv_failed, unknown},  {SlurmFlag::update_db, unknown},
    };
    EXPECT_EQ(table.size(), kSlurmFlags);
    for (const auto& [flag, phase] : table) {
        const SlurmVerdict verdict = judge(parse_slurm_state(to_string(flag)));
        EXPECT_EQ(verdict.phase, phase) << to_string(flag);
        EXPECT_FALSE(verdict.terminal) << to_string(flag);
    }
}

// The phase of a base state beside a flag, written down a second time and flag by flag.
SlurmPhase expected(SlurmBase base, SlurmFlag flag) {
    switch (flag) {
        case SlurmFlag::requeue_hold:
        case SlurmFlag::special_exit:
        case SlurmFlag::resv_del_hold:
            return held;
        case SlurmFlag::requeued:
        case SlurmFlag::requeue_fed:
        case SlurmFlag::expediting:
            return requeueing;
        case SlurmFlag::revoked:
            return ended;
        case SlurmFlag::completing:
            return base == SlurmBase::pending ? requeueing : finishing;
        case SlurmFlag::stage_out:
            return base == SlurmBase::pending ? queued : finishing;
        case SlurmFlag::configuring:
        case SlurmFlag::power_up_node:
            return is_over(base) ? ended : base == SlurmBase::suspended ? paused : starting;
        case SlurmFlag::stopped:
            return is_over(base) ? ended : base == SlurmBase::pending ? queued : paused;
        default:
            return is_over(base)                  ? ended
                   : base == SlurmBase::pending   ? queued
                   : base == SlurmBase::suspended ? paused
                                                  : running;
    }
}

TEST(SlurmState, EveryStateBesideEveryFlagHasItsPhase) {
    std::size_t pairs = 0;
    for (const SlurmBase base : all<SlurmBase>(kSlurmBases, 1)) {
        for (const SlurmFlag flag : all<SlurmFlag>(kSlurmFlags)) {
            const SlurmState state = words({to_string(base), to_string(flag)});
            ASSERT_FALSE(state.foreign);
            const SlurmVerdict verdict = judge(state);
            EXPECT_EQ(verdict.phase, expected(base, flag)) << state.raw;
            EXPECT_EQ(verdict.terminal, verdict.phase == ended && flag != SlurmFlag::revoked)
                << state.raw;
            EXPECT_TRUE(!verdict.confirm || verdict.terminal) << state.raw;
            ++pairs;
        }
    }
    EXPECT_EQ(pairs, 12U * 18U);
}

TEST(SlurmState, NothingIsTerminalBesideCompletingOrARequeue) {
    for (const SlurmBase base : all<SlurmBase>(kSlurmBases)) {
        for (std::uint32_t flags = 0; flags < (1U << kSlurmFlags); ++flags) {
            SlurmState state;
            state.base = base;
            state.flags = flags;
            const SlurmVerdict verdict = judge(state);
            const bool barred =
                state.has(SlurmFlag::completing) || state.has(SlurmFlag::stage_out) ||
                state.has(SlurmFlag::requeued) || state.has(SlurmFlag::requeue_fed) ||
                state.has(SlurmFlag::requeue_hold) || state.has(SlurmFlag::special_exit) ||
                state.has(SlurmFlag::resv_del_hold) || state.has(SlurmFlag::expediting) ||
                state.has(SlurmFlag::revoked);
            ASSERT_EQ(verdict.terminal, is_over(base) && !barred)
                << to_string(base) << " with flags " << flags;
            state.foreign = true;
            ASSERT_FALSE(judge(state).terminal);
        }
    }
}

TEST(SlurmState, APendingJobIsToldByItsReasonAndItsRestarts) {
    const SlurmState pending = parse_slurm_state("PENDING");
    EXPECT_EQ(judge(pending, "Resources").phase, queued);
    EXPECT_EQ(judge(pending, "QOSMaxJobsPerUserLimit").phase, queued);
    EXPECT_EQ(judge(pending, "JobHeldUser").phase, held);
    EXPECT_EQ(judge(pending, "launch failed requeued held").phase, held);
    EXPECT_EQ(judge(pending, "DependencyNeverSatisfied").phase, blocked);
    EXPECT_EQ(judge(pending, "PartitionTimeLimit").phase, blocked);
    EXPECT_EQ(judge(pending, "BeginTime", 1).phase, requeueing);
    EXPECT_EQ(judge(pending, "JobHoldMaxRequeue", 5).phase, held);
}

TEST(SlurmState, AnEndHasACauseAndWords) {
    EXPECT_EQ(cause_of(SlurmEnd::ok), CauseClass::none);
    EXPECT_EQ(cause_of(SlurmEnd::failed), CauseClass::rank_exit);
    EXPECT_EQ(cause_of(SlurmEnd::failed, {.signal = 9}), CauseClass::rank_signal);
    EXPECT_EQ(cause_of(SlurmEnd::failed, {.signal = 0}), CauseClass::rank_exit);
    // Seen on 22.05: 0:53 for a folder that is not there, 0:15 for a killed script.
    EXPECT_EQ(cause_of(SlurmEnd::failed, {.signal = 53, .reason = "JobLaunchFailure"}),
              CauseClass::scheduler);
    EXPECT_EQ(cause_of(SlurmEnd::failed, {.signal = 15, .reason = "JobLaunchFailure"}),
              CauseClass::rank_signal);
    EXPECT_EQ(cause_of(SlurmEnd::failed, {.reason = "BadConstraints"}), CauseClass::scheduler);
    EXPECT_EQ(cause_of(SlurmEnd::oom), CauseClass::oom);
    EXPECT_EQ(cause_of(SlurmEnd::time_limit), CauseClass::time_limit);
    // It was recovered from as a time limit is: another attempt is over the same deadline.
    EXPECT_EQ(cause_of(SlurmEnd::deadline), CauseClass::scheduler);
    EXPECT_EQ(cause_of(SlurmEnd::cancelled, {.cancelled_by = 1000, .owner = 1000}),
              CauseClass::cancelled_by_user);
    EXPECT_EQ(cause_of(SlurmEnd::cancelled, {.cancelled_by = 0, .owner = 1000}),
              CauseClass::scheduler);
    EXPECT_EQ(cause_of(SlurmEnd::cancelled, {.reason = "DependencyNeverSatisfied"}),
              CauseClass::scheduler);
    EXPECT_EQ(cause_of(SlurmEnd::node_fail), CauseClass::node_lost);
    EXPECT_EQ(cause_of(SlurmEnd::boot_fail), CauseClass::node_lost);
    EXPECT_EQ(cause_of(SlurmEnd::preempted), CauseClass::preempted);
    EXPECT_EQ(cause_of(SlurmEnd::revoked), CauseClass::scheduler);
    std::set<std::string_view> texts;
    for (const SlurmEnd end : all<SlurmEnd>(kSlurmEnds)) {
        EXPECT_TRUE(texts.insert(plain_words(end)).second);
        EXPECT_TRUE(texts.insert(to_string(end)).second || end == SlurmEnd::failed);
    }
    for (const SlurmPhase phase : all<SlurmPhase>(kSlurmPhases)) {
        EXPECT_FALSE(to_string(phase).empty());
    }
}

}  // namespace
}  // namespace lockstep
