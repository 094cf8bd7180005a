// What the simulated ranks of the benches report: values as training makes them, each a function of
// rank, metric and step, so that what comes back can be compared with what was sent.
// Losses and norms are single precision (what a framework's .item() gives) with noise around a slow
// curve, times whole nanoseconds, all ranks' steps about equally long; sample counts stand still,
// as they do in a run. Pure; any thread.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::bench {

inline constexpr std::array<std::string_view, 20> kMetricNames{"loss",
                                                               "step_seconds",
                                                               "busy_seconds",
                                                               "samples",
                                                               "comm_wait_seconds",
                                                               "data_wait_seconds",
                                                               "grad_norm",
                                                               "learning_rate",
                                                               "tokens",
                                                               "forward_seconds",
                                                               "backward_seconds",
                                                               "optimizer_seconds",
                                                               "memory_allocated_bytes",
                                                               "memory_reserved_bytes",
                                                               "accuracy",
                                                               "perplexity",
                                                               "tokens_per_second",
                                                               "loss_scale",
                                                               "clip_ratio",
                                                               "activation_norm"};

inline std::uint64_t mix(std::uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
}

// About normal, deviation 1, never beyond 3.5: four uniform numbers added up.
inline double noise(std::uint32_t rank, std::uint32_t what, std::uint64_t step) {
    std::uint64_t bits = mix(mix((std::uint64_t{rank} << 32U) | what) + step);
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
        sum += static_cast<double>(bits & 0xFFFFU);
        bits >>= 16U;
    }
    return (sum / 65'536 - 2) * 1.7320508075688772;
}

inline double single(double value) {
    return static_cast<double>(static_cast<float>(value));
}
inline double nanoseconds(double seconds) {
    return std::round(seconds * 1e9) * 1e-9;
}

// `metric`: index into kMetricNames.
inline double load_value(std::uint32_t rank, std::size_t metric, std::uint64_t step) {
    constexpr std::uint32_t kAllRanks = 0xFFFFFFFFU;
    const auto own = [&](std::uint32_t what) { return noise(rank, what, step); };
    const double at = static_cast<double>(step);
    const double base = 0.9 + 0.02 * std::sin(at / 50) + 0.004 * noise(kAllRanks, 1, step);
    const double whole = base + 1e-5 * own(1);
    const double communication = 0.1 * base * (1 + 0.1 * own(4));
    const double data = 0.002 * (1 + 0.2 * own(5));
    const double loss = (2 + 8 / (1 + at / 200)) * (1 + 0.02 * own(0));
    switch (metric) {
        case 0:
            return single(loss);
        case 1:
            return nanoseconds(whole);
        case 2:
            return nanoseconds(whole - communication - data);
        case 3:
            return 64;
        case 4:
            return nanoseconds(communication);
        case 5:
            return nanoseconds(data);
        case 6:
            return single(1.2 + 0.1 * own(6));
        case 7:
            return 3e-4 * 0.5 * (1 + std::cos(at * 3e-5));
        case 8:
            return std::round(131'072 - 900 * (4 + own(8)));
        case 9:
            return nanoseconds(0.25 * base * (1 + 0.01 * own(9)));
        case 10:
            return nanoseconds(0.5 * base * (1 + 0.01 * own(10)));
        case 11:
            return nanoseconds(0.02 * base * (1 + 0.01 * own(11)));
        case 12:
            return 4096 * std::round(1.5e7 + 200 * own(12));
        case 13:
            return 2'097'152 * std::round(35'000 + 0.3 * own(13));
        case 14:
            return single(0.7 - 0.5 / (1 + at / 300) + 0.02 * own(14));
        case 15:
            return single(std::exp(loss / 2));
        case 16:
            return single((131'072 - 900 * (4 + own(8))) / whole);
        case 17:
            return 65'536;
        case 18:
            return single(0.8 + 0.05 * own(18));
        default:
            return single(11 + 0.3 * std::sin(at / 90) + 0.2 * own(19));
    }
}

}  // namespace lockstep::bench
