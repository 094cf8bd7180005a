// Which samples a rank sees in which order: the semantics of PyTorch's DistributedSampler with
// drop_last=False. The epoch's order is a permutation made from seed + epoch (or 0, 1, 2, … without
// shuffling), padded to a multiple of the ranks by starting again from its beginning; rank r takes
// the places r, r + ranks, r + 2 · ranks, …
// Source: torch/utils/data/distributed.py; the permutation itself is our own (see random.hpp).
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct Sampler {
    std::uint32_t samples = 0;  // in the data set, > 0
    std::int32_t rank = 0;
    std::int32_t ranks = 1;
    bool shuffle = true;
    std::uint64_t seed = 0;

    // The whole epoch's order over all ranks, not padded.
    std::vector<std::uint32_t> order(std::int64_t epoch) const;
    // This rank's samples of the epoch. `consumed` samples of the order were already used, by all
    // ranks together: after a resume the rest is shared out, also among another number of ranks.
    std::vector<std::uint32_t> indices(std::int64_t epoch, std::int64_t consumed = 0) const;
    // How many samples each rank has in an epoch: ceil((samples − consumed) / ranks).
    std::int64_t per_rank(std::int64_t consumed = 0) const;
};

}  // namespace lockstep
