#include "job/trainer/batch_search.hpp"

#include "job/base/machine.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/loader.hpp"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kTriedShare =
    8;  // of the memory, what batches are tried out in: one in so many

// Signed in LibTorch 1, unsigned in 2.
#if TORCH_VERSION_MAJOR >= 2
using AllBytes = std::size_t;
#else
using AllBytes = std::int64_t;
#endif

// What LibTorch's allocator hands out and takes back on this thread while it is looked at.
class PeakMemory final : public c10::MemoryReportingInfoBase {
  public:
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    void reportMemoryUsage(void* /*address*/, std::int64_t bytes, AllBytes /*all*/,
                           AllBytes /*reserved*/, c10::Device /*device*/) override {
        const std::int64_t now = now_.fetch_add(bytes) + bytes;
        std::int64_t peak = peak_.load();
        while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
        }
    }
    // NOLINTNEXTLINE(readability-identifier-naming)
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t peak() const { return peak_.load(); }

  private:
    std::atomic<std::int64_t> now_{0};
    std::atomic<std::int64_t> peak_{0};
};

std::int64_t loader_bytes(const TrainConfig& config, const SampleSet& data, std::int64_t samples) {
    const auto bytes = [](const Column& column) {
        return static_cast<std::int64_t>(
            column.elements() * (has_floats(column.type) ? sizeof(float) : sizeof(std::int64_t)));
    };
    return Loader::slots(config.loader_workers) * samples *
           (bytes(data.input) + bytes(data.target));
}

}  // namespace

Result<std::int64_t> largest_batch(const BatchLimits& limits, const BatchAttempt& attempt) {
    const std::int64_t first = attempt(limits.start);
    if (first > limits.bytes) {
        return fail(Errc::exhausted, "a step of " + std::to_string(limits.start) +
                                         " samples takes " + std::to_string(first / kMiB) +
                                         " MiB, and a rank may have " +
                                         std::to_string(limits.bytes / kMiB) + " MiB");
    }
    if (2 * limits.start > limits.most) {
        return limits.start;
    }
    std::int64_t tried = limits.start;
    std::int64_t before = 0;
    std::int64_t last = first;
    if (2 * first <= limits.bytes) {  // then twice the samples fit too
        before = std::exchange(last, attempt(2 * tried));
        tried *= 2;
    } else if (tried > 1) {
        before = attempt(tried / 2);
    }
    while (2 * tried <= limits.most && 3 * last - 2 * before <= limits.bytes / kTriedShare) {
        before = std::exchange(last, attempt(2 * tried));
        tried *= 2;
    }
    const std::int64_t more = std::max<std::int64_t>(2 * (last - before), 1);  // for `tried`
    std::int64_t found = tried;
    while (2 * found <= limits.most && last + (2 * found / tried - 1) * more <= limits.bytes) {
        found *= 2;
    }
    return found;
}

std::int64_t memory_share(std::int32_t ranks_of_node, const std::filesystem::path& root) {
    return free_memory_mib(root) * kMiB / 5 * 4 / std::max(ranks_of_node, 1);
}

BatchAttempt batch_attempt(const TrainConfig& config, BatchTrial trial, const SampleSet& data,
                           at::Device device) {
    const auto seed = static_cast<std::uint64_t>(config.seed);
    const std::size_t first = trial.first;
    std::shared_ptr<Model> before;
    if (first > 0) {
        before = std::make_shared<Model>(trial.network, seed, 0, first);
    }
    const bool last = trial.count >= trial.network.size() - first;
    auto model =
        std::make_shared<Model>(std::move(trial.network), seed, first, trial.count, device);
    return [config, before, model, last, device, &data](std::int64_t samples) {
        Loader loader{data, samples, 0};
        std::vector<std::uint32_t> indices(static_cast<std::size_t>(samples));
        for (std::size_t i = 0; i < indices.size(); ++i) {
            indices[i] = static_cast<std::uint32_t>(i % data.count);
        }
        loader.begin(std::move(indices));
        const Batch batch = loader.next();
        if (batch.size == 0) {
            throw UnreadableSample{loader.ended()};
        }
        Pass pass;
        pass.training = true;
        pass.batch_statistics = config.norm_mode == NormMode::train;
        pass.bfloat16 = config.precision == TrainPrecision::bf16;
        pass.half = config.precision == TrainPrecision::fp16;
        at::Tensor x = tensor_of(batch.input, batch.size);
        const at::Tensor target = to_device(tensor_of(batch.target, batch.size), device);
        if (before) {
            const at::NoGradGuard no_gradients;
            x = before->forward(x, pass);
        }
        x = to_device(x, device);
        if (before) {
            x.requires_grad_(true);
        }
        const auto peak = std::make_shared<PeakMemory>();
        {
            const c10::DebugInfoGuard watched{c10::DebugInfoKind::PROFILER_STATE, peak};
            const at::Tensor y = model->forward(x, pass);
            // A stage that is not the last has a gradient as large as what it sends on.
            if (y.requires_grad() && last) {
                mean_loss(y, target, config.loss).backward();
            } else if (y.requires_grad()) {
                y.backward(at::ones_like(y));
            }
        }
        at::Tensor gradients = model->parameters().flat_gradients();
        gradients.zero_();
        return peak->peak() + (device.is_cpu() ? loader_bytes(config, data, samples) : 0);
    };
}

}  // namespace lockstep
