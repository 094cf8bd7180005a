#include "daemon/telemetry/series/order_statistics.hpp"

#include "tests/unit/telemetry/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>

namespace lockstep::telemetry {
namespace {

// What measurements look like, and what they should not: ties, far ones, all of one value.
std::vector<double> some(std::size_t kind, std::size_t count, std::mt19937_64& random) {
    std::normal_distribution<double> near{0.7, 0.05};
    std::vector<double> out(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = random();
        switch (kind) {
            case 0:
                out[i] = near(random);
                break;
            case 1:
                out[i] = static_cast<double>(bits % 7);
                break;
            case 2:  // a few far ones beside the crowd
                out[i] = bits % 100 == 0 ? 1e12 * static_cast<double>(bits % 13) : near(random);
                break;
            case 3:
                out[i] = 42;
                break;
            case 4:  // further apart than a double's range
                out[i] = bits % 2 == 0 ? 1.7e308 : -1.7e308;
                break;
            case 5:  // over many orders of magnitude
                out[i] = std::exp(static_cast<double>(bits % 1400) - 700);
                break;
            default:
                out[i] = static_cast<double>(bits) * std::numeric_limits<double>::denorm_min();
        }
    }
    return out;
}

TEST(OrderStatistics, AreThoseOfASortedListWhateverTheValues) {
    std::mt19937_64 random{7};
    for (std::size_t kind = 0; kind < 7; ++kind) {
        for (const std::size_t count : {1U, 2U, 3U, 511U, 512U, 513U, 1000U, 1001U, 10'000U}) {
            const std::vector<double> values = some(kind, count, random);
            std::vector<double> sorted = values;
            std::sort(sorted.begin(), sorted.end());
            OrderStatistics order{values};
            EXPECT_EQ(order.lowest(), sorted.front());
            EXPECT_EQ(order.highest(), sorted.back());
            for (const std::size_t place : {std::size_t{0}, count / 3, count / 2, count - 1}) {
                EXPECT_EQ(order.at(place), sorted[place])
                    << "kind " << kind << ", place " << place << " of " << count;
                EXPECT_EQ(order.median(), plain_median(values))
                    << "kind " << kind << " of " << count;
            }
        }
    }
}

// Against the contract; it wrote 8 GiB beyond its end.
TEST(OrderStatistics, ANumberThatIsNoneHarmsNothing) {
    std::vector<double> values(2000);
    std::iota(values.begin(), values.end(), 0.0);
    values[1000] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(OrderStatistics{values}.highest(), 1999);
}

}  // namespace
}  // namespace lockstep::telemetry
