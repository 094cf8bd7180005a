#include "job/cli/client.hpp"

#include "tests/unit/cli/fake_daemon.hpp"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

std::string header_of(const ClientRequest& request, const std::string& name) {
    for (const auto& [key, value] : request.headers) {
        if (key == name) {
            return value;
        }
    }
    return "";
}

TEST(CliClient, EveryRequestCarriesTheToken) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs", 200, "{}");
    ASSERT_TRUE(daemon.client().get("/v1/jobs").has_value());
    EXPECT_EQ(header_of(daemon.asked.at(0), "Authorization"), "Bearer secret");
}

TEST(CliClient, AProblemBecomesAnErrorWithItsFields) {
    FakeDaemon daemon;
    daemon.on("POST /v1/jobs", 400,
              R"({"title":"Bad","detail":"1 field is wrong",
                  "errors":[{"pointer":"/name","message":"too\nlong"}]})");
    const auto answer = daemon.client().post_json("/v1/jobs", "{}");
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Errc::invalid);
    EXPECT_EQ(answer.error().message, "1 field is wrong");
    const std::vector<FieldError> want{{"/name", "too long"}};
    EXPECT_EQ(answer.error().fields, want);
}

TEST(CliClient, StatusesMapToWhatTheCallerCanDo) {
    const std::vector<std::pair<int, Errc>> cases{
        {400, Errc::invalid},     {401, Errc::denied},    {403, Errc::denied},
        {404, Errc::not_found},   {409, Errc::conflict},  {412, Errc::conflict},
        {413, Errc::invalid},     {422, Errc::conflict},  {421, Errc::denied},
        {503, Errc::unavailable}, {507, Errc::exhausted}, {504, Errc::timed_out}};
    for (const auto& [status, code] : cases) {
        FakeDaemon daemon;
        daemon.on("GET /", status, "not json");
        const auto answer = daemon.client().get("/");
        ASSERT_FALSE(answer.has_value()) << status;
        EXPECT_EQ(answer.error().code, code) << status;
        EXPECT_NE(answer.error().message.find(std::to_string(status)), std::string::npos);
    }
}

// Of lockstepd's "use https://" only the status was shown, of a redirection not where to.
TEST(CliClient, AnAnswerThatIsNoDocumentIsShownIfItIsBrief) {
    const auto said = [](int status, const std::string& body, const Headers& headers) {
        FakeDaemon daemon;
        daemon.on("GET /", [&](const ClientRequest&) -> Result<ClientResponse> {
            return ClientResponse{status, body, headers};
        });
        return daemon.client().get("/").error().message;
    };
    EXPECT_EQ(said(400, "this port speaks TLS: use https://\n", {{"Content-Type", "text/plain"}}),
              "the daemon answered with status 400: this port speaks TLS: use https://");
    EXPECT_EQ(said(301, "<html>", {{"Location", "https://login1/lockstep/v1/jobs"}}),
              "the daemon answered with status 301, which points to "
              "https://login1/lockstep/v1/jobs");
    EXPECT_EQ(said(502, "<html>", {{"Content-Type", "text/html"}}),
              "the daemon answered with status 502");
    EXPECT_EQ(said(502, std::string(5000, 'x'), {{"Content-Type", "text/plain"}}),
              "the daemon answered with status 502");
}

TEST(CliClient, WhatLockstepdCannotDoNowMayPassAsWhatNobodyAnswers) {
    FakeDaemon daemon;
    daemon.on("GET /v1/full", 503, R"({"type":"urn:lockstep:problem:exhausted","detail":"full"})");
    daemon.on("GET /v1/proxy", 503, R"({"type":"about:blank"})");
    const auto full = daemon.client().get("/v1/full");
    EXPECT_TRUE(may_pass(full.error()));
    EXPECT_FALSE(nobody_answered(full.error()));
    daemon.on("GET /v1/broken", 500,
              R"({"type":"urn:lockstep:problem:internal","detail":"see its log"})");
    const auto broken = daemon.client().get("/v1/broken");
    ASSERT_FALSE(broken);
    EXPECT_FALSE(nobody_answered(broken.error()));
    const auto proxy = daemon.client().get("/v1/proxy");
    EXPECT_TRUE(may_pass(proxy.error()));
    EXPECT_TRUE(nobody_answered(proxy.error()));
}

TEST(CliClient, QueriesArePercentEncoded) {
    EXPECT_EQ(query_encode("a b&c=d/é~"), "a%20b%26c%3Dd%2F%C3%A9~");
}

// Whatever was denied, and where no token had been sent, it was said to be the token's or the
// certificate's fault.
TEST(CliErrors, ARefusalIsToldByWhatRefused) {
    const auto said = [](const std::string& token_from, FakeDaemon::Handler handler) {
        FakeDaemon daemon;
        daemon.on("GET /v1/jobs", std::move(handler));
        Cli run(daemon);
        run.client =
            daemon.client("https://fake:1", token_from.empty() ? "" : "secret", token_from);
        EXPECT_EQ(run.verb("jobs"), Exit::denied);
        return run.err.str();
    };
    const auto status = [](int number) {
        return [number](const ClientRequest&) -> Result<ClientResponse> {
            return ClientResponse{number, R"({"detail":"no"})", {}};
        };
    };
    EXPECT_EQ(said("", status(401)),
              "error: no\nNo token was found. Ask whoever runs lockstepd for one: lockstep token "
              "create makes it. Then: lockstep login, LOCKSTEP_TOKEN, --token-file.\n");
    EXPECT_EQ(said("a", status(401)),
              "error: no\nThe token is from a; another one: --token-file, LOCKSTEP_TOKEN, lockstep "
              "login.\n");
    EXPECT_EQ(said("a", status(403)),
              "error: no\nThe token is from a; lockstep whoami says whose it is and what it may "
              "do.\n");
    const auto untrusted = [](const ClientRequest&) -> Result<ClientResponse> {
        return fail(Errc::denied, "the daemon at fake:1 shows a certificate that is not trusted");
    };
    EXPECT_EQ(said("a", untrusted),
              "error: the daemon at fake:1 shows a certificate that is not trusted\nNothing was "
              "sent there. lockstep login https://fake:1 shows its certificate and keeps it if you "
              "confirm it; a script gives --fingerprint or LOCKSTEP_FINGERPRINT.\n");
}

}  // namespace
}  // namespace lockstep::cli
