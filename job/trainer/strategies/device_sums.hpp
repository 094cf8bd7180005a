// The gradients of a step, summed over the ranks on their devices: bucket by bucket beside
// backward, or all of them behind a graph. And the wait for it, which ends when a rank is lost.
// Training thread, but for the hooks of GradientBuckets.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/parameters.hpp"
#include "job/trainer/reducer.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class DeviceSums {
  public:
    static constexpr std::size_t kBucketBytes = 25U << 20U;  // as PyTorch's DDP

    // `all`: of the host, which knows who is lost. `own`: of GPUs; null on the CPU, where it is
    // `all`, and for one rank, which has nothing to sum. What is given must outlive it.
    // `bucket_bytes`: buckets close when they are at least so large.
    DeviceSums(Communicator& all, std::unique_ptr<Communicator> own, FlatParameters& parameters,
               TrainAllReduce kind, std::size_t bucket_bytes = kBucketBytes);

    // A step begins.
    void begin();
    // The next backward produces the step's final gradients. Not while a graph is captured: its
    // launches would sum, and nobody would wait for that.
    void arm();
    // Everything is enqueued that computes gradients; the sums are, when it returns. Errors as of
    // the communicator.
    Status finish();
    // Until the device has come past everything. unavailable: a rank was lost, and nothing waits on
    // the device any more; cancelled: or something still does, and only _Exit ends the process.
    Status wait();

    std::size_t buckets() const { return buckets_ == nullptr ? 0 : buckets_->all().size(); }
    // Those whose sums have been enqueued in this step.
    std::size_t summed() const { return summed_; }
    // Of the last wait(): from when this rank's own work was done, in seconds.
    double waited() const { return waited_; }

  private:
    bool gives_up();
    std::string why() const;
    void sum_up_to(std::size_t count);

    Communicator& all_;
    std::shared_ptr<Communicator> own_;  // an abort may outlast this object
    Communicator* group_;                // null: one rank
    FlatParameters& parameters_;
    TrainAllReduce kind_;
    bool gpu_;
    std::unique_ptr<cuda_device::SideStream> side_;
    std::unique_ptr<cuda_device::Mark> computed_;
    std::size_t summed_ = 0;
    std::optional<Error> error_;
    int lost_polls_ = 0;
    double waited_ = 0.0;
    std::unique_ptr<GradientBuckets> buckets_;  // last: they call what is above
};

// Whether the device comes past what is enqueued soon, as it does where nothing of it waits for
// other ranks. On the CPU it has.
bool comes_to_an_end(at::Device device);

}  // namespace lockstep
