#include "job/agent/ranks/rank_state.hpp"

#include "job/base/files.hpp"

#include <filesystem>

namespace lockstep {

wire::RankState look_at_rank(std::int32_t rank, std::int64_t pid) {
    constexpr std::size_t kBytes = 4096;  // of a stat line; they are below 400
    wire::RankState out;
    out.rank = rank;
    out.pid = pid;
    out.state = "X";
    const std::filesystem::path folder = "/proc/" + std::to_string(pid);
    if (const auto stat = read_file(folder / "stat", kBytes)) {
        // "1234 (any name) S …": the name may hold anything, also parentheses.
        const auto end = stat->rfind(')');
        if (end != std::string::npos && end + 2 < stat->size()) {
            out.state = stat->substr(end + 2, 1);
        }
    }
    if (const auto wchan = read_file(folder / "wchan", kBytes); wchan && *wchan != "0") {
        out.wchan = *wchan;
    }
    return out;
}

}  // namespace lockstep
