#include "job/cli/commands.hpp"

#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A specification on disk for the time of a test.
class SpecFile {
  public:
    explicit SpecFile(const std::string& text)
        : path_(testing::TempDir() + "cli_spec_" +
                testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
        std::ofstream(path_) << text;
    }
    ~SpecFile() { std::filesystem::remove(path_); }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

std::string key_of(const ClientRequest& request) {
    for (const auto& [name, value] : request.headers) {
        if (name == "Idempotency-Key") {
            return value;
        }
    }
    return "";
}

TEST(CliSubmit, SendsWhatTheFileSaysAndPrintsTheId) {
    const SpecFile spec("{\"name\": \"demo\"}");
    FakeDaemon daemon;
    daemon.on("POST /v1/jobs", 201, job_json("accepted"));
    Cli run(daemon);
    run.options.file = spec.path();
    EXPECT_EQ(run.verb("submit"), Exit::ok);
    EXPECT_EQ(run.out.str(), std::string(kId) + "\n");
    EXPECT_EQ(daemon.asked.at(0).body, "{\"name\":\"demo\"}");
    EXPECT_EQ(key_of(daemon.asked.at(0)).size(), 32U);
}

TEST(CliSubmit, ALostAnswerIsAskedForAgainWithTheSameKey) {
    const SpecFile spec("{}");
    FakeDaemon daemon;
    int tries = 0;
    daemon.on("POST /v1/jobs", [&tries](const ClientRequest&) -> Result<ClientResponse> {
        if (++tries < 3) {
            return fail(tries == 1 ? Errc::timed_out : Errc::unavailable, "lost");
        }
        return ClientResponse{201, job_json("accepted"), {}};
    });
    Cli run(daemon);
    run.options.file = spec.path();
    EXPECT_EQ(run.verb("submit"), Exit::ok);
    std::set<std::string> keys;
    for (const ClientRequest& request : daemon.asked) {
        keys.insert(key_of(request));
    }
    EXPECT_EQ(daemon.asked.size(), 3U);
    EXPECT_EQ(keys.size(), 1U);
}

TEST(CliNodes, OneIsAskedForByItsName) {
    FakeDaemon daemon;
    daemon.on("GET /v1/nodes/n%2F1", 200, R"({"name":"n/1","state":"idle"})");
    daemon.on("GET /v1/nodes?", 200, R"({"items":[{"name":"n1"}]})");
    Cli run(daemon);
    run.options.nodes_action = "n/1";
    EXPECT_EQ(run.verb("nodes"), Exit::ok);
    EXPECT_THAT(run.out.str(), HasSubstr("n/1  idle"));
    run.options.nodes_action = "n2";
    EXPECT_EQ(run.verb("nodes"), Exit::not_found);
}

// It said "no nodes" and ended well.
TEST(CliNodes, APartitionThatIsNoneIsSaidWithThoseThereAre) {
    FakeDaemon daemon;
    std::string cluster =
        R"({"scheduler":"slurm","seen_at":"x","partitions":[{"name":"cpu"},{"name":"gpu"}]})";
    daemon.on("GET /v1/nodes?", 200, R"({"items":[],"seen_at":"x"})");
    daemon.on("GET /v1/cluster", [&cluster](const ClientRequest&) -> Result<ClientResponse> {
        return ClientResponse{200, cluster, {}};
    });
    const auto said = [&daemon](const std::string& partition, Exit end, bool json = false) {
        Cli run(daemon);
        run.options.partition = partition;
        run.options.json = json;
        EXPECT_EQ(run.verb("nodes"), end);
        return run.err.str();
    };
    EXPECT_EQ(said("gup", Exit::not_found),
              "error: there is no partition gup; there are cpu, gpu; did you mean gpu?\n");
    EXPECT_EQ(said("gup", Exit::not_found, true),
              "error: there is no partition gup; there are cpu, gpu; did you mean gpu?\n");
    EXPECT_EQ(said("gpu", Exit::ok), "no nodes like that\n");
    cluster = R"({"scheduler":"local","seen_at":"x","partitions":[]})";
    EXPECT_EQ(said("gpu", Exit::not_found),
              "error: there is no partition gpu: scheduler local has none; all nodes: lockstep "
              "nodes\n");
    cluster = R"({"scheduler":"slurm","partitions":[]})";
    EXPECT_EQ(said("gpu", Exit::ok), "no nodes like that\n") << "not known yet";
}

TEST(CliSubmit, WithoutAnyAnswerTheKeyIsPrintedForTheNextTry) {
    const SpecFile spec("{}");
    FakeDaemon daemon;
    daemon.on("POST /v1/jobs", [](const ClientRequest&) -> Result<ClientResponse> {
        return fail(Errc::unavailable, "connection refused");
    });
    Cli run(daemon);
    run.options.file = spec.path();
    run.options.idempotency_key = "monday";
    EXPECT_EQ(run.verb("submit"), Exit::unreachable);
    EXPECT_THAT(run.err.str(), HasSubstr("--idempotency-key monday"));
    EXPECT_THAT(run.err.str(), HasSubstr("Start it with: lockstepd"));
    EXPECT_TRUE(run.out.str().empty());
}

TEST(CliSubmit, ARefusalNamesEveryFieldOnceAndWhereItIs) {
    const SpecFile spec("{\n  \"nodse\": 2\n}");
    FakeDaemon daemon;
    daemon.on("POST /v1/jobs", 400,
              R"({"detail":"2 fields are wrong","errors":[{"pointer":"/name","message":"missing"},
                  {"pointer":"/nodse","message":"unknown field"}]})");
    Cli run(daemon);
    run.options.file = spec.path();
    EXPECT_EQ(run.verb("submit"), Exit::usage);
    EXPECT_THAT(run.err.str(),
                HasSubstr("error: 2 mistakes\n" + spec.path() + ": /name: missing\n" + spec.path() +
                          ":2:3: /nodse: unknown field"));
    EXPECT_THAT(run.err.str(), HasSubstr("\n  2 |   \"nodse\": 2\n    |   ^\n"));
    EXPECT_EQ(daemon.asked.size(), 1U);
}

TEST(CliSubmit, AFileThatIsNotThereIsAUsageError) {
    FakeDaemon daemon;
    Cli run(daemon);
    run.options.file = "/nowhere/spec.json";
    EXPECT_EQ(run.verb("submit"), Exit::usage);
    EXPECT_TRUE(daemon.asked.empty());
}

TEST(CliJobs, PagesUntilTheLimitAndPassesTheFilters) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=1&state=running&label=team%3Avision&cursor=next", 200,
              R"({"items":[{"id":"ls-2","name":"b","state":"failed"}],"next_cursor":"more"})");
    daemon.on("GET /v1/jobs?limit=2&state=running&label=team%3Avision", 200,
              R"({"items":[{"id":"ls-1","name":"a","state":"running"}],"next_cursor":"next"})");
    Cli run(daemon);
    run.options.limit = 2;
    run.options.state = "running";
    run.options.label = "team:vision";
    run.options.quiet = true;
    EXPECT_EQ(run.verb("jobs"), Exit::ok);
    EXPECT_EQ(run.out.str(), "ls-1\nls-2\n");
}

// An answer of a search may be empty and not the end.
TEST(CliJobs, ASearchGoesOnBehindAnEmptyAnswer) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=1&q=llama%20vision&cursor=on", 200,
              R"({"items":[{"id":"ls-1","name":"llama","state":"failed"}]})");
    daemon.on("GET /v1/jobs?limit=1&q=llama%20vision", 200, R"({"items":[],"next_cursor":"on"})");
    Cli run(daemon);
    run.options.limit = 1;
    run.options.search = "llama vision";
    run.options.quiet = true;
    EXPECT_EQ(run.verb("jobs"), Exit::ok);
    EXPECT_EQ(run.out.str(), "ls-1\n");
}

TEST(CliJobs, AHostileNameCannotSteerTheTerminal) {
    FakeDaemon daemon;
    daemon.on(
        "GET /v1/jobs", 200,
        R"({"items":[{"id":"ls-1","name":"\u001b[2J\u001b]0;x\u0007evil\nname","state":"running"}]})");
    Cli run(daemon);
    EXPECT_EQ(run.verb("jobs"), Exit::ok);
    EXPECT_THAT(run.out.str(), Not(HasSubstr("\x1b")));
    EXPECT_THAT(run.out.str(), HasSubstr("evil name"));
}

TEST(CliShow, JsonIsTheDaemonsAnswer) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId, 200, job_json("running"));
    Cli run(daemon);
    run.options.id = kId;
    run.options.json = true;
    EXPECT_EQ(run.verb("show"), Exit::ok);
    EXPECT_EQ(Json::parse(run.out.str()), Json::parse(job_json("running")));
}

TEST(CliShow, EveryKindOfFailureHasItsExitCode) {
    for (const auto& [status, exit] : std::map<int, Exit>{{404, Exit::not_found},
                                                          {401, Exit::denied},
                                                          {409, Exit::conflict},
                                                          {503, Exit::unreachable},
                                                          {400, Exit::usage}}) {
        FakeDaemon daemon;
        daemon.on("GET /v1/jobs/", status, "{}");
        Cli run(daemon);
        run.options.id = kId;
        EXPECT_EQ(run.verb("show"), exit) << status;
        EXPECT_FALSE(run.err.str().empty());
    }
}

// On a full disk lockstepd refuses a command with 503, as it does what it cannot do at the moment.
TEST(CliCancel, WhatLockstepdRefusesItselfIsNotTakenForAnAddressWhereNobodyAnswers) {
    FakeDaemon daemon;
    daemon.on(std::string("POST /v1/jobs/") + kId + "/cancel", 503,
              R"({"type":"urn:lockstep:problem:exhausted","title":"Limit reached","status":503,
                  "detail":"there is no room to store it"})");
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("cancel"), Exit::unreachable);
    EXPECT_EQ(run.err.str(), "error: there is no room to store it\n");
}

TEST(CliCancel, WhereNobodyOrAProxyAnswersTheAddressIsAsked) {
    using Answer = Result<ClientResponse>;
    const std::vector<Answer> answers{
        fail(Errc::unavailable, "connection refused"),
        ClientResponse{503, "<html>no upstream</html>", {{"Retry-After", "1"}}},
        ClientResponse{502, R"({"type":"about:blank","title":"Bad Gateway"})", {}}};
    for (const Answer& answer : answers) {
        FakeDaemon daemon;
        daemon.on("POST /v1/jobs/", [&](const ClientRequest&) { return answer; });
        Cli run(daemon);
        run.options.id = kId;
        EXPECT_EQ(run.verb("cancel"), Exit::unreachable);
        EXPECT_NE(run.err.str().find("Is lockstepd running at http://fake:1?"), std::string::npos)
            << run.err.str();
    }
}

// The restart had been done; asked for again without a key it would end the new generation.
TEST(CliRestart, ALostAnswerIsAskedForAgainUnderTheSameKey) {
    for (const std::string verb : {"restart", "checkpoint"}) {
        FakeDaemon daemon;
        int tries = 0;
        daemon.on(std::string("POST /v1/jobs/") + kId + "/" + verb,
                  [&tries](const ClientRequest&) -> Result<ClientResponse> {
                      ++tries;
                      if (tries == 1) {
                          return fail(Errc::unavailable, "connection reset");
                      }
                      if (tries == 2) {
                          return ClientResponse{504, "<html>proxy</html>", {}};
                      }
                      return ClientResponse{
                          200, std::string(R"({"id":")") + kId + R"(","already_done":true})", {}};
                  });
        Cli run(daemon);
        run.options.id = kId;
        EXPECT_EQ(run.verb(verb), Exit::ok);
        EXPECT_EQ(daemon.asked.size(), 3U);
        std::set<std::string> keys;
        for (const ClientRequest& request : daemon.asked) {
            keys.insert(key_of(request));
        }
        EXPECT_EQ(keys.size(), 1U);
        EXPECT_EQ(keys.begin()->size(), 32U);
        EXPECT_EQ(run.out.str().find("nothing was done now"), std::string::npos)
            << "a try of this call has done it: " << run.out.str();
        run.options.idempotency_key = "mine";
        EXPECT_EQ(run.verb(verb), Exit::ok);
        EXPECT_THAT(run.out.str(), HasSubstr(std::string(kId) + "  the " + verb +
                                             " had been done already, under this key; nothing was "
                                             "done now\n"));
    }
}

TEST(CliRestart, ItIsAskedForSoOftenAndThenTheKeyIsPrinted) {
    FakeDaemon daemon;
    daemon.on("POST /v1/jobs/", [](const ClientRequest&) -> Result<ClientResponse> {
        return fail(Errc::timed_out, "no answer");
    });
    Cli run(daemon);
    run.options.id = kId;
    run.options.idempotency_key = "monday";
    EXPECT_EQ(run.verb("restart"), Exit::unreachable);
    EXPECT_EQ(daemon.asked.size(), 4U);
    EXPECT_EQ(key_of(daemon.asked.back()), "monday");
    EXPECT_THAT(run.err.str(), HasSubstr(std::string("\n  lockstep restart ") + kId +
                                         " --idempotency-key monday\n"));
    EXPECT_TRUE(run.out.str().empty());
}

TEST(CliRestart, ARefusalIsNoLostAnswer) {
    for (const int status : {409, 422, 507}) {
        FakeDaemon daemon;
        daemon.on("POST /v1/jobs/", status, R"({"detail":"nothing runs"})");
        Cli run(daemon);
        run.options.id = kId;
        EXPECT_EQ(run.verb("restart"), status == 507 ? Exit::unreachable : Exit::conflict);
        EXPECT_EQ(daemon.asked.size(), 1U);
        EXPECT_EQ(run.err.str(), "error: nothing runs\n");
    }
}

TEST(CliShow, SaysWhichRankAndStepAnAnomalyWasAt) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId;
    daemon.on(base + "/events?limit=500&after=0", 200,
              R"({"items":[{"seq":4,"kind":"submitted","data":{}},
                           {"seq":5,"kind":"anomaly","rank":1,"node":"n2",
                            "data":{"anomaly":"nonfinite","message":"loss is NaN","step":41}}]})");
    daemon.on(base + "/events", 200, R"({"items":[]})");
    daemon.on(base + "/", 404, "{}");
    daemon.on(base, 200,
              std::string(R"({"id":")") + kId +
                  R"(","name":"demo","state":"succeeded","anomalies":{"nonfinite":1}})");
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("show"), Exit::ok);
    EXPECT_THAT(run.out.str(), HasSubstr("  nonfinite rank 1 on n2  loss is NaN, step 41\n"));
}

// The hint named every place that a token may come from.
TEST(CliErrors, ARefusedTokenIsSaidToComeFromWhereItDoes) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs", 401, R"({"detail":"this token is not known"})");
    Cli run(daemon);
    EXPECT_EQ(run.verb("jobs"), Exit::denied);
    EXPECT_THAT(run.err.str(), HasSubstr("error: this token is not known\n"
                                         "The token is from LOCKSTEP_TOKEN; another one: "));
}

TEST(CliEvents, EndsAtTheFinishedEventWhenFollowing) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/events?limit=500&after=2", 200,
              R"({"items":[{"seq":9,"time":"2026-11-21T01:00:01.000Z","kind":"finished",
                  "data":{"state":"failed","cause":{"class":"rank_exit","message":"rank 1 exited",
                  "rank":1,"exit_code":7}}}]})");
    daemon.on(
        std::string("GET /v1/jobs/") + kId + "/events?limit=500&after=0", 200,
        R"({"items":[{"seq":2,"time":"2026-11-21T01:00:00.000Z","kind":"submitted","data":{}}]})");
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("events"), Exit::ok);
    EXPECT_THAT(run.out.str(), HasSubstr("rank_exit: rank 1 exited"));
    EXPECT_EQ(daemon.asked.size(), 2U);
}

TEST(CliCancel, SaysWhatHappens) {
    FakeDaemon daemon;
    daemon.on(std::string("POST /v1/jobs/") + kId + "/cancel", 200, job_json("running"));
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("cancel"), Exit::ok);
    EXPECT_THAT(run.out.str(), HasSubstr("is being cancelled"));
}

TEST(CliScript, AsJsonItIsAMemberAndNotBareText) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/script", 200, "#!/bin/sh\necho \"x\"\n");
    Cli run(daemon);
    run.options.id = kId;
    run.options.json = true;
    EXPECT_EQ(run.verb("script"), Exit::ok);
    const auto printed = parse_json(run.out.str());
    ASSERT_TRUE(printed) << run.out.str();
    EXPECT_EQ((*printed)["script"], "#!/bin/sh\necho \"x\"\n");
}

TEST(CliScript, WithoutAScriptTheDaemonsReasonIsPrinted) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/script", 404,
              R"({"detail":"the local scheduler runs jobs without a script"})");
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("script"), Exit::not_found);
    EXPECT_EQ(run.err.str(), "error: the local scheduler runs jobs without a script\n");
}

}  // namespace
}  // namespace lockstep::cli
