// GPUs as the NVIDIA driver's files, the kernel's log and NVML tell of them.
#include "job/agent/gpu/gpu_health.hpp"
#include "job/agent/preflight/preflight_facts.hpp"
#include "job/base/limits.hpp"
#include "job/base/machine.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/gpu_error.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kRecords = 100'000;  // of the kernel's log; it holds far fewer
constexpr std::size_t kLines = 8;

// "6,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=…" (kernel: Documentation/ABI/testing/
// dev-kmsg), time in µs since the kernel started.
void take_record(std::string_view line, std::int64_t now, GpuFacts& out) {
    const auto at = line.find("NVRM: Xid (");
    const auto end = line.find("): ", at);
    if (at == std::string_view::npos || end == std::string_view::npos) {
        return;
    }
    const auto fields = split(line.substr(0, line.find(';')), ',');
    const auto micros = fields.size() < 3 ? std::nullopt : to_int(fields[2]);
    const bool recent = !micros || now - *micros / 1'000'000 <= limits::kRecentXidSeconds;
    const std::string_view rest = line.substr(end + 3);
    const auto number = to_int(rest.substr(0, rest.find(',')));
    if (!number || is_xid_of_program(*number)) {
        return;
    }
    const auto paren = at + std::string_view{"NVRM: Xid ("}.size();
    const std::string words = "XID " + std::to_string(*number) + " of " +
                              std::string{line.substr(paren, end - paren)} +
                              (recent ? " in the last hour" : " more than an hour ago");
    // That the GPU was reset since, without a restart of the machine, the log does not say: an
    // older one is only worth a look, and NVML tells what still is.
    const GpuError* error = find_gpu_error(*number);
    const bool fatal = error != nullptr && error->unusable;
    if (!fatal && !recent) {
        return;
    }
    auto& list = fatal && recent ? out.faults : out.doubts;
    if (list.size() < kLines && std::find(list.begin(), list.end(), words) == list.end()) {
        list.push_back(words);
    }
}

void read_xids(const std::filesystem::path& root, GpuFacts& out) {
    UniqueFd log{::open((root / "dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (!log) {
        out.unseen.push_back(std::string{"XIDs in the kernel's log: "} + std::strerror(errno));
        return;
    }
    timespec since{};
    ::clock_gettime(CLOCK_MONOTONIC, &since);
    std::array<char, 16U << 10U> bytes{};
    for (std::size_t i = 0; i < kRecords; ++i) {
        const ssize_t count = ::read(log.get(), bytes.data(), bytes.size());
        if (count < 0 && errno == EPIPE) {
            continue;  // it was written over while it was read
        }
        if (count <= 0) {
            break;
        }
        const std::string_view text{bytes.data(), static_cast<std::size_t>(count)};
        for (const std::string& line : split(text, '\n')) {
            take_record(line, since.tv_sec, out);
        }
    }
}

}  // namespace

GpuFacts read_gpus(const std::filesystem::path& root) {
    GpuFacts out;
    std::error_code ec;
    out.driver = std::filesystem::exists(root / "proc/driver/nvidia/version", ec);
    out.count = read_machine(root).gpus;
    if (out.driver) {
        read_xids(root, out);
    }
    return out;
}

std::string look_at_gpus(const GpuReader& reader, const std::filesystem::path& root) {
    const GpuFacts facts = reader(root);
    Json out = Json::object();
    out["driver"] = facts.driver;
    out["count"] = facts.count;
    out["faults"] = facts.faults;
    out["doubts"] = facts.doubts;
    out["unseen"] = facts.unseen;
    return dump_json(out);
}

void take_gpus(const std::string& answer, GpuFacts& out) {
    const auto json = parse_json(answer);
    if (!json) {
        return;
    }
    std::vector<FieldError> ignored;
    ObjectReader in{*json, "", ignored};
    in.boolean("driver", out.driver);
    in.integer("count", out.count, 0, INT32_MAX);
    in.strings("faults", out.faults, 64, 256);
    in.strings("doubts", out.doubts, 64, 256);
    in.strings("unseen", out.unseen, 64, 256);
}

std::string look_at_health(const std::filesystem::path& root,
                           const std::map<std::string, std::string>& environment) {
    Json out = Json::object();
    out["unseen"] = Json::array();
    const auto nvml = Nvml::open();
    if (!nvml) {
        out["unseen"].push_back("GPUs by NVML: " + nvml.error().message.substr(0, 200));
        return dump_json(out);
    }
    const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
    const GpuLook look =
        look_at_gpu_health(**nvml, visible == environment.end() ? nullptr : &visible->second, root);
    out["gpus"] = to_json(look.gpus);
    out["unseen"] = look.unseen;
    return dump_json(out);
}

void take_health(const std::string& answer, GpuFacts& out) {
    const auto json = parse_json(answer);
    if (!json) {
        return;
    }
    std::vector<FieldError> ignored;
    ObjectReader in{*json, "", ignored};
    if (const Json* list = in.raw("gpus"); list != nullptr) {
        if (auto gpus = parse_gpu_health(*list)) {
            out.health = std::move(*gpus);
        }
    }
    std::vector<std::string> unseen;
    in.strings("unseen", unseen, 64, 256);
    out.unseen.insert(out.unseen.end(), unseen.begin(), unseen.end());
}

}  // namespace lockstep
