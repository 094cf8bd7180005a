#include "job/collective/nccl_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
    const NcclVerdict silent = verdict({echo, std::nullopt, echo}, "rank 0 noticed: it");
    EXPECT_THAT(silent.text, HasSubstr("rank 1 does not answer"));
    EXPECT_THAT(silent.culprits, ElementsAre(1));
    const NcclVerdict own =
        verdict({echo, NcclPosition{5, 4, 1, false, "unhandled cuda error"}, std::nullopt}, "");
    EXPECT_THAT(own.text, HasSubstr("rank 1: unhandled cuda error"));
    EXPECT_THAT(own.culprits, ElementsAre(1));
}

TEST(NcclVerdict, WhereRanksCannotBeToldApartNobodyIsBlamed) {
    const NcclPosition there{5, 4, 0, false, "barrier of 1 u8 (max, root 0)"};
    EXPECT_THAT(verdict({there, there}, "").culprits, IsEmpty());
    const NcclPosition behind{4, 4, 0, false, "barrier of 1 u8 (max, root 0)"};
    EXPECT_THAT(verdict({behind, there, behind, there}, "").culprits, ElementsAre(0, 2));
    const NcclPosition other{5, 4, 0, false, "all-reduce of 4 f32 (sum, root 0)"};
    EXPECT_THAT(verdict({there, other, there}, "").culprits, ElementsAre(1));
}

}  // namespace
}  // namespace lockstep
