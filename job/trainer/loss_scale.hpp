// Dynamic loss scaling (Micikevicius et al.: Mixed precision training, 2018; the constants are
// those of PyTorch's GradScaler): the loss is multiplied by a scale so that small gradients do not
// vanish in half precision. A step whose gradients are not finite is left out and the scale halved;
// after many good steps in a row it is doubled. Plain values; one thread. Every rank makes the same
// calls with the same answers, so that all have one scale.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>

namespace lockstep {

// What a checkpoint keeps of it.
struct LossScale {
    double scale = 65'536.0;
    std::int64_t good = 0;     // steps since the scale last changed
    std::int64_t skipped = 0;  // steps that were left out, of the whole run

    bool operator==(const LossScale&) const = default;
};

class LossScaler {
  public:
    static constexpr double kGrowth = 2.0;
    static constexpr double kBackoff = 0.5;
    static constexpr std::int64_t kGrowthInterval = 2'000;
    static constexpr double kScaleMax = 16'777'216.0;  // 2^24: more has no use for half precision

    // Not `active`: the scale is 1, and no step is left out.
    explicit LossScaler(bool active) : active_(active) {}

    bool active() const { return active_; }
    double scale() const { return active_ ? state_.scale : 1.0; }
    // Whether the step is to be made, all ranks' gradients being finite or not; moves the scale.
    // exhausted: they are not finite with a scale of 1 either, so no scale will help.
    Result<bool> use(bool finite);

    const LossScale& state() const { return state_; }
    void set_state(const LossScale& state) { state_ = state; }

  private:
    bool active_;
    LossScale state_;
};

}  // namespace lockstep
