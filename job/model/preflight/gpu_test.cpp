// The facts of the test of GPUs: as they travel, and as the program says them.
#include "job/model/preflight/gpu_test.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/json_lines.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr std::int64_t kMostRate = 1'000'000'000'000;  // far above what any GPU does
constexpr std::int64_t kMega = 1'000'000;
constexpr std::int64_t kGiga = 1'000'000'000;

Json fact_json(const GpuTestFact& gpu) {
    Json out = Json::object();
    out["gpu"] = gpu.gpu;
    out["uuid"] = gpu.uuid;
    out["model"] = gpu.model;
    out["error"] = gpu.error;
    out["gemm_wrong"] = gpu.gemm_wrong;
    out["memory_wrong"] = gpu.memory_wrong;
    out["gemm_gflops"] = gpu.gemm_gflops;
    out["memory_mbs"] = gpu.memory_mbs;
    out["copy_mbs"] = gpu.copy_mbs;
    out["clock_mhz"] = gpu.clock_mhz;
    return out;
}

void clean(GpuTestFact& gpu) {
    for (std::string* text : {&gpu.uuid, &gpu.model, &gpu.error}) {
        *text = printable(*text);
    }
}

GpuTestFact read_fact(const Json& json, std::vector<FieldError>& errors) {
    ObjectReader in{json, "/gpu_test/gpus", errors};
    GpuTestFact out;
    in.integer("gpu", out.gpu, 0, INT32_MAX);
    in.string("uuid", out.uuid, limits::kTextBytes);
    in.string("model", out.model, limits::kTextBytes);
    in.string("error", out.error, limits::kTextBytes);
    in.integer("gemm_wrong", out.gemm_wrong, 0, INT64_MAX);
    in.integer("memory_wrong", out.memory_wrong, 0, INT64_MAX);
    in.integer("gemm_gflops", out.gemm_gflops, -1, kMostRate);
    in.integer("memory_mbs", out.memory_mbs, -1, kMostRate);
    in.integer("copy_mbs", out.copy_mbs, -1, kMostRate);
    in.integer("clock_mhz", out.clock_mhz, -1, kMostRate);
    clean(out);
    return out;
}

// A rate of zero would be a GPU that never ends, so the program does not say it.
void read_rate(ObjectReader& in, std::string_view key, std::int64_t unit, std::int64_t& out) {
    double value = 0;
    in.number(key, value, 1, static_cast<double>(kMostRate) * kMega);
    if (value < 1) {
        in.error(key, "is missing");
        return;
    }
    out = static_cast<std::int64_t>(std::llround(value / static_cast<double>(unit)));
}

void read_line(const Json& line, GpuTestAnswer& out, std::vector<FieldError>& errors) {
    ObjectReader in{line, "", errors};
    if (in.has("gpus")) {
        in.integer("gpus", out.gpus, 1, limits::kGpusPerNode);
        return;
    }
    if (!in.has("gpu")) {
        in.string("error", out.error, limits::kTextBytes);
        in.integer("code", out.code, 0, INT32_MAX);
        if (out.error.empty()) {
            in.error("error", "is missing");
        }
        out.error = printable(out.error);
        return;
    }
    GpuTestFact gpu;
    in.integer("gpu", gpu.gpu, 0, INT32_MAX);
    in.string("uuid", gpu.uuid, limits::kTextBytes);
    in.string("name", gpu.model, limits::kTextBytes);
    in.string("error", gpu.error, limits::kTextBytes);
    if (gpu.error.empty()) {
        gpu.gemm_wrong = gpu.memory_wrong = -1;
        in.integer("gemm_wrong", gpu.gemm_wrong, 0, INT64_MAX);
        in.integer("memory_wrong", gpu.memory_wrong, 0, INT64_MAX);
        if (gpu.gemm_wrong < 0 || gpu.memory_wrong < 0) {
            in.error("gemm_wrong", "or memory_wrong is missing");
        }
        read_rate(in, "gemm_flops", kGiga, gpu.gemm_gflops);
        read_rate(in, "memory_bytes_per_second", kMega, gpu.memory_mbs);
        read_rate(in, "copy_bytes_per_second", kMega, gpu.copy_mbs);
        // 0: it could not be measured, which is no fault of the GPU's.
        double clock = 0;
        in.number("clock_hz", clock, 0, static_cast<double>(kMostRate) * kMega);
        if (clock > 0) {
            gpu.clock_mhz = std::llround(clock / static_cast<double>(kMega));
        }
    }
    clean(gpu);
    if (std::any_of(out.tested.begin(), out.tested.end(),
                    [&](const GpuTestFact& one) { return one.gpu == gpu.gpu; })) {
        in.error("gpu", "was told twice");
    }
    out.tested.push_back(std::move(gpu));
}

}  // namespace

Json to_json(const GpuTestFacts& facts) {
    Json out = Json::object();
    out["ran"] = facts.ran;
    out["absent"] = facts.absent;
    out["skipped"] = facts.skipped;
    out["problem"] = facts.problem;
    out["gpus"] = Json::array();
    for (const GpuTestFact& gpu : facts.gpus) {
        out["gpus"].push_back(fact_json(gpu));
    }
    return out;
}

GpuTestFacts read_gpu_test(const Json& json, std::vector<FieldError>& errors) {
    GpuTestFacts out;
    ObjectReader in{json, "/gpu_test", errors};
    in.boolean("ran", out.ran);
    in.boolean("absent", out.absent);
    in.boolean("skipped", out.skipped);
    in.string("problem", out.problem, limits::kTextBytes);
    out.problem = printable(out.problem);
    const Json* gpus = in.raw("gpus");
    if (gpus == nullptr) {
        return out;
    }
    if (!gpus->is_array() || gpus->size() > static_cast<std::size_t>(limits::kGpusPerNode)) {
        in.error("gpus", "must be an array of at most " + std::to_string(limits::kGpusPerNode));
        return out;
    }
    for (const Json& gpu : *gpus) {
        out.gpus.push_back(read_fact(gpu, errors));
    }
    return out;
}

Result<GpuTestAnswer> parse_gpu_test_answer(std::string_view lines) {
    GpuTestAnswer out;
    if (lines.size() > limits::kGpuTestBytes) {
        return fail(Errc::invalid, "it says too much");
    }
    LOCKSTEP_TRY(each_json_line(lines, [&out](const Json& line, std::vector<FieldError>& errors) {
        read_line(line, out, errors);
        if (errors.empty() && out.tested.size() > static_cast<std::size_t>(std::max(out.gpus, 0))) {
            errors.push_back({"", "more GPUs than it began with"});
        }
    }));
    return out;
}

}  // namespace lockstep
