#include "job/base/digest.hpp"
#include "job/base/limits.hpp"
#include "job/model/launch/framework_env.hpp"
#include "job/model/spec/framework.hpp"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string_view>

namespace lockstep {
namespace {

// torch's own number in newer versions; older ones have no recorder without one.
constexpr const char* kTraceEntries = "2000";
// All blocks of a collective must be on the GPU at once, or its ranks wait for each other for ever:
// NCCL promises room for those of two ranks (its guide, NCCL_MULTI_RANK_GPU_ENABLE). More share
// what a small GPU has room for.
constexpr std::int32_t kRanksWithRoom = 2;
constexpr std::int32_t kBlocksOfAGpu = 16;

// By the first of its names that torch knows it by; the oldest is known to all of its versions.
void set_unless(std::map<std::string, std::string>& out, std::initializer_list<const char*> names,
                std::string value) {
    const bool set = std::any_of(names.begin(), names.end(),
                                 [&](const char* name) { return out.count(name) != 0; });
    if (!set) {
        out[*names.begin()] = std::move(value);
    }
}

std::string folder_of_socket(const RankPlace& place) {
    return place.socket_path.substr(0, place.socket_path.rfind('/') + 1);
}

}  // namespace

void add_evidence_defaults(std::map<std::string, std::string>& out, const JobSpec& spec,
                           const RankPlace& place) {
    if (spec.resources.gpus_per_node == 0) {
        return;  // NCCL is of GPUs
    }
    if (place.ras_port != 0) {
        set_unless(out, {"NCCL_RAS_ADDR"}, "127.0.0.1:" + std::to_string(place.ras_port));
    }
    // Sockets of another job, or of a generation before, that meet ours are refused (NCCL's guide,
    // "NCCL_SOCKET_MAGIC": a number of 64 bits, the same in every process of the job).
    const std::string generation =
        place.job_id + "/" + std::to_string(place.attempt) + "/" + std::to_string(place.generation);
    set_unless(out, {"NCCL_SOCKET_MAGIC"}, "0x" + sha256_hex(generation).substr(0, 16));
    if (spec.resources.ranks_per_gpu > 1) {
        // NCCL's guide: 2.30 and later; without it "Multiple Ranks are using the same GPU".
        set_unless(out, {"NCCL_MULTI_RANK_GPU_ENABLE"}, "1");
    }
    if (spec.resources.ranks_per_gpu > kRanksWithRoom) {
        set_unless(out, {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"},
                   std::to_string(std::max(kBlocksOfAGpu / spec.resources.ranks_per_gpu, 1)));
    }
    if (!traits_of(spec.framework).may_run_torch) {
        return;
    }
    set_unless(out, {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"}, kTraceEntries);
    set_unless(out, {"TORCH_NCCL_DUMP_ON_TIMEOUT"}, "1");
    // torch appends the rank. Not its defaults: /tmp/nccl_trace_rank_ is every job's on the
    // machine, ~/.cache every node's. What it writes at its own timeout stays when the job is over.
    set_unless(out, {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"},
               "/tmp/" + place.job_id + "-nccl_trace_rank_");
    // It makes the pipe itself and fails where it cannot: so beside the rank's socket, in a folder
    // that is there wherever the rank is, a container included.
    set_unless(out, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE"},
               folder_of_socket(place) + "flight-");
}

void add_nccl_inspector(std::map<std::string, std::string>& out, const RankPlace& place) {
    const bool used = std::any_of(out.begin(), out.end(), [](const auto& one) {
        const std::string_view name = one.first;
        return name == "NCCL_PROFILER_PLUGIN" || name.starts_with("NCCL_INSPECTOR_") ||
               name.starts_with("OTEL_EXPORTER_OTLP_");
    });
    if (place.inspector.plugin.empty() || used) {
        return;
    }
    const std::chrono::microseconds interval = limits::kInspectorPost;
    out["NCCL_PROFILER_PLUGIN"] = place.inspector.plugin;
    out["NCCL_INSPECTOR_ENABLE"] = "1";
    out["NCCL_INSPECTOR_OTEL_EXPORT"] = "1";
    out["NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"] = std::to_string(interval.count());
    // It writes nothing there, but makes a folder in the working directory if none is named, and
    // posts nothing if it cannot.
    out["NCCL_INSPECTOR_DUMP_DIR"] = folder_of_socket(place);
    out["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] = place.inspector.endpoint;
    out["OTEL_EXPORTER_OTLP_METRICS_HEADERS"] = "Authorization=Bearer " + place.inspector.token;
}

}  // namespace lockstep
