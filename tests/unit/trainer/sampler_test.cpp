#include "job/trainer/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

using Indices = std::vector<std::uint32_t>;

Sampler sampler(std::uint32_t samples, std::int32_t ranks, std::int32_t rank, bool shuffle) {
    return {samples, rank, ranks, shuffle, 7};
}

// Expected values from torch.utils.data.DistributedSampler(range(10), 4, r, shuffle=False).
TEST(Sampler, WithoutShufflingItIsDistributedSampler) {
    EXPECT_EQ(sampler(10, 4, 0, false).indices(0), (Indices{0, 4, 8}));
    EXPECT_EQ(sampler(10, 4, 1, false).indices(0), (Indices{1, 5, 9}));
    EXPECT_EQ(sampler(10, 4, 2, false).indices(0), (Indices{2, 6, 0}));
    EXPECT_EQ(sampler(10, 4, 3, false).indices(0), (Indices{3, 7, 1}));
}

// DistributedSampler(range(3), 8, r, shuffle=False): the padding goes round more than once.
TEST(Sampler, FewerSamplesThanRanksRepeat) {
    Indices all;
    for (std::int32_t rank = 0; rank < 8; ++rank) {
        const Indices mine = sampler(3, 8, rank, false).indices(0);
        ASSERT_EQ(mine.size(), 1U);
        all.push_back(mine[0]);
    }
    EXPECT_EQ(all, (Indices{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(Sampler, EveryRankHasTheSameNumberAndTogetherTheyHaveAll) {
    for (const std::uint32_t samples : {1U, 7U, 64U, 1001U}) {
        for (const std::int32_t ranks : {1, 2, 3, 8}) {
            Indices all;
            for (std::int32_t rank = 0; rank < ranks; ++rank) {
                const Sampler each = sampler(samples, ranks, rank, true);
                const Indices mine = each.indices(3);
                EXPECT_EQ(static_cast<std::int64_t>(mine.size()), each.per_rank());
                all.insert(all.end(), mine.begin(), mine.end());
            }
            std::sort(all.begin(), all.end());
            all.erase(std::unique(all.begin(), all.end()), all.end());
            EXPECT_EQ(all.size(), samples) << samples << " over " << ranks;
        }
    }
}

TEST(Sampler, TheOrderDependsOnSeedAndEpochOnly) {
    const Indices first = sampler(100, 1, 0, true).order(0);
    EXPECT_EQ(sampler(100, 4, 2, true).order(0), first);
    EXPECT_NE(sampler(100, 1, 0, true).order(1), first);
    Sampler other = sampler(100, 1, 0, true);
    other.seed = 8;
    EXPECT_NE(other.order(0), first);
    other.seed = 6;  // as in DistributedSampler, seed + epoch is what counts
    EXPECT_EQ(other.order(1), first);
    Indices sorted = first;
    std::sort(sorted.begin(), sorted.end());
    Indices want(100);
    std::iota(want.begin(), want.end(), 0U);
    EXPECT_EQ(sorted, want);
}

TEST(Sampler, RanksTogetherFollowTheGlobalOrder) {
    const Indices order = sampler(12, 1, 0, true).order(5);
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        const Indices mine = sampler(12, 3, rank, true).indices(5);
        for (std::size_t i = 0; i < mine.size(); ++i) {
            EXPECT_EQ(mine[i], order[i * 3 + static_cast<std::size_t>(rank)]);
        }
    }
}

TEST(Sampler, AResumedEpochGoesOnWhereItStopped) {
    const Sampler each = sampler(103, 4, 1, true);
    const Indices whole = each.indices(2);
    const Indices rest = each.indices(2, 4 * 5);  // five steps of one sample per rank
    EXPECT_EQ(rest, Indices(whole.begin() + 5, whole.end()));
    EXPECT_EQ(each.per_rank(20), static_cast<std::int64_t>(rest.size()));
}

TEST(Sampler, AnotherNumberOfRanksSharesTheRestWithoutLoss) {
    const Indices order = sampler(100, 1, 0, true).order(0);
    Indices rest;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        const Indices mine = sampler(100, 2, rank, true).indices(0, 40);
        rest.insert(rest.end(), mine.begin(), mine.end());
    }
    std::sort(rest.begin(), rest.end());
    Indices want(order.begin() + 40, order.end());
    std::sort(want.begin(), want.end());
    EXPECT_EQ(rest, want);
}

}  // namespace
}  // namespace lockstep
