#include "job/collective/nccl_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

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

// A pipeline's stage: its ranks are not those of the job by number.
TEST(NcclVerdict, RanksOfAGroupAreCalledWhatTheJobCallsThem) {
    const std::vector<std::int32_t> names{1, 4, 7};
    const NcclPosition there{5, 4, 0, false, "all-reduce of 4 f32 (sum, root 0)"};
    const NcclVerdict silent = verdict({there, std::nullopt, there}, "rank 7 noticed: it", names);
    EXPECT_THAT(silent.text, HasSubstr("rank 4 does not answer"));
    EXPECT_THAT(silent.culprits, ElementsAre(4));
    const NcclPosition early{3, 3, 0, false, "barrier of 1 u8 (max, root 0)"};
    const NcclVerdict behind = verdict({there, there, early}, "", names);
    EXPECT_THAT(behind.text, HasSubstr("rank 7 is behind: operation 5 was not called there (3 "));
    EXPECT_THAT(behind.culprits, ElementsAre(7));
    const NcclPosition broken{5, 4, 1, false, "unhandled cuda error"};
    EXPECT_THAT(verdict({broken, there, there}, "", names).text, HasSubstr("rank 1: unhandled"));
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
