#include "job/trainer/loss_scale.hpp"

#include <algorithm>

namespace lockstep {

Result<bool> LossScaler::use(bool finite) {
    if (!active_) {
        return true;
    }
    if (!finite) {
        if (state_.scale <= 1.0) {
            return fail(Errc::exhausted,
                        "the gradients are not finite, and loss scaling cannot help: the scale is "
                        "down to 1");
        }
        state_.scale = std::max(state_.scale * kBackoff, 1.0);
        state_.good = 0;
        ++state_.skipped;
        return false;
    }
    if (++state_.good == kGrowthInterval) {
        state_.scale = std::min(state_.scale * kGrowth, kScaleMax);
        state_.good = 0;
    }
    return true;
}

}  // namespace lockstep
