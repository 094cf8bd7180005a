// Which process is which rank. node_children_output.cpp: what they print; node_children_end.cpp:
// how they end.
#include "job/agent/node/node_children.hpp"

#include "job/agent/node/node_child.hpp"
#include "job/base/launch.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {
namespace {

constexpr int kDeepestChild = 8;  // launchers of launchers
// How often ranks are looked for that say nothing: they start in the first seconds, if at all.
constexpr auto kSearchEvery = std::chrono::seconds{1};
constexpr auto kSearchLater = std::chrono::seconds{10};
constexpr auto kStartUp = std::chrono::seconds{60};

std::string ranks_in_words(std::int32_t first, std::int32_t count) {
    return count == 1 ? "rank " + std::to_string(first)
                      : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

}  // namespace

NodeChildren::NodeChildren(TaskGroup& tasks, Handlers handlers)
    : tasks_(tasks), handlers_(std::move(handlers)) {}

NodeChildren::~NodeChildren() = default;

void NodeChildren::begin(Setup setup) {
    close();
    const auto count = static_cast<std::size_t>(setup.count);
    setup_ = std::move(setup);
    children_.assign(count, nullptr);
    strangers_.clear();
    asked_.clear();
    loss_from_.assign(count, LossFrom::nowhere);
    marked_.clear();
    unmarked_ = make_reader();
    partial_.clear();
    warned_.clear();
    unknown_losses_ = 0;
    crowded_ = false;
    began_ = std::chrono::steady_clock::now();
    searched_ = {};
    oom_kills_ = oom_kills();
}

std::optional<OutputReader> NodeChildren::make_reader() const {
    if (!setup_->capture) {
        return std::nullopt;
    }
    return OutputReader{Capture{setup_->capture->first, setup_->capture->second},
                        setup_->world_size};
}

void NodeChildren::warn_once(std::int32_t rank, std::string message) {
    if (warned_.insert(message).second) {
        log::warn("of the ranks of this node", {{"rank", rank}, {"what", message}});
        handlers_.warn(rank, std::move(message));
    }
}

std::size_t NodeChildren::known_count() const {
    return static_cast<std::size_t>(std::count_if(
        children_.begin(), children_.end(), [](const ChildPointer& child) { return !!child; }));
}

std::optional<std::int32_t> NodeChildren::known(std::int64_t pid) const {
    for (const ChildPointer& child : children_) {
        if (child && child->pid == pid) {
            return child->local;
        }
    }
    return std::nullopt;
}

// The process and those that have started it, up to the launcher.
std::vector<std::int64_t> NodeChildren::ancestry(std::int64_t pid) const {
    constexpr std::size_t kGenerationsUp = 64;
    std::vector<std::int64_t> out;
    while (pid > 1 && out.size() < kGenerationsUp) {
        out.push_back(pid);
        pid = pid == setup_->launcher ? 0 : parent_of(pid);
    }
    return out;
}

std::optional<std::int32_t> NodeChildren::rank_of(std::int64_t pid) {
    if (!setup_) {
        return std::nullopt;
    }
    const auto rank = [this](std::int32_t local) { return setup_->first_rank + local; };
    if (const auto local = known(pid)) {
        return rank(*local);
    }
    if (const auto found = asked_.find(pid); found != asked_.end()) {
        return rank(found->second);
    }
    const auto line = ancestry(pid);
    // A launcher that is a rank itself is not the rank of what it starts.
    for (const std::int64_t one : line) {
        if (const auto local = known(one); local && one != setup_->launcher) {
            asked_[pid] = *local;
            return rank(*local);
        }
    }
    // The first in line that has a rank: what it starts has its variables too.
    for (auto one = line.rbegin(); one != line.rend(); ++one) {
        if (*one == setup_->launcher) {
            continue;
        }
        const RankIdentity identity = identity_of_process(*one);
        if (!identity.known()) {
            continue;
        }
        const auto local = local_rank_of(identity, setup_->first_rank, setup_->count);
        hello(*one, identity, {});
        if (local) {
            asked_[pid] = *local;
            return rank(*local);
        }
        return std::nullopt;
    }
    if (setup_->count == 1 || (pid == setup_->launcher && !children_.front())) {
        return rank(0);
    }
    return std::nullopt;
}

void NodeChildren::check(std::int64_t pid, const RankIdentity& identity) {
    const Setup& setup = *setup_;
    if (!local_rank_of(identity, setup.first_rank, setup.count)) {
        crowded_ = true;
        warn_once(-1, "a process of " + setup.node + " calls itself rank " +
                          std::to_string(identity.rank) + ", and " + setup.node + " has " +
                          ranks_in_words(setup.first_rank, setup.count) +
                          " by resources.ranks_per_node " + std::to_string(setup.count) +
                          ": what it reports is in no series");
        log::info("a process is none of this node's ranks",
                  {{"pid", pid}, {"rank", identity.rank}, {"local_rank", identity.local_rank}});
    } else if (identity.rank >= 0 && (identity.rank < setup.first_rank ||
                                      identity.rank >= setup.first_rank + setup.count)) {
        warn_once(-1, "the launcher of " + setup.node + " numbers its ranks from " +
                          std::to_string(identity.rank - std::max(identity.local_rank, 0)) +
                          ", Lockstep from " + std::to_string(setup.first_rank) +
                          ": here they have Lockstep's numbers");
    }
}

// Whoever speaks for a rank need not be it: the first in line that was started as the same one is.
std::int64_t NodeChildren::owner_of(std::int64_t pid, const RankIdentity& identity) const {
    std::int64_t owner = pid;
    for (const std::int64_t one : ancestry(pid)) {
        if (one != setup_->launcher && identity.rank >= 0 &&
            identity_of_process(one).rank == identity.rank) {
            owner = one;
        }
    }
    return owner;
}

bool NodeChildren::hello(std::int64_t speaker, const RankIdentity& identity, UniqueFd output) {
    if (!setup_) {
        return false;
    }
    const std::int64_t pid = owner_of(speaker, identity);
    check(pid, identity);
    const auto local = local_rank_of(identity, setup_->first_rank, setup_->count);
    ChildPointer child;
    if (local) {
        child = children_[static_cast<std::size_t>(*local)];
        const bool other = child && !child->ended && child->pid != pid && pid > 0;
        if (other) {
            const auto line = ancestry(pid);
            if (std::find(line.begin(), line.end(), child->pid) == line.end()) {
                crowded_ = true;
                warn_once(setup_->first_rank + *local,
                          "two processes of " + setup_->node + " call themselves rank " +
                              std::to_string(setup_->first_rank + *local) +
                              ": only the first one's reports are in its series");
                child = nullptr;
            }
        } else if (!child || (child->pid != pid && ::kill(static_cast<pid_t>(pid), 0) == 0)) {
            child = adopt(pid, *local);
            handlers_.changed();
        } else if (!child->ended && child->pid == pid) {
            find_files(*child);  // it may have been found before its output went into one
        }
    }
    const bool mine = local && child;
    if (mine) {
        asked_[speaker] = *local;
    }
    if (output) {
        if (!child) {
            child = std::make_shared<Child>(tasks_.io());
            child->pid = pid;
            strangers_.push_back(child);
        }
        take_output(child, std::move(output));
    }
    return mine;
}

NodeChildren::ChildPointer NodeChildren::adopt(std::int64_t pid, std::int32_t local) {
    auto child = std::make_shared<Child>(tasks_.io());
    child->local = local;
    child->pid = pid;
    child->adopted_at = SystemClock{}.wall();
    auto& place = children_[static_cast<std::size_t>(local)];
    if (place && place->log) {
        child->log =
            std::exchange(place->log, std::nullopt);  // the launcher has started the rank once more
    }
    place = child;
    log::info("a rank of the launcher", {{"rank", setup_->first_rank + local}, {"pid", pid}});
    if (pid > 0 && pid != setup_->launcher) {
        if (UniqueFd fd = open_pidfd(static_cast<pid_t>(pid))) {
            child->process.assign(fd.release());
            tasks_.spawn("child process", watch(child));
        } else {
            child->ended = errno == ESRCH;
            child->ended_at = SystemClock{}.wall();
        }
        find_files(*child);
    }
    return child;
}

// Ranks that have not said hello: what a launcher has started has its rank in its environment.
bool NodeChildren::search(std::int64_t pid, int depth) {
    bool found = false;
    for (const std::int64_t child : children_of(pid)) {
        if (known(child)) {
            continue;
        }
        const RankIdentity identity = identity_of_process(child);
        if (identity.known()) {
            found = hello(child, identity, {}) || found;
        } else if (depth < kDeepestChild) {
            found = search(child, depth + 1) || found;
        }
    }
    return found;
}

void NodeChildren::look() {
    if (!setup_) {
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    const bool missing =
        std::any_of(children_.begin(), children_.end(),
                    [](const ChildPointer& child) { return !child || child->ended; });
    const auto every = now - began_ < kStartUp ? kSearchEvery : kSearchLater;
    if (missing && now - searched_ >= std::chrono::steady_clock::duration{every}) {
        searched_ = now;
        search(setup_->launcher, 0);
    }
    for (const ChildPointer& child : children_) {
        if (child && !child->ended) {
            if (child->files.empty() && now - began_ < kStartUp) {
                find_files(*child);
            }
            read_files(*child);
        }
    }
    tell_of_unknown(false);
}

std::vector<wire::StartedRank> NodeChildren::started() const {
    std::vector<wire::StartedRank> out;
    for (std::int32_t local = 0; setup_ && local < setup_->count; ++local) {
        const ChildPointer& child = children_[static_cast<std::size_t>(local)];
        wire::StartedRank one;
        one.rank = setup_->first_rank + local;
        if (child) {
            one.pid = child->pid;
            one.ended = child->ended;
            one.end_known = child->end.has_value();
            one.exit_code = child->end ? std::max(child->end->exit_code, 0) : 0;
            one.signal = child->end ? child->end->signal : 0;
        } else if (local == 0) {
            one.pid = setup_->launcher;
        } else {
            continue;
        }
        out.push_back(one);
    }
    return out;
}

}  // namespace lockstep
