#include "job/base/text.hpp"

#include "job/base/digest.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(RankSets, ReadRangesAndLists) {
    EXPECT_EQ(*parse_rank_set("0-3,7,2", 100), (std::vector<std::int32_t>{0, 1, 2, 3, 7}));
    EXPECT_EQ(*parse_rank_set("5", 100), (std::vector<std::int32_t>{5}));
}

TEST(RankSets, RefuseNonsenseAndHugeRanges) {
    for (const char* text : {"", "a", "3-1", "-1", "1-", "0-999999999999", "0-100", "1,,2"}) {
        EXPECT_FALSE(parse_rank_set(text, 100).has_value()) << text;
    }
}

TEST(Printable, ReplacesBrokenUtf8AndDropsControlCharacters) {
    EXPECT_EQ(printable("a\x1b[31mb\tc\nd\x7f"), "a[31mb\tc\nd");
    EXPECT_EQ(printable("\xc3\xa4"), "\xc3\xa4");
    EXPECT_EQ(printable("\xc0\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD");       // overlong
    EXPECT_EQ(printable("\xed\xa0\x80").substr(0, 3), "\xEF\xBF\xBD");  // surrogate
    EXPECT_EQ(printable("\xe2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");       // cut short
}

TEST(Base64, GoesThereAndBackForEveryLength) {
    std::string bytes;
    for (int i = 0; i < 70; ++i) {
        EXPECT_EQ(*base64_decode(base64_encode(bytes)), bytes);
        bytes += static_cast<char>(i * 37);
    }
    EXPECT_FALSE(base64_decode("abc").has_value());
    EXPECT_FALSE(base64_decode("ab!=").has_value());
}

TEST(Numbers, AreTheWholeTextOrNothing) {
    EXPECT_EQ(to_int("12"), 12);
    EXPECT_FALSE(to_int("12x").has_value());
    EXPECT_FALSE(to_int("").has_value());
    EXPECT_EQ(to_double("+1.5e3"), 1500.0);
    EXPECT_TRUE(std::isnan(*to_double("nan")));
    EXPECT_TRUE(std::isinf(*to_double("inf")));
    EXPECT_FALSE(to_double("1.5 ").has_value());
}

TEST(Sha256, MatchesFips180) {
    EXPECT_EQ(sha256_hex("abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_TRUE(equal_secret("abc", "abc"));
    EXPECT_FALSE(equal_secret("abc", "abd"));
    EXPECT_FALSE(equal_secret("abc", "abcd"));
}

}  // namespace
}  // namespace lockstep
