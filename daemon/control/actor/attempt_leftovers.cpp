#include "daemon/control/actor/attempt_leftovers.hpp"

#include "daemon/control/base/attempt_files.hpp"
#include "job/base/files.hpp"

#include <functional>
#include <utility>

namespace lockstep {

bool AttemptLeftovers::is_closed(const Attempt& attempt) {
    return is_foreign(attempt.directory);
}

Result<std::optional<wire::ResultFile>> AttemptLeftovers::result(const Attempt& attempt,
                                                                 std::int32_t slot) const {
    if (!is_closed(attempt)) {
        return read_result(attempt.directory, slot);
    }
    if (const auto found = seen_.results.find(slot); found != seen_.results.end()) {
        return found->second;
    }
    missing_.directory = attempt.directory;
    missing_.results.insert(slot);
    return fail(Errc::unavailable, "the result is yet to be read");
}

std::optional<wire::GaveUpFile> AttemptLeftovers::gave_up(const Attempt& attempt, std::int32_t slot,
                                                          const std::string& incarnation) const {
    if (!is_closed(attempt)) {
        return read_gave_up(attempt.directory, slot, incarnation);
    }
    if (const auto found = seen_.words.find(slot); found != seen_.words.end()) {
        return found->second;
    }
    missing_.directory = attempt.directory;
    missing_.words.emplace(slot, incarnation);
    return std::nullopt;
}

std::optional<MemoryEvidence> AttemptLeftovers::memory(const Attempt& attempt,
                                                       std::int32_t nodes) const {
    if (!is_closed(attempt)) {
        return scheduler_.memory_evidence(attempt.directory, nodes);
    }
    if (seen_.memory) {
        return *seen_.memory;
    }
    missing_.directory = attempt.directory;
    missing_.memory = nodes;
    return std::nullopt;
}

bool AttemptLeftovers::has_missing() const {
    return !missing_.results.empty() || !missing_.words.empty() || missing_.memory;
}

AttemptLeftovers::Seen AttemptLeftovers::read(const Missing& missing, const Scheduler& scheduler,
                                              std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    const auto late = [until] { return std::chrono::steady_clock::now() >= until; };
    Seen out;
    for (const std::int32_t slot : missing.results) {
        if (late()) {
            out.results.emplace(slot, fail(Errc::timed_out, "too many results to read in time"));
        } else {
            out.results.emplace(slot, read_result(missing.directory, slot));
        }
    }
    for (const auto& [slot, incarnation] : missing.words) {
        out.words.emplace(
            slot, late() ? std::nullopt : read_gave_up(missing.directory, slot, incarnation));
    }
    if (missing.memory) {
        out.memory.emplace(late() ? std::nullopt
                                  : scheduler.memory_evidence(missing.directory, *missing.memory));
    }
    return out;
}

Task<void> AttemptLeftovers::read_missing(net::thread_pool& pool,
                                          std::chrono::milliseconds patience) {
    const std::function<Seen()> work = [missing = std::exchange(missing_, Missing{}),
                                        &scheduler = scheduler_,
                                        patience] { return read(missing, scheduler, patience); };
    Seen now = co_await on_thread<Seen>(pool, work);
    seen_.results.merge(now.results);
    seen_.words.merge(now.words);
    if (now.memory) {
        seen_.memory = std::move(now.memory);
    }
}

void AttemptLeftovers::forget() {
    missing_ = Missing{};
    seen_ = Seen{};
}

}  // namespace lockstep
