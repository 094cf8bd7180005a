// Small deterministic random numbers that do not depend on a library's version: weights, dropout,
// shuffling and the generated digits are the same everywhere. Not for secrets. Plain values.
#pragma once

#include <cstdint>

namespace lockstep {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15ULL;
        return mix(state_);
    }
    // Uniform in [0, 1), 24 bits.
    float uniform() { return static_cast<float>(next() >> 40U) * 0x1p-24F; }
    float uniform(float low, float high) { return low + (high - low) * uniform(); }
    // Uniform in [0, bound) for bound > 0; Lemire's multiplication, bias below 2^-32 · bound.
    std::uint32_t below(std::uint32_t bound) {
        return static_cast<std::uint32_t>(((next() >> 32U) * bound) >> 32U);
    }

    // The finalizer: a good hash of one word.
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31U);
    }
    // A seed that depends on both.
    static std::uint64_t combine(std::uint64_t a, std::uint64_t b) {
        return mix(mix(a + 0x9E3779B97F4A7C15ULL) ^ b);
    }

  private:
    std::uint64_t state_;
};

}  // namespace lockstep
