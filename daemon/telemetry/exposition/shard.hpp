// A part of one job's exposition, "k/n": the ranks whose number modulo n is k, and of the GPUs
// those of the nodes likewise; what is of the job as a whole is in part 0. The n parts have no
// series in common and are the whole together, for every n. Modulo, not blocks of neighbours: ranks
// fall silent node by node and the highest are cut first, and a part must not be empty while
// another is full. Value; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <string_view>

namespace lockstep::telemetry {

struct Shard {
    std::size_t index = 0;
    std::size_t count = 1;
    bool has(std::size_t number) const { return number % count == index; }
};

// "0/4" … "3/4"; invalid: what is wrong with it.
Result<Shard> parse_shard(std::string_view text);
// How many parts a job of that size is listed in. `gpus`: what it asked for. It does not change
// while the job runs, or its targets would come and go with its ranks.
std::size_t shards_of(std::size_t ranks, std::size_t gpus, std::size_t max_series_per_job);

}  // namespace lockstep::telemetry
