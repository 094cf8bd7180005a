#include "job/agent/diagnostics/rank_hooks.hpp"

#include "job/base/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {
namespace {

constexpr std::size_t kDescriptors = 4096;  // of a process, looked through

}  // namespace

HooksFile hooks_file(pid_t pid, std::string_view prefix) {
    std::error_code ec;
    const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/fd";
    std::size_t seen = 0;
    for (std::filesystem::directory_iterator at{folder, ec}, end;
         !ec && at != end && ++seen <= kDescriptors; at.increment(ec)) {
        std::array<char, PATH_MAX> target{};
        const auto size = ::readlink(at->path().c_str(), target.data(), target.size() - 1);
        if (size <= 0) {
            continue;
        }
        const std::string name = std::filesystem::path{target.data()}.filename().string();
        if (!name.starts_with(prefix)) {
            continue;
        }
        if (const auto number =
                to_int(name.substr(prefix.size(), name.find(' ') - prefix.size()))) {
            return {UniqueFd{::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)},
                    *number};
        }
    }
    return {};
}

}  // namespace lockstep
