// The communicator for CPUs: Gloo over TCP, full mesh, ring all-reduce; through shared memory where
// all ranks are on one machine.
#pragma once

#include "job/collective/communicator.hpp"
#include "job/collective/key_store.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct GlooOptions {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    // What the ranks are called in errors, by their number here; empty: by that number.
    std::vector<std::int32_t> names{};
    std::int32_t name_of(std::int32_t number) const {
        return names.empty() ? number : names[static_cast<std::size_t>(number)];
    }
    // Address or host name of this node that the other ranks can reach; Gloo listens there on a
    // port the kernel picks. Empty = 127.0.0.1.
    std::string address;
    // Keys are "<prefix>/<rank>"; must be new for every generation if the store is not.
    std::string prefix = "gloo";
    std::chrono::milliseconds connect_timeout{120'000};
    // A peer that sends nothing for so long inside one operation counts as lost. A peer whose
    // process ends is noticed at once, by its connection. Time in which this process was suspended
    // does not count.
    std::chrono::milliseconds operation_timeout{1'800'000};
    // All-reduce goes through shared memory where all ranks are on one machine (shared_sum.hpp).
    bool shared_memory = true;
};

// Meets the other ranks through `store` (used only during this call) and connects to all of them.
// One rank alone needs no network and no store. timed_out: somebody did not come, "missing: rank
// N"; unavailable: a connection failed. With more than one rank SIGPIPE is ignored in this process
// from here on, unless the program handles it: Gloo's writes to a rank that has left would raise
// it.
Result<std::unique_ptr<Communicator>> make_gloo(const GlooOptions& options, KeyStore& store);

}  // namespace lockstep
