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

std::span<const float> Optimizer::hold() {
    held_ = true;
    return state_;
}

void Optimizer::step(std::span<float> parameters, std::span<const float> gradients,
                     float gradient_scale, double rate) {
    LOCKSTEP_CHECK(parameters.size() == parameters_ && gradients.size() == parameters_);
    // 16 KiB of each, which stay in the first cache between the copy and the step.
    constexpr std::size_t kBlock = 4'096;
    ++steps_;
    const std::size_t block = held_ ? kBlock : parameters_;
    if (held_) {
        other_.resize(state_.size());  // not in hold(): at the end of a run no step comes
    }
    std::vector<float>& target = held_ ? other_ : state_;
    for (std::size_t at = 0; at < parameters_; at += block) {
        const std::size_t count = std::min(block, parameters_ - at);
        for (std::size_t moment = 0; held_ && moment < moments(options_.kind); ++moment) {
            std::copy_n(state_.data() + moment * parameters_ + at, count,
                        other_.data() + moment * parameters_ + at);
        }
        update(at, parameters.subspan(at, count), gradients.subspan(at, count), target.data() + at,
               gradient_scale, rate);
    }
    if (held_) {
        state_.swap(other_);
        held_ = false;
    }
    if (options_.kind == TrainOptimizer::lamb) {
        lamb(parameters, rate);
    }
}

// Of the parameters from `at` on: `moments` are theirs, the second ones parameters_ further on.
void Optimizer::update(std::size_t at, std::span<float> parameters,
                       std::span<const float> gradients, float* moments, float gradient_scale,
                       double rate) {
    const auto decay = static_cast<float>(options_.weight_decay);
    const std::size_t count = parameters.size();
    if (options_.kind == TrainOptimizer::sgd) {
        kernels::sgd(parameters.data(), gradients.data(), moments, count,
                     {gradient_scale, static_cast<float>(options_.momentum),
                      static_cast<float>(rate), decay});
        return;
    }
    const bool layerwise = options_.kind == TrainOptimizer::lamb;
    kernels::AdamStep step = adam_step(steps_, gradient_scale, layerwise ? 1.0 : rate);
    if (layerwise) {
        step.decay = decay;
        kernels::adam_direction(parameters.data(), gradients.data(), moments, moments + parameters_,
                                direction_.data() + at, count, step);
        return;
    }
    if (options_.kind == TrainOptimizer::adamw) {
        step.keep = static_cast<float>(1.0 - rate * options_.weight_decay);
    } else {
        step.decay = decay;
    }
    kernels::adam(parameters.data(), gradients.data(), moments, moments + parameters_, count, step);
}

// You et al.: Large batch optimization for deep learning, 2020, algorithm 2 with φ(z) = z: each
// layer goes rate · ‖x‖ / ‖u‖ along u, its AdamW direction.
void Optimizer::lamb(std::span<float> parameters, double rate) {
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
