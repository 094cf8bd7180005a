// All-reduce of ranks on one machine, through memory that they share. Between them Gloo sends every
// value through the kernel's loopback twice, wakes a thread for each message, and on busy cores
// waits for a turn of the scheduler each time: for the 30 MB of a large network's gradients that
// is a sixth of a step.
//
// Each rank has some slots of the memory. Values go through them in blocks: a rank stages what the
// others reduce, reduces its own piece of the block in the order of the ranks, and gathers the
// other pieces; so a result has the same bits on every rank. A block of few values is reduced whole
// by every rank, which saves one wait. Counters say how far a rank is; a futex wakes who waits.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/reduction.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class SharedSum {
  public:
    // Every rank's `mine` in the order of the ranks, as all_gather has it. May throw.
    using Gather = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;
    // A rank that is lost; asked now and then while a call waits. Any thread.
    using Lost = std::function<bool(std::int32_t rank)>;
    // What a rank is called in errors.
    using Name = std::function<std::int32_t(std::int32_t rank)>;

    struct Values {
        std::byte* data;
        std::size_t count;
        std::size_t size;  // of one, in bytes
    };

    // Every rank calls it. Nothing: they are not on one machine, or are too many, or it has no
    // memory to share; the same answer on every rank. Throws what `gather` throws.
    static std::unique_ptr<SharedSum> meet(std::int32_t rank, std::int32_t ranks,
                                           const Gather& gather);
    ~SharedSum();
    SharedSum(const SharedSum&) = delete;
    SharedSum& operator=(const SharedSum&) = delete;

    // Replaces `values` by their reduction. Every rank makes the same calls; `tag` tells one from
    // another. One call at a time. unavailable: a rank was lost that had not done its part;
    // timed_out: nothing could be done for `patience`, or one makes another call; cancelled:
    // abort(). The patience counts time in which this process ran (running_time.hpp).
    Status run(
        Values values, ReduceFunction reduce, std::uint32_t tag, std::chrono::milliseconds patience,
        const Lost& lost, const Name& name = [](std::int32_t rank) { return rank; });
    // Ends what waits, now or later. Any thread.
    void abort();

  private:
    class Memory;
    class Call;

    explicit SharedSum(std::unique_ptr<Memory> memory);

    std::unique_ptr<Memory> memory_;
    std::uint64_t blocks_ = 0;  // of all calls so far
};

}  // namespace lockstep
