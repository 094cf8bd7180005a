#include "scheduler-integration/slurm/slurm_reason.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

struct ReasonRow {
    std::string_view code;
    ReasonClass reason_class;
    std::string_view text;
    std::string_view change;
};

constexpr std::string_view kAskAdmin = "ask the cluster's administrators";
constexpr auto kWaiting = ReasonClass::waiting;
constexpr auto kLimit = ReasonClass::limit;
constexpr auto kHeld = ReasonClass::held;
constexpr auto kNever = ReasonClass::never;

// The codes that are no limit of a QOS or an account; those are a grammar, see family() below.
constexpr std::array kReasons{
    ReasonRow{"", kWaiting, "Slurm has not said yet why it waits", ""},
    ReasonRow{"None", kWaiting, "Slurm has not said yet why it waits", ""},
    ReasonRow{"Priority", kWaiting, "jobs with a higher priority are before it", ""},
    ReasonRow{"Resources", kWaiting, "it is next, as soon as enough nodes are free", ""},
    ReasonRow{"Prolog", kWaiting, "the cluster prepares its nodes", ""},
    ReasonRow{"Cleaning", kWaiting, "the nodes of its earlier run are being cleaned up", ""},
    ReasonRow{"SchedDefer", kWaiting, "Slurm decides at its next scheduling cycle", ""},
    ReasonRow{"FedJobLock", kWaiting, "the clusters of the federation agree who starts it", ""},
    ReasonRow{"BeginTime", kWaiting,
              "its earliest start time is not reached; Slurm also sets one after a requeue", ""},
    ReasonRow{"Dependency", kWaiting, "it waits for another job to end", ""},
    ReasonRow{"DependencyNeverSatisfied", kNever,
              "it waits for a job that has ended in another way than the dependency asks",
              "cancel it and submit it without the dependency"},
    ReasonRow{"Licenses", kWaiting, "the licences it asks for are in use", ""},
    ReasonRow{"Reservation", kWaiting, "its reservation has not begun or has no room", ""},
    ReasonRow{"ReservationDeleted", kHeld, "its reservation was deleted",
              "submit it again without the reservation"},
    ReasonRow{"ReservationInvalid", kNever, "its reservation cannot be used",
              "choose another reservation, or none"},
    ReasonRow{"ReqNodeNotAvail", kWaiting, "nodes it needs are down, drained or reserved",
              "ask for other nodes, or wait"},
    ReasonRow{"NodeDown", kWaiting, "a node it needs is down", "ask for other nodes, or wait"},
    ReasonRow{"FrontEndDown", kWaiting, "no front end node is up to start it", kAskAdmin},
    ReasonRow{"PowerNotAvail", kWaiting, "not enough electrical power is free", ""},
    ReasonRow{"PowerReserved", kWaiting, "electrical power is reserved for other jobs", ""},
    ReasonRow{"BurstBufferResources", kWaiting, "the burst buffer is full", ""},
    ReasonRow{"BurstBufferStageIn", kWaiting, "its data is copied into the burst buffer", ""},
    ReasonRow{"BurstBufferOperation", kHeld, "a burst buffer operation failed", kAskAdmin},
    ReasonRow{"JobArrayTaskLimit", kWaiting, "enough tasks of its array are running", ""},
    ReasonRow{"MaxPoweredUpNodes", kWaiting, "as many nodes as allowed are powered up", ""},
    ReasonRow{"PartitionDown", kWaiting, "its partition does not start jobs at the moment",
              "choose another partition, or wait"},
    ReasonRow{"PartitionInactive", kWaiting, "its partition is inactive",
              "choose another partition, or wait"},
    ReasonRow{"PartitionNodeLimit", kNever,
              "it asks for more or fewer nodes than its partition allows a job",
              "change nodes, or choose another partition"},
    ReasonRow{"PartitionTimeLimit", kNever, "its time limit is longer than its partition allows",
              "shorten time_limit, or choose another partition"},
    ReasonRow{"PartitionConfig", kNever,
              "its partition does not have what it asks for, or does not admit its account",
              "ask for less, or choose another partition"},
    ReasonRow{"BadConstraints", kNever, "no node has what it asks for",
              "ask for less a node, or change the constraint"},
    ReasonRow{"Constraints", kNever, "no node has what it asks for",
              "ask for less a node, or change the constraint"},
    ReasonRow{"InvalidAccount", kNever, "its account does not exist, or you may not use it",
              "choose another account"},
    ReasonRow{"InvalidQOS", kNever, "its QOS does not exist, or you may not use it",
              "choose another QOS"},
    ReasonRow{"AccountNotAllowed", kNever, "its account may not use this partition",
              "choose another account or partition"},
    ReasonRow{"QOSNotAllowed", kNever, "its QOS may not be used here",
              "choose another QOS or partition"},
    ReasonRow{"MaxMemPerLimit", kNever, "it asks for more memory than its partition allows",
              "ask for less memory, or choose another partition"},
    ReasonRow{"QOSUsageThreshold", kLimit, "its QOS takes no more from an account so far ahead",
              "choose another QOS, or wait"},
    ReasonRow{"AccountingPolicy", kLimit, "it is over a limit of its account or QOS", kAskAdmin},
    ReasonRow{"DeadLine", kNever, "it cannot end before its deadline", "submit it again"},
    ReasonRow{"JobHeldUser", kHeld, "its user put it on hold", "release it, or cancel it"},
    ReasonRow{"JobHeldAdmin", kHeld, "an administrator put it on hold", kAskAdmin},
    ReasonRow{"JobHoldMaxRequeue", kHeld, "Slurm started it too often without success and holds it",
              "see why it does not start, then submit it again"},
    ReasonRow{"MaxRequeue", kHeld, "Slurm started it too often without success and holds it",
              "see why it does not start, then submit it again"},
    ReasonRow{"SystemFailure", kWaiting, "Slurm or its file system failed", kAskAdmin},
    ReasonRow{"JobLaunchFailure", kWaiting,
              "Slurm could not start it on its nodes, or a signal ended its script", ""},
    ReasonRow{"NonZeroExitCode", kWaiting, "it ended with a status other than 0", ""},
    ReasonRow{"RaisedSignal", kWaiting, "it was ended by a signal", ""},
    ReasonRow{"TimeLimit", kWaiting, "it ran out of its time limit", ""},
    ReasonRow{"InactiveLimit", kWaiting, "it was idle for too long", ""},
    ReasonRow{"OutOfMemory", kWaiting, "it used more memory than it had asked for", ""},
};

// Sentences that slurmctld shows in the place of a code (state_desc), told by a part of them, in
// lower case. The first that fits counts.
struct PhraseRow {
    std::string_view part;
    ReasonClass reason_class;
    std::string_view text;
    std::string_view change;
};

constexpr std::array kPhrases{
    PhraseRow{"reserved for maintenance", kWaiting,
              "it would still run when a maintenance of its nodes begins",
              "shorten time_limit so that it ends before, or wait until it is over"},
    PhraseRow{"launch failed requeued held", kHeld,
              "Slurm's prolog or launch failed on a node, and Slurm holds it", kAskAdmin},
    PhraseRow{"launch failure limit exceeded", kHeld,
              "Slurm started it too often without success and holds it", kAskAdmin},
    PhraseRow{"user env retrieval failed", kHeld,
              "Slurm could not read its user's login environment and holds it", kAskAdmin},
    PhraseRow{"requeued in held state", kHeld, "Slurm put it back and holds it",
              "see why it ended, then release or cancel it"},
    PhraseRow{"special exit", kHeld, "it ended with a status this cluster holds jobs for",
              "see why it ended, then release or cancel it"},
    PhraseRow{"requeued held", kHeld, "Slurm put it back and holds it", kAskAdmin},
    PhraseRow{"account not permitted", kNever, "its account may not use this partition",
              "choose another account or partition"},
    PhraseRow{"qos not permitted", kNever, "its QOS may not use this partition",
              "choose another QOS or partition"},
    PhraseRow{"group not permitted", kNever, "its user's group may not use this partition",
              "choose another partition"},
    PhraseRow{"down, drained or reserved", kWaiting,
              "nodes it needs are down, drained or reserved for jobs of a higher priority", ""},
    PhraseRow{"unavailablenodes", kWaiting, "nodes it needs are down, drained or reserved",
              "ask for other nodes, or wait"},
};

// What a limit counts, recognized by parts of the code.
constexpr std::array kCounted{
    std::pair<std::string_view, std::string_view>{"SubmitJob", "submitted jobs"},
    std::pair<std::string_view, std::string_view>{"GRES", "GPUs or other GRES"},
    std::pair<std::string_view, std::string_view>{"Wall", "wall time"},
    std::pair<std::string_view, std::string_view>{"Time", "wall time"},
    std::pair<std::string_view, std::string_view>{"Cpu", "CPUs"},
    std::pair<std::string_view, std::string_view>{"CPU", "CPUs"},
    std::pair<std::string_view, std::string_view>{"Mem", "memory"},
    std::pair<std::string_view, std::string_view>{"Energy", "energy"},
    std::pair<std::string_view, std::string_view>{"License", "licences"},
    std::pair<std::string_view, std::string_view>{"BB", "burst buffer"},
    std::pair<std::string_view, std::string_view>{"Billing", "billing units"},
};

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// What one limit counts: "QOSMaxNodePerUserLimit" counts nodes. `Per…` says whose, not what.
std::string_view counted(std::string_view code) {
    const std::string_view what = code.substr(0, code.find("Per"));
    for (const auto& [word, plain] : kCounted) {
        if (has(what, word)) {
            return plain;
        }
    }
    return has(what, "Node") ? "nodes" : has(what, "Job") ? "running jobs" : "resources";
}

struct Family {
    ReasonClass reason_class = ReasonClass::limit;
    std::string text;
    std::string change;
};

// Limits are a grammar of names: (QOS|Assoc|Association)(Grp|Max|Min)<what>[RunMinutes|Minutes]
// [PerJob|PerNode|PerUser|PerAccount][Limit], and Max<what>PerAccount.
std::optional<Family> family(std::string_view code) {
    const bool qos = code.starts_with("QOS");
    const bool association = code.starts_with("Assoc");
    const bool per_account = code.starts_with("Max") && code.ends_with("PerAccount");
    if (!qos && !association && !per_account) {
        return std::nullopt;
    }
    const std::string owner = association ? "account" : "QOS";
    const std::string what{counted(code)};
    const std::string other = "choose another " + owner;
    if (has(code, "Min") && code.find("Min") == (qos ? 3U : 5U) && !has(code, "Minutes")) {
        return Family{ReasonClass::never,
                      "it asks for less " + what + " than its " + owner + " wants of a job",
                      "ask for more, or " + other};
    }
    if (has(code, "PerJob") || has(code, "PerNode")) {
        const bool time = what == "wall time";
        return Family{ReasonClass::never,
                      "it asks for more " + what + " than its " + owner + " allows one job" +
                          (has(code, "PerNode") ? " on a node" : ""),
                      (time ? "shorten time_limit, or " : "ask for less, or ") + other};
    }
    if (has(code, "RunMinutes")) {
        return Family{
            ReasonClass::limit,
            "the running jobs of its " + owner + " may still use all its " + what + " time",
            "wait, or shorten time_limit"};
    }
    if (has(code, "Minutes") || (has(code, "Grp") && what == "wall time")) {
        return Family{ReasonClass::limit, "its " + owner + " has used up its budget of " + what,
                      kAskAdmin.data()};
    }
    const std::string whose = has(code, "PerUser")      ? "one user of its QOS"
                              : has(code, "PerAccount") ? "one account of its QOS"
                                                        : "its " + owner;
    return Family{ReasonClass::limit, whose + " is at the limit of " + what,
                  "wait until other jobs end, or " + other};
}

// "(ReqNodeNotAvail, UnavailableNodes:n1)" → the text inside the brackets.
std::string_view inner(std::string_view reason) {
    reason = trim(reason);
    if (reason.size() >= 2 && reason.front() == '(' && reason.back() == ')') {
        reason = trim(reason.substr(1, reason.size() - 2));
    }
    return reason == "null" ? std::string_view{} : reason;
}

// scontrol prints '_' for ' '.
std::string folded(std::string_view reason) {
    std::string out{reason.substr(0, 1024)};
    for (char& c : out) {
        c = c == '_' ? ' ' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

Explanation plain(std::string_view reason) {
    const std::string text = folded(reason);
    for (const PhraseRow& row : kPhrases) {
        if (has(text, row.part)) {
            return {row.reason_class, std::string{row.text}, std::string{row.change}};
        }
    }
    const std::string_view code = trim(reason.substr(0, reason.find(',')));
    for (const ReasonRow& row : kReasons) {
        if (row.code == code) {
            return {row.reason_class, std::string{row.text}, std::string{row.change}};
        }
    }
    if (auto limit = family(code)) {
        return {limit->reason_class, std::move(limit->text), std::move(limit->change)};
    }
    return {ReasonClass::waiting, printable(reason.substr(0, 256)), ""};
}

}  // namespace

std::string_view to_string(ReasonClass reason_class) {
    constexpr std::array<std::string_view, 4> kWords{"waiting", "limit", "held", "never"};
    static_assert(names_all_of<ReasonClass>(kWords));
    return kWords[static_cast<std::size_t>(reason_class)];
}

ReasonClass classify_reason(std::string_view reason) {
    return plain(inner(reason)).reason_class;
}

std::string reason_code(std::string_view reason) {
    constexpr std::size_t kMostBytes = 64;
    const std::string_view all = inner(reason);
    const std::string_view word = trim(all.substr(0, all.find_first_of(",:")));
    if (word.empty()) {
        return "None";
    }
    const bool is_word =
        word.size() <= kMostBytes && std::all_of(word.begin(), word.end(), [](unsigned char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '_';
        });
    return is_word ? std::string{word} : "other";
}

Explanation explain_reason(std::string_view reason, const SlurmJob& job) {
    const std::string_view word = inner(reason);
    Explanation out = plain(word);
    if (word.starts_with("Partition") && !job.partition.empty()) {
        out.text += " (partition " + printable(job.partition) + ")";
    }
    if (job.restarts > 0 && out.reason_class == ReasonClass::held) {
        out.text += "; Slurm has started it " + std::to_string(job.restarts + 1) + " times";
    }
    return out;
}

}  // namespace lockstep
