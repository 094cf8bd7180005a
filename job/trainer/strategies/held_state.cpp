#include "job/trainer/strategies/held_state.hpp"

#include "job/trainer/device.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/strategies/device_batches.hpp"
#include "job/trainer/strategies/device_wait.hpp"

#include <cmath>
#include <utility>

namespace lockstep {

at::Tensor& HostCopy::here() {
    if (values_.is_cpu()) {
        return values_;
    }
    if (!copy_.defined()) {
        copy_ = at::empty(values_.sizes(), at::TensorOptions{at::kFloat}.pinned_memory(true));
    }
    return copy_;
}

std::span<float> HostCopy::values() {
    return floats_of_tensor(here());
}

void HostCopy::fetch() {
    if (!values_.is_cpu()) {
        const at::NoGradGuard no_gradients;
        here().copy_(values_, /*non_blocking=*/true);
    }
}

void HostCopy::store() {
    if (!values_.is_cpu()) {
        const at::NoGradGuard no_gradients;
        values_.copy_(here(), /*non_blocking=*/true);
    }
}

HeldState::HeldState(const TrainConfig& config, const at::Tensor& values, const at::Tensor& buffers,
                     std::vector<FlatRange> layers)
    : values_(values),
      buffers_(buffers),
      blocks_(Optimizer::moments(config.optimizer)),
      host_values_(values),
      host_buffers_(buffers) {
    if (own_loops(values)) {
        own_.emplace(optimizer_options(config), static_cast<std::size_t>(values.numel()),
                     std::move(layers));
        return;
    }
    device_.emplace(optimizer_options(config), values, std::move(layers));
    host_moments_.emplace(device_->state());
}

double HeldState::squares(const at::Tensor& gradients) {
    if (own_loops(gradients)) {
        return kernels::sum_of_squares(gradients.data_ptr<float>(),
                                       static_cast<std::size_t>(gradients.numel()));
    }
    const at::NoGradGuard no_gradients;
    const double norm = at::linalg_vector_norm(gradients, 2, {}, false, at::kDouble).item<double>();
    return norm * norm;
}

Status HeldState::apply(const TrainConfig& config, at::Tensor gradients, double squares,
                        double mean, LossScaler& scaler, StepResult& result) {
    if (own_) {
        return apply_gradients(config, floats_of_tensor(values_), floats_of_tensor(gradients),
                               squares, mean, *own_, scaler, result);
    }
    const Result<std::optional<double>> factor =
        gradient_factor(config, std::sqrt(squares), mean, scaler, result);
    LOCKSTEP_TRY(factor);
    if (*factor && gradients.numel() > 0) {  // a pipeline's stage may learn nothing
        const at::NoGradGuard no_gradients;
        device_->step(values_, gradients, **factor, result.learning_rate);
    }
    return {};
}

std::span<float> HeldState::moments() {
    return own_ ? own_->state() : host_moments_->values();
}

Status HeldState::fetch() {
    host_values_.fetch();
    host_buffers_.fetch();
    if (host_moments_) {
        host_moments_->fetch();
    }
    return comes_to_an_end(buffers_.device())
               ? Status{}
               : fail(Errc::unavailable, "the GPU does not come to an end: nothing can be copied");
}

void HeldState::store(std::int64_t steps) {
    host_values_.store();
    host_buffers_.store();
    if (own_) {
        own_->set_steps(steps);
        return;
    }
    host_moments_->store();
    device_->set_steps(steps);
}

void HeldState::show(CheckpointPart& part, std::size_t offset, std::size_t buffer,
                     std::size_t whole) {
    const std::span<const float> values = parameters();
    show_slice(part, 0, Section::parameters, offset, values);
    copy_slice(part, 1, Section::buffers, buffer, buffers());
    const std::span<const float> moments = own_ ? own_->hold() : this->moments();
    for (std::size_t block = 0; block < blocks_; ++block) {
        const std::span<const float> some = moments.subspan(block * values.size(), values.size());
        const std::size_t at = block * whole + offset;
        if (own_) {  // the next step writes elsewhere
            keep_slice(part, 2 + block, Section::optimizer, at, some);
        } else {
            show_slice(part, 2 + block, Section::optimizer, at, some);
        }
    }
}

}  // namespace lockstep
