// The parameters, moving averages and moments that a rank holds of a model, wherever they lie, and
// the optimizer's step over them. Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/checkpoint.hpp"
#include "job/trainer/device_optimizer.hpp"
#include "job/trainer/loss_scale.hpp"
#include "job/trainer/model.hpp"
#include "job/trainer/optimizer.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Floats of a device as the host has them: on the CPU the tensor's own memory; of a GPU a copy in
// pinned memory.
class HostCopy {
  public:
    // `values`: flat; shares its memory with what it was given.
    explicit HostCopy(at::Tensor values) : values_(std::move(values)) {}

    std::span<float> values();
    // The device's to the copy, and the opposite. Only enqueued: values() are neither right nor to
    // be changed before the device has come past it.
    void fetch();
    void store();

  private:
    at::Tensor& here();

    at::Tensor values_;
    at::Tensor copy_;  // on a GPU only, from the first use on
};

class HeldState {
  public:
    // `values`, `buffers`: flat, whose memory it shares; the values may be on the host beside a
    // GPU's buffers. `layers`: the parameters in `values`. The optimizer is Lockstep's own loops on
    // the CPU, and LibTorch's operations elsewhere and in portable training (device.hpp).
    HeldState(const TrainConfig& config, const at::Tensor& values, const at::Tensor& buffers,
              std::vector<FlatRange> layers);
    HeldState(const TrainConfig& config, Model& model)
        : HeldState(config, model.parameters().flat_values(), model.flat_buffers(),
                    model.parameters().layout().ranges) {}

    const at::Tensor& tensor() const { return values_; }

    // The sum of the squares of gradients where the parameters are. Waits for the device.
    static double squares(const at::Tensor& gradients);
    // The step of a mean gradient: gradients · mean / scale, clipped; sets result.gradient_norm, to
    // what it was before that, and result.skipped. `squares`: over all ranks that hold some.
    // `gradients` may be changed. exhausted: they are not finite, and no scale helps.
    Status apply(const TrainConfig& config, at::Tensor gradients, double squares, double mean,
                 LossScaler& scaler, StepResult& result);

    // As the host has them. On a GPU they are those of the last fetch(), or will be those of the
    // next store().
    std::span<float> parameters() { return host_values_.values(); }
    std::span<float> buffers() { return host_buffers_.values(); }
    std::span<float> moments();
    // unavailable: the GPU does not come to an end.
    Status fetch();
    // `steps`: those that the moments are of.
    void store(std::int64_t steps);
    // Of these the moving averages alone. fetch_buffers() is enqueued, as HostCopy::fetch() is.
    void fetch_buffers() { host_buffers_.fetch(); }
    void store_buffers() { host_buffers_.store(); }

    // A slice of a snapshot for each: numbers `first`, first + 1, and one for each block of moments
    // after them. `offset`, `buffer`: where this part begins in the whole of `whole` floats.
    // fetch() was called before.
    void show(CheckpointPart& part, std::size_t offset, std::size_t buffer, std::size_t whole);

  private:
    at::Tensor values_;
    at::Tensor buffers_;  // on a GPU also where the parameters are the host's
    std::optional<Optimizer> own_;
    std::optional<DeviceOptimizer> device_;
    std::size_t blocks_;
    HostCopy host_values_;
    HostCopy host_buffers_;
    std::optional<HostCopy> host_moments_;  // of device_
};

}  // namespace lockstep
