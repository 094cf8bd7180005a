#include "job/collective/nccl_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(NcclVerdict, PositionsSurviveTheirWayOverKeys) {
    const NcclPosition there{12, 11, 6, true, "all-reduce of 4 f32 (sum, root 0)"};
    const auto back = NcclPosition::decode(there.encode());
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->called, 12);
    EXPECT_EQ(back->done, 11);
    EXPECT_EQ(back->error, 6);
    EXPECT_TRUE(back->remote);
    EXPECT_EQ(back->text, there.text);
    EXPECT_FALSE(NcclPosition::decode("1 2 x 0 y").has_value());
    EXPECT_FALSE(NcclPosition::decode("").has_value());
}

TEST(NcclVerdict, AnEchoDoesNotWinOverASilentRank) {
    const NcclPosition echo{5, 4, 6, true, "remote process exited"};
    EXPECT_THAT(verdict({echo, std::nullopt, echo}, "rank 0 noticed: it"),
                HasSubstr("rank 1 does not answer"));
    EXPECT_THAT(
        verdict({echo, NcclPosition{5, 4, 1, false, "unhandled cuda error"}, std::nullopt}, ""),
        HasSubstr("rank 1: unhandled cuda error"));
}

}  // namespace
}  // namespace lockstep
