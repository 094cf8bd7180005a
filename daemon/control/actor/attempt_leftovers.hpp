// The files that an attempt's agents and its scheduler have left in its folder. Where lockstepd may
// open them they are read when the machine asks. Where lockstep-exec has to, each takes a process,
// and as long as its file system lets it: then they are read beforehand, on another thread, and the
// machine is given what is there. The scheduler must outlive it. Control thread.
#pragma once

#include "daemon/control/machine/left_behind.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace lockstep {

class AttemptLeftovers final : public LeftBehind {
  public:
    explicit AttemptLeftovers(const Scheduler& scheduler) : scheduler_{scheduler} {}
    // In a closed folder what has not been read is noted as missing, and there is nothing to be
    // seen: unavailable, or nothing.
    Result<std::optional<wire::ResultFile>> result(const Attempt& attempt,
                                                   std::int32_t slot) const override;
    std::optional<wire::GaveUpFile> gave_up(const Attempt& attempt, std::int32_t slot,
                                            const std::string& incarnation) const override;
    std::optional<MemoryEvidence> memory(const Attempt& attempt, std::int32_t nodes) const override;

    // Whether lockstepd may not open the attempt's files itself.
    static bool is_closed(const Attempt& attempt);
    bool has_missing() const;
    // Reads what is missing: afterwards it is not, whatever came of it. From `late_at` on no
    // further result or words are begun, and what was begun is waited for as long as open_foreign()
    // may take, or until the threads are let go: a result that was not read is timed_out, the
    // others nothing.
    Task<void> read_missing(SideThread& threads, std::chrono::steady_clock::time_point late_at);
    // What was read is let go: it may be large, and the next look is at what lies there then.
    void forget();

  private:
    using Steady = std::chrono::steady_clock;
    struct Missing {
        std::filesystem::path directory{};
        std::set<std::int32_t> results{};             // slots
        std::map<std::int32_t, std::string> words{};  // incarnation by slot
        std::optional<std::int32_t> memory{};         // nodes
    };
    struct Seen {
        std::map<std::int32_t, Result<std::optional<wire::ResultFile>>> results{};
        std::map<std::int32_t, std::optional<wire::GaveUpFile>> words{};
        std::optional<std::optional<MemoryEvidence>> memory{};
    };
    static Seen read(const Missing& missing, Steady::time_point late_at);

    const Scheduler& scheduler_;
    mutable Missing missing_{};
    Seen seen_{};
};

}  // namespace lockstep
