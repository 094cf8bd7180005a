// Who is missing while the nodes of a job meet, and why: in the job's view and, every 5 s, in the
// log.
#include "daemon/control/job_actor.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr auto kTellLog = std::chrono::seconds{5};
constexpr auto kTellView = std::chrono::seconds{1};
constexpr std::size_t kNamed = 8;

std::string seconds_since(std::chrono::steady_clock::time_point then,
                          std::chrono::steady_clock::time_point now) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - then).count()) +
           " s";
}

// Connections that wait to be accepted: those over the kernel's limit are tried again by their
// agents' kernels after a second, and then after two.
void warn_of_queue(const Job& job) {
    const auto text = read_file("/proc/sys/net/core/somaxconn", 64);
    const auto limit = text ? to_int(trim(*text)) : std::nullopt;
    const std::int32_t nodes = job.spec.resources.allocated_nodes();
    if (limit && *limit < nodes) {
        log::warn("fewer connections may wait than the job has nodes; raise net.core.somaxconn",
                  {{"job", job.id.value}, {"somaxconn", *limit}, {"nodes", nodes}});
    }
}

}  // namespace

// "" if the node is where the others wait for it.
std::string JobActor::why_missing(std::int32_t slot) const {
    if (const auto refused = refused_.find(slot);
        refused != refused_.end() && !links_.contains(slot)) {
        return "refused: " + refused->second;
    }
    if (!links_.contains(slot)) {
        const auto gone = gone_.find(slot);
        return gone == gone_.end()
                   ? "not connected"
                   : "not connected for " + seconds_since(gone->second, context_.clock.steady());
    }
    const bool live = job_.live_generation() != nullptr;
    switch (rendezvous_.phase(slot)) {
        case Rendezvous::Phase::away:
            return left_.contains(slot) ? "it leaves: " + left_.at(slot).reason : "not connected";
        case Rendezvous::Phase::connected:
            return "connected, not joined";
        case Rendezvous::Phase::joined:
            return live && rendezvous_.is_member(slot) ? "not ready" : "";
        case Rendezvous::Phase::ready:
            return rendezvous_.all_ready() ? "its ranks are not started" : "";
        case Rendezvous::Phase::started:
            return "";
    }
    return "";
}

// "waiting for 3 of 16 nodes: n4 (not connected), …"; "" if all are there. Without a generation
// spares are missed, too, until there are enough.
std::string JobActor::missing_nodes() const {
    const Attempt& attempt = *job_.attempt();
    const Generation* live = job_.live_generation();
    const std::int32_t slots = job_.spec.resources.allocated_nodes();
    std::size_t count = 0;
    std::string names;
    for (std::int32_t slot = 0; slot < slots; ++slot) {
        if (attempt.lost.contains(slot) || (live != nullptr && !rendezvous_.is_member(slot))) {
            continue;
        }
        const std::string why = why_missing(slot);
        if (why.empty() || ++count > kNamed) {
            continue;
        }
        const auto claim = attempt.claims.find(slot);
        names += names.empty() ? "" : ", ";
        names +=
            claim == attempt.claims.end() ? "node " + std::to_string(slot) : claim->second.node;
        names += " (" + why + ")";
    }
    if (count == 0) {
        return "";
    }
    if (count > kNamed) {
        names += " and " + std::to_string(count - kNamed) + " more";
    }
    return "waiting for " + std::to_string(count) + " of " + std::to_string(slots) +
           " nodes: " + names;
}

// Called with every input and tick while nodes gather; looks once a second.
void JobActor::tell_missing() {
    const Generation* live = job_.live_generation();
    const bool gathering = !stop_sent_ && !abort_sent_ && job_.attempt() != nullptr &&
                           job_.attempt()->finished_at == 0 &&
                           (live == nullptr || live->running_at == 0);
    const auto now = context_.clock.steady();
    if (!gathering) {
        if (std::exchange(missing_told_, false)) {
            set_pending_reason("");
        }
        missing_since_.reset();
        return;
    }
    if (!missing_since_) {
        missing_since_ = missing_viewed_ = missing_logged_ = now;
        if (job_.generation() == nullptr) {
            warn_of_queue(job_);
        }
    }
    if (now - missing_viewed_ < kTellView) {
        return;
    }
    missing_viewed_ = now;
    const std::string missing = missing_nodes();
    if (missing.empty()) {
        if (std::exchange(missing_told_, false)) {
            set_pending_reason("");
        }
        return;
    }
    missing_told_ = true;
    set_pending_reason(missing);
    if (now - missing_logged_ >= kTellLog) {
        missing_logged_ = now;
        log::warn("nodes are missing", {{"job", job_.id.value},
                                        {"for", seconds_since(*missing_since_, now)},
                                        {"what", missing}});
    }
}

}  // namespace lockstep
