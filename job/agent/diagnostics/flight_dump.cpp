#include "job/agent/diagnostics/flight_dump.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
// A file's time is the kernel's, which may be a tick behind.
constexpr auto kTick = std::chrono::milliseconds{20};

std::string value_of(const ProcessLook& process, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const auto found = process.environment.find(name);
        if (found != process.environment.end() && !found->second.empty()) {
            return found->second;
        }
    }
    return "";
}

// As this process finds it.
fs::path path_in(const ProcessLook& process, const std::string& name) {
    const std::string whole = name.front() == '/' ? name : process.folder + "/" + name;
    return process.root + whole;
}

}  // namespace

std::optional<FlightRecorder> flight_recorder(const std::vector<ProcessLook>& tree,
                                              std::int32_t rank) {
    const ProcessLook* found = nullptr;
    for (const ProcessLook& process : tree) {
        const auto buffer =
            to_int(value_of(process, {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}));
        const bool on = buffer && *buffer > 0;
        // A launcher's ranks know their number, it does not.
        const bool better = found == nullptr || (value_of(*found, {"RANK"}).empty() &&
                                                 !value_of(process, {"RANK"}).empty());
        found = on && better ? &process : found;
    }
    if (found == nullptr) {
        return std::nullopt;
    }
    const std::string own = value_of(*found, {"RANK"});
    const std::string number = to_int(own) ? own : std::to_string(rank);
    FlightRecorder out;
    const std::string pipe =
        value_of(*found, {"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"});
    if (!pipe.empty()) {
        out.pipe = path_in(*found, pipe + number + ".pipe");
    }
    const std::string dump =
        value_of(*found, {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"});
    if (!dump.empty()) {
        out.dumps.push_back(path_in(*found, dump + number));
        return out;
    }
    out.dumps.push_back(path_in(*found, "/tmp/nccl_trace_rank_" + number));
    const std::string cache = value_of(*found, {"XDG_CACHE_HOME"});
    const std::string home = value_of(*found, {"HOME"});
    if (!cache.empty() || !home.empty()) {
        out.dumps.push_back(path_in(*found, (cache.empty() ? home + "/.cache" : cache) +
                                                "/torch/comm_lib_trace_rank_" + number));
    }
    return out;
}

Status ask_for_dump(FlightRecorder& recorder) {
    recorder.asked = fs::file_time_type::clock::now() - kTick;
    if (recorder.pipe.empty()) {
        return fail(Errc::unavailable,
                    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE is not set: torch writes "
                    "no dump before its own time is over");
    }
    const UniqueFd pipe{::open(recorder.pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)};
    if (!pipe) {
        return fail(Errc::unavailable, errno == ENXIO
                                           ? "nobody reads " + recorder.pipe.string()
                                           : errno_error(recorder.pipe.string(), errno).message);
    }
    constexpr std::string_view kWord = "1\n";
    if (::write(pipe.get(), kWord.data(), kWord.size()) < 0) {
        return fail(Errc::unavailable, errno_error(recorder.pipe.string(), errno).message);
    }
    return {};
}

Result<std::optional<std::string>> read_dump(FlightRecorder& recorder) {
    for (const fs::path& path : recorder.dumps) {
        std::error_code ec;
        const auto time = fs::last_write_time(path, ec);
        if (ec || time < recorder.asked) {
            continue;
        }
        const std::uintmax_t size = fs::file_size(path, ec);
        if (ec || size == 0 || size != recorder.size) {
            recorder.size = ec ? 0 : size;
            continue;
        }
        auto bytes = read_file(path, limits::kFlightDumpBytes);
        LOCKSTEP_TRY(bytes);
        return std::optional{std::move(*bytes)};
    }
    return std::optional<std::string>{};
}

}  // namespace lockstep
