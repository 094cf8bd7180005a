#include "job/cli/typed.hpp"

#include "job/cli/arguments.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

Words general_of(const Words& words) {
    Options options;
    CLI::App app;
    declare(app, options);
    const auto prepared = prepared_arguments(app, words);
    app.parse(Words(prepared.rbegin(), prepared.rend()));
    return general_words(app, prepared);
}

TEST(CliTyped, AWordIsQuotedWhereAShellNeedsIt) {
    EXPECT_EQ(shell_word("http://10.0.0.1:8470/a"), "http://10.0.0.1:8470/a");
    EXPECT_EQ(shell_word("my token"), "'my token'");
    EXPECT_EQ(shell_word("it's $HOME"), R"('it'\''s $HOME')");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("~/job.yaml"), "'~/job.yaml'");
}

TEST(CliTyped, GeneralOptionsAreFoundWhereverTheyStand) {
    EXPECT_THAT(general_of({"--url", "http://x:1", "restart", "last", "--token-file=a b"}),
                ElementsAre("--url", "http://x:1", "--token-file=a b"));
    EXPECT_THAT(general_of({"submit", "a.json", "-f", "--data-dir", "d", "--idempotency-key",
                            "--url", "--json"}),
                ElementsAre("--data-dir", "d", "--json"))
        << "a key named --url";
    EXPECT_THAT(general_of({"jobs", "-n", "5", "--config", "c"}), ElementsAre("--config", "c"));
    EXPECT_THAT(general_of({"run", "--fingerprint", "f", "-N2", "x", "--url", "y"}),
                ElementsAre("--fingerprint", "f"))
        << "what follows is the command's";
    EXPECT_THAT(general_of({"export", "last", "--json", "file"}), IsEmpty()) << "its own";
}

// The next command has the environment, too.
TEST(CliTyped, WhatTheEnvironmentSaysWasNotTyped) {
    ::setenv("LOCKSTEP_URL", "http://variable:1", 1);
    EXPECT_THAT(general_of({"jobs"}), IsEmpty());
    ::unsetenv("LOCKSTEP_URL");
}

std::string refused_words(const Words& words) {
    try {
        general_of(words);
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    return "";
}

// `nodes --gpu-test` listed the nodes as if they had been tested.
TEST(CliActions, AnOptionOfAnotherActionIsRefused) {
    EXPECT_EQ(refused_words({"nodes", "--gpu-test"}), "--gpu-test: is for lockstep nodes check");
    EXPECT_EQ(refused_words({"nodes", "n1", "--nodes", "2"}),
              "--nodes: is for lockstep nodes check");
    EXPECT_EQ(refused_words({"nodes", "check", "--gpu-test", "--gpus", "1"}), "");
    EXPECT_EQ(refused_words({"nodes", "-A", "vision"}), "--account: is for lockstep nodes check");
    EXPECT_EQ(refused_words({"nodes", "check", "-A", "vision", "-C", "gpu", "-t", "5"}), "");
    EXPECT_EQ(refused_words({"nodes", "-p", "gpu"}), "");
    EXPECT_EQ(refused_words({"nodes", "--partition", "gpu"}), "");
    EXPECT_EQ(refused_words({"token", "list", "x"}),
              "NAME|ID: is for lockstep token create, lockstep token revoke");
    EXPECT_EQ(refused_words({"token", "list", "--role", "admin"}),
              "--role: is for lockstep token create");
    EXPECT_EQ(refused_words({"token", "list", "--all"}), "");
    EXPECT_EQ(refused_words({"token", "revoke", "tk-1"}), "");
    EXPECT_EQ(refused_words({"secret", "list", "A"}),
              "NAME: is for lockstep secret set, lockstep secret rm");
    EXPECT_EQ(refused_words({"secret", "rm", "A", "--from-env"}),
              "--from-env: is for lockstep secret set");
    EXPECT_EQ(refused_words({"secret", "set", "A", "--from-env"}), "");
}

// The command asked another lockstepd, or had no token.
TEST(CliTyped, AHintAfterALostAnswerReachesTheSameDaemon) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs/", 200, job_json("running"));
    daemon.on("POST /v1/jobs/", [](const ClientRequest&) -> Result<ClientResponse> {
        return fail(Errc::unavailable, "gone");
    });
    Cli run(daemon);
    run.options.id = kId;
    run.options.general = {"--url", "http://x:1", "--token-file", "my token"};
    run.options.idempotency_key = "a key";
    EXPECT_EQ(run.verb("restart"), Exit::unreachable);
    EXPECT_THAT(run.err.str(),
                HasSubstr("\n  lockstep --url http://x:1 --token-file 'my token' restart " +
                          std::string(kId) + " --idempotency-key 'a key'\n"));
}

}  // namespace
}  // namespace lockstep::cli
