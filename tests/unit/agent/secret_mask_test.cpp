#include "job/agent/ranks/secret_mask.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string in_pieces(const std::vector<std::string>& values, std::string_view text,
                      std::size_t size) {
    MaskedStream stream{std::make_shared<const SecretMask>(values)};
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) {
        out += stream.feed(text.substr(at, size));
    }
    return out + stream.end();
}

TEST(SecretMask, AValueIsMaskedHoweverTheTextIsCut) {
    const std::vector<std::string> values{"s3cr3t-key", "s3cr3t-key-that-is-longer", "a\nlines\nx"};
    const std::string text = "a s3cr3t-key, s3cr3t-key-that-is-longer s3cr3t-key-that s3cr3t-ke";
    const std::string masked = "a ***, *** ***-that s3cr3t-ke";
    EXPECT_EQ(SecretMask{values}.masked(text), masked);
    for (std::size_t size = 1; size <= text.size(); ++size) {
        EXPECT_EQ(in_pieces(values, text, size), masked) << size;
    }
}

TEST(SecretMask, EachLongLineOfAValueIsMaskedAndShortValuesStay) {
    const SecretMask mask{{"-----BEGIN\nMIIEvQIBADAN\nAB\n", "true"}};
    EXPECT_EQ(mask.masked("-----BEGIN x\nMIIEvQIBADAN\nAB true"), "*** x\n***\nAB true");
}

TEST(SecretMask, OnlyWhatMayBeginAValueIsHeldBack) {
    MaskedStream stream{std::make_shared<const SecretMask>(std::vector<std::string>{"abcdefgh"})};
    EXPECT_EQ(stream.feed("loss=0.5\nabc"), "loss=0.5\n");
    EXPECT_EQ(stream.feed("x"), "abcx");
    EXPECT_EQ(stream.feed("ababcdefgh"), "ab***");
    EXPECT_EQ(stream.feed("abcdefg"), "");
    EXPECT_EQ(stream.end(), "abcdefg");
}

}  // namespace
}  // namespace lockstep
