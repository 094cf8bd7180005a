#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_text.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::rest {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kNow = 1'795'264'000;

std::string jwt(const std::string& claims) {
    const auto part = [](const std::string& text) {
        std::string out = base64_encode(text);
        std::replace(out.begin(), out.end(), '+', '-');
        std::replace(out.begin(), out.end(), '/', '_');
        std::erase(out, '=');
        return out;
    };
    return part(R"({"alg":"HS256","typ":"JWT"})") + "." + part(claims) + ".c2lnbmF0dXJl";
}

// --- tokens

TEST(RestToken, ReadsTheClaimsThatSlurmWrites) {
    const auto claims = read_token(jwt(R"({"exp":1795265876,"iat":1795264076,"sun":"lstest-a"})"));
    ASSERT_TRUE(claims);
    EXPECT_EQ(claims->expires, 1'795'265'876);
    EXPECT_EQ(claims->issued, 1'795'264'076);
    EXPECT_EQ(claims->user, "lstest-a");
}

TEST(RestToken, TakesWhatIsMissingForUnknown) {
    for (const char* text : {"{}", R"({"exp":"soon","iat":-1,"sun":7})", R"({"exp":1e300})"}) {
        const auto claims = read_token(jwt(text));
        ASSERT_TRUE(claims) << text;
        EXPECT_EQ(claims->expires, std::nullopt);
        EXPECT_EQ(claims->user, "");
    }
    EXPECT_EQ(read_token(jwt(R"({"exp":1795265876.75})"))->expires, 1'795'265'876);
}

TEST(RestToken, RefusesWhatIsNone) {
    const std::vector<std::string> bad{"",
                                       "a",
                                       "a.b",
                                       "a.b.c.d",
                                       ".e30.",
                                       "e30.!!.x",
                                       jwt("[1]"),
                                       jwt("{"),
                                       "e30.e30.x\r\nX-Evil: 1",
                                       "e30.e30.x y",
                                       std::string(20'000, 'a') + ".e30.x"};
    for (const std::string& token : bad) {
        EXPECT_FALSE(read_token(token)) << token.substr(0, 40);
    }
}

TEST(RestToken, NamesTheUserWhoHasToRenewIt) {
    const std::string good = jwt(R"({"exp":1795265876,"sun":"ada"})");
    EXPECT_EQ(token_problem(good, "ada", kNow), std::nullopt);
    EXPECT_EQ(token_problem(jwt("{}"), "ada", kNow), std::nullopt);
    const auto none = token_problem("", "ada", kNow);
    ASSERT_TRUE(none);
    EXPECT_EQ(none->code, Errc::denied);
    EXPECT_THAT(none->message, HasSubstr("no Slurm token of ada"));
    const auto old = token_problem(good, "ada", 1'795'265'876);
    ASSERT_TRUE(old);
    EXPECT_EQ(old->code, Errc::denied);
    EXPECT_THAT(old->message,
                HasSubstr("the Slurm token of ada has expired (2026-11-21T12:57:56Z)"));
    const auto other = token_problem(good, "bob", kNow);
    ASSERT_TRUE(other);
    EXPECT_EQ(other->message, "the Slurm token of bob is made out to ada");
    const auto junk = token_problem("junk", "ada", kNow);
    ASSERT_TRUE(junk);
    EXPECT_THAT(junk->message, HasSubstr("the Slurm token of ada is not a JSON Web Token"));
    EXPECT_THAT(junk->message, testing::Not(HasSubstr("junk")));  // a secret, whatever it is
}

}  // namespace
}  // namespace lockstep::rest
