#include "job/agent/node/clock_offset.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::microseconds;

constexpr ClockOffset::Steady kBegin{};

// One question whose way there and back take so long, from a node whose clock is `ahead`.
void measure(ClockOffset& clock, std::int64_t ahead_us, std::int64_t there_us,
             std::int64_t back_us) {
    static std::int64_t now = 1'700'000'000'000'000;  // the daemon's clock
    now += 1'000'000;
    const std::int64_t asked = now + ahead_us;
    clock.asked(asked, kBegin);
    clock.answered(asked, now + there_us, kBegin + microseconds{there_us + back_us});
}

TEST(ClockOffset, IsUnknownUntilAnAnswerCame) {
    ClockOffset clock;
    EXPECT_FALSE(clock.estimate());
    clock.asked(5, kBegin);
    clock.answered(4, 0, kBegin);  // to another question
    EXPECT_FALSE(clock.estimate());
}

TEST(ClockOffset, OfAnEvenWayItIsExact) {
    for (const std::int64_t ahead : {0L, 250'000L, -3'000'000L}) {
        ClockOffset clock;
        measure(clock, ahead, 400, 400);
        EXPECT_EQ(clock.estimate()->offset_us, ahead);
        EXPECT_EQ(clock.estimate()->error_us, 400);
    }
}

TEST(ClockOffset, TheShortestWayCountsAndTheErrorHolds) {
    ClockOffset clock;
    measure(clock, 7'000, 90'000, 200);  // waited in a queue on its way there
    measure(clock, 7'000, 300, 100);
    measure(clock, 7'000, 200, 50'000);
    const auto found = *clock.estimate();
    EXPECT_EQ(found.error_us, 200);
    EXPECT_LE(std::abs(found.offset_us - 7'000), found.error_us);
}

TEST(ClockOffset, AnAnswerCountsOnceAndOldOnesAreForgotten) {
    ClockOffset clock;
    measure(clock, 1'000, 10, 10);
    for (std::size_t i = 0; i < ClockOffset::kKept; ++i) {
        measure(clock, 5'000, 500, 500);  // the clock was set
    }
    EXPECT_EQ(clock.estimate()->offset_us, 5'000);
    clock.restart();
    EXPECT_FALSE(clock.estimate());
}

TEST(ClockOffset, AsksOftenAtFirstAndSeldomLater) {
    ClockOffset clock;
    int first = 0;
    int later = 0;
    for (int beat = 0; beat < 168; ++beat) {
        (beat < 8 ? first : later) += clock.due() ? 1 : 0;
    }
    EXPECT_EQ(first, 8);
    EXPECT_EQ(later, 10);
}

}  // namespace
}  // namespace lockstep
