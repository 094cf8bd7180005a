// What is to happen after a failure: /recovery and /watch.
#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kRecoveryTriggers> kTriggers{
    "rank_failure", "node_failure", "hang", "preemption", "time_limit"};
static_assert(names_all_of<RecoveryTrigger>(kTriggers));

constexpr std::array<std::string_view, 3> kNonfiniteWords{"warn", "stop", "restart"};
static_assert(names_all_of<NonfiniteLoss>(kNonfiniteWords));

void read_on(ObjectReader& in, RecoverySpec& out) {
    if (!in.has("on")) {
        return;
    }
    std::vector<std::string> words;
    in.strings("on", words, kTriggers.size(), limits::kTextBytes);
    out.on.fill(false);
    for (const std::string& word : words) {
        const auto* found = std::find(kTriggers.begin(), kTriggers.end(), word);
        if (found == kTriggers.end()) {
            std::string known;
            for (const std::string_view trigger : kTriggers) {
                known += (known.empty() ? "" : ", ") + std::string{trigger};
            }
            in.error("on", "unknown: " + dump_json(word) + "; must be one of: " + known);
            return;
        }
        out.on[static_cast<std::size_t>(found - kTriggers.begin())] = true;
    }
}

bool is_module_name(std::string_view name) {
    const auto good_part = [](const std::string& part) {
        const auto is_letter = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        };
        return !part.empty() && is_letter(part.front()) &&
               std::all_of(part.begin(), part.end(),
                           [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
    };
    const auto parts = split(name, '.');
    return !parts.empty() && std::all_of(parts.begin(), parts.end(), good_part);
}

void read_warm_standby(ObjectReader& in, RecoverySpec& out) {
    in.strings("warm_standby", out.warm_standby, limits::kWarmModules, limits::kTextBytes);
    for (const std::string& name : out.warm_standby) {
        if (!is_module_name(name)) {
            in.error("warm_standby", "is a list of Python modules, and " + dump_json(name) +
                                         " is the name of none");
            out.warm_standby.clear();
            return;
        }
    }
}

// Of ranks whose Python Lockstep starts itself.
void check_warm_standby(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (spec.recovery.warm_standby.empty()) {
        return;
    }
    const auto refuse = [&](std::string why) {
        errors.push_back({"/recovery/warm_standby", std::move(why)});
    };
    if (spec.launch != Launch::rank) {
        refuse("needs launch rank: of other ranks Lockstep does not start the Python");
    } else if (traits_of(spec.framework).own_programs) {
        refuse("is for a Python command: framework " + std::string{to_string(spec.framework)} +
               " has programs of its own");
    } else if (spec.container.runtime == ContainerRuntime::apptainer) {
        refuse("cannot wait in a container: leave it out");
    }
}

}  // namespace

std::string_view to_string(RecoveryTrigger trigger) {
    return kTriggers[static_cast<std::size_t>(trigger)];
}

void read_recovery(ObjectReader& parent, JobSpec& spec, std::vector<FieldError>& errors) {
    RecoverySpec& out = spec.recovery;
    const Json* json = parent.raw("recovery");
    if (json == nullptr) {
        return;
    }
    ObjectReader in{*json, parent.pointer("recovery"), errors};
    out.wanted = true;
    in.integer("max_restarts", out.max_restarts, 0, limits::kRestarts);
    in.integer("max_attempts", out.max_attempts, 1, limits::kAttempts);
    read_on(in, out);
    auto on_nonfinite = static_cast<std::size_t>(out.on_nonfinite_loss);
    in.word("on_nonfinite_loss", on_nonfinite, {kNonfiniteWords.begin(), kNonfiniteWords.end()});
    out.on_nonfinite_loss = static_cast<NonfiniteLoss>(on_nonfinite);
    in.boolean("exclude_failed_nodes", out.exclude_failed_nodes);
    if (in.has("grow_after_seconds")) {
        out.grow_after_seconds = kGrowAfterSeconds;
        in.integer("grow_after_seconds", *out.grow_after_seconds, 0, limits::kGrowAfterSeconds);
    }
    read_warm_standby(in, out);
    in.finish();
    check_warm_standby(spec, errors);
}

void read_watch(ObjectReader& parent, WatchSpec& out, std::vector<FieldError>& errors) {
    const Json* json = parent.raw("watch");
    if (json == nullptr) {
        return;
    }
    ObjectReader in{*json, parent.pointer("watch"), errors};
    in.integer("hang_seconds", out.hang_seconds, 1, limits::kHangSeconds);
    in.number("straggler_score", out.straggler_score, 0.0, 1.0);
    in.finish();
}

Json to_json(const RecoverySpec& recovery) {
    Json out = Json::object();
    if (!recovery.wanted) {
        return out;
    }
    out["max_restarts"] = recovery.max_restarts;
    out["max_attempts"] = recovery.max_attempts;
    out["on"] = Json::array();
    for (std::size_t i = 0; i < kTriggers.size(); ++i) {
        if (recovery.on[i]) {
            out["on"].push_back(kTriggers[i]);
        }
    }
    if (recovery.on_nonfinite_loss != NonfiniteLoss::warn) {
        out["on_nonfinite_loss"] =
            kNonfiniteWords[static_cast<std::size_t>(recovery.on_nonfinite_loss)];
    }
    out["exclude_failed_nodes"] = recovery.exclude_failed_nodes;
    if (const auto after = recovery.grow_after_seconds.value_or(kGrowAfterSeconds);
        after != kGrowAfterSeconds) {
        out["grow_after_seconds"] = after;
    }
    if (!recovery.warm_standby.empty()) {
        out["warm_standby"] = recovery.warm_standby;
    }
    return out;
}

Json to_json(const WatchSpec& watch) {
    const WatchSpec standard;
    Json out = Json::object();
    if (watch.hang_seconds != standard.hang_seconds) {
        out["hang_seconds"] = watch.hang_seconds;
    }
    if (watch.straggler_score != standard.straggler_score) {
        out["straggler_score"] = watch.straggler_score;
    }
    return out;
}

}  // namespace lockstep
