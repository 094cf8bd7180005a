// Runs a function as every rank of a world: one thread and one Gloo communicator each.
#pragma once

#include "job/collective/gloo.hpp"
#include "job/collective/memory_key_store.hpp"
#include "job/trainer/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

// `servers`: so many of the first ranks are parameter servers.
inline void as_worlds(std::int32_t size, std::int32_t servers,
                      const std::function<void(World&)>& body,
                      std::int32_t ranks_per_node = 1'000) {
    MemoryKeyStore store;
    const auto connect = [&store](const std::string& name, std::int32_t rank,
                                  const std::vector<std::int32_t>& members) {
        GlooOptions options;
        options.rank = rank;
        options.size = static_cast<std::int32_t>(members.size());
        options.names = members;
        options.prefix = name;
        return make_gloo(options, store);
    };
    std::vector<std::int32_t> everybody(static_cast<std::size_t>(size));
    std::iota(everybody.begin(), everybody.end(), 0);
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            Result<std::unique_ptr<Communicator>> made = connect("world", rank, everybody);
            ASSERT_TRUE(made.has_value()) << made.error().text();
            ASSERT_TRUE((*made)->barrier().has_value());  // everybody has met; now one may leave
            World world{**made, connect, rank / ranks_per_node, rank < servers};
            body(world);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

inline void as_ranks(std::int32_t size, const std::function<void(Communicator&)>& body) {
    as_worlds(size, 0, [&body](World& world) { body(world.all()); });
}

}  // namespace lockstep
