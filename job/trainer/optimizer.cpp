#include "job/trainer/optimizer.hpp"

#include "job/base/check.hpp"
#include "job/trainer/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace lockstep {
namespace {

kernels::AdamStep adam_step(std::int64_t steps, float gradient_scale, double rate) {
    const auto t = static_cast<double>(steps);
    const double first = 1.0 - std::pow(kBeta1, t);
    const double second = 1.0 - std::pow(kBeta2, t);
    return {gradient_scale,
            static_cast<float>(kBeta1),
            static_cast<float>(kBeta2),
            static_cast<float>(rate / first),
            static_cast<float>(1.0 / std::sqrt(second)),
            static_cast<float>(kEpsilon),
            0.0F,
            1.0F};
}

}  // namespace

OptimizerOptions optimizer_options(const TrainConfig& config) {
    return {config.optimizer, config.momentum, config.weight_decay};
}

Optimizer::Optimizer(OptimizerOptions options, std::size_t parameters,
                     std::vector<FlatRange> layers)
    : options_(options),
      parameters_(parameters),
      layers_(std::move(layers)),
      state_(moments(options.kind) * parameters, 0.0F),
      direction_(options.kind == TrainOptimizer::lamb ? parameters : 0, 0.0F) {}

void Optimizer::step(std::span<float> parameters, std::span<const float> gradients,
                     float gradient_scale, double rate) {
    LOCKSTEP_CHECK(parameters.size() == parameters_ && gradients.size() == parameters_);
    ++steps_;
    const auto decay = static_cast<float>(options_.weight_decay);
    if (options_.kind == TrainOptimizer::lamb) {
        lamb(parameters, gradients, gradient_scale, rate);
        return;
    }
    if (options_.kind == TrainOptimizer::sgd) {
        kernels::sgd(parameters.data(), gradients.data(), state_.data(), parameters_,
                     {gradient_scale, static_cast<float>(options_.momentum),
                      static_cast<float>(rate), decay});
        return;
    }
    kernels::AdamStep step = adam_step(steps_, gradient_scale, rate);
    if (options_.kind == TrainOptimizer::adamw) {
        step.keep = static_cast<float>(1.0 - rate * options_.weight_decay);
    } else {
        step.decay = decay;
    }
    kernels::adam(parameters.data(), gradients.data(), state_.data(), state_.data() + parameters_,
                  parameters_, step);
}

// You et al.: Large batch optimization for deep learning, 2020, algorithm 2 with φ(z) = z: each
// layer goes rate · ‖x‖ / ‖u‖ along u, its AdamW direction.
void Optimizer::lamb(std::span<float> parameters, std::span<const float> gradients,
                     float gradient_scale, double rate) {
    kernels::AdamStep step = adam_step(steps_, gradient_scale, 1.0);
    step.decay = static_cast<float>(options_.weight_decay);
    kernels::adam_direction(parameters.data(), gradients.data(), state_.data(),
                            state_.data() + parameters_, direction_.data(), parameters_, step);
    for (const FlatRange& layer : layers_) {
        float* values = parameters.data() + layer.offset;
        const float* direction = direction_.data() + layer.offset;
        const double length = std::sqrt(kernels::sum_of_squares(values, layer.count));
        const double wanted = std::sqrt(kernels::sum_of_squares(direction, layer.count));
        const double trust = length > 0.0 && wanted > 0.0 ? length / wanted : 1.0;
        kernels::add_scaled(values, direction, layer.count, static_cast<float>(-rate * trust));
    }
}

double learning_rate_at(const TrainConfig& config, double base, std::int64_t step,
                        std::int64_t total) {
    const std::int64_t warmup = config.warmup_steps;
    if (step <= warmup) {
        return base * static_cast<double>(step) / static_cast<double>(warmup);
    }
    const double after = static_cast<double>(std::max<std::int64_t>(total - warmup, 1));
    const double done = std::min(static_cast<double>(step - warmup - 1) / after, 1.0);
    switch (config.schedule) {
        case TrainSchedule::cosine:
            return base * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
        case TrainSchedule::linear:
            return base * (1.0 - done);
        case TrainSchedule::constant:
            break;
    }
    return base;
}

double clip_factor(double norm, double limit) {
    return limit > 0.0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace lockstep
