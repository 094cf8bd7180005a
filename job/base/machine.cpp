#include "job/base/machine.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

namespace lockstep {
namespace {

constexpr std::size_t kFileBytes = 1U << 20U;
constexpr std::int64_t kMib = 1LL << 20U;

std::string text_of(const std::filesystem::path& path) {
    auto text = read_file(path, kFileBytes);
    return text ? std::move(*text) : std::string{};
}

// The number behind `name` in a file of "name value" or "name: value kB" lines.
std::optional<std::int64_t> value_of(const std::string& text, std::string_view name) {
    for (const auto& line : split(text, '\n')) {
        if (!std::string_view{line}.starts_with(name) || line.size() <= name.size()) {
            continue;
        }
        std::string_view rest = trim(std::string_view{line}.substr(name.size()));
        return to_int(rest.substr(0, rest.find(' ')));
    }
    return std::nullopt;
}

// This process's control group folders, nearest first: version 2's unified tree and version 1's
// memory tree (cgroups(7)).
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root) {
    std::vector<std::filesystem::path> folders;
    const std::filesystem::path base = root / "sys/fs/cgroup";
    for (const auto& line : split(text_of(root / "proc/self/cgroup"), '\n')) {
        const auto parts = split(line, ':');
        if (parts.size() < 3) {
            continue;
        }
        const bool unified = parts[0] == "0" && parts[1].empty();
        const auto controllers = split(parts[1], ',');
        const bool memory =
            std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
        if (!unified && !memory) {
            continue;
        }
        const std::filesystem::path tree = unified ? base : base / "memory";
        std::filesystem::path inside = std::filesystem::path{parts[2]}.relative_path();
        for (;; inside = inside.parent_path()) {
            folders.push_back(inside.empty() ? tree : tree / inside);
            if (inside.empty()) {
                break;
            }
        }
    }
    return folders;
}

std::int64_t memory_mib(const std::filesystem::path& root) {
    const auto total_kib = value_of(text_of(root / "proc/meminfo"), "MemTotal:");
    std::int64_t least = total_kib.value_or(0) / 1024;
    for (const auto& folder : cgroup_folders(root)) {
        for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
            // "max" is no number; version 1 says "no limit" with a huge one.
            const auto limit = to_int(trim(text_of(folder / name)));
            if (limit && *limit > 0 && (least == 0 || *limit / kMib < least)) {
                least = *limit / kMib;
            }
        }
    }
    return least;
}

std::int32_t gpu_count(const std::filesystem::path& root) {
    std::int32_t count = 0;
    std::error_code ec;
    for (auto entry = std::filesystem::directory_iterator(root / "dev", ec);
         !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec)) {
        const std::string name = entry->path().filename().string();
        constexpr std::string_view kPrefix = "nvidia";
        if (name.starts_with(kPrefix) && to_int(std::string_view{name}.substr(kPrefix.size()))) {
            ++count;
        }
    }
    return count;
}

std::int32_t core_count() {
    // The kernel wants room for every possible processor; 1024 is glibc's fixed size.
    for (int possible = 1024; possible <= 1 << 18; possible *= 4) {
        cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(possible));
        if (set == nullptr) {
            break;
        }
        const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(possible));
        const int result = ::sched_getaffinity(0, size, set);
        const int count = result == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
    }
    return std::max<std::int32_t>(1, static_cast<std::int32_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

std::int64_t free_memory_mib(const std::filesystem::path& root) {
    std::int64_t least =
        value_of(text_of(root / "proc/meminfo"), "MemAvailable:").value_or(0) / 1024;
    for (const auto& folder : cgroup_folders(root)) {
        for (const auto& [limit_name, used_name] :
             {std::pair{"memory.max", "memory.current"},
              {"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
            const auto limit = to_int(trim(text_of(folder / limit_name)));
            const auto used = to_int(trim(text_of(folder / used_name)));
            if (limit && used && *limit > 0) {
                least = std::min(least, std::max<std::int64_t>(*limit - *used, 0) / kMib);
            }
        }
    }
    return least;
}

Machine read_machine(const std::filesystem::path& root) {
    return Machine{core_count(), memory_mib(root), gpu_count(root)};
}

namespace {

// "GPU UUID: GPU-0a1b…" of /proc/driver/nvidia/gpus/<PCI address>/information, in the order of the
// addresses. A driver that has not looked at a GPU yet shows question marks: then none is named.
std::vector<std::string> gpu_uuids(const std::filesystem::path& root) {
    std::map<std::string, std::string> by_address;
    std::error_code ec;
    for (auto entry = std::filesystem::directory_iterator(root / "proc/driver/nvidia/gpus", ec);
         !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec)) {
        std::string uuid;
        for (const std::string& line : split(text_of(entry->path() / "information"), '\n')) {
            if (line.starts_with("GPU UUID:")) {
                uuid = trim(std::string_view{line}.substr(line.find(':') + 1));
            }
        }
        if (!uuid.starts_with("GPU-") || uuid.find('?') != std::string::npos) {
            return {};
        }
        by_address[entry->path().filename().string()] = uuid;
    }
    std::vector<std::string> out;
    out.reserve(by_address.size());
    for (auto& [address, uuid] : by_address) {
        out.push_back(std::move(uuid));
    }
    return out;
}

bool names_a_gpu(std::string_view name) {
    return name.starts_with("GPU-") || name.starts_with("MIG-") || to_int(name).value_or(-1) >= 0;
}

}  // namespace

std::vector<std::string> gpu_names(const char* visible, const std::filesystem::path& root) {
    std::vector<std::string> out;
    if (visible != nullptr) {
        for (const std::string& name : split(visible, ',')) {
            if (!names_a_gpu(trim(name))) {
                break;
            }
            out.emplace_back(trim(name));
        }
        return out;
    }
    out = gpu_uuids(root);
    const std::int32_t count = gpu_count(root);
    if (out.empty() || out.size() < static_cast<std::size_t>(count)) {
        out.clear();
        for (std::int32_t number = 0; number < count; ++number) {
            out.push_back(std::to_string(number));
        }
    }
    return out;
}

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
        return "localhost";
    }
    return name.data();
}

std::int64_t oom_kills(const std::filesystem::path& root) {
    for (const auto& folder : cgroup_folders(root)) {
        for (const char* name : {"memory.events", "memory.oom_control"}) {
            if (const auto count = value_of(text_of(folder / name), "oom_kill ")) {
                return *count;
            }
        }
    }
    return -1;
}

bool maps_all_users() {
    std::ifstream map{"/proc/self/uid_map"};
    std::uint64_t inside = 1;
    std::uint64_t outside = 1;
    std::uint64_t count = 0;
    map >> inside >> outside >> count;
    return inside == 0 && outside == 0 && count >= UINT32_MAX;
}

}  // namespace lockstep
