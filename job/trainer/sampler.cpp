#include "job/trainer/sampler.hpp"

#include "job/base/check.hpp"
#include "job/trainer/random.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {

std::vector<std::uint32_t> Sampler::order(std::int64_t epoch) const {
    std::vector<std::uint32_t> places(samples);
    std::iota(places.begin(), places.end(), 0U);
    if (shuffle) {
        // Fisher–Yates. The epoch is added to the seed, as DistributedSampler.set_epoch does.
        Random random{Random::mix(seed + static_cast<std::uint64_t>(epoch))};
        for (std::uint32_t left = samples; left > 1; --left) {
            std::swap(places[left - 1], places[random.below(left)]);
        }
    }
    return places;
}

std::int64_t Sampler::per_rank(std::int64_t consumed) const {
    const std::int64_t left = std::max<std::int64_t>(samples - consumed, 0);
    return (left + ranks - 1) / ranks;
}

std::vector<std::uint32_t> Sampler::indices(std::int64_t epoch, std::int64_t consumed) const {
    LOCKSTEP_CHECK(samples > 0 && ranks > 0 && rank >= 0 && rank < ranks && consumed >= 0);
    const std::vector<std::uint32_t> places = order(epoch);
    const std::int64_t count = per_rank(consumed);
    std::vector<std::uint32_t> mine;
    mine.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t place = consumed + i * ranks + rank;
        mine.push_back(places[static_cast<std::size_t>(place % samples)]);
    }
    return mine;
}

}  // namespace lockstep
