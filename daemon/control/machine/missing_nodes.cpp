#include "daemon/control/machine/missing_nodes.hpp"

#include "daemon/control/machine/attempt_run.hpp"
#include "job/base/log.hpp"

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

// "waiting for 3 of 16 nodes: n4 (not connected), …"; "" if all are there. Without a generation
// spares are missed, too, until there are enough.
std::string missing_words(const Job& job, const AttemptRun& run, AttemptRun::Time now) {
    const Attempt& attempt = *job.attempt();
    const Generation* live = job.live_generation();
    const std::int32_t slots = job.spec.resources.allocated_nodes();
    std::size_t count = 0;
    std::string names;
    for (std::int32_t slot = 0; slot < slots; ++slot) {
        if (attempt.lost.contains(slot) || (live != nullptr && !run.rendezvous.is_member(slot))) {
            continue;
        }
        const std::string why = run.why_missing(job, slot, now);
        if (why.empty() || ++count > kNamed) {
            continue;
        }
        names += names.empty() ? "" : ", ";
        names += run.name_of(job, slot) + " (" + why + ")";
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

}  // namespace

std::string AttemptRun::name_of(const Job& job, std::int32_t slot) const {
    const auto claim = job.attempt()->claims.find(slot);
    if (claim != job.attempt()->claims.end()) {
        return claim->second.node;
    }
    const auto index = static_cast<std::size_t>(slot);
    return index < given.size() ? given[index] : "node " + std::to_string(slot);
}

std::string AttemptRun::absent_words(const Job& job) const {
    std::string out;
    std::size_t count = 0;
    for (std::int32_t slot = 0; slot < job.spec.resources.allocated_nodes(); ++slot) {
        const auto words = launch_words.find(slot);
        const bool known = !given.empty() || words != launch_words.end();
        if (job.attempt()->claims.contains(slot) || !known || ++count > kNamed) {
            continue;
        }
        out += out.empty() ? " (" : ", ";
        out += name_of(job, slot);
        out += words == launch_words.end() ? "" : ": " + words->second;
    }
    return out.empty() ? out : out + ")";
}

std::string AttemptRun::why_missing(const Job& job, std::int32_t slot, Time now) const {
    if (!links.contains(slot)) {
        if (const auto sent_away = refused.find(slot); sent_away != refused.end()) {
            return "refused: " + sent_away->second;
        }
        const auto since = gone.find(slot);
        if (since != gone.end()) {
            return "not connected for " + seconds_since(since->second, now);
        }
        const auto words = launch_words.find(slot);
        return words == launch_words.end() ? "not connected" : "not connected: " + words->second;
    }
    const bool live = job.live_generation() != nullptr;
    switch (rendezvous.phase(slot)) {
        case Rendezvous::Phase::away:
            return left.contains(slot) ? "it leaves: " + left.at(slot).reason : "not connected";
        case Rendezvous::Phase::connected:
            return "connected, not joined";
        case Rendezvous::Phase::joined:
            return live && rendezvous.is_member(slot) ? "not ready" : "";
        case Rendezvous::Phase::ready:
            return rendezvous.all_ready() ? "its ranks are not started" : "";
        case Rendezvous::Phase::started:
            return "";
    }
    return "";
}

std::optional<std::string> MissingNodes::nobody() {
    return std::exchange(told_, false) ? std::optional<std::string>{""} : std::nullopt;
}

std::optional<std::string> MissingNodes::look(const Job& job, const AttemptRun& run, Time now) {
    const Generation* live = job.live_generation();
    const bool gathering = !run.stopping && !run.generation.abort_sent &&
                           job.attempt() != nullptr && job.attempt()->finished_at == 0 &&
                           (live == nullptr || live->running_at == 0);
    if (!gathering) {
        since_.reset();
        return nobody();
    }
    if (!since_) {
        since_ = viewed_ = logged_ = now;
    }
    if (now - viewed_ < kTellView) {
        return std::nullopt;
    }
    viewed_ = now;
    std::string missing = missing_words(job, run, now);
    if (missing.empty()) {
        return nobody();
    }
    told_ = true;
    if (now - logged_ >= kTellLog) {
        logged_ = now;
        log::warn("nodes are missing",
                  {{"job", job.id.value}, {"for", seconds_since(*since_, now)}, {"what", missing}});
    }
    return missing;
}

}  // namespace lockstep
