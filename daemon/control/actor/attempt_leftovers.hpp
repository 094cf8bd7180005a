// The files that an attempt's agents and its scheduler have left in its folder. Where lockstepd may
// open them they are read when the machine asks. Where lockstep-exec has to, each takes a process,
// and as long as its file system lets it: then they are read beforehand, on another thread, and the
// machine is given what is there. The scheduler must outlive it. Control thread.
#pragma once

#include "daemon/control/machine/left_behind.hpp"
#include "job/async/asio.hpp"
#include "job/async/on_thread.hpp"
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
    // Reads what is missing: afterwards it is not, whatever came of it. Once `patience` is over no
    // further file is begun: the results among the rest are timed_out, the others nothing. One that
    // was begun takes as long as open_foreign() lets it. The pool must outlive the call.
    Task<void> read_missing(net::thread_pool& pool, std::chrono::milliseconds patience);
    // The next look is at what lies there then.
    void forget();

  private:
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
    static Seen read(const Missing& missing, const Scheduler& scheduler,
                     std::chrono::milliseconds patience);

    const Scheduler& scheduler_;
    mutable Missing missing_{};
    Seen seen_{};
};

}  // namespace lockstep
