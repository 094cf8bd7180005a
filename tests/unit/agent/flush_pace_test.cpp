#include "job/agent/ranks/flush_pace.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr FlushPace::Time at(int ms) {
    return FlushPace::Time{std::chrono::hours{1} + milliseconds{ms}};
}

// What an agent does with rows that come at these moments, in ms: when it flushes.
std::vector<int> flushes_of(const std::vector<int>& rows) {
    FlushPace pace;
    std::vector<int> out;
    std::optional<FlushPace::Time> due;
    const auto flush_until = [&](FlushPace::Time now) {
        if (due && *due <= now) {
            out.push_back(static_cast<int>((*due - at(0)) / milliseconds{1}));
            pace.flushed(*due);
            due.reset();
        }
    };
    for (const int row : rows) {
        flush_until(at(row));
        if (!due) {
            due = pace.due(at(row));
        }
    }
    flush_until(FlushPace::Time::max());
    return out;
}

TEST(FlushPace, AReportAfterAQuietTimeGoesSoonAndNotAtTheNextLook) {
    EXPECT_EQ(flushes_of({0, 1'000, 2'130}), (std::vector{20, 1'020, 2'150}));
}

TEST(FlushPace, TheRanksOfAStepGoTogether) {
    EXPECT_EQ(flushes_of({0, 3, 8, 15, 19}), (std::vector{20}));
}

TEST(FlushPace, ManyReportsGoTenTimesASecond) {
    std::vector<int> rows(2'000);
    for (int ms = 0; ms < 2'000; ++ms) {
        rows[static_cast<std::size_t>(ms)] = ms;
    }
    const std::vector<int> flushes = flushes_of(rows);
    EXPECT_LE(flushes.size(), 21U);
    for (std::size_t i = 1; i < flushes.size(); ++i) {
        EXPECT_EQ(flushes[i] - flushes[i - 1], 100) << i;
    }
}

// Steps of 100 ms, as the page shows them at most: none waits for the one after it.
TEST(FlushPace, AtTenStepsASecondEachGoesWithinAHundredMilliseconds) {
    std::vector<int> rows;
    for (int step = 0; step < 20; ++step) {
        rows.push_back(100 * step);
    }
    const std::vector<int> flushes = flushes_of(rows);
    ASSERT_EQ(flushes.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(flushes[i] - rows[i], 20) << i;
    }
}

}  // namespace
}  // namespace lockstep
