#include "job/agent/gpu/rank_processes.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <string>

namespace lockstep {
namespace {
constexpr int kGenerations = 64;  // deeper process trees do not occur; a loop in /proc neither
constexpr std::size_t kStatBytes = 4096;
}  // namespace

std::optional<std::uint32_t> RankProcesses::rank_of(std::int64_t pid) const {
    for (int depth = 0; depth < kGenerations && pid > 1; ++depth) {
        if (const auto found = pids_.find(pid); found != pids_.end()) {
            return found->second;
        }
        pid = parent_of(pid).value_or(0);
    }
    return std::nullopt;
}

// The fourth field of stat; the second is a name that may hold blanks and parentheses.
std::optional<std::int64_t> RankProcesses::parent_of(std::int64_t pid) const {
    const auto stat = read_file(proc_ / std::to_string(pid) / "stat", kStatBytes);
    if (!stat) {
        return std::nullopt;
    }
    const auto name_end = stat->rfind(')');
    if (name_end == std::string::npos || stat->size() < name_end + 4) {
        return std::nullopt;
    }
    const std::string rest = stat->substr(name_end + 4);  // ") S "
    return to_int(rest.substr(0, rest.find(' ')));
}

}  // namespace lockstep
