// Makes batches ahead of the training thread: picks the samples, turns bytes into floats in [0, 1]
// (the model's Rescaling layer, in the same pass) or into indices. Owns its threads and its
// buffers, which are allocated once. All functions: the training thread. The samples must outlive
// it.
#pragma once

#include "job/trainer/dataset.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

// One column of a batch: [size][shape…] floats (scaled, number) or 64-bit integers, packed and
// 64-byte aligned.
struct BatchColumn {
    const Column* column = nullptr;
    void* data = nullptr;

    float* floats() const { return static_cast<float*>(data); }
    std::int64_t* indices() const { return static_cast<std::int64_t*>(data); }
};

struct Batch {
    std::int64_t size = 0;  // samples
    BatchColumn input;
    BatchColumn target;
};

class Loader {
  public:
    // `workers` threads prepare batches; with 0 next() does it itself.
    // `inputs`: whether they are wanted. A pipeline's later stages compute the targets only, and to
    // decode images for them would take as long as for the first.
    Loader(const SampleSet& samples, std::int64_t batch_size, std::int32_t workers,
           bool inputs = true);
    ~Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    // Batches that it has room for.
    static std::int64_t slots(std::int32_t workers) { return workers == 0 ? 1 : workers + 2; }

    // Starts to serve these samples in this order; the last batch may be smaller. What is left of
    // the epoch before is dropped.
    // `variation`: of images that are cut at random, another one for each epoch.
    void begin(std::vector<std::uint32_t> indices, std::uint64_t variation = 0);
    std::int64_t batches() const { return batches_; }
    // The next batch, valid until the call after; size 0 when there are no more, or one could not
    // be read.
    Batch next();
    // Why there are no more: ok after the last one. A file that cannot be read is the error of
    // ImageFiles::read(), and nothing comes after it until begin().
    Status status() const;
    // The same for who needs another batch: after the last one it is internal.
    Error ended() const;

  private:
    struct Slot {
        std::vector<std::byte> storage[2];  // input, target
        std::byte* aligned[2] = {};
        std::int64_t size = 0;
        std::int64_t holds = -1;  // number of the batch that is ready in it
    };

    Batch batch_of(const Slot& slot) const;
    Status fill(std::int64_t number);
    void work();
    Slot& slot(std::int64_t number) {
        return slots_[static_cast<std::size_t>(number) % slots_.size()];
    }

    const SampleSet& samples_;
    std::int64_t batch_size_;
    bool inputs_;
    std::vector<std::uint32_t> indices_;
    std::uint64_t variation_ = 0;
    std::int64_t batches_ = 0;

    mutable std::mutex
        mutex_;  // guards everything below but the contents of slots that are being filled
    std::condition_variable changed_;
    std::vector<Slot> slots_;
    std::int64_t claimed_ = 0;   // batches that a worker took or has finished
    std::int64_t consumed_ = 0;  // batches handed out and done with
    std::int64_t handed_ = 0;    // batches handed out
    std::int32_t busy_ = 0;      // workers that are filling a slot
    bool stop_ = false;
    Status read_;                        // the first failure
    std::vector<std::jthread> workers_;  // last: they use everything above
};

// Threads for a pass over the test set, which mostly is in memory and takes microseconds a batch;
// to decode images takes longer than to evaluate them.
inline std::int32_t evaluation_workers(const SampleSet& test) {
    return test.input.files ? 2 : 0;
}

// Samples of a batch of that pass: `most`, but of images what fits into 32 MiB, since four batches
// of them are there beside those of the training.
inline std::int64_t evaluation_batch(const SampleSet& test, std::int64_t most) {
    constexpr std::size_t kBytes = std::size_t{32} << 20U;
    if (!test.input.files) {
        return most;
    }
    const std::size_t fit = kBytes / (test.input.elements() * sizeof(float));
    return std::clamp(static_cast<std::int64_t>(fit), std::int64_t{1}, most);
}

}  // namespace lockstep
