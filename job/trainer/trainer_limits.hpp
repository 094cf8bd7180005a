// What lockstep-train lets people and ranks run into, each with its reason: files that are too
// large for it, and how long ranks wait for each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// --- data sets -----------------------------------------------------------------------------
// Each rank reads these files whole, and a machine has several ranks. CIFAR-10's have 30,730,000
// bytes.
inline constexpr std::size_t kCifarFileBytes = 1U << 30U;
inline constexpr std::size_t kPairsFileBytes = 1U << 30U;
inline constexpr std::size_t kPairsSampleBytes = 1U << 31U;  // of all samples, padded
inline constexpr std::size_t kTableFileBytes = 1U << 30U;
inline constexpr std::size_t kTableColumns = 65'536;  // inputs of the first layer
inline constexpr std::size_t kTextFileBytes = 1U << 30U;
// Unpacked: ImageNet's 1.3 M 28×28 thumbnails would fit.
inline constexpr std::size_t kIdxFileBytes = 2ULL << 30U;

// --- images, which are decoded one by one --------------------------------------------------
inline constexpr std::size_t kImageClasses = 65'536;  // folders; ImageNet has 1,000, in full 21,841
inline constexpr std::size_t kImageFileBytes = std::size_t{64} << 20U;  // ImageNet's have 0.1 MB
inline constexpr std::int64_t kImagePixels = 100'000'000;  // 300 MB; ImageNet's largest has 32 M
// Of libjpeg's own: 6 bytes a pixel while a progressive image's scans come in.
inline constexpr long kJpegMemoryBytes = 6 * kImagePixels + (1L << 24U);
// A progressive JPEG may come in any number of scans, each of which decodes the whole image again:
// of a few kilobytes that take hours. Ten are usual.
inline constexpr int kJpegScans = 200;

// --- checkpoints and weights ---------------------------------------------------------------
// Each file; a rank reads it whole. The largest network here, alexnet with Adam, has 0.7 GB.
inline constexpr std::size_t kCheckpointFileBytes = 8ULL << 30U;
inline constexpr std::size_t kCheckpointSlices = 1U << 20U;  // parameters × ranks that hold parts
// What another machine has written is seen here when this one asks the file server again.
inline constexpr auto kCheckpointPartPatience = std::chrono::seconds{30};
// 1024 tensors of our JSON's limit take 0.2 MiB.
inline constexpr std::uint64_t kSafetensorsHeaderBytes = 8U << 20U;
inline constexpr std::uint64_t kSafetensorsValueBytes = 1ULL << 40U;  // no file has them
inline constexpr std::size_t kSafetensorsDimensions = 16;             // networks have four

// --- ranks ---------------------------------------------------------------------------------
// Where ranks meet: people start them by hand, one after the other, and one may have read its data
// from a slower disk than the others.
inline constexpr auto kMeetPatience = std::chrono::minutes{5};
// After SIGTERM the other ranks get this long to finish the step, or to be there in NCCL: the
// agent's grace is kStopGrace.
inline constexpr auto kTrainStopPatience = std::chrono::seconds{4};
// How often a worker that has made its last step asks an asynchronous server for the others.
inline constexpr auto kSettledAskedEvery = std::chrono::seconds{1};
// For a GPU to come past what is enqueued; where it does not, it waits for ranks that are lost.
inline constexpr auto kGpuEndPatience = std::chrono::seconds{3};

// --- profiles ------------------------------------------------------------------------------
inline constexpr std::size_t kStepProfileSpans = 200'000;  // 20 MB of text before it is packed
inline constexpr std::size_t kStepProfileRows = 40;        // of its table: what took the longest

}  // namespace lockstep::limits
