#include "job/trainer/device_optimizer.hpp"

#include <torch/version.h>

#include <cmath>
#include <utility>

// One pass over the memory instead of six; SGD's came with 2.3.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define LOCKSTEP_FUSED_STEPS 1
#endif

namespace lockstep {

DeviceOptimizer::DeviceOptimizer(OptimizerOptions options, const at::Tensor& parameters,
                                 std::vector<FlatRange> layers)
    : options_(options), layers_(std::move(layers)) {
    const std::int64_t count = parameters.numel();
    const auto moments = static_cast<std::int64_t>(Optimizer::moments(options.kind));
    state_ = at::zeros({moments * count}, parameters.options().requires_grad(false));
    for (std::int64_t i = 0; i < moments; ++i) {
        moments_.push_back(state_.narrow(0, i * count, count));
    }
    counter_ = at::zeros({}, state_.options());
}

void DeviceOptimizer::set_steps(std::int64_t steps) {
    steps_ = steps;
    counter_.fill_(static_cast<double>(steps));
}

void DeviceOptimizer::step(at::Tensor& parameters, at::Tensor& gradients, double gradient_scale,
                           double rate) {
    const at::NoGradGuard no_gradients;
    ++steps_;
    if (gradient_scale != 1.0) {
        gradients.mul_(gradient_scale);
    }
    switch (options_.kind) {
        case TrainOptimizer::adam:
        case TrainOptimizer::adamw:
            adam(parameters, gradients, rate);
            return;
        case TrainOptimizer::lamb:
            lamb(parameters, gradients, rate);
            return;
        case TrainOptimizer::sgd:
            break;
    }
    // velocity = momentum · velocity + gradient + decay · parameter, as kernels::sgd().
    at::Tensor& velocity = moments_[0];
    velocity.mul_(options_.momentum).add_(gradients);
    if (options_.weight_decay != 0.0) {
        velocity.add_(parameters, options_.weight_decay);
    }
    parameters.sub_(velocity, rate);
}

void DeviceOptimizer::move_moments(const at::Tensor& gradients) {
    moments_[0].mul_(kBeta1).add_(gradients, 1.0 - kBeta1);
    moments_[1].mul_(kBeta2).addcmul_(gradients, gradients, 1.0 - kBeta2);
}

at::Tensor DeviceOptimizer::direction() const {
    const auto t = static_cast<double>(steps_);
    const double first = 1.0 - std::pow(kBeta1, t);
    const double second = 1.0 - std::pow(kBeta2, t);
    return (moments_[0] / first)
        .div_(moments_[1].sqrt().mul_(1.0 / std::sqrt(second)).add_(kEpsilon));
}

void DeviceOptimizer::adam(at::Tensor& parameters, at::Tensor& gradients, double rate) {
    const bool decoupled = options_.kind == TrainOptimizer::adamw;
    const double decay = options_.weight_decay;
#ifdef LOCKSTEP_FUSED_STEPS
    if (parameters.is_cuda()) {
        counter_.add_(1.0);
        const std::vector<at::Tensor> values{parameters};
        const std::vector<at::Tensor> slopes{gradients};
        const std::vector<at::Tensor> first{moments_[0]};
        const std::vector<at::Tensor> second{moments_[1]};
        const std::vector<at::Tensor> steps{counter_};
        decoupled ? at::_fused_adamw_(values, slopes, first, second, {}, steps, rate, kBeta1,
                                      kBeta2, decay, kEpsilon, false, false)
                  : at::_fused_adam_(values, slopes, first, second, {}, steps, rate, kBeta1, kBeta2,
                                     decay, kEpsilon, false, false);
        return;
    }
#endif
    if (decoupled) {
        parameters.mul_(1.0 - rate * decay);
    } else if (decay != 0.0) {
        gradients.add_(parameters, decay);
    }
    move_moments(gradients);
    parameters.sub_(direction(), rate);
}

// As Optimizer::lamb(). The trust of a layer stays on the device.
void DeviceOptimizer::lamb(at::Tensor& parameters, const at::Tensor& gradients, double rate) {
    move_moments(gradients);
    const at::Tensor all = direction().add_(parameters, options_.weight_decay);
    for (const FlatRange& layer : layers_) {
        const auto offset = static_cast<std::int64_t>(layer.offset);
        const auto count = static_cast<std::int64_t>(layer.count);
        at::Tensor values = parameters.narrow(0, offset, count);
        const at::Tensor step = all.narrow(0, offset, count);
        const at::Tensor length = values.norm();
        const at::Tensor wanted = step.norm();
        const at::Tensor trust = at::where((length > 0.0).logical_and(wanted > 0.0),
                                           length / wanted, at::ones_like(length));
        values.sub_(step * trust, rate);
    }
}

}  // namespace lockstep
