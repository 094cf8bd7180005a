// Memory that ranks share: who gets it, and that none is left behind.
#include "job/collective/shared_sum.hpp"

#include "job/collective/reduction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Sums = std::vector<std::unique_ptr<SharedSum>>;
using Spoil = std::function<void(std::int32_t rank, std::vector<std::byte>& gathered)>;

bool nobody(std::int32_t) {
    return false;
}

// What each of so many ranks gets; `spoil`: what reaches a rank instead of what was sent.
Sums meet(std::int32_t ranks, const Spoil& spoil = [](auto, auto&) {}) {
    Sums out(static_cast<std::size_t>(ranks));
    std::vector<std::byte> all;
    std::barrier together{ranks};
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            const auto gather = [&](std::span<const std::byte> mine) {
                if (rank == 0) {
                    all.resize(mine.size() * static_cast<std::size_t>(ranks));
                }
                together.arrive_and_wait();
                std::copy(mine.begin(), mine.end(),
                          all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
                together.arrive_and_wait();
                std::vector<std::byte> seen = all;
                together.arrive_and_wait();
                spoil(rank, seen);
                return seen;
            };
            out[static_cast<std::size_t>(rank)] = SharedSum::meet(rank, ranks, gather);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return out;
}

Status sum(SharedSum& ranks, std::vector<float>& values, const SharedSum::Lost& lost = nobody,
           std::uint32_t tag = 1) {
    auto* data = reinterpret_cast<std::byte*>(values.data());
    return ranks.run({data, values.size(), sizeof(float)},
                     reduce_function(Dtype::f32, ReduceOp::sum), tag, 20s, lost);
}

TEST(SharedSum, LeavesNoNameBehind) {
    const Sums ranks = meet(3);
    std::size_t mapped = 0;
    std::ifstream maps{"/proc/self/maps"};
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:lockstep-") != std::string::npos) {
            ++mapped;
            EXPECT_TRUE(line.ends_with(" (deleted)")) << line;
        }
    }
    EXPECT_EQ(mapped, ranks.size());
}

// As between two machines: the name is known, and the memory is another one or none.
TEST(SharedSum, NobodyHasItWhereOneCannot) {
    const Sums ranks = meet(3, [](std::int32_t rank, std::vector<std::byte>& gathered) {
        if (rank == 2 && gathered.size() > 3) {
            gathered[0] = std::byte{'?'};
        }
    });
    for (const auto& rank : ranks) {
        EXPECT_EQ(rank, nullptr);
    }
}

TEST(SharedSum, IsForTheRanksOfOneMachine) {
    for (const auto& rank : meet(17)) {
        EXPECT_EQ(rank, nullptr);
    }
}

TEST(SharedSum, ALostRankIsNamed) {
    const Sums ranks = meet(2);
    std::vector<float> values(300'000, 1.0F);
    const Status done = sum(*ranks[0], values, [](std::int32_t rank) { return rank == 1; });
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Errc::unavailable);
    EXPECT_NE(done.error().message.find("rank 1"), std::string::npos) << done.error().text();
}

TEST(SharedSum, AnotherCallOfAnotherRankIsNotSummed) {
    const Sums ranks = meet(2);
    std::vector<float> mine(8, 1.0F);
    std::vector<float> theirs(8, 2.0F);
    std::thread other{[&] { EXPECT_FALSE(sum(*ranks[1], theirs, nobody, 2).has_value()); }};
    const Status done = sum(*ranks[0], mine, nobody, 1);
    other.join();
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Errc::timed_out);
}

}  // namespace
}  // namespace lockstep
