// What goes between the host and a rank's device: batches, and whole states as floats. Training
// thread.
#pragma once

#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/loader.hpp"
#include "job/trainer/model.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

struct DeviceBatch {
    std::int64_t size = 0;
    at::Tensor input;
    at::Tensor target;
};

// Batches on their way to the device: the next one is taken from the loader and copied while the
// GPU computes, on a stream of its own, since on that of the training it would come behind the
// step.
class BatchFeed {
  public:
    explicit BatchFeed(at::Device device) : device_(device) {
        if (device.is_cuda()) {
            copies_ = std::make_unique<cuda_device::SideStream>();
        }
    }

    DeviceBatch next(Loader& loader) {
        if (!ahead_) {
            return take(loader);
        }
        DeviceBatch batch = *std::exchange(ahead_, std::nullopt);
        if (copies_ != nullptr) {
            copies_->current_waits();
            copies_->current_uses(batch.input);
            copies_->current_uses(batch.target);
        }
        return batch;
    }
    void prefetch(Loader& loader) {
        if (ahead_) {
            return;
        }
        DeviceBatch batch;
        const auto copy = [&] { batch = take(loader); };
        if (copies_ != nullptr) {
            copies_->run(copy);
        } else {
            copy();
        }
        if (batch.size > 0) {
            ahead_ = std::move(batch);
        }
    }

  private:
    DeviceBatch take(Loader& loader) const {
        const Batch batch = next_batch(loader);
        if (batch.size == 0) {
            return {};
        }
        return {batch.size, to_device(tensor_of(batch.input, batch.size), device_),
                to_device(tensor_of(batch.target, batch.size), device_)};
    }

    at::Device device_;
    std::unique_ptr<cuda_device::SideStream> copies_;  // null on the CPU
    std::optional<DeviceBatch> ahead_;
};

// Of a tensor on the CPU.
inline std::span<float> floats_of_tensor(const at::Tensor& values) {
    return {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
}

inline void copy_out(const at::Tensor& from, std::vector<float>& to) {
    const at::Tensor host = from.detach().to(at::kCPU);
    const std::span<const float> values = floats_of_tensor(host);
    to.assign(values.begin(), values.end());
}

inline void copy_in(std::span<const float> from, const at::Tensor& to) {
    const at::NoGradGuard no_gradients;
    at::Tensor target = to;
    target.copy_(at::from_blob(const_cast<float*>(from.data()),
                               {static_cast<std::int64_t>(from.size())}, at::kFloat));
}

}  // namespace lockstep
