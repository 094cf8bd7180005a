// What is said of all communicators at once, which a hang's evidence has.
#include "job/agent/nccl/desync_watch.hpp"
#include "tests/support/ras_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::RasGroup;
using test::RasMember;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kLagHead =
    "Collectives that each rank has launched, as NCCL's RAS said 1 s ago. Not counted: sends and "
    "receives, and what a CUDA graph replays.\n";

// Of AllReduce by each rank; rank r is process 100 + r.
RasGroup counted(std::uint64_t hash, const std::vector<std::uint64_t>& all_reduces) {
    RasGroup out;
    out.hash = hash;
    for (std::size_t i = 0; i < all_reduces.size(); ++i) {
        RasMember one;
        one.rank = static_cast<int>(i);
        one.pid = 100 + one.rank;
        one.launched[4] = all_reduces[i];
        out.members.push_back(one);
    }
    return out;
}

class DesyncLags : public testing::Test {
  protected:
    // After a look at `before` and three at `now`, two seconds apart.
    std::string said(const std::vector<RasGroup>& before, const std::vector<RasGroup>& now,
                     std::int32_t known = 4) {
        DesyncWatch watch{{4, 0, known}, [known](std::int64_t pid) {
                              const auto rank = static_cast<std::int32_t>(pid - 100);
                              return rank < known ? std::optional{rank} : std::nullopt;
                          }};
        DesyncWatch::TimePoint time{};
        DesyncWatch::Seen seen;
        for (const auto* groups : {&before, &now, &now, &now}) {
            time += std::chrono::seconds{2};
            seen = watch.take(parse_ras_status(test::ras_words(*groups)).value(), time);
        }
        return lag_words(seen.account, std::chrono::milliseconds{1500});
    }
};

TEST_F(DesyncLags, EachRankBehindIsSaidWithHowManyOperationsTheMostFirst) {
    EXPECT_EQ(said({counted(0xabc, {5, 5, 5, 5})}, {counted(0xabc, {9, 8, 9, 6})}),
              std::string{kLagHead} +
                  "communicator 0xabc of 4 ranks, unchanged for 4 s: the most is 9; behind: rank 3 "
                  "by 3 (6), rank 1 by 1 (8)\n");
}

TEST_F(DesyncLags, EachCommunicatorHasALineAndThoseWithoutALagAreCounted) {
    RasGroup made = counted(4, {1, 1});
    made.members[0].init_state = 7;
    const RasGroup alone = counted(5, {3});
    EXPECT_EQ(
        said({}, {counted(1, {9, 9, 9, 8}), counted(2, {3, 4}), counted(3, {7, 7}), made, alone}),
        std::string{kLagHead} +
            "communicator 0x1 of 4 ranks, unchanged for 4 s: the most is 9; behind: rank 3 "
            "by 1 (8)\n"
            "communicator 0x2 of 2 ranks, unchanged for 4 s: the most is 4; behind: rank 0 "
            "by 1 (3)\n"
            "other communicators: standing still, no rank behind: 1; not all ranks known, or "
            "being made or left: 1\n");
    EXPECT_EQ(said({}, {alone}), "");
    EXPECT_EQ(said({}, {}), "");
}

// Its last count is from before it stopped; the others were at 7 when it was first silent.
TEST_F(DesyncLags, ARankThatDoesNotAnswerIsSaidToBeSo) {
    const auto without = [](std::uint64_t count) {
        RasGroup out = counted(0xabc, {count, count, count, 0});
        out.members[3].missing = out.members[3].unresponsive = true;
        return out;
    };
    EXPECT_THAT(said({counted(0xabc, {5, 5, 5, 5})}, {without(7)}),
                HasSubstr("the most is 7; behind: rank 3 by 1 (does not answer, last at 5)\n"));
}

TEST_F(DesyncLags, ARankThatLaunchedOthersIsSaidToBeSo) {
    RasGroup odd = counted(0xabc, {9, 9, 8, 9});
    odd.members[2].launched[0] = 1;
    EXPECT_THAT(said({}, {odd}),
                HasSubstr(": rank 2 has launched as many as the others, 9, but not the same\n"));
}

// Of a job on several nodes without a communicator of all ranks.
TEST_F(DesyncLags, ARankWhoseNumberIsNotKnownIsSaidByItsPlaceAndProcess) {
    EXPECT_THAT(said({}, {counted(0xabc, {9, 8})}, 2),
                HasSubstr("behind: its rank 1, process 10.0.0.1 101 by 1 (8)\n"));
}

TEST_F(DesyncLags, NoLineGrowsWithTheJobWithoutBound) {
    std::vector<std::uint64_t> many(100, 1);
    many[0] = 2;
    const std::string one = said({}, {counted(0xabc, many)});
    EXPECT_THAT(one, HasSubstr(", and 83 more\n"));
    std::vector<RasGroup> groups;
    for (std::uint64_t hash = 0; hash < 40; ++hash) {
        groups.push_back(counted(0x100 + hash, {2, 1}));
    }
    const std::string all = said({}, groups);
    EXPECT_THAT(all, HasSubstr("other communicators: also with ranks that are behind: 8\n"));
    EXPECT_THAT(all, Not(HasSubstr("communicator 0x120 ")));
}

TEST_F(DesyncLags, NothingIsSaidOfRanksWhoseCommunicatorGoesOn) {
    DesyncWatch watch{{2, 0, 2}, [](std::int64_t pid) { return static_cast<int>(pid) - 100; }};
    DesyncWatch::Seen seen;
    for (std::uint64_t look = 1; look < 4; ++look) {
        const auto words = test::ras_words({counted(0xabc, {10 * look, 10 * look - 2})});
        seen = watch.take(parse_ras_status(words).value(),
                          DesyncWatch::TimePoint{} + std::chrono::seconds{2 * look});
    }
    EXPECT_EQ(lag_words(seen.account, std::chrono::seconds{1}),
              std::string{kLagHead} + "other communicators: going on: 1\n");
}

}  // namespace
}  // namespace lockstep
