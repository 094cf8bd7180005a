#include "job/agent/preflight/gpu_tester.hpp"

#include "job/agent/preflight/helper_end.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// For what hangs in a driver after its kill; the daemon's patience has room for it.
constexpr std::chrono::milliseconds kGiveUp{500};
constexpr std::size_t kErrorWords = 120;  // of an error, which is one line of a table
constexpr HelperLimits kGpuHelper{limits::kGpuTestTimeout, kErrorWords};
constexpr int kUnusable = 77;  // its exit status where it can use no GPU
// Of cudaError_t: a driver that is older than the test, with which other programs may run.
constexpr std::int32_t kDriverTooOld = 35;

// "GPU 2, GPU 5"
std::string silent_gpus(const GpuTestAnswer& answer) {
    std::string out;
    for (std::int32_t gpu = 0; gpu < answer.gpus; ++gpu) {
        const bool told = std::any_of(answer.tested.begin(), answer.tested.end(),
                                      [&](const GpuTestFact& one) { return one.gpu == gpu; });
        if (!told && out.size() < kErrorWords) {
            out += (out.empty() ? "GPU " : ", GPU ") + std::to_string(gpu);
        }
    }
    return out;
}

}  // namespace

ProcessCommand gpu_test_command(const std::string& program, std::vector<std::string> environment) {
    ProcessCommand out;
    out.argv = {program};
    out.environment = std::move(environment);
    out.timeout = limits::kGpuTestTimeout;
    out.give_up = kGiveUp;
    out.output_bytes = limits::kGpuTestBytes;
    return out;
}

GpuTestFacts gpu_test_facts(const Result<ProcessResult>& result) {
    GpuTestFacts out;
    out.ran = true;
    if (!result) {
        out.absent = result.error().code == Errc::not_found;
        out.problem = helper_unstarted(result.error(), kGpuHelper);
        return out;
    }
    auto answer = parse_gpu_test_answer(result->out);
    if (!answer) {
        out.problem = "its answer is not understood: " +
                      printable(answer.error().message.substr(0, kErrorWords));
        return out;
    }
    const bool whole = answer->gpus > 0 && silent_gpus(*answer).empty();
    const bool ended = !result->timed_out && !result->overflowed && !result->signal;
    if (ended && result->exit_status == kUnusable && !answer->error.empty()) {
        out.problem = answer->error.substr(0, kErrorWords);
        out.skipped = answer->code == kDriverTooOld;
    } else if (!answer->error.empty()) {
        out.problem = answer->error.substr(0, kErrorWords);
    } else if (!whole || !ended || result->exit_status.value_or(2) > 1) {
        out.problem = helper_end(*result, "", kGpuHelper);
        if (const std::string missing = silent_gpus(*answer); !missing.empty()) {
            out.problem += "; without a result: " + missing;
        }
    }
    // What is longer would be refused with all other facts of the node (limits::kTextBytes).
    out.problem = printable(out.problem.substr(0, limits::kGpuProblemBytes));
    out.gpus = std::move(answer->tested);
    return out;
}

}  // namespace lockstep
