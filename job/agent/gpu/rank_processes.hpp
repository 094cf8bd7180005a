// Which rank a process belongs to: a rank's own process, or a descendant of it (a launcher's child,
// a data loader). Asks /proc for parents. A plain value; one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

namespace lockstep {

class RankProcesses {
  public:
    // `pids`: the ranks' processes and their ranks. `proc`: where proc(5) is mounted.
    explicit RankProcesses(std::map<std::int64_t, std::uint32_t> pids = {},
                           std::filesystem::path proc = "/proc")
        : pids_(std::move(pids)), proc_(std::move(proc)) {}

    bool empty() const { return pids_.empty(); }
    // Nothing: not of a rank, gone, or of another process namespace.
    std::optional<std::uint32_t> rank_of(std::int64_t pid) const;

  private:
    std::optional<std::int64_t> parent_of(std::int64_t pid) const;

    std::map<std::int64_t, std::uint32_t> pids_;
    std::filesystem::path proc_;
};

}  // namespace lockstep
