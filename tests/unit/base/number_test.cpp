#include "job/base/number.hpp"

#include "job/base/json.hpp"
#include "job/base/text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace lockstep {
namespace {

std::string text(double value) {
    std::string out;
    append_number(out, value);
    return out;
}

TEST(Number, IsWhatAPersonWouldWrite) {
    EXPECT_EQ(text(0), "0");
    EXPECT_EQ(text(-0.0), "-0.0");
    EXPECT_EQ(text(0.1), "0.1");
    EXPECT_EQ(text(-1'000'000), "-1000000");
    EXPECT_EQ(text(1e15), "1000000000000000");
    EXPECT_EQ(text(1e16), "1e+16");
    EXPECT_EQ(text(0.00001), "0.00001");
    EXPECT_EQ(text(2.5e-6), "2.5e-06");
    std::string time;
    append_decimal(time, 1'700'000'000.123456);
    EXPECT_EQ(time, "1700000000.123456");
}

TEST(Number, ReadsBackBitForBitAlsoAsJson) {
    std::mt19937_64 random{7};
    for (int i = 0; i < 20'000; ++i) {
        double value = std::bit_cast<double>(random());
        if (i < 4) {
            value = i == 0   ? std::numeric_limits<double>::max()
                    : i == 1 ? std::numeric_limits<double>::denorm_min()
                    : i == 2 ? -0.0
                             : 9'007'199'254'740'993.0;
        } else if (i % 2 == 0) {
            value = std::uniform_real_distribution{-1e17, 1e17}(random);
        }
        if (!std::isfinite(value)) {
            continue;
        }
        const auto json = parse_json("[" + text(value) + "]");
        ASSERT_TRUE(json.has_value()) << text(value);
        EXPECT_EQ(std::bit_cast<std::uint64_t>((*json)[0].get<double>()),
                  std::bit_cast<std::uint64_t>(value))
            << text(value);
        std::string decimal;
        append_decimal(decimal, value);
        EXPECT_EQ(to_double(decimal), value);
        EXPECT_EQ(decimal.find('e'), std::string::npos);
    }
}

}  // namespace
}  // namespace lockstep
