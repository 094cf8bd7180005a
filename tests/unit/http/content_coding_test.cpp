#include "daemon/http/base/content_coding.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ContentCoding, GzipIsTakenWhereItIsAskedFor) {
    for (const char* yes : {"gzip", "GZIP", "br, gzip", "gzip, deflate, br, zstd", "gzip;q=0.5",
                            "*", "br;q=1.0, gzip;q=0.8, *;q=0.1", "x-gzip"}) {
        EXPECT_TRUE(accepts_gzip(yes)) << yes;
    }
    for (const char* no :
         {"", "br", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "gzip;q=0, *", "gzipped"}) {
        EXPECT_FALSE(accepts_gzip(no)) << no;
    }
}

TEST(ContentCoding, WhatIsPackedUnpacks) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) {
        text += "{\"rank\":" + std::to_string(i) + "},";
    }
    for (const std::string& one : {std::string{}, std::string{"x"}, text}) {
        const auto packed = gzip_bytes(one);
        ASSERT_TRUE(packed);
        EXPECT_EQ(gunzip_bytes(*packed, 8U << 20U).value(), one);
    }
    EXPECT_LT(gzip_bytes(text)->size(), text.size() / 4);
    EXPECT_EQ(gunzip_bytes(*gzip_bytes(text), 1000).error().code, Errc::exhausted);
    EXPECT_EQ(gunzip_bytes("no gzip at all", 1000).error().code, Errc::corrupt);
    EXPECT_EQ(gunzip_bytes(gzip_bytes(text)->substr(0, 100), 8U << 20U).error().code,
              Errc::corrupt);
}

TEST(ContentCoding, ATagNamesTheBytes) {
    const std::string tag = entity_tag("one");
    EXPECT_EQ(tag, entity_tag("one"));
    EXPECT_NE(tag, entity_tag("two"));
    EXPECT_NE(tag, entity_tag("one", "plain"));
    EXPECT_TRUE(tag_matches(tag, tag));
    EXPECT_TRUE(tag_matches("\"x\", W/" + tag, tag));
    EXPECT_TRUE(tag_matches(" * ", tag));
    EXPECT_FALSE(tag_matches("", tag));
    EXPECT_FALSE(tag_matches("\"x\"", tag));
}

}  // namespace
}  // namespace lockstep
