#include "daemon/telemetry/exposition/process_metrics.hpp"

#include "job/base/text.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep::telemetry {
namespace {

std::string read_all(const char* path) {
    std::ifstream in{path};
    return {std::istreambuf_iterator<char>{in}, {}};
}

// Seconds since the Unix epoch at which the machine was started: btime of /proc/stat.
std::optional<std::int64_t> boot_time() {
    std::ifstream in{"/proc/stat"};
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("btime ")) {
            return to_int(trim(std::string_view{line}.substr(6)));
        }
    }
    return std::nullopt;
}

// Fields of /proc/self/stat after the program's name, which may hold blanks; [0] is field 3 of
// proc(5).
std::vector<std::string> stat_fields() {
    const std::string text = read_all("/proc/self/stat");
    const auto name_end = text.rfind(") ");
    return name_end == std::string::npos ? std::vector<std::string>{}
                                         : split(trim(text.substr(name_end + 2)), ' ');
}

void read_stat(ProcessUse& use) {
    const auto fields = stat_fields();
    const long ticks = sysconf(_SC_CLK_TCK);
    const long page = sysconf(_SC_PAGESIZE);
    if (fields.size() < 22 || ticks <= 0 || page <= 0) {
        return;
    }
    const auto field = [&](std::size_t number) { return to_int(fields[number - 3]).value_or(0); };
    use.cpu_seconds = static_cast<double>(field(14) + field(15)) / static_cast<double>(ticks);
    use.threads = static_cast<std::uint64_t>(field(20));
    use.virtual_bytes = static_cast<std::uint64_t>(field(23));
    use.resident_bytes = static_cast<std::uint64_t>(field(24) * page);
    if (const auto boot = boot_time()) {
        use.start_time = static_cast<double>(*boot) +
                         static_cast<double>(field(22)) / static_cast<double>(ticks);
    }
}

// One is open for every agent: to look at each would take a scrape 2 ms.
std::optional<std::uint64_t> count_descriptors() {
    struct stat folder{};
    if (::stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0) {
        return static_cast<std::uint64_t>(folder.st_size);  // since Linux 6.2, see proc(5)
    }
    std::error_code ec;
    const std::filesystem::directory_iterator open{"/proc/self/fd", ec};
    if (ec) {
        return std::nullopt;
    }
    // One of them is the iterator's own.
    return static_cast<std::uint64_t>(std::distance(begin(open), end(open))) - 1;
}

}  // namespace

ProcessUse read_process_use() {
    ProcessUse use;
    read_stat(use);
    use.open_descriptors = count_descriptors();
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        use.max_descriptors = limit.rlim_cur;
    }
    return use;
}

void write_process_metrics(MetricText& text, const ProcessUse& use) {
    const auto write = [&text](std::string_view name, MetricType type, std::string_view help,
                               const auto& value) {
        if (value) {
            text.family(name, type, help);
            text.sample({}, *value);
        }
    };
    write("process_cpu_seconds", MetricType::counter, "User and system CPU time spent.",
          use.cpu_seconds);
    write("process_start_time_seconds", MetricType::gauge,
          "Start of the process, seconds since the Unix epoch.", use.start_time);
    write("process_resident_memory_bytes", MetricType::gauge, "Resident memory.",
          use.resident_bytes);
    write("process_virtual_memory_bytes", MetricType::gauge, "Virtual memory.", use.virtual_bytes);
    write("process_open_fds", MetricType::gauge, "Open file descriptors.", use.open_descriptors);
    write("process_max_fds", MetricType::gauge, "Most file descriptors that may be open.",
          use.max_descriptors);
    write("process_threads", MetricType::gauge, "Threads of the process.", use.threads);
}

}  // namespace lockstep::telemetry
