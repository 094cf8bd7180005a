// What is made of the test of GPUs (preflight.gpu_test).
#include "job/model/preflight/preflight_devices.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kGpuTest = "gpu_test";

// What is compared between GPUs of one model: a GPU fails, or is warned of, below `least` percent
// of their median.
struct Rate {
    std::int64_t GpuTestFact::* value;
    const char* does;
    const char* unit;
    double per_unit;
    std::int64_t least;
    bool fails;
};
constexpr std::array<Rate, 4> kRates{{
    // Heat, limits of power and the chip itself make a third between good GPUs of one model; a GPU
    // that its hardware slows down, or that somebody else uses, does half or less.
    {&GpuTestFact::gemm_gflops, "multiplies matrices at", "TFLOP/s", 1000, 50, true},
    // Neither heat nor power moves it much: half is a part of the memory that is gone.
    {&GpuTestFact::memory_mbs, "writes and reads its memory at", "GB/s", 1000, 50, true},
    // A link of half the lanes, or one generation below, gives half: more than that is asked for,
    // and less than two GPUs get that lie behind one switch.
    {&GpuTestFact::copy_mbs, "is copied to from host memory at", "GB/s", 1000, 60, true},
    // It comes and goes with heat; what it costs is in the first line.
    {&GpuTestFact::clock_mhz, "has a clock under load of", "MHz", 1, 75, false},
}};

// "GPU 3 (GPU-5d2c…)"
std::string name_of(const GpuTestFact& gpu) {
    return "GPU " + std::to_string(gpu.gpu) + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")");
}

// Three digits that count: "0.52", "312".
std::string amount(std::int64_t value, const Rate& rate) {
    std::array<char, 32> out{};
    const double shown = static_cast<double>(value) / rate.per_unit;
    std::snprintf(out.data(), out.size(),
                  shown < 10    ? "%.2f"
                  : shown < 100 ? "%.1f"
                                : "%.0f",
                  shown);
    return std::string{out.data()} + " " + rate.unit;
}

bool measured(const GpuTestFact& gpu, const Rate& rate) {
    return gpu.error.empty() && gpu.*rate.value >= 0;
}

void compare_rate(const std::vector<PreflightNode>& nodes, const Rate& rate,
                  std::vector<PreflightFinding>& out) {
    std::map<std::string, std::vector<std::int64_t>> values;  // by model
    for (const PreflightNode& node : nodes) {
        for (const GpuTestFact& gpu : node.facts.gpu_test.gpus) {
            if (measured(gpu, rate)) {
                values[gpu.model].push_back(gpu.*rate.value);
            }
        }
    }
    for (auto& [model, all] : values) {
        // Of two the faster one: the upper median.
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        std::nth_element(all.begin(), middle, all.end());
        std::swap(all.front(), *middle);
    }
    for (const PreflightNode& node : nodes) {
        for (const GpuTestFact& gpu : node.facts.gpu_test.gpus) {
            if (!measured(gpu, rate)) {
                continue;
            }
            const auto& all = values.at(gpu.model);
            const std::int64_t median = all.front();
            const std::int64_t value = gpu.*rate.value;
            if (value * 100 < median * rate.least) {
                out.push_back({node.slot, node.node, std::string{kGpuTest},
                               name_of(gpu) + " " + rate.does + " " + amount(value, rate),
                               "at least " + std::to_string(rate.least) + " % of the median of " +
                                   std::to_string(all.size()) + " " + gpu.model + " here, " +
                                   amount(median, rate),
                               rate.fails});
            }
        }
    }
}

}  // namespace

void check_gpu_test(const PreflightNode& node, const JobSpec& spec,
                    std::vector<PreflightFinding>& out) {
    const GpuTestFacts& test = node.facts.gpu_test;
    const std::int32_t want = spec.resources.gpus_per_node;
    const auto add = [&](std::string found, std::string expected, bool fails) {
        out.push_back({node.slot, node.node, std::string{kGpuTest}, std::move(found),
                       std::move(expected), fails});
    };
    if (!spec.preflight.gpu_test || want == 0) {
        return;
    }
    if (!test.ran) {
        add("its agent does not know the test of GPUs", "an agent of this version", false);
        return;
    }
    if (test.absent) {
        add("lockstep-gpu-test is not installed: its GPUs were not tested",
            "the program that preflight.gpu_test runs", false);
        return;
    }
    if (!test.problem.empty()) {
        // Without a driver they may be of another maker; that there is none is told by `gpu`.
        const bool fails = !test.skipped && node.facts.gpu.driver;
        add((test.skipped ? "its GPUs were not tested: " : "the test of its GPUs: ") + test.problem,
            test.skipped ? "a driver that the test can use" : "a result for every GPU", fails);
    }
    bool divided = false;
    for (const GpuTestFact& gpu : test.gpus) {
        divided = divided || gpu.model.find(" MIG ") != std::string::npos;
        if (!gpu.error.empty()) {
            add(name_of(gpu) + " could not be tested: " + gpu.error, "a GPU that can be used",
                true);
            continue;
        }
        if (gpu.gemm_wrong > 0) {
            add(name_of(gpu) + " has computed " + std::to_string(gpu.gemm_wrong) +
                    " wrong values of a product of matrices",
                "none: every value is exact", true);
        }
        if (gpu.memory_wrong > 0) {
            add(name_of(gpu) + " has read " + std::to_string(gpu.memory_wrong) +
                    " wrong values from its memory",
                "what was written", true);
        }
    }
    // Of the parts of a divided GPU a process sees one alone.
    if (test.problem.empty() && !divided && test.gpus.size() < static_cast<std::size_t>(want)) {
        add("CUDA sees " + std::to_string(test.gpus.size()) +
                (test.gpus.size() == 1 ? " GPU" : " GPUs"),
            std::to_string(want) + ", as resources.gpus_per_node asks", true);
    }
}

void compare_gpu_tests(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                       std::vector<PreflightFinding>& out) {
    if (!spec.preflight.gpu_test) {
        return;
    }
    for (const Rate& rate : kRates) {
        compare_rate(nodes, rate, out);
    }
}

}  // namespace lockstep
