#include "job/nccl_test/gpu_rank.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough for the bandwidth of the fastest links: nccl-tests' curves are flat from there on.
constexpr std::size_t kLargeBytes = 128U << 20U;
constexpr std::size_t kProbeBytes = 8U << 20U;  // of a first look at how fast it is
constexpr std::size_t kSliceBytes = 4U << 20U;  // of host memory
constexpr std::size_t kValue = sizeof(float);
// How long the large and the small ones may take: the size and the number follow from the first
// look, so that the test ends in time over a slow network, too.
constexpr double kLargeSeconds = 1.5;
constexpr double kSmallSeconds = 0.3;
constexpr int kLeastLarge = 3;
constexpr int kMostLarge = 20;
constexpr int kLeastSmall = 5;
constexpr int kMostSmall = 200;
constexpr std::size_t kSmallValues = 2;

// Whole numbers below 1024, others for each rank and place: the sum over 16,384 ranks is exact.
constexpr std::size_t kPeriod = 1021;  // of places
float value_of(std::size_t place, std::int32_t rank) {
    return static_cast<float>((place * 7 + static_cast<std::size_t>(rank) * 31) % kPeriod);
}

class GpuRank {
  public:
    GpuRank(const NcclOptions& options, GpuRanks& shared, const ExchangeNcclIds& exchange)
        : options_(options), shared_(shared), exchange_(exchange) {}

    GpuRankResult run() {
        const Status ended = test();
        if (!ended) {
            shared_.failed = true;
            result_.error = ended.error().message;
        }
        return std::move(result_);
    }

  private:
    Status test() {
        tell("NCCL's initialisation");
        auto made = make_nccl(options_, *shared_.keys, exchange_);
        if (made) {
            result_.ranks = std::move(*made);
        }
        result_.own = !made && made.error().code == Errc::not_found;
        Status memory = made ? allocate() : Status{fail(made.error())};
        shared_.failed = shared_.failed || !memory;
        shared_.together.arrive_and_wait();
        LOCKSTEP_TRY(memory);
        if (shared_.failed) {
            result_.of_another = true;
            return fail(Errc::unavailable, "another GPU of this node has failed");
        }
        tell("NCCL's first all-reduce");
        LOCKSTEP_TRY(choose_size());
        tell("NCCL's all-reduce");
        LOCKSTEP_TRY(check_sums());
        LOCKSTEP_TRY(measure_large());
        return measure_small();
    }

    void tell(const char* stage) const {
        if (options_.gpu == 0 && shared_.stage) {
            shared_.stage(stage);
        }
    }

    NcclCommunicator& ranks() { return *result_.ranks; }
    Buffer buffer(std::size_t bytes) {
        // A number of the driver's, a pointer to NCCL.
        return {reinterpret_cast<void*>(memory_), bytes / kValue, Dtype::f32, Device::cuda};
    }
    Status of_driver(cuda::Result code, const char* what) {
        result_.own = result_.own || code != cuda::kSuccess;
        return code == cuda::kSuccess
                   ? Status{}
                   : fail(Errc::unavailable, "GPU " + std::to_string(options_.gpu) + ": " + what +
                                                 ": " + shared_.driver.error(code));
    }

    // The communicator has made its GPU this thread's.
    Status allocate() {
        return of_driver(shared_.driver.api.mem_alloc(&memory_, kLargeBytes), "128 MiB of memory");
    }

    template <class Value>
    Status fill(std::size_t bytes, Value&& value) {
        std::vector<float> slice(kSliceBytes / kValue);
        for (std::size_t at = 0; at < bytes; at += kSliceBytes) {
            const std::size_t count = std::min(kSliceBytes, bytes - at) / kValue;
            for (std::size_t i = 0; i < count; ++i) {
                slice[i] = value(at / kValue + i);
            }
            LOCKSTEP_TRY(of_driver(
                shared_.driver.api.memcpy_to_gpu(memory_ + at, slice.data(), count * kValue),
                "copy to it"));
        }
        return {};
    }

    template <class Value>
    Status check(std::size_t bytes, Value&& value) {
        std::vector<float> slice(kSliceBytes / kValue);
        for (std::size_t at = 0; at < bytes; at += kSliceBytes) {
            const std::size_t count = std::min(kSliceBytes, bytes - at) / kValue;
            LOCKSTEP_TRY(of_driver(
                shared_.driver.api.memcpy_from_gpu(slice.data(), memory_ + at, count * kValue),
                "copy from it"));
            for (std::size_t i = 0; i < count; ++i) {
                result_.wrong += slice[i] == value(at / kValue + i) ? 0 : 1;
            }
        }
        return {};
    }

    static float nothing(std::size_t /*place*/) { return 0; }

    // Seconds that `count` of them take, one after another on the GPU.
    Result<double> time(std::size_t bytes, int count) {
        LOCKSTEP_TRY(ranks().barrier());
        const auto began = Clock::now();
        for (int i = 0; i < count; ++i) {
            LOCKSTEP_TRY(ranks().all_reduce(buffer(bytes)));
        }
        LOCKSTEP_TRY(ranks().barrier());
        return std::chrono::duration<double>(Clock::now() - began).count();
    }

    // The slowest rank's, so that all choose the same.
    Result<double> slowest(const std::string& what, double seconds) {
        // By keys: what NCCL sums may be wrong.
        const std::string prefix = what + "/";
        LOCKSTEP_TRY(shared_.keys->set(prefix + std::to_string(options_.rank),
                                       std::to_string(std::llround(seconds * 1e9))));
        std::int64_t most = 0;
        for (std::int32_t rank = 0; rank < options_.size; ++rank) {
            const auto said = shared_.keys->wait(prefix + std::to_string(rank), options_.silence);
            LOCKSTEP_TRY(said);
            most = std::max(most, to_int(*said).value_or(0));
        }
        return static_cast<double>(most) / 1e9;
    }

    Status choose_size() {
        LOCKSTEP_TRY(fill(kProbeBytes, nothing));
        LOCKSTEP_TRY(time(kProbeBytes, 1));  // makes the connections
        const auto once = time(kProbeBytes, 1);
        LOCKSTEP_TRY(once);
        const auto agreed = slowest("large", *once);
        LOCKSTEP_TRY(agreed);
        bytes_ = kLargeBytes;
        const auto seconds = [&] {
            return std::max(*agreed, 1e-6) * static_cast<double>(bytes_) /
                   static_cast<double>(kProbeBytes);
        };
        // Beside those that are measured one is checked, one warms up.
        while (bytes_ > kProbeBytes && seconds() * (kLeastLarge + 2) > kLargeSeconds) {
            bytes_ /= 2;
        }
        large_ = std::clamp(static_cast<int>(std::min(kLargeSeconds / seconds(), 1e6)), kLeastLarge,
                            kMostLarge);
        return {};
    }

    Status check_sums() {
        // Computed once: for each value it would take longer than others have patience.
        std::vector<float> mine(kPeriod);
        std::vector<float> sums(kPeriod, 0);
        for (std::size_t place = 0; place < kPeriod; ++place) {
            mine[place] = value_of(place, options_.rank);
            for (std::int32_t rank = 0; rank < options_.size; ++rank) {
                sums[place] += value_of(place, rank);
            }
        }
        LOCKSTEP_TRY(fill(bytes_, [&](std::size_t place) { return mine[place % kPeriod]; }));
        LOCKSTEP_TRY(ranks().all_reduce(buffer(bytes_)));
        LOCKSTEP_TRY(ranks().barrier());
        return check(bytes_, [&](std::size_t place) { return sums[place % kPeriod]; });
    }

    // Sums of nothing stay nothing, however often: what goes wrong in any of them is still there.
    Status measure_large() {
        LOCKSTEP_TRY(fill(bytes_, nothing));
        LOCKSTEP_TRY(time(bytes_, 1));
        const auto seconds = time(bytes_, large_);
        LOCKSTEP_TRY(seconds);
        const auto size = static_cast<double>(options_.size);
        result_.bytes = static_cast<std::int64_t>(bytes_);
        result_.bus_bytes_per_second =
            2 * (size - 1) / size * static_cast<double>(bytes_) * large_ / *seconds;
        return check(bytes_, nothing);
    }

    Status measure_small() {
        constexpr std::size_t kBytes = kSmallValues * kValue;
        const auto few = time(kBytes, kLeastSmall);
        LOCKSTEP_TRY(few);
        const auto agreed = slowest("small", *few / kLeastSmall);
        LOCKSTEP_TRY(agreed);
        const int count =
            std::clamp(static_cast<int>(std::min(kSmallSeconds / std::max(*agreed, 1e-9), 1e6)),
                       kLeastSmall, kMostSmall);
        LOCKSTEP_TRY(fill(kBytes, nothing));
        const auto seconds = time(kBytes, count);
        LOCKSTEP_TRY(seconds);
        result_.latency_seconds = *seconds / count;
        return check(kBytes, nothing);
    }

    const NcclOptions& options_;
    GpuRanks& shared_;
    const ExchangeNcclIds& exchange_;
    GpuRankResult result_;
    cuda::Pointer memory_ = 0;
    std::size_t bytes_ = 0;
    int large_ = 0;
};

}  // namespace

GpuRankResult run_gpu_rank(const NcclOptions& options, GpuRanks& shared,
                           const ExchangeNcclIds& exchange) {
    return GpuRank{options, shared, exchange}.run();
}

}  // namespace lockstep
