// The ways to sum gradients over the ranks; which one is the specification's all_reduce. Every way
// gives every rank the same bits.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/world.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

class GradientSum {
  public:
    virtual ~GradientSum() = default;
    // Replaces `values` on every rank by their sum over the ranks. One call at a time; the calling
    // thread may change. Errors as of Communicator.
    virtual Status sum(std::span<float> values) = 0;
};

// All ranks call it; `world` must outlive what it returns.
// ring: the communicator's own. reduce_to_one: to rank 0 and back. hierarchical: to the first rank
// of each node, over those, and back.
Result<std::unique_ptr<GradientSum>> make_gradient_sum(TrainAllReduce kind, const World& world);

}  // namespace lockstep
