#include "daemon/control/actor/attempt_leftovers.hpp"

#include "daemon/control/base/attempt_files.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"

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

AttemptLeftovers::Seen AttemptLeftovers::read(const Missing& missing, Steady::time_point late_at) {
    const auto late = [late_at] { return Steady::now() >= late_at; };
    Seen out;
    for (const std::int32_t slot : missing.results) {
        auto result = late() ? fail(Errc::timed_out, "not read in time")
                             : read_result(missing.directory, slot);
        // A job's user writes them, and all of them are held until the look.
        if (result && *result && (*result)->exits.size() > limits::kRanksPerNode) {
            result = fail(Errc::invalid, "it has more ends than a node has ranks");
        }
        out.results.emplace(slot, std::move(result));
    }
    for (const auto& [slot, incarnation] : missing.words) {
        out.words.emplace(
            slot, late() ? std::nullopt : read_gave_up(missing.directory, slot, incarnation));
    }
    return out;
}

Task<void> AttemptLeftovers::read_missing(SideThread& threads, Steady::time_point late_at) {
    const Missing missing = std::exchange(missing_, Missing{});
    // What was begun in time may take as long as it is let.
    const auto until = late_at + limits::kSignerPatience;
    const std::function<Seen()> work = [missing, late_at] { return read(missing, late_at); };
    std::optional<Seen> now = co_await threads.run<Seen>(work, until);
    if (!now) {
        now = read(missing, Steady::time_point::min());
    }
    seen_.results.merge(now->results);
    seen_.words.merge(now->words);
    if (!missing.memory) {
        co_return;
    }
    // By itself: it may be hundreds of logs, and the words are not to be lost with them.
    using Memory = std::optional<MemoryEvidence>;
    const std::function<Memory()> search = [&scheduler = scheduler_, directory = missing.directory,
                                            nodes = *missing.memory, late_at] {
        return Steady::now() >= late_at ? Memory{} : scheduler.memory_evidence(directory, nodes);
    };
    seen_.memory = (co_await threads.run<Memory>(search, until)).value_or(std::nullopt);
}

void AttemptLeftovers::forget() {
    missing_ = Missing{};
    seen_ = Seen{};
}

}  // namespace lockstep
