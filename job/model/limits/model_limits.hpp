// What the rules of a job let people run into and no program has to know besides, each with its
// reason. What a job may ask otherwise is in job/base/limits.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// --- what `train` may ask of lockstep-train; where no reason is given, against slips -------
inline constexpr std::int64_t kTrainBatchSize = 65'536;  // × 28 × 28 floats are 200 MB
inline constexpr std::int64_t kTrainEpochs = 1'000'000;
inline constexpr std::int64_t kTrainSteps = 1'000'000'000'000;
inline constexpr std::int64_t kTrainAccumulate = 65'536;
// Of image files a core decodes some 200 a second.
inline constexpr std::int64_t kTrainLoaderWorkers = 64;
inline constexpr std::int64_t kTrainSamples = 1'000'000;  // generated: 784 MB on disk, in memory
inline constexpr std::int64_t kTrainContext = 4'096;      // attention looks at its square
inline constexpr std::int64_t kTrainStages = 22;          // the most layers that a model here has
inline constexpr std::int64_t kTrainResize = 1'024;       // pixels; 12 MB a sample, in colour
inline constexpr std::int32_t kTrainReplicas = 64;        // threads of one process
// Of the learning rate, and of the norm that gradients are clipped to.
inline constexpr double kTrainRateLeast = 1e-12;
inline constexpr double kTrainRate = 1e6;
inline constexpr double kTrainClip = 1e6;

// --- what users sign, and what they are told -----------------------------------------------
// What is signed for all jobs of a submission: it has a place of 256 KiB, with its end, in an order
// to lockstep-exec (scheduler-integration/exec/order.hpp).
inline constexpr std::size_t kStatementBytes = (256U << 10U) - 1;
inline constexpr std::size_t kNoticeTextBytes = 500;  // of the one line in a chat or a subject
// In a sentence of the pre-flight: of more the number.
inline constexpr std::size_t kPreflightNodesNamed = 4;
inline constexpr std::size_t kPreflightGpuItemsNamed = 4;  // processes, links

}  // namespace lockstep::limits
