// An all-reduce in which pairs of ranks exchange everything and reduce it (recursive doubling):
// log2(n) messages one after the other, two more where n is no power of two, where Gloo's ring has
// 4 (n - 1); for values so few that waiting for messages is what takes the time. A rank sends
// log2(n) times its values, the ring about twice; between two ranks it is no more than the ring.
#pragma once

#include "job/collective/reduction.hpp"

#include <gloo/context.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class ExchangeAllReduce {
  public:
    struct Values {
        std::byte* data;
        std::size_t count;
        std::size_t size;  // of one, in bytes
    };

    // Whether this is the way to go for so many bytes over so many ranks.
    static bool is_for(std::int32_t ranks, std::size_t bytes);
    // Replaces `values` by their reduction, with the same bits on every rank: of two parts the one
    // of the lower ranks always comes first. Every rank of the context calls it, with slots that
    // nothing else uses. One call at a time. Throws what Gloo throws.
    void run(gloo::Context& context, Values values, ReduceFunction reduce, std::uint64_t slot);

  private:
    std::vector<std::byte> received_;  // kept, to allocate once
};

}  // namespace lockstep
