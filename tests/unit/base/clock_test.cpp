#include "job/base/clock.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Rfc3339, PrintsUtcWithMilliseconds) {
    EXPECT_EQ(to_rfc3339(0), "1970-01-01T00:00:00.000Z");
    EXPECT_EQ(to_rfc3339(1'795'222'923'045), "2026-11-21T01:02:03.045Z");
}

TEST(TimeLimit, ReadsSlurmsGrammar) {
    EXPECT_EQ(*parse_time_limit("90"), 90 * 60);
    EXPECT_EQ(*parse_time_limit("15:30"), 15 * 60 + 30);
    EXPECT_EQ(*parse_time_limit("04:00:00"), 4 * 3600);
    EXPECT_EQ(*parse_time_limit("1-12"), 36 * 3600);
    EXPECT_EQ(*parse_time_limit("1-12:30:05"), 36 * 3600 + 30 * 60 + 5);
}

// `lockstep run --time 5m` was refused, where `rm --older-than` and `logs --since` took it.
TEST(TimeLimit, ReadsUnits) {
    EXPECT_EQ(*parse_time_limit("90s"), 90);
    EXPECT_EQ(*parse_time_limit("5m"), 5 * 60);
    EXPECT_EQ(*parse_time_limit("2h"), 2 * 3600);
    EXPECT_EQ(*parse_time_limit("1h30m"), 90 * 60);
    EXPECT_EQ(*parse_time_limit("1d"), 86'400);
    EXPECT_EQ(*parse_time_limit("1d12h30m5s"), 36 * 3600 + 30 * 60 + 5);
    EXPECT_EQ(*parse_time_limit("0h90m"), 90 * 60);
}

TEST(TimeLimit, RefusesWhatIsNotOne) {
    for (const char* text : {"m",
                             "5x",
                             "5m5",
                             "30m1h",
                             "1h2h",
                             "0m",
                             "-5m",
                             "1-5m",
                             "1:30m",
                             "1.5h",
                             "1h 30m",
                             "5M",
                             "99999999999d",
                             "hm",
                             "",
                             "x",
                             "1:2:3:4",
                             "-5",
                             "1-",
                             "0",
                             "00:00:00",
                             "99999999999999999999",
                             "1.5",
                             " 5",
                             "5 ",
                             "1--2"}) {
        EXPECT_FALSE(parse_time_limit(text).has_value()) << text;
    }
}

TEST(TimeLimit, PrintsWhatItReads) {
    for (const std::int64_t seconds : {1, 59, 3600, 86'399, 86'400, 1'000'000}) {
        EXPECT_EQ(*parse_time_limit(format_time_limit(seconds)), seconds);
    }
}

}  // namespace
}  // namespace lockstep
