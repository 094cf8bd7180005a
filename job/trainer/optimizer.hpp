// SGD with momentum, Adam, AdamW and LAMB over one flat buffer of parameters: one pass over the
// memory instead of several small operations per tensor. Owns its state. One thread.
#pragma once

#include "job/model/spec/train_config.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Where one parameter (a layer's weights, its bias) lies in a flat buffer; in floats.
struct FlatRange {
    std::size_t offset = 0;
    std::size_t count = 0;
};

// As in PyTorch.
inline constexpr double kBeta1 = 0.9;
inline constexpr double kBeta2 = 0.999;
inline constexpr double kEpsilon = 1e-8;

// What the optimizer reads of the configuration.
struct OptimizerOptions {
    TrainOptimizer kind = TrainOptimizer::adam;
    double momentum = 0.9;      // sgd
    double weight_decay = 0.0;  // adam, sgd: added to the gradient; adamw, lamb: to the step
};

class Optimizer {
  public:
    // `layers`: the parameters within the buffer; only LAMB asks for their norms.
    Optimizer(OptimizerOptions options, std::size_t parameters, std::vector<FlatRange> layers);

    // One step: parameters −= f(gradients · gradient_scale), at this learning rate.
    void step(std::span<float> parameters, std::span<const float> gradients, float gradient_scale,
              double rate);

    // Steps taken, and the moments (Adam: first and second; SGD: velocity), for checkpoints.
    std::int64_t steps() const { return steps_; }
    void set_steps(std::int64_t steps) { steps_ = steps; }
    std::span<float> state() { return state_; }
    // The same, which steps from now on leave as it is: the next one writes the moments elsewhere,
    // in the pass that it makes anyway. Valid until the next hold(); not written to by anybody.
    std::span<const float> hold();
    // Numbers of state for each parameter: 1 or 2. state() is one block of all parameters after
    // the other.
    static std::size_t moments(TrainOptimizer kind) { return kind == TrainOptimizer::sgd ? 1 : 2; }

  private:
    void update(std::size_t at, std::span<float> parameters, std::span<const float> gradients,
                float* moments, float gradient_scale, double rate);
    void lamb(std::span<float> parameters, double rate);

    OptimizerOptions options_;
    std::size_t parameters_;
    std::vector<FlatRange> layers_;
    std::int64_t steps_ = 0;
    std::vector<float> state_;
    std::vector<float> other_;      // what hold() has shown, from the step after it on
    bool held_ = false;             // state_ is shown: the next step goes to other_
    std::vector<float> direction_;  // LAMB's, kept to allocate once
};

OptimizerOptions optimizer_options(const TrainConfig& config);

// The learning rate of a step (from 1) of `total` steps; `base` is the configuration's, scaled.
// During warmup_steps it grows in equal parts; then the schedule runs to zero at step total + 1.
double learning_rate_at(const TrainConfig& config, double base, std::int64_t step,
                        std::int64_t total);

// The factor for a gradient of this norm so that it is no longer than `limit`; 0 = no limit.
double clip_factor(double norm, double limit);

}  // namespace lockstep
