// The optimizers of optimizer.hpp, of LibTorch's operations: for parameters on a GPU. The same
// formulas and the same state, in the same places.
#pragma once

#include "job/trainer/optimizer.hpp"

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace lockstep {

class DeviceOptimizer {
  public:
    // `parameters`: the flat buffer, whose device the state is on. `layers`: as of Optimizer.
    DeviceOptimizer(OptimizerOptions options, const at::Tensor& parameters,
                    std::vector<FlatRange> layers);

    // Enqueues one step: parameters −= f(gradients · gradient_scale), at this learning rate. The
    // gradients may be changed.
    void step(at::Tensor& parameters, at::Tensor& gradients, double gradient_scale, double rate);

    void set_steps(std::int64_t steps);
    at::Tensor& state() { return state_; }

  private:
    void adam(at::Tensor& parameters, at::Tensor& gradients, double rate);
    void lamb(at::Tensor& parameters, const at::Tensor& gradients, double rate);
    void move_moments(const at::Tensor& gradients);
    // What Adam goes along, without the rate.
    at::Tensor direction() const;

    OptimizerOptions options_;
    std::vector<FlatRange> layers_;
    std::int64_t steps_ = 0;
    at::Tensor state_;
    std::vector<at::Tensor> moments_;  // views of it
    at::Tensor counter_;               // steps_, on the device: LibTorch's fused step wants it
};

}  // namespace lockstep
