// Handing over a Slurm token: one's own, to a daemon that takes any.
#include "scheduler-integration/identities.hpp"
#include "tests/unit/access/access_fixture.hpp"

#include <gmock/gmock.h>

#include <map>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class FakeIdentities final : public Identities {
  public:
    Status put(const std::string& user, const std::string& credential) override {
        if (credential == "bad") {
            return fail(Errc::invalid, "this token has expired");
        }
        tokens[user] = credential;
        return {};
    }
    std::optional<UnixMillis> good_until(const std::string& user) const override {
        return tokens.contains(user) ? std::optional<UnixMillis>{1'000'000'000'000} : std::nullopt;
    }
    Status forget(const std::string& user) override {
        tokens.erase(user);
        return {};
    }
    std::map<std::string, std::string> tokens;
};

class IdentityRoutesTest : public AccessTest {
  protected:
    void SetUp() override {
        identities_ = &slurm_;
        AccessTest::SetUp();
    }
    FakeIdentities slurm_;
    const std::string line_ = "PUT /v1/whoami/slurm-token";
};

TEST_F(IdentityRoutesTest, ATokenIsKeptUnderTheCallersOwnName) {
    const auto put = call(uma_, line_, R"({"token":"of-uma"})");
    ASSERT_EQ(put.status, 200) << put.text();
    EXPECT_EQ(json(put)["slurm_token"]["expires_at"], "2001-09-09T01:46:40.000Z");
    EXPECT_THAT(put.text(), Not(HasSubstr("of-uma"))) << "it is never shown";
    EXPECT_EQ(slurm_.tokens, (std::map<std::string, std::string>{{"uma", "of-uma"}}));
    EXPECT_FALSE(json(call(eve_, "GET /v1/whoami")).contains("slurm_token"));
    EXPECT_EQ(call(eve_, "DELETE /v1/whoami/slurm-token").status, 204);
    EXPECT_EQ(slurm_.tokens.size(), 1U) << "eve forgets only her own";
    EXPECT_EQ(call(uma_, "DELETE /v1/whoami/slurm-token").status, 204);
    EXPECT_TRUE(slurm_.tokens.empty());
}

TEST_F(IdentityRoutesTest, NobodyHandsOneOverForAnother) {
    const auto refused = call(admin_, line_, R"({"token":"x","user":"uma"})");
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(json(refused)["errors"][0]["pointer"], "/user");
    EXPECT_TRUE(slurm_.tokens.empty());
}

TEST_F(IdentityRoutesTest, WhatIsWrongWithItIsSaidAtItsField) {
    for (const char* body : {R"({"token":"bad"})", R"({})", R"({"token":7})"}) {
        const auto refused = call(uma_, line_, body);
        EXPECT_EQ(refused.status, 400) << body;
        EXPECT_EQ(json(refused)["errors"][0]["pointer"], "/token") << body;
    }
    EXPECT_EQ(call(uma_, line_, "[").status, 400);
    EXPECT_EQ(call(uma_, line_, "[]").status, 400);
    EXPECT_EQ(call(vic_, line_, R"({"token":"x"})").status, 403) << "a viewer submits nothing";
}

TEST_F(AccessTest, ADaemonThatActsAsItselfTakesNoSlurmTokens) {
    const auto refused = call(uma_, "PUT /v1/whoami/slurm-token", R"({"token":"x"})");
    EXPECT_EQ(refused.status, 404);
    EXPECT_THAT(refused.text(), HasSubstr("--scheduler slurmrestd"));
}

}  // namespace
}  // namespace lockstep
