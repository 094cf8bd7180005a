#include "job/collective/reduction.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

TEST(Reductions, HalfPrecisionRoundsToTheNearest) {
    // 256 + 1 lies between two bfloat16, 256 and 258: ties go to the even one.
    const std::uint16_t big = 0x4380;  // 256
    const std::uint16_t one = 0x3f80;
    std::uint16_t out = 0;
    reduce_function(Dtype::bf16, ReduceOp::sum)(&out, &big, &one, 1);
    EXPECT_EQ(out, 0x4380);
    const std::uint16_t three = 0x4040;  // 259 -> 260
    reduce_function(Dtype::bf16, ReduceOp::sum)(&out, &big, &three, 1);
    EXPECT_EQ(out, 0x4382);
    const std::uint16_t nan = 0x7fff;
    reduce_function(Dtype::bf16, ReduceOp::sum)(&out, &big, &nan, 1);
    EXPECT_TRUE((out & 0x7f80U) == 0x7f80U && (out & 0x7fU) != 0);
    const std::uint16_t inf = 0x7f80;
    reduce_function(Dtype::bf16, ReduceOp::sum)(&out, &inf, &one, 1);
    EXPECT_EQ(out, 0x7f80);
}

TEST(Reductions, WholeNumbersWrapAroundAndKeepTheirSign) {
    const std::int32_t most = std::numeric_limits<std::int32_t>::max();
    const std::int32_t one = 1;
    const std::int32_t minus = -5;
    std::int32_t out = 0;
    reduce_function(Dtype::i32, ReduceOp::sum)(&out, &most, &one, 1);
    EXPECT_EQ(out, std::numeric_limits<std::int32_t>::min());
    reduce_function(Dtype::i32, ReduceOp::min)(&out, &minus, &one, 1);
    EXPECT_EQ(out, -5);
    reduce_function(Dtype::i32, ReduceOp::product)(&out, &minus, &minus, 1);
    EXPECT_EQ(out, 25);
    const std::int64_t low = -7;
    const std::int64_t high = 3;
    std::int64_t wide = 0;
    reduce_function(Dtype::i64, ReduceOp::max)(&wide, &low, &high, 1);
    EXPECT_EQ(wide, 3);
}

}  // namespace
}  // namespace lockstep
