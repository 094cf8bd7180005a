// A model's moving averages as they were before a step. Forward passes move them, before anybody
// knows whether the step can be finished: where it cannot, they go back, so that a checkpoint has
// those of the last finished step. Training thread.
#pragma once

#include "job/base/result.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace lockstep {

class KeptAverages {
  public:
    // `averages`: flat, on any device; shares its memory. May be empty.
    explicit KeptAverages(at::Tensor averages) : averages_(std::move(averages)) {}

    // Where a step begins. Of a GPU's only enqueued, as in unless_finished().
    void keep() {
        if (averages_.numel() == 0) {
            return;
        }
        const at::NoGradGuard no_gradients;
        if (kept_.defined()) {
            kept_.copy_(averages_, /*non_blocking=*/true);
        } else {
            kept_ = averages_.detach().clone();
        }
    }
    // `step`: what became of it since keep(). Puts them back where it failed; returns it.
    Status unless_finished(Status step) {
        if (!step && kept_.defined()) {
            const at::NoGradGuard no_gradients;
            averages_.copy_(kept_, /*non_blocking=*/true);
        }
        return step;
    }

  private:
    at::Tensor averages_;
    at::Tensor kept_;  // from the first step on
};

}  // namespace lockstep
