// Finds the largest batch that fits (train.find_batch_size): from batch_size on it doubles, as
// Lightning's BatchSizeFinder does with mode "power".
// On the CPU nobody refuses memory until the kernel ends a process, so what a batch will take is
// told from what the two largest took that were tried, in an eighth of the memory. A step's memory
// is the larger of several lines, each a constant and so much for each sample: gradients of the
// weights outweigh a small batch's. Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/model.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <utility>

namespace lockstep {

// A sample of the batch that is tried cannot be read.
struct UnreadableSample : std::runtime_error {
    explicit UnreadableSample(Error why) : std::runtime_error(why.message), error(std::move(why)) {}
    Error error;
};

// Bytes at the peak of a step with so many samples. Throws UnreadableSample, and what LibTorch
// does.
using BatchAttempt = std::function<std::int64_t(std::int64_t samples)>;

struct BatchLimits {
    std::int64_t start = 1;
    std::int64_t most = 1;   // more samples are not there; at least `start`
    std::int64_t bytes = 0;  // that a step may take
};

// start · 2^k for the largest k that fits. Attempted are start, another one beside it, and what is
// told to fit into an eighth of the bytes. exhausted: start itself does not fit.
Result<std::int64_t> largest_batch(const BatchLimits& limits, const BatchAttempt& attempt);

// What each of a node's ranks may use beyond what it has now, in bytes: four fifths of what the
// machine and the control groups around this process have left, shared out. `root`: machine.hpp's.
std::int64_t memory_share(std::int32_t ranks_of_node, const std::filesystem::path& root = "/");

// What a rank computes with a batch: all layers, or a stage's.
struct BatchTrial {
    std::vector<Layer> network;
    std::size_t first = 0;
    std::size_t count = SIZE_MAX;
};
// Runs forward and backward on samples of `data` and says what LibTorch had at the peak beyond what
// was there before: on the CPU with what the loader holds of such batches, on a GPU of its memory.
// `data` must outlive it.
BatchAttempt batch_attempt(const TrainConfig& config, BatchTrial trial, const SampleSet& data,
                           at::Device device = at::kCPU);

}  // namespace lockstep
