// Sums the gradients over the ranks while backward still runs: the flat gradient buffer is cut
// into buckets from the front; as soon as every gradient of a bucket is final, a second thread
// all-reduces it. Buckets go in the same order on every rank.
// GradientReducer owns that thread. All functions: the training thread. Communicator and parameters
// must outlive it; between arm() and the return of finish() nobody else may use the communicator.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/trainer/parameters.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace lockstep {

// When which buckets of the flat gradient buffer are final, while backward runs. All functions but
// the call: the training thread, outside of a backward pass.
class GradientBuckets {
  public:
    // Buckets 0 … count − 1 are final; the flag lies in the last one. Called in the thread that
    // autograd computes in.
    using Final = std::function<void(std::size_t count)>;

    struct Bucket {
        std::size_t begin;  // in floats
        std::size_t end;
        std::size_t parameters;  // how many gradients it waits for
    };

    // `bucket_bytes`: buckets close when they are at least so large.
    GradientBuckets(FlatParameters& parameters, std::size_t bucket_bytes, Final call);
    ~GradientBuckets();
    GradientBuckets(const GradientBuckets&) = delete;
    GradientBuckets& operator=(const GradientBuckets&) = delete;

    // The next backward produces the final gradients of this step; others only accumulate.
    void arm();
    // After it: a parameter that the loss does not depend on has a gradient of zero.
    void finish();

    const std::vector<Bucket>& all() const { return buckets_; }

  private:
    class Hook;

    void plan(std::size_t bucket_bytes);
    void ready(std::size_t parameter);

    FlatParameters& parameters_;
    Final call_;
    std::vector<Bucket> buckets_;
    std::vector<std::size_t> bucket_of_;               // by parameter
    std::vector<std::shared_ptr<void>> accumulators_;  // keep the autograd nodes with our hooks
    std::vector<std::size_t> missing_;                 // by bucket, in this backward
    std::size_t next_ = 0;                             // first bucket that is not final
    bool armed_ = false;
};

class GradientReducer {
  public:
    // `bucket_bytes`: buckets close when they are at least so large; 0 = chosen from the model.
    GradientReducer(Communicator& communicator, FlatParameters& parameters,
                    std::size_t bucket_bytes = 0);
    // With a sum of its own over so many ranks.
    using Sum = std::function<Status(std::span<float>)>;
    GradientReducer(std::int32_t ranks, Sum sum, FlatParameters& parameters,
                    std::size_t bucket_bytes = 0);
    ~GradientReducer();
    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    // The next backward produces the final gradients of this step. Without arm() a backward only
    // accumulates locally. parameters.flag() must be set before.
    void arm();
    // Returns when every gradient and the flag are sums over the ranks. `give_up` is asked every
    // 100 ms while waiting: true makes finish() return cancelled with the operation still under
    // way; the process can then only end without destroying this object.
    Status finish(const std::function<bool()>& give_up);

    std::size_t buckets() const { return buckets_ ? buckets_->all().size() : 0; }

  private:
    void launch(std::size_t count);
    void work();

    Sum sum_;
    FlatParameters& parameters_;
    std::unique_ptr<GradientBuckets> buckets_;  // none: one rank

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::size_t launched_ = 0;  // buckets that may be reduced in this step
    std::size_t done_ = 0;
    std::optional<Error> error_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace lockstep
