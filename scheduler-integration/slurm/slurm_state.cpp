#include "scheduler-integration/slurm/slurm_state.hpp"

#include "job/base/enum_table.hpp"
#include "scheduler-integration/slurm/slurm_reason.hpp"

#include <algorithm>
#include <charconv>

namespace lockstep {
namespace {

struct BaseRow {
    SlurmBase base;
    std::string_view name;
    std::string_view code;
    SlurmEnd end;
    bool confirm;  // Slurm itself may put the job back to PENDING
};

// The order is the enumeration's.
constexpr std::array<BaseRow, kSlurmBases> kBases{{
    {SlurmBase::none, "", "", SlurmEnd::none, false},
    {SlurmBase::pending, "PENDING", "PD", SlurmEnd::none, false},
    {SlurmBase::running, "RUNNING", "R", SlurmEnd::none, false},
    {SlurmBase::suspended, "SUSPENDED", "S", SlurmEnd::none, false},
    {SlurmBase::completed, "COMPLETED", "CD", SlurmEnd::ok, false},
    {SlurmBase::cancelled, "CANCELLED", "CA", SlurmEnd::cancelled, false},
    {SlurmBase::failed, "FAILED", "F", SlurmEnd::failed, true},
    {SlurmBase::timeout, "TIMEOUT", "TO", SlurmEnd::time_limit, true},
    {SlurmBase::node_fail, "NODE_FAIL", "NF", SlurmEnd::node_fail, true},
    {SlurmBase::preempted, "PREEMPTED", "PR", SlurmEnd::preempted, true},
    {SlurmBase::boot_fail, "BOOT_FAIL", "BF", SlurmEnd::boot_fail, true},
    {SlurmBase::deadline, "DEADLINE", "DL", SlurmEnd::deadline, false},
    {SlurmBase::out_of_memory, "OUT_OF_MEMORY", "OOM", SlurmEnd::oom, true},
}};

struct FlagRow {
    SlurmFlag flag;
    std::string_view name;
    std::string_view code;
};

constexpr std::array<FlagRow, kSlurmFlags> kFlags{{
    {SlurmFlag::completing, "COMPLETING", "CG"},
    {SlurmFlag::stage_out, "STAGE_OUT", "SO"},
    {SlurmFlag::configuring, "CONFIGURING", "CF"},
    {SlurmFlag::expediting, "EXPEDITING", "EX"},
    {SlurmFlag::resizing, "RESIZING", "RS"},
    {SlurmFlag::requeued, "REQUEUED", "RQ"},
    {SlurmFlag::requeue_fed, "REQUEUE_FED", "RF"},
    {SlurmFlag::requeue_hold, "REQUEUE_HOLD", "RH"},
    {SlurmFlag::special_exit, "SPECIAL_EXIT", "SE"},
    {SlurmFlag::stopped, "STOPPED", "ST"},
    {SlurmFlag::revoked, "REVOKED", "RV"},
    {SlurmFlag::resv_del_hold, "RESV_DEL_HOLD", "RD"},
    {SlurmFlag::signaling, "SIGNALING", "SI"},
    {SlurmFlag::launch_failed, "LAUNCH_FAILED", ""},
    {SlurmFlag::reconfig_fail, "RECONFIG_FAIL", ""},
    {SlurmFlag::power_up_node, "POWER_UP_NODE", ""},
    {SlurmFlag::getenv_failed, "GETENV_FAILED", ""},
    {SlurmFlag::update_db, "UPDATE_DB", ""},
}};

constexpr bool in_order() {
    for (std::size_t i = 0; i < kBases.size(); ++i) {
        if (static_cast<std::size_t>(kBases[i].base) != i) {
            return false;
        }
    }
    for (std::size_t i = 0; i < kFlags.size(); ++i) {
        if (static_cast<std::size_t>(kFlags[i].flag) != i) {
            return false;
        }
    }
    return true;
}
static_assert(in_order(), "both tables are indexed by their enumeration");
static_assert(is_count_of<SlurmBase, kSlurmBases>() && is_count_of<SlurmFlag, kSlurmFlags>());

constexpr int kNotLaunched = 53;

const BaseRow& row(SlurmBase base) {
    return kBases[static_cast<std::size_t>(base)];
}

void set(SlurmState& state, SlurmFlag flag) {
    state.flags |= 1U << static_cast<unsigned>(flag);
}

// How often a word that a column may have cut off fits the tables; the fit is applied if it is one.
void apply(SlurmState& state, std::string_view word, bool cut) {
    const auto fits = [&](std::string_view name, std::string_view code) {
        return cut ? name.starts_with(word) : (name == word || (!code.empty() && code == word));
    };
    const BaseRow* base = nullptr;
    const FlagRow* flag = nullptr;
    int count = 0;
    for (std::size_t i = 1; i < kBases.size(); ++i) {
        if (fits(kBases[i].name, kBases[i].code)) {
            base = &kBases[i];
            ++count;
        }
    }
    for (const FlagRow& candidate : kFlags) {
        if (fits(candidate.name, candidate.code)) {
            flag = &candidate;
            ++count;
        }
    }
    if (count != 1 || word.empty()) {
        state.foreign = true;
    } else if (flag != nullptr) {
        set(state, flag->flag);
    } else if (state.base != SlurmBase::none && state.base != base->base) {
        state.foreign = true;  // two base states: a format we do not understand
    } else {
        state.base = base->base;
    }
}

void add_word(SlurmState& state, std::string_view word) {
    if (!state.raw.empty()) {
        state.raw += '+';
    }
    state.raw += word.substr(0, 64);
    const bool cut = word.ends_with('+');
    if (cut) {
        word.remove_suffix(1);
    }
    if (const auto by = word.find(" by"); by != std::string_view::npos) {
        std::string_view who = word.substr(by + 3);
        who.remove_prefix(std::min<std::size_t>(who.size(), who.starts_with(' ') ? 1 : 0));
        std::int64_t uid = 0;
        const auto [end, ec] = std::from_chars(who.data(), who.data() + who.size(), uid);
        const bool number = ec == std::errc{} && end == who.data() + who.size() && uid >= 0;
        if (number && !cut) {
            state.cancelled_by = uid;
        }
        state.foreign = state.foreign || (!number && !(cut && who.empty()));
        apply(state, word.substr(0, by), false);
    } else {
        apply(state, word, cut);
    }
}

SlurmVerdict judge_flags_only(const SlurmState& state) {
    if (state.has(SlurmFlag::completing) || state.has(SlurmFlag::stage_out)) {
        return {SlurmPhase::finishing, SlurmEnd::none, false, false};
    }
    if (state.has(SlurmFlag::configuring) || state.has(SlurmFlag::power_up_node)) {
        return {SlurmPhase::starting, SlurmEnd::none, false, false};
    }
    if (state.has(SlurmFlag::stopped)) {
        return {SlurmPhase::paused, SlurmEnd::none, false, false};
    }
    if (state.has(SlurmFlag::signaling) || state.has(SlurmFlag::resizing)) {
        return {SlurmPhase::running, SlurmEnd::none, false, false};
    }
    return {};
}

SlurmPhase pending_phase(const SlurmState& state, std::string_view reason, int restarts) {
    if (state.has(SlurmFlag::completing)) {
        return SlurmPhase::requeueing;  // the earlier run's nodes are not free yet
    }
    switch (classify_reason(reason)) {
        case ReasonClass::held:
            return SlurmPhase::held;
        case ReasonClass::never:
            return SlurmPhase::blocked;
        case ReasonClass::waiting:
        case ReasonClass::limit:
            break;
    }
    if (state.has(SlurmFlag::configuring) || state.has(SlurmFlag::power_up_node)) {
        return SlurmPhase::starting;
    }
    return restarts > 0 ? SlurmPhase::requeueing : SlurmPhase::queued;
}

SlurmPhase running_phase(const SlurmState& state) {
    if (state.has(SlurmFlag::completing) || state.has(SlurmFlag::stage_out)) {
        return SlurmPhase::finishing;
    }
    if (state.base == SlurmBase::suspended || state.has(SlurmFlag::stopped)) {
        return SlurmPhase::paused;
    }
    if (state.has(SlurmFlag::configuring) || state.has(SlurmFlag::power_up_node)) {
        return SlurmPhase::starting;
    }
    return SlurmPhase::running;
}

}  // namespace

std::string_view to_string(SlurmBase base) {
    return row(base).name;
}
std::string_view to_string(SlurmFlag flag) {
    return kFlags[static_cast<std::size_t>(flag)].name;
}
std::string_view compact_code(SlurmBase base) {
    return row(base).code;
}
std::string_view compact_code(SlurmFlag flag) {
    return kFlags[static_cast<std::size_t>(flag)].code;
}

SlurmState parse_slurm_state(std::string_view word) {
    return parse_slurm_states(std::span{&word, 1});
}

SlurmState parse_slurm_states(std::span<const std::string_view> words) {
    SlurmState state;
    for (const std::string_view word : words) {
        add_word(state, word);
    }
    state.foreign = state.foreign || words.empty();
    return state;
}

SlurmVerdict judge(const SlurmState& state, std::string_view reason, int restarts) {
    const SlurmEnd end = row(state.base).end;
    if (state.foreign) {
        return {SlurmPhase::unknown, end, false, false};
    }
    if (state.has(SlurmFlag::revoked)) {
        return {SlurmPhase::ended, SlurmEnd::revoked, false, false};
    }
    if (state.has(SlurmFlag::requeue_hold) || state.has(SlurmFlag::special_exit) ||
        state.has(SlurmFlag::resv_del_hold)) {
        return {SlurmPhase::held, end, false, false};
    }
    if (state.has(SlurmFlag::requeued) || state.has(SlurmFlag::requeue_fed) ||
        state.has(SlurmFlag::expediting)) {
        return {SlurmPhase::requeueing, end, false, false};
    }
    if (state.base == SlurmBase::none) {
        return judge_flags_only(state);
    }
    if (state.base == SlurmBase::pending) {
        return {pending_phase(state, reason, restarts), end, false, false};
    }
    if (end == SlurmEnd::none) {
        return {running_phase(state), end, false, false};
    }
    if (state.has(SlurmFlag::completing) || state.has(SlurmFlag::stage_out)) {
        return {SlurmPhase::finishing, end, false, false};
    }
    return {SlurmPhase::ended, end, true, row(state.base).confirm};
}

std::string_view to_string(SlurmPhase phase) {
    constexpr std::array<std::string_view, kSlurmPhases> kWords{
        "queued", "held",      "blocked",    "starting", "running",
        "paused", "finishing", "requeueing", "ended",    "unknown"};
    static_assert(names_all_of<SlurmPhase>(kWords));
    return kWords[static_cast<std::size_t>(phase)];
}

std::string_view to_string(SlurmEnd end) {
    constexpr std::array<std::string_view, kSlurmEnds> kWords{
        "none",      "ok",        "failed",    "oom",       "time_limit", "deadline",
        "cancelled", "node_fail", "boot_fail", "preempted", "revoked"};
    static_assert(names_all_of<SlurmEnd>(kWords));
    return kWords[static_cast<std::size_t>(end)];
}

std::string_view plain_words(SlurmEnd end) {
    constexpr std::array<std::string_view, kSlurmEnds> kWords{
        "has not ended",
        "ended with status 0",
        "failed",
        "used more memory than it had asked for",
        "ran out of its time limit",
        "was over its deadline",
        "was cancelled",
        "lost a node",
        "was given a node that did not start",
        "was preempted by another job",
        "was taken over by another cluster of the federation"};
    static_assert(names_all_of<SlurmEnd>(kWords));
    return kWords[static_cast<std::size_t>(end)];
}

CauseClass cause_of(SlurmEnd end, const SlurmEndFacts& facts) {
    switch (end) {
        case SlurmEnd::none:
        case SlurmEnd::ok:
            return CauseClass::none;
        case SlurmEnd::failed:
            // 53 is Slurm's own: it could not enter the folder or open the log on the node.
            if (facts.signal.value_or(0) > 0 && facts.signal != kNotLaunched) {
                return CauseClass::rank_signal;
            }
            // A script that was killed by a signal is a JobLaunchFailure too (seen on 22.05).
            if (facts.signal == kNotLaunched || facts.reason == "JobLaunchFailure" ||
                facts.reason == "BadConstraints" || facts.reason == "SystemFailure" ||
                facts.reason == "NodeDown") {
                return CauseClass::scheduler;
            }
            return CauseClass::rank_exit;
        case SlurmEnd::oom:
            return CauseClass::oom;
        case SlurmEnd::time_limit:
            return CauseClass::time_limit;
        case SlurmEnd::cancelled: {
            const bool other =
                facts.cancelled_by && facts.owner && *facts.cancelled_by != *facts.owner;
            return other || facts.reason == "DependencyNeverSatisfied"
                       ? CauseClass::scheduler
                       : CauseClass::cancelled_by_user;
        }
        case SlurmEnd::node_fail:
        case SlurmEnd::boot_fail:
            return CauseClass::node_lost;
        case SlurmEnd::preempted:
            return CauseClass::preempted;
        case SlurmEnd::deadline:  // another attempt would be over it as well
        case SlurmEnd::revoked:
            return CauseClass::scheduler;
    }
    return CauseClass::internal;
}

}  // namespace lockstep
