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
    if (const auto refused = run_.refused.find(slot);
        refused != run_.refused.end() && !run_.links.contains(slot)) {
        return "refused: " + refused->second;
    }
    if (!run_.links.contains(slot)) {
        const auto gone = run_.gone.find(slot);
        return gone == run_.gone.end()
                   ? "not connected"
                   : "not connected for " + seconds_since(gone->second, context_.clock.steady());
    }
    const bool live = job_.live_generation() != nullptr;
    switch (run_.rendezvous.phase(slot)) {
        case Rendezvous::Phase::away:
            return run_.left.contains(slot) ? "it leaves: " + run_.left.at(slot).reason
                                            : "not connected";
        case Rendezvous::Phase::connected:
            return "connected, not joined";
        case Rendezvous::Phase::joined:
            return live && run_.rendezvous.is_member(slot) ? "not ready" : "";
        case Rendezvous::Phase::ready:
            return run_.rendezvous.all_ready() ? "its ranks are not started" : "";
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
        if (attempt.lost.contains(slot) || (live != nullptr && !run_.rendezvous.is_member(slot))) {
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
    const bool gathering = !run_.stopping && !run_.generation.abort_sent &&
                           job_.attempt() != nullptr && job_.attempt()->finished_at == 0 &&
                           (live == nullptr || live->running_at == 0);
    const auto now = context_.clock.steady();
    if (!gathering) {
        if (std::exchange(run_.missing.told, false)) {
            set_pending_reason("");
        }
        run_.missing.since.reset();
        return;
    }
    if (!run_.missing.since) {
        run_.missing.since = run_.missing.viewed = run_.missing.logged = now;
        if (job_.generation() == nullptr) {
            warn_of_queue(job_);
        }
    }
    if (now - run_.missing.viewed < kTellView) {
        return;
    }
    run_.missing.viewed = now;
    const std::string missing = missing_nodes();
    if (missing.empty()) {
        if (std::exchange(run_.missing.told, false)) {
            set_pending_reason("");
        }
        return;
    }
    run_.missing.told = true;
    set_pending_reason(missing);
    if (now - run_.missing.logged >= kTellLog) {
        run_.missing.logged = now;
        log::warn("nodes are missing", {{"job", job_.id.value},
                                        {"for", seconds_since(*run_.missing.since, now)},
                                        {"what", missing}});
    }
}

}  // namespace lockstep
