#include "daemon/http/base/message.hpp"

#include "daemon/http/auth/auth.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "job/base/digest.hpp"
#include "job/base/json.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(QueryString, IsDecodedInOrder) {
    const auto query = parse_query("a=1&b=x%20y+z&c&d=%C3%A4&&a=2");
    ASSERT_TRUE(query);
    const Query expected{{"a", "1"}, {"b", "x y z"}, {"c", ""}, {"d", "ä"}, {"a", "2"}};
    EXPECT_EQ(*query, expected);
}

TEST(QueryString, RefusesBrokenEscapesNulAndMissingNames) {
    for (const char* text : {"a=%", "a=%4", "a=%zz", "a=%00", "=1", "a=1&%=2"}) {
        EXPECT_FALSE(parse_query(text)) << text;
    }
}

TEST(QueryString, RefusesMoreThan64Parameters) {
    std::string text;
    for (int i = 0; i < 64; ++i) {
        text += "a=1&";
    }
    EXPECT_TRUE(parse_query(text));
    EXPECT_FALSE(parse_query(text + "a=1"));
}

TEST(PercentDecode, LeavesPlusAloneInPaths) {
    EXPECT_EQ(percent_decode("a+b%2Bc", false), "a+b+c");
}

TEST(Tokens, AreComparedWithoutCaseInLists) {
    EXPECT_TRUE(has_token("keep-alive, Upgrade", "upgrade"));
    EXPECT_FALSE(has_token("upgrades", "upgrade"));
    EXPECT_FALSE(has_token("", "upgrade"));
}

TEST(BearerToken, IsTakenFromTheBearerSchemeOnly) {
    EXPECT_EQ(bearer_token("Bearer abc"), "abc");
    EXPECT_EQ(bearer_token("bearer abc"), "abc");
    for (const char* text : {"", "Bearer", "Bearer ", "Basic abc", "abc", "Bearer a b"}) {
        EXPECT_EQ(bearer_token(text), "") << text;
    }
    EXPECT_EQ(bearer_token("Bearer " + std::string(513, 'a')), "");
}

TEST(TokenMemo, HashesEachTokenItIsGiven) {
    TokenMemo memo;
    EXPECT_EQ(memo.hash("one"), sha256_hex("one"));
    EXPECT_EQ(memo.hash("one"), sha256_hex("one"));
    EXPECT_EQ(memo.hash("two"), sha256_hex("two"));
    EXPECT_EQ(memo.hash("tw"), sha256_hex("tw"));
}

TEST(Problem, CarriesTheFieldsOfTheError) {
    const HttpResponse response =
        problem(Error{Errc::invalid, "two mistakes", {{"/a", "is bad"}, {"/b~1c", "is worse"}}});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.content_type, "application/problem+json");
    EXPECT_EQ(
        response.body,
        R"({"type":"urn:lockstep:problem:invalid","title":"Invalid request",)"
        R"("status":400,"detail":"two mistakes","errors":[{"pointer":"/a","message":"is bad"},)"
        R"({"pointer":"/b~1c","message":"is worse"}]})");
}

TEST(Problem, EveryErrcHasItsStatus) {
    const std::vector<std::pair<Errc, int>> table{{Errc::invalid, 400},   {Errc::denied, 403},
                                                  {Errc::not_found, 404}, {Errc::conflict, 409},
                                                  {Errc::exhausted, 503}, {Errc::unavailable, 503},
                                                  {Errc::cancelled, 503}, {Errc::timed_out, 504},
                                                  {Errc::corrupt, 500},   {Errc::internal, 500}};
    for (const auto& [code, status] : table) {
        EXPECT_EQ(problem(Error{code, "x"}).status, status) << to_string(code);
    }
}

TEST(Problem, KeepsTheTextOfInternalErrorsToItself) {
    const auto response = problem(Error{Errc::internal, "open /secret/path: EIO"});
    EXPECT_EQ(response.body.find("secret"), std::string::npos);
}

TEST(Problem, TellsWhenToComeBackWith503) {
    const auto response = problem(Error{Errc::unavailable, "starting"});
    ASSERT_EQ(response.headers.size(), 1U);
    EXPECT_EQ(response.headers.front().first, "Retry-After");
}

TEST(Problem, SurvivesInvalidUtf8InTheMessage) {
    const auto response = problem(Error{Errc::invalid, "bad \xFF byte"});
    EXPECT_TRUE(parse_json(response.body));
}

TEST(QueryReader, ReadsWhatIsThereAndLeavesTheRest) {
    const Query query{{"limit", "20"}, {"from", "-1.5"}, {"follow", ""}, {"name", "x"}};
    QueryReader in{query};
    std::int64_t limit = 50;
    std::int64_t after = 7;
    std::optional<double> from;
    std::string name;
    bool follow = false;
    in.integer("limit", limit, 1, 100);
    in.integer("after", after, 0, 100);
    in.number("from", from);
    in.boolean("follow", follow);
    in.text("name", name, 10);
    EXPECT_FALSE(in.finish());
    EXPECT_EQ(limit, 20);
    EXPECT_EQ(after, 7);
    EXPECT_EQ(from, -1.5);
    EXPECT_EQ(name, "x");
    EXPECT_TRUE(follow);
}

TEST(QueryReader, NamesEveryMistake) {
    const Query query{{"limit", "0"}, {"from", "nan"}, {"follow", "maybe"}, {"name", "abcd"},
                      {"twice", "1"}, {"twice", "2"},  {"wat", "1"}};
    QueryReader in{query};
    std::int64_t number = 1;
    std::optional<double> from;
    std::string name;
    bool follow = false;
    in.integer("limit", number, 1, 100);
    in.integer("twice", number, 1, 100);
    in.number("from", from);
    in.boolean("follow", follow);
    in.text("name", name, 3);
    const auto error = in.finish();
    ASSERT_TRUE(error);
    const std::vector<FieldError> expected{
        {"?limit", "must be an integer 1..100"}, {"?twice", "is given more than once"},
        {"?from", "must be a number"},           {"?follow", "must be true or false"},
        {"?name", "is longer than 3 bytes"},     {"?wat", "unknown parameter"}};
    EXPECT_EQ(error->fields, expected);
}

}  // namespace
}  // namespace lockstep
