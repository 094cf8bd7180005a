#include "job/base/json.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

TEST(ParseJson, RefusesWhatIsNestedDeeperThanTheLimit) {
    EXPECT_TRUE(parse_json(nested(limits::kJsonDepth)).has_value());
    const auto deep = parse_json(nested(100));
    ASSERT_FALSE(deep.has_value());
    EXPECT_EQ(deep.error().message, "nested deeper than 32 levels");
}

TEST(ParseJson, SurvivesAHundredThousandOpenBrackets) {
    EXPECT_FALSE(parse_json(std::string(100'000, '[')).has_value());
}

TEST(ParseJson, NamesTheByteOfASyntaxError) {
    const auto bad = parse_json(R"({"a": 1,})");
    ASSERT_FALSE(bad.has_value());
    EXPECT_EQ(bad.error().message, "not JSON: syntax error at byte 9");
}

TEST(ParseJson, SaysWhereWithoutWords) {
    JsonProblem where;
    EXPECT_FALSE(parse_json(R"({"a": 1,})", where));
    EXPECT_EQ(where.byte, 9U);
    EXPECT_FALSE(where.bad_utf8);
    EXPECT_FALSE(parse_json("[\"\xff\"]", where));
    EXPECT_EQ(where.byte, 3U);
    EXPECT_TRUE(where.bad_utf8);
    EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", where));
    EXPECT_EQ(where.byte, 0U) << "JSON, but not within the limits";
}

TEST(ParseJson, RefusesARepeatedKey) {
    const auto twice = parse_json(R"({"a":1,"a":2})");
    ASSERT_FALSE(twice.has_value());
    EXPECT_EQ(twice.error().message, "the key \"a\" appears twice");
}

TEST(ParseJson, RefusesManyKeysBeforeTheyCostQuadraticTime) {
    std::string text = "{";
    for (int i = 0; i < 2000; ++i) {
        text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":1";
    }
    const auto wide = parse_json(text + "}");
    ASSERT_FALSE(wide.has_value());
    EXPECT_EQ(wide.error().message, "more than 1024 keys in one object");
}

TEST(ParseJson, RefusesTooManyValues) {
    std::string text = "[0";
    for (std::size_t i = 0; i <= limits::kJsonNodes; ++i) {
        text += ",0";
    }
    EXPECT_EQ(parse_json(text + "]").error().message, "too many values in one document");
}

TEST(ParseJson, RefusesNumbersOutOfRange) {
    EXPECT_FALSE(parse_json("1e999").has_value());
    EXPECT_FALSE(parse_json("18446744073709551615").has_value());
    EXPECT_EQ(*parse_json("-9223372036854775808"), Json(INT64_MIN));
}

TEST(ParseJson, RefusesInvalidUtf8) {
    EXPECT_FALSE(parse_json("\"\xff\xfe\"").has_value());
}

TEST(DumpJson, ReplacesInvalidUtf8InsteadOfThrowing) {
    EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

TEST(ObjectReader, CollectsEveryMistakeWithItsPointer) {
    const Json json = *parse_json(R"({"n":"x","m":7,"s":5,"extra/field":1,"list":["a",2]})");
    std::vector<FieldError> errors;
    ObjectReader in{json, "/top", errors};
    std::int32_t n = 0;
    std::int32_t m = 0;
    std::string s;
    std::vector<std::string> list;
    in.integer("n", n, 0, 10);
    in.integer("m", m, 0, 5);
    in.string("s", s, 10);
    in.strings("list", list, 5, 5);
    in.finish();
    const std::vector<FieldError> expected{{"/top/n", "must be an integer"},
                                           {"/top/m", "must be 0..5"},
                                           {"/top/s", "must be a string"},
                                           {"/top/list/1", "must be a string"},
                                           {"/top/extra~1field", "unknown field"}};
    EXPECT_EQ(errors, expected);
}

TEST(ObjectReader, RefusesNulInStrings) {
    const Json json = *parse_json(R"({"s":"a\u0000b"})");
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    std::string s = "before";
    in.string("s", s, 10);
    EXPECT_EQ(errors, (std::vector<FieldError>{{"/s", "must not contain NUL"}}));
    EXPECT_EQ(s, "before");
}

TEST(ObjectReader, LeavesAbsentFieldsAsTheyAre) {
    const Json json = Json::object();
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    double value = 2.5;
    in.number("value", value, 0, 1);
    in.finish();
    EXPECT_TRUE(errors.empty());
    EXPECT_EQ(value, 2.5);
}

// A list in place of a specification was refused with ": must be an object".
TEST(ObjectReader, WhatIsNoObjectIsNamedAlsoWithoutAPointer) {
    std::vector<FieldError> errors;
    ObjectReader{Json::array(), "", errors};
    ObjectReader{Json::array(), "/resources", errors};
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(field_errors({errors[0]}).message, "the document: must be an object");
    EXPECT_EQ(field_errors({errors[1]}).message, "/resources: must be an object");
}

}  // namespace
}  // namespace lockstep
