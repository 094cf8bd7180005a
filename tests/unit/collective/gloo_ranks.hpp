// Runs a function as every rank of a world: one thread and one Gloo communicator each.
#pragma once

#include "job/collective/gloo.hpp"
#include "job/collective/memory_key_store.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {

// `patience`: of an operation with a silent peer.
inline void as_gloo_ranks(std::int32_t size, const std::function<void(Communicator&)>& body,
                          std::chrono::milliseconds patience = std::chrono::seconds{100},
                          bool shared_memory = true) {
    MemoryKeyStore store;
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < size; ++rank) {
        threads.emplace_back([&store, &body, rank, size, patience, shared_memory] {
            GlooOptions options;
            options.rank = rank;
            options.size = size;
            options.operation_timeout = patience;
            options.shared_memory = shared_memory;
            Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
            ASSERT_TRUE(made.has_value()) << made.error().text();
            ASSERT_TRUE((*made)->barrier().has_value());  // everybody has met; now one may leave
            body(**made);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace lockstep
