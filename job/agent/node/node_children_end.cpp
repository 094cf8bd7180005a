// How a launcher's ranks end.
#include "job/agent/node/node_child.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kChildDrainTurns = 64;  // reads of an output, after the launcher has ended

}  // namespace

Task<void> NodeChildren::watch(ChildPointer child) {
    ErrorCode ec;
    co_await child->process.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    if (!ec && !child->ended) {
        on_end(*child);
        handlers_.changed();
    }
}

bool NodeChildren::failed_by_itself(std::int32_t local) const {
    const ChildPointer& child = children_[static_cast<std::size_t>(local)];
    return child && child->ended && !child->stopped && child->end && child->end->exit_code != 0;
}

void NodeChildren::on_end(Child& child) {
    child.ended = true;
    child.ended_at = SystemClock{}.wall();
    child.end = end_of_process(child.pid, child.process.native_handle());
    const bool told = child.end && (child.end->signal == SIGTERM || child.end->signal == SIGKILL);
    bool peer_failed = false;
    for (std::int32_t local = 0; told && local < setup_->count; ++local) {
        peer_failed = peer_failed || (local != child.local && failed_by_itself(local));
    }
    child.stopped = handlers_.stopping() || peer_failed;
    if (child.end && child.end->signal == SIGKILL && !child.stopped) {
        const std::int64_t kills = oom_kills();
        child.oom = oom_kills_ >= 0 && kills > oom_kills_;
        oom_kills_ = kills;
    }
    ErrorCode ec;
    child.process.close(ec);
    end_files(child);
    log::info("a rank of the launcher has ended",
              {{"rank", setup_->first_rank + child.local},
               {"exit_code", child.end ? child.end->exit_code : -1},
               {"signal", child.end ? child.end->signal : 0},
               {"stopped", child.stopped}});
}

void NodeChildren::finish() {
    if (!setup_) {
        return;
    }
    for (const ChildPointer& child : children_) {
        if (!child) {
            continue;
        }
        if (!child->ended && child->process.is_open()) {
            pollfd over{child->process.native_handle(), POLLIN, 0};
            if (::poll(&over, 1, 0) > 0) {
                on_end(*child);
            } else {
                // It would hold GPUs and ports of the next generation.
                ::syscall(SYS_pidfd_send_signal, child->process.native_handle(), SIGKILL, nullptr,
                          0U);
                child->ended = true;
                child->stopped = true;
                child->ended_at = SystemClock{}.wall();
                end_files(*child);
            }
        }
    }
    for (const auto* list : {&children_, &strangers_}) {
        for (const ChildPointer& child : *list) {
            if (!child || !child->output.is_open()) {
                continue;
            }
            pollfd readable{child->output.native_handle(), POLLIN, 0};
            for (int i = 0;
                 i < kChildDrainTurns && ::poll(&readable, 1, 0) > 0 && read_some(*child); ++i) {
            }
        }
    }
    if (!partial_.empty()) {
        printed("\n");
    }
    tell_of_unknown(true);
    close();
}

void NodeChildren::close() {
    for (const auto* list : {&children_, &strangers_}) {
        for (const ChildPointer& child : *list) {
            ErrorCode ec;
            if (child) {
                child->ended = true;
                child->process.close(ec);
                child->output.close(ec);
            }
        }
    }
}

std::vector<NodeChildren::Ended> NodeChildren::ends(const wire::Exited& launcher) {
    std::vector<Ended> out;
    const bool good = launcher.exit_code == 0;
    bool explained = good || launcher.stopped;
    for (std::int32_t local = 0; local < setup_->count; ++local) {
        out.push_back(end_of(local, launcher));
        const wire::Exited& one = out.back().exited;
        explained = explained || (!one.launcher && one.exit_code != 0 && !one.stopped);
    }
    if (!explained) {
        // None of them has failed: the launcher has, and it may have no rank.
        out.front().exited = launcher;
        out.front().exited.rank = setup_->first_rank;
        out.front().exited.launcher = true;
    }
    const auto seen = known_count();
    if (good && seen < children_.size() && (seen > 0 || setup_->count > 1)) {
        warn_once(-1, (seen == 0 ? "none" : std::to_string(seen)) + std::string{" of the "} +
                          std::to_string(setup_->count) + " ranks of " + setup_->node +
                          " (resources.ranks_per_node) was seen: its launcher has started fewer, "
                          "or they do not say who they are");
    }
    return out;
}

NodeChildren::Ended NodeChildren::end_of(std::int32_t local, const wire::Exited& launcher) {
    const ChildPointer& child = children_[static_cast<std::size_t>(local)];
    const bool good = launcher.exit_code == 0;
    Ended out;
    wire::Exited& one = out.exited;
    one = launcher;
    one.rank = setup_->first_rank + local;
    if (!child) {
        one.launcher = !good;
        return out;
    }
    out.pid = child->pid;
    if (child->log) {
        child->log->end();
        if (std::string lost = child->log->loss_warning(one.rank); !lost.empty()) {
            warn_once(one.rank, std::move(lost));
        }
    }
    if (child->pid == setup_->launcher) {
        out.output = launcher.log_tail;
        return out;
    }
    if (!child->end) {
        one.launcher = !good;
        return out;
    }
    if (good) {
        if (child->end->exit_code != 0 && !child->stopped) {
            warn_once(
                one.rank,
                "rank " + std::to_string(one.rank) + " on " + setup_->node + " ended with " +
                    (child->end->signal != 0 ? "signal " + std::to_string(child->end->signal)
                                             : "code " + std::to_string(child->end->exit_code)) +
                    ", and its launcher with 0: the job goes by the launcher");
        }
        return out;
    }
    one.exit_code = child->end->exit_code;
    one.signal = child->end->signal;
    one.oom = child->oom;
    // A launcher that fails tells its ranks to end.
    one.stopped = child->stopped || child->end->signal == SIGTERM;
    one.time = child->ended_at;
    out.output = child->log ? child->log->tail() : std::string{};
    const std::string& said = child->log ? out.output : launcher.log_tail;
    one.log_tail = one.exit_code == 0
                       ? std::string{}
                       : said.substr(said.size() - std::min(said.size(), limits::kLogTailBytes));
    return out;
}

}  // namespace lockstep
