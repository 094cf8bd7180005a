#include "job/agent/node/checkpoint_signal.hpp"

#include "job/agent/ranks/signal_targets.hpp"
#include "job/base/log.hpp"

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Between looks whether a rank that did not catch the signal does now.
constexpr auto kDeafRankPause = std::chrono::seconds{1};

// The processes of one rank that get the signal, and whether these are all that should: below a
// launcher (launch node) the ranks proper are its children, which come one by one.
struct SignalTargets {
    std::vector<pid_t> processes;
    bool complete = false;
    std::string problem;  // "" = complete
};

SignalTargets signal_targets_of(const JobSpec& spec, std::int64_t process) {
    SignalTargets out;
    const auto root = static_cast<pid_t>(process);
    out.processes = processes_that_catch(root, signal_number(spec.checkpoint.signal));
    const auto needed = spec.launch == Launch::node
                            ? static_cast<std::size_t>(spec.resources.ranks_per_node)
                            : std::size_t{1};
    const std::size_t listening = out.processes.size();
    out.complete = listening >= needed || (listening == 1 && out.processes.front() == root);
    if (!out.complete) {
        const std::string signal = "SIG" + spec.checkpoint.signal;
        out.problem = needed == 1 ? "does not catch " + signal
                                  : std::to_string(listening) + " of its " +
                                        std::to_string(needed) + " processes catch " + signal;
    }
    return out;
}

}  // namespace

CheckpointSignal::Deaf CheckpointSignal::find_deaf() const {
    for (const wire::StartedRank& rank : group_.living()) {
        if (const auto targets = signal_targets_of(spec_, rank.pid); !targets.complete) {
            return {rank.rank, targets.problem};
        }
    }
    return {};
}

// To the processes that catch it; if none does and the job names the signal, to the rank's own: it
// is what its user wants.
void CheckpointSignal::send(bool only_unwarned) {
    const int number = signal_number(spec_.checkpoint.signal);
    std::size_t reached = 0;
    for (const wire::StartedRank& rank : group_.living()) {
        if (only_unwarned && !unwarned_.contains(rank.rank)) {
            continue;
        }
        auto targets = signal_targets_of(spec_, rank.pid);
        if (!spec_.checkpoint.signal_named && !targets.complete) {
            continue;
        }
        if (targets.processes.empty()) {
            targets.processes.push_back(static_cast<pid_t>(rank.pid));
        }
        for (const pid_t process : targets.processes) {
            ::kill(process, number);
        }
        unwarned_.erase(rank.rank);
        ++reached;
    }
    if (reached > 0) {
        log::info("ranks are asked for a checkpoint",
                  {{"signal", spec_.checkpoint.signal}, {"ranks", reached}});
    }
}

void CheckpointSignal::send() {
    send(false);
}

CheckpointSignal::Deaf CheckpointSignal::warn(std::chrono::steady_clock::time_point now) {
    Deaf deaf = spec_.checkpoint.signal_named ? Deaf{} : find_deaf();
    for (const wire::StartedRank& rank : group_.living()) {
        unwarned_.insert(rank.rank);
    }
    send(true);
    warned_at_ = now;
    return deaf;
}

// A rank that was still starting when the time limit came near.
void CheckpointSignal::warn_the_rest(std::chrono::steady_clock::time_point now) {
    if (unwarned_.empty() || now - warned_at_ < kDeafRankPause) {
        return;
    }
    warned_at_ = now;
    if (!group_.running()) {
        unwarned_.clear();
    } else {
        send(true);
    }
}

}  // namespace lockstep
