// The gradients of a step, summed over ranks on their devices: bucket by bucket beside backward, or
// all of them behind a graph. Training thread, but for the hooks of GradientBuckets.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/parameters.hpp"
#include "job/trainer/reducer.hpp"
#include "job/trainer/strategies/device_wait.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace lockstep {

class DeviceSums {
  public:
    static constexpr std::size_t kBucketBytes = 25U << 20U;  // as PyTorch's DDP

    // `host`: of the ranks that sum, in host memory; with parameters on the CPU the sums go over
    // it. `own`: of the same ranks for buffers on their GPUs; null on the CPU, and for one rank,
    // which has nothing to sum. What is given must outlive it. `bucket_bytes`: buckets close when
    // they are at least so large.
    DeviceSums(Communicator& host, std::shared_ptr<Communicator> own, FlatParameters& parameters,
               TrainAllReduce kind, std::size_t bucket_bytes = kBucketBytes);

    // A step begins.
    void begin();
    // The next backward produces the step's final gradients. Not while a graph is captured: its
    // launches would sum, and nobody would wait for that.
    void arm();
    // Everything is enqueued that computes gradients, and `wait` is told so; the sums are, when it
    // returns. Errors as of the communicator.
    Status finish(DeviceWait& wait);
    // What NCCL found wrong with sums that were only enqueued. The device has come past them.
    Status found_wrong() const;

    std::size_t buckets() const { return buckets_ == nullptr ? 0 : buckets_->all().size(); }
    // Those whose sums have been enqueued in this step.
    std::size_t summed() const { return summed_; }

  private:
    void sum_up_to(std::size_t count);

    std::shared_ptr<Communicator> own_;  // an abort may outlast this object
    Communicator* group_;                // null: one rank
    FlatParameters& parameters_;
    TrainAllReduce kind_;
    std::unique_ptr<cuda_device::SideStream> side_;
    std::size_t summed_ = 0;
    std::optional<Error> error_;
    std::unique_ptr<GradientBuckets> buckets_;  // last: they call what is above
};

}  // namespace lockstep
