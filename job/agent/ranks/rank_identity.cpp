#include "job/agent/ranks/rank_identity.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

namespace lockstep {
namespace {

constexpr std::size_t kEnvironmentFileBytes = 4U << 20U;
constexpr std::size_t kProcFileBytes = 64U << 10U;

struct IdentityNames {
    const char* rank;
    const char* local_rank;
    const char* world_size;
};
constexpr std::array kIdentityNames{
    IdentityNames{"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    IdentityNames{"PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM"},
    IdentityNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    IdentityNames{"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE"},
    IdentityNames{"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
    IdentityNames{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"},
    IdentityNames{"HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"},
    IdentityNames{"JAX_PROCESS_ID", "JAX_LOCAL_PROCESS_ID", "JAX_NUM_PROCESSES"},
};

std::optional<std::string_view> value_in(std::string_view environment, std::string_view name) {
    for (std::size_t at = 0; at < environment.size();) {
        const auto end = std::min(environment.find('\0', at), environment.size());
        const std::string_view entry = environment.substr(at, end - at);
        if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
            return entry.substr(name.size() + 1);
        }
        at = end + 1;
    }
    return std::nullopt;
}

std::int32_t small_number(std::optional<std::string_view> text) {
    const auto value = text ? to_int(*text) : std::nullopt;
    return value && *value >= 0 && *value <= std::numeric_limits<std::int32_t>::max()
               ? static_cast<std::int32_t>(*value)
               : -1;
}

// "[default0]:" The role's name is the user's; that of torch's own tracebacks is the rank's.
std::optional<MarkedLine> torchrun_line(std::string_view line, std::size_t close) {
    std::string_view name = line.substr(1, close - 1);
    const auto digits = name.find_last_not_of("0123456789");
    if (digits == std::string_view::npos || digits + 1 == name.size()) {
        return std::nullopt;
    }
    const std::int32_t number = small_number(name.substr(digits + 1));
    name = name.substr(0, digits + 1);
    const bool letters = std::any_of(name.begin(), name.end(), [](unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    const bool word = letters && std::all_of(name.begin(), name.end(), [](unsigned char c) {
                          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                 (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
                      });
    if (!word || number < 0) {
        return std::nullopt;
    }
    MarkedLine out;
    (name == "rank" ? out.identity.rank : out.identity.local_rank) = number;
    out.text = line.substr(close + 2);
    return out;
}

// "[1,3]<stdout>:" and "[3]<stderr>:"
std::optional<MarkedLine> mpirun_line(std::string_view line, std::size_t close) {
    const auto colon = line.find(">:", close);
    const std::string_view stream =
        colon == std::string_view::npos ? "" : line.substr(close + 2, colon - close - 2);
    if (stream != "stdout" && stream != "stderr") {
        return std::nullopt;
    }
    const std::string_view inside = line.substr(1, close - 1);
    const auto comma = inside.rfind(',');
    MarkedLine out;
    out.identity.rank =
        small_number(comma == std::string_view::npos ? inside : inside.substr(comma + 1));
    out.text = line.substr(colon + 2);
    return out.identity.known() ? std::optional{out} : std::nullopt;
}

// What <linux/pidfd.h> has since 6.13, with the exit code since 6.15; Debian 12's has not.
struct PidfdInfo {
    std::uint64_t mask = 0;
    std::uint64_t cgroup = 0;
    std::array<std::uint32_t, 11> ids{};
    std::int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kPidfdInfoExit = 1U << 3U;

ProcessEnd end_of_status(std::int64_t status) {
    ProcessEnd out;
    out.signal = static_cast<std::int32_t>(status & 0x7f);
    out.exit_code = out.signal == 0 ? static_cast<std::int32_t>((status >> 8) & 0xff) : -1;
    return out;
}

// The fields of stat from the third on: the second is a name that may hold anything.
std::vector<std::string> stat_of(std::int64_t pid) {
    const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", kProcFileBytes);
    const auto name_end = stat ? stat->rfind(')') : std::string::npos;
    if (name_end == std::string::npos || name_end + 2 > stat->size()) {
        return {};
    }
    return split(trim(std::string_view{*stat}.substr(name_end + 2)), ' ');
}

}  // namespace

RankIdentity identity_in_environment(std::string_view environment) {
    RankIdentity out;
    for (const IdentityNames& names : kIdentityNames) {
        out.rank = small_number(value_in(environment, names.rank));
        if (out.rank >= 0) {
            out.local_rank = small_number(value_in(environment, names.local_rank));
            out.world_size = small_number(value_in(environment, names.world_size));
            break;
        }
    }
    return out;
}

RankIdentity identity_of_process(std::int64_t pid) {
    const auto environment =
        read_file("/proc/" + std::to_string(pid) + "/environ", kEnvironmentFileBytes);
    return environment ? identity_in_environment(*environment) : RankIdentity{};
}

std::optional<std::int32_t> local_rank_of(const RankIdentity& identity, std::int32_t first,
                                          std::int32_t count) {
    if (identity.rank >= first && identity.rank < first + count) {
        return identity.rank - first;
    }
    if (identity.local_rank >= 0 && identity.local_rank < count) {
        return identity.local_rank;
    }
    return std::nullopt;
}

std::optional<MarkedLine> marked_line(std::string_view line) {
    constexpr std::size_t kMark = 64;
    if (line.empty() || line.front() != '[') {
        return std::nullopt;
    }
    const auto close = line.substr(0, kMark).find(']');
    if (close == std::string_view::npos || close + 1 >= line.size()) {
        return std::nullopt;
    }
    return line[close + 1] == ':'   ? torchrun_line(line, close)
           : line[close + 1] == '<' ? mpirun_line(line, close)
                                    : std::nullopt;
}

std::vector<std::int64_t> children_of(std::int64_t pid) {
    std::vector<std::int64_t> out;
    std::error_code ec;
    const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/task";
    for (auto task = std::filesystem::directory_iterator(folder, ec);
         !ec && task != std::filesystem::directory_iterator(); task.increment(ec)) {
        if (const auto list = read_file(task->path() / "children", kProcFileBytes)) {
            for (const std::string& word : split(*list, ' ')) {
                if (const auto number = to_int(word)) {
                    out.push_back(*number);
                }
            }
        }
    }
    return out;
}

std::int64_t parent_of(std::int64_t pid) {
    const auto fields = stat_of(pid);
    return fields.size() > 1 ? to_int(fields[1]).value_or(0) : 0;
}

std::optional<ProcessEnd> end_of_process(std::int64_t pid, int pidfd) {
    constexpr std::size_t kExitCode = 49;  // proc(5)'s field 52
    const auto fields = stat_of(pid);
    if (fields.size() > kExitCode && fields.front() == "Z") {
        if (const auto status = to_int(fields[kExitCode])) {
            return end_of_status(*status);
        }
    }
    PidfdInfo info;
    info.mask = kPidfdInfoExit;
    if (::ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), &info) == 0 &&
        (info.mask & kPidfdInfoExit) != 0) {
        return end_of_status(info.exit_code);
    }
    return std::nullopt;
}

}  // namespace lockstep
