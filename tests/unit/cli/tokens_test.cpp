#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kMade =
    R"({"id":"tk-0123456789ab","name":"ci","user":"bob","role":"user","scopes":["read"],)"
    R"("created_at":"2025-11-20T00:00:00.000Z","expires_at":"2025-12-20T00:00:00.000Z",)"
    R"("token":"lks_secret"})";

// A command line as a person types it.
Exit type(Cli& run, const std::string& arguments) {
    CLI::App app;
    declare(app, run.options);
    app.parse(arguments);
    return run.verb(app.get_subcommands().front()->get_name());
}

TEST(CliToken, CreateAsksForWhatWasTypedAndPrintsTheSecretAlone) {
    FakeDaemon daemon;
    daemon.on("POST /v1/tokens", 201, kMade);
    Cli run(daemon);
    EXPECT_EQ(type(run,
                   "token create ci --user bob --role viewer --scope read --scope metrics "
                   "--expires 12h"),
              Exit::ok);
    EXPECT_EQ(run.out.str(), "lks_secret\n");
    EXPECT_THAT(run.err.str(), HasSubstr("tk-0123456789ab"));
    EXPECT_THAT(run.err.str(), HasSubstr("2025-12-20"));
    EXPECT_THAT(run.err.str(), Not(HasSubstr("lks_secret")));
    EXPECT_EQ(daemon.asked.at(0).body,
              R"({"name":"ci","user":"bob","role":"viewer","scopes":["read","metrics"],)"
              R"("expires_in":43200})");
}

TEST(CliToken, WhatIsNotTypedIsLeftToTheDaemon) {
    FakeDaemon daemon;
    daemon.on("POST /v1/tokens", 201, kMade);
    Cli run(daemon);
    EXPECT_EQ(type(run, "token create ci"), Exit::ok);
    EXPECT_EQ(daemon.asked.at(0).body, R"({"name":"ci"})");
}

TEST(CliToken, ATimeThatIsNoneIsRefusedBeforeAnythingIsAsked) {
    for (const std::string time : {"12", "d", "-1d", "0h", "1y", "99999999999d"}) {
        FakeDaemon daemon;
        Cli run(daemon);
        EXPECT_EQ(type(run, "token create ci --expires=" + time), Exit::usage) << time;
        EXPECT_TRUE(daemon.asked.empty());
    }
    FakeDaemon daemon;
    Cli run(daemon);
    EXPECT_EQ(type(run, "token create"), Exit::usage);
    EXPECT_TRUE(daemon.asked.empty());
}

TEST(CliToken, ListFollowsThePagesAndTellsWhatHasEnded) {
    FakeDaemon daemon;
    daemon.on("GET /v1/tokens?limit=1000&all=true&cursor=a%3D", 200,
              R"({"items":[{"id":"tk-3","name":"old","user":"bob","role":"user","scopes":[],
                  "created_at":"2025-01-01T00:00:00.000Z","expires_at":"2025-02-01T00:00:00.000Z"},
                 {"id":"tk-4","name":"lost","user":"bob","role":"user","scopes":[],
                  "created_at":"2025-01-01T00:00:00.000Z","revoked_at":"2025-03-01T00:00:00.000Z"}]})");
    daemon.on("GET /v1/tokens?limit=1000&all=true", 200,
              R"({"items":[{"id":"tk-1","name":"first","user":"ada","role":"admin",
                  "scopes":["read"],"created_at":"2025-01-01T00:00:00.000Z"}],"next_cursor":"a="})");
    Cli run(daemon);
    EXPECT_EQ(type(run, "token list --all"), Exit::ok);
    const std::string out = run.out.str();
    EXPECT_LT(out.find("tk-1"), out.find("tk-3"));
    EXPECT_THAT(out, HasSubstr("never"));
    EXPECT_THAT(out, HasSubstr("expired"));
    EXPECT_THAT(out, HasSubstr("revoked 2025-03-01"));
}

TEST(CliToken, RevokeNamesTheTokenAndARefusalEndsSo) {
    FakeDaemon daemon;
    daemon.on("DELETE /v1/tokens/tk-0123456789ab", 204, "");
    Cli run(daemon);
    EXPECT_EQ(type(run, "token revoke tk-0123456789ab"), Exit::ok);
    EXPECT_EQ(type(run, "token revoke a/b"), Exit::not_found);
    EXPECT_EQ(daemon.asked.back().target, "/v1/tokens/a%2Fb");
}

// Standard input as a person's pipe would fill it, for as long as it lives.
class Typed {
  public:
    explicit Typed(const std::string& text) : text_(text), before_(std::cin.rdbuf(text_.rdbuf())) {}
    ~Typed() { std::cin.rdbuf(before_); }
    Typed(const Typed&) = delete;
    Typed& operator=(const Typed&) = delete;

  private:
    std::istringstream text_;
    std::streambuf* before_;
};

TEST(CliSlurmToken, IsReadFromStandardInputAndNeverPrinted) {
    FakeDaemon daemon;
    daemon.on("PUT /v1/whoami/slurm-token", 200,
              R"({"user":"bob","role":"user","scopes":["read"],)"
              R"("slurm_token":{"expires_at":"2026-11-22T10:00:00.000Z"}})");
    Cli run(daemon);
    const Typed typed{"SLURM_JWT=abc.def.ghi\n"};
    EXPECT_EQ(type(run, "slurm-token"), Exit::ok);
    EXPECT_EQ(daemon.asked.back().body, R"({"token":"SLURM_JWT=abc.def.ghi"})");
    EXPECT_EQ(run.err.str(),
              "jobs of bob run with this Slurm token until 2026-11-22T10:00:00.000Z\n");
    EXPECT_EQ(run.out.str(), "");
}

TEST(CliSlurmToken, NothingOnStandardInputIsAnErrorThatSaysWhatToDo) {
    FakeDaemon daemon;
    Cli run(daemon);
    const Typed typed{"\n"};
    EXPECT_EQ(type(run, "slurm-token"), Exit::usage);
    EXPECT_NE(run.err.str().find("scontrol token"), std::string::npos);
    EXPECT_TRUE(daemon.asked.empty());
}

TEST(CliSlurmToken, IsForgottenOnRequest) {
    FakeDaemon daemon;
    daemon.on("DELETE /v1/whoami/slurm-token", 204, "");
    Cli run(daemon);
    EXPECT_EQ(type(run, "slurm-token --forget"), Exit::ok);
    EXPECT_EQ(daemon.asked.back().method, "DELETE");
}

TEST(CliWhoAmI, SaysUserRoleAndWhere) {
    FakeDaemon daemon;
    daemon.on("GET /v1/whoami", 200,
              R"({"user":"bob","role":"user","scopes":["metrics","read","write"]})");
    Cli run(daemon);
    EXPECT_EQ(type(run, "whoami"), Exit::ok);
    EXPECT_EQ(run.out.str(), "bob, user (metrics, read, write) at http://fake:1\n");
}

}  // namespace
}  // namespace lockstep::cli
