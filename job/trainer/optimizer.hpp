// Adam and SGD with momentum over one flat buffer of all parameters: one pass over the memory
// instead of several small operations per tensor. Owns its state. One thread.
#pragma once

#include "job/model/train_config.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Optimizer {
  public:
    // `rate`: the learning rate, already scaled. β1 = 0.9, β2 = 0.999, ε = 1e-8 as in PyTorch.
    Optimizer(TrainOptimizer kind, double rate, double momentum, std::size_t parameters);

    // One step: parameters −= f(gradients · gradient_scale).
    void step(std::span<float> parameters, std::span<const float> gradients, float gradient_scale);

    double rate() const { return rate_; }
    // Steps taken, and the moments (Adam: first and second; SGD: velocity), for checkpoints.
    std::int64_t steps() const { return steps_; }
    void set_steps(std::int64_t steps) { steps_ = steps; }
    std::span<float> state() { return state_; }

  private:
    TrainOptimizer kind_;
    double rate_;
    double momentum_;
    std::size_t parameters_;
    std::int64_t steps_ = 0;
    std::vector<float> state_;
};

}  // namespace lockstep
