#include "job/cli/event_file.hpp"

#include "tests/unit/cli/event_reader.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

std::string bytes(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i < hex.size(); i += 2) {
        out += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
    }
    return out;
}

TEST(Crc32c, IsThatOfRfc3720) {
    std::string rising;
    std::string falling;
    for (int i = 0; i < 32; ++i) {
        rising += static_cast<char>(i);
        falling += static_cast<char>(31 - i);
    }
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
    EXPECT_EQ(crc32c(rising), 0x46DD794EU);
    EXPECT_EQ(crc32c(falling), 0x113FDB5CU);
    // An iSCSI read command.
    EXPECT_EQ(crc32c(bytes("01c0000000000000000000000000000014000000000004000000001400000018"
                           "28000000000000000200000000000000")),
              0xD9963A56U);
    EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
    EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFile, BeginsAsTensorFlowsOwn) {
    std::string out;
    append_version_event(out, 1'700'000'000.25);
    EXPECT_EQ(out, bytes("1800000000000000a37f4b22"
                         "0900001040fc54d941"
                         "1a0d627261696e2e4576656e743a32"
                         "338d2fe9"));
}

TEST(EventFile, AScalarIsThisByteForByte) {
    std::string out;
    append_scalar_event(out, 1'700'000'000.25, 300, "loss", 0.5);
    EXPECT_EQ(out, bytes("1b000000000000001a0d9e13"
                         "0900001040fc54d941"
                         "10ac02"
                         "2a0d0a0b0a046c6f7373150000003f"
                         "77f990a0"));
}

TEST(EventFile, ReadsBackWhateverTheNumbersAre) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const std::vector<std::pair<std::int64_t, double>> samples{
        {0, 0.0},   {1, -0.0},    {127, 1e-45}, {128, nan}, {1LL << 40, inf},          {9, -inf},
        {10, 1e39}, {11, -1e300}, {12, 3.4e38}, {13, 0.1},  {INT64_MAX, 123'456'789.0}};
    std::string out;
    append_version_event(out, 5);
    for (const auto& [step, value] : samples) {
        append_scalar_event(out, 1.5, step, std::string(200, 'm'), value);
    }
    const auto events = EventReader::read(out);
    ASSERT_EQ(events.size(), samples.size() + 1);
    EXPECT_EQ(events[0].file_version, "brain.Event:2");
    EXPECT_EQ(events[0].wall_time, 5);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const ReadEvent& event = events[i + 1];
        EXPECT_EQ(event.step, samples[i].first);
        EXPECT_EQ(event.tag, std::string(200, 'm'));
        EXPECT_EQ(event.wall_time, 1.5);
        ASSERT_TRUE(event.value.has_value());
        const double value = samples[i].second;
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(*event.value));
        } else if (std::abs(value) > 3.5e38) {
            EXPECT_EQ(*event.value, value > 0 ? HUGE_VALF : -HUGE_VALF);
        } else {
            EXPECT_EQ(*event.value, static_cast<float>(value));
            EXPECT_EQ(std::signbit(*event.value), std::signbit(value));
        }
    }
    // The reader sees a bit that is wrong.
    for (const std::size_t at : {0U, 9U, 20U, 38U}) {
        std::string wrong = out;
        wrong[at] = static_cast<char>(wrong[at] ^ 1);
        EXPECT_THROW(EventReader::read(wrong), std::runtime_error) << at;
    }
}

TEST(EventFile, TheLargestFloatIsNotYetInfinite) {
    const double largest = static_cast<double>(std::numeric_limits<float>::max());
    for (const double value : {largest, std::nextafter(0x1.ffffffp127, 0), 0x1.ffffffp127}) {
        std::string out;
        append_scalar_event(out, 0, 1, "m", value);
        const float read = EventReader::read(out).at(0).value.value_or(0);
        EXPECT_EQ(std::isinf(read), value >= 0x1.ffffffp127) << value;
    }
}

}  // namespace
}  // namespace lockstep::cli
