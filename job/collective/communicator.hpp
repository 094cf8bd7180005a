// Collective operations over the ranks of one generation. Every rank makes the same calls in the
// same order. One call at a time; the calling thread may change. A failed call leaves the
// communicator unusable: the generation is over.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

class Communicator {
  public:
    virtual ~Communicator() = default;
    virtual std::int32_t rank() const = 0;
    virtual std::int32_t size() const = 0;

    // Replaces `values` on every rank by the sum over the ranks. The result has the same bits on
    // every rank. All ranks pass the same number of values.
    virtual Status all_reduce_sum(std::span<float> values) = 0;
    // Replaces `bytes` by those of rank `root`.
    virtual Status broadcast(std::span<std::byte> bytes, std::int32_t root) = 0;
    // Returns once every rank has called it.
    virtual Status barrier() = 0;
};

}  // namespace lockstep
