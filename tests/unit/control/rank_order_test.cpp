#include "daemon/control/base/rank_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankOrder, AKeyIsAWordWithOrWithoutAMinus) {
    RanksQuery query;
    EXPECT_TRUE(query.sort_by("-busy_seconds"));
    EXPECT_EQ(query.key.name, "busy_seconds");
    EXPECT_EQ(query.key.kind, RankKeyKind::metric);
    EXPECT_EQ(query.key.metric, telemetry::CoreMetric::busy_seconds);
    EXPECT_TRUE(query.descending);
    EXPECT_FALSE(query.sort_by("-"));
    EXPECT_FALSE(query.sort_by("busy"));
    EXPECT_FALSE(query.sort_by("--loss"));
    EXPECT_EQ(query.key.name, "busy_seconds") << "a refused one changes nothing";
    for (const RankKey& key : kRankKeys) {
        EXPECT_TRUE(query.sort_by(key.name));
        EXPECT_EQ(query.key.name, key.name);
        EXPECT_FALSE(query.descending);
    }
}

TEST(RankOrder, WhoHasNoValueIsLastEitherWayAndNanAboveAll) {
    const std::vector<std::optional<double>> values{std::nullopt, 2.0, NAN, INFINITY, 1.0, 2.0};
    RanksQuery query;
    EXPECT_THAT(ranks_in_order(values, query), ElementsAre(4, 1, 5, 3, 2, 0));
    query.descending = true;
    EXPECT_THAT(ranks_in_order(values, query), ElementsAre(2, 3, 1, 5, 4, 0));
}

TEST(RankOrder, OnlyWhatIsAskedForIsAnswered) {
    const std::vector<std::optional<double>> values{5.0, 4.0, 3.0, 2.0, 1.0};
    RanksQuery query;
    query.offset = 1;
    query.limit = 2;
    EXPECT_THAT(ranks_in_order(values, query), ElementsAre(3, 2));
    query.offset = 4;
    EXPECT_THAT(ranks_in_order(values, query), ElementsAre(0));
    query.offset = 9;
    EXPECT_THAT(ranks_in_order(values, query), IsEmpty());
    EXPECT_THAT(ranks_in_order({}, RanksQuery{}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
