#include "job/trainer/optimizer.hpp"

#include "job/base/check.hpp"
#include "job/trainer/kernels.hpp"

#include <cmath>

namespace lockstep {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

}  // namespace

Optimizer::Optimizer(TrainOptimizer kind, double rate, double momentum, std::size_t parameters)
    : kind_(kind),
      rate_(rate),
      momentum_(momentum),
      parameters_(parameters),
      state_(kind == TrainOptimizer::adam ? 2 * parameters : parameters, 0.0F) {}

void Optimizer::step(std::span<float> parameters, std::span<const float> gradients,
                     float gradient_scale) {
    LOCKSTEP_CHECK(parameters.size() == parameters_ && gradients.size() == parameters_);
    ++steps_;
    if (kind_ == TrainOptimizer::sgd) {
        kernels::sgd(parameters.data(), gradients.data(), state_.data(), parameters_,
                     gradient_scale, static_cast<float>(momentum_), static_cast<float>(rate_));
        return;
    }
    const auto t = static_cast<double>(steps_);
    const double first = 1.0 - std::pow(kBeta1, t);
    const double second = 1.0 - std::pow(kBeta2, t);
    const kernels::AdamStep step{gradient_scale,
                                 static_cast<float>(kBeta1),
                                 static_cast<float>(kBeta2),
                                 static_cast<float>(rate_ / first),
                                 static_cast<float>(1.0 / std::sqrt(second)),
                                 static_cast<float>(kEpsilon)};
    kernels::adam(parameters.data(), gradients.data(), state_.data(), state_.data() + parameters_,
                  parameters_, step);
}

}  // namespace lockstep
