#include "job/trainer/loader.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

// Image i is 2 × 2 pixels of value i; its label is i mod 10.
ImageSet images(std::uint32_t count) {
    ImageSet set;
    set.count = count;
    set.rows = set.columns = 2;
    for (std::uint32_t i = 0; i < count; ++i) {
        set.pixels.insert(set.pixels.end(), 4, static_cast<std::uint8_t>(i));
        set.labels.push_back(static_cast<std::uint8_t>(i % 10));
    }
    return set;
}

class LoaderWith : public testing::TestWithParam<std::int32_t> {};

TEST_P(LoaderWith, BatchesComeInOrderWithTheLastOneSmaller) {
    const ImageSet set = images(200);
    Loader loader{set, 16, GetParam()};
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::uint32_t> order(100);
        std::iota(order.rbegin(), order.rend(), epoch * 50);
        loader.begin(order);
        EXPECT_EQ(loader.batches(), 7);
        std::size_t seen = 0;
        for (Batch batch = loader.next(); batch.size > 0; batch = loader.next()) {
            EXPECT_EQ(batch.size, seen == 96 ? 4 : 16);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.pixels) % 64, 0U);
            for (std::int64_t i = 0; i < batch.size; ++i, ++seen) {
                EXPECT_FLOAT_EQ(batch.pixels[i * 4 + 3], static_cast<float>(order[seen]) / 255.0F);
                EXPECT_EQ(batch.labels[i], order[seen] % 10);
            }
        }
        EXPECT_EQ(seen, 100U);
        EXPECT_EQ(loader.next().size, 0);
    }
}

TEST_P(LoaderWith, AnEpochMayEndEarly) {
    const ImageSet set = images(200);
    Loader loader{set, 8, GetParam()};
    std::vector<std::uint32_t> order(200);
    std::iota(order.begin(), order.end(), 0U);
    for (int round = 0; round < 20; ++round) {
        loader.begin(order);
        for (std::int64_t i = 0; i < round; ++i) {
            const Batch batch = loader.next();
            ASSERT_EQ(batch.labels[0], i * 8 % 10);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderWith, testing::Values(0, 1, 2, 5));

}  // namespace
}  // namespace lockstep
