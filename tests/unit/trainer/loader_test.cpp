#include "job/trainer/loader.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Image i is 2 × 2 pixels of value i; its label is i mod 10.
SampleSet images(std::uint32_t count) {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    for (std::uint32_t i = 0; i < count; ++i) {
        pixels.insert(pixels.end(), 4, static_cast<std::uint8_t>(i));
        labels.push_back(static_cast<std::uint8_t>(i % 10));
    }
    return image_samples({2, 2, 1}, std::move(pixels), std::move(labels));
}

class LoaderWith : public testing::TestWithParam<std::int32_t> {};

TEST_P(LoaderWith, BatchesComeInOrderWithTheLastOneSmaller) {
    const SampleSet set = images(200);
    Loader loader{set, 16, GetParam()};
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::uint32_t> order(100);
        std::iota(order.rbegin(), order.rend(), epoch * 50);
        loader.begin(order);
        EXPECT_EQ(loader.batches(), 7);
        std::size_t seen = 0;
        for (Batch batch = loader.next(); batch.size > 0; batch = loader.next()) {
            EXPECT_EQ(batch.size, seen == 96 ? 4 : 16);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch.input.data) % 64, 0U);
            for (std::int64_t i = 0; i < batch.size; ++i, ++seen) {
                EXPECT_FLOAT_EQ(batch.input.floats()[i * 4 + 3],
                                static_cast<float>(order[seen]) / 255.0F);
                EXPECT_EQ(batch.target.indices()[i], order[seen] % 10);
            }
        }
        EXPECT_EQ(seen, 100U);
        EXPECT_EQ(loader.next().size, 0);
    }
}

TEST_P(LoaderWith, InputsAreLeftOutWhereNobodyWantsThem) {
    SampleSet set = images(8);
    set.input.files = std::make_shared<ImageFiles>("/nowhere", 2, false);  // reading one would fail
    Loader loader{set, 4, GetParam(), /*inputs=*/false};
    loader.begin({3, 5, 1, 7});
    const Batch batch = loader.next();
    ASSERT_EQ(batch.size, 4) << loader.ended().message;
    EXPECT_EQ(batch.target.indices()[1], 5);
}

TEST_P(LoaderWith, AnEpochMayEndEarly) {
    const SampleSet set = images(200);
    Loader loader{set, 8, GetParam()};
    std::vector<std::uint32_t> order(200);
    std::iota(order.begin(), order.end(), 0U);
    for (int round = 0; round < 20; ++round) {
        loader.begin(order);
        for (std::int64_t i = 0; i < round; ++i) {
            const Batch batch = loader.next();
            ASSERT_EQ(batch.target.indices()[0], i * 8 % 10);
        }
    }
}

// Text: every sample is the bytes from its place on, and the answer is one byte later.
TEST(Loader, ColumnsMayShareTheirBytes) {
    std::vector<std::uint8_t> text(33);
    std::iota(text.begin(), text.end(), std::uint8_t{0});
    const auto bytes = std::make_shared<const std::vector<std::uint8_t>>(text);
    SampleSet set;
    set.count = 4;
    set.input = {ColumnType::index, {8}, bytes, 0, 8};
    set.target = {ColumnType::index, {8}, bytes, 1, 8};
    Loader loader{set, 2, 0};
    loader.begin({3, 1});
    const Batch batch = loader.next();
    ASSERT_EQ(batch.size, 2);
    EXPECT_EQ(batch.input.indices()[0], 24);
    EXPECT_EQ(batch.input.indices()[15], 15);
    EXPECT_EQ(batch.target.indices()[0], 25);
    EXPECT_EQ(batch.target.indices()[15], 16);
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderWith, testing::Values(0, 1, 2, 5));

}  // namespace
}  // namespace lockstep
