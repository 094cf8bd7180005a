// lockstep rm and du against answers of a daemon.
#include "job/cli/disk.hpp"

#include "tests/unit/cli/fake_daemon.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

namespace lockstep::cli {
namespace {

std::string job_text(const std::string& id, const std::string& finished,
                     const std::string& state = "succeeded") {
    return R"({"id":")" + id + R"(","name":"a","state":")" + state + R"(","finished_at":")" +
           finished + R"(","labels":{}})";
}
const std::string kOther = "ls-01JCXW3V5N8Q2R7T9ZABCDEFGJ";

// What somebody types at the keyboard.
class TypedAnswer {
  public:
    explicit TypedAnswer(const std::string& text)
        : text_(text), before_(std::cin.rdbuf(text_.rdbuf())) {}
    ~TypedAnswer() {
        std::cin.rdbuf(before_);
        std::cin.clear();
    }
    TypedAnswer(const TypedAnswer&) = delete;
    TypedAnswer& operator=(const TypedAnswer&) = delete;

  private:
    std::istringstream text_;
    std::streambuf* before_;
};

std::vector<std::string> deleted(const FakeDaemon& daemon) {
    std::vector<std::string> out;
    for (const ClientRequest& one : daemon.asked) {
        if (one.method == "DELETE") {
            out.push_back(one.target);
        }
    }
    return out;
}

TEST(Disk, BytesReadLikeSizes) {
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(1023), "1023 B");
    EXPECT_EQ(bytes_text(1536), "1.5 KiB");
    EXPECT_EQ(bytes_text(3'221'225'472), "3.0 GiB");
    EXPECT_EQ(bytes_text(INT64_MAX), "8192.0 PiB");
}

TEST(Disk, TheLargestComesFirstAndAnUnknownSizeIsADash) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?", 200,
              R"({"items":[)" + job_text(kId, "2025-11-21T00:00:00Z") + "," +
                  job_text(kOther, "2025-11-21T00:00:00Z") + "]}");
    daemon.on("GET /v1/jobs/" + kOther + "/disk", 200,
              R"({"total_bytes":2097152,"logs_bytes":2097152,"checkpoints_bytes":0})");
    Cli cli(daemon);
    EXPECT_EQ(cli.verb("du"), Exit::ok);
    const std::string text = cli.out.str();
    EXPECT_LT(text.find(kOther), text.find(kId)) << text;
    EXPECT_NE(text.find("2.0 MiB"), std::string::npos) << text;
}

std::string numbered(std::size_t i) {
    return "ls-01JCXW3V5N8Q2R7T9ZABCDEF" + std::to_string(10 + i);
}

// `count` jobs on pages of ten, the newest first; each takes a MiB, the oldest a GiB.
void list_jobs(FakeDaemon& daemon, std::size_t count) {
    daemon.on("GET /v1/jobs/" + numbered(count - 1) + "/disk", 200,
              R"({"total_bytes":1073741824})");
    daemon.on("GET /v1/jobs/", 200, R"({"total_bytes":1048576})");
    daemon.on("GET /v1/jobs?", [count](const ClientRequest& request) -> Result<ClientResponse> {
        const std::size_t at = request.target.find("&cursor=");
        const std::size_t from =
            at == std::string::npos ? 0 : std::stoul(request.target.substr(at + 8));
        const std::size_t to = std::min(from + 10, count);
        std::string items;
        for (std::size_t i = from; i < to; ++i) {
            items += (items.empty() ? "" : ",") + job_text(numbered(i), "2025-11-21T00:00:00Z");
        }
        return ClientResponse{
            200,
            R"({"items":[)" + items + "]" +
                (to < count ? R"(,"next_cursor":")" + std::to_string(to) + "\"}" : "}"),
            {}};
    });
}

// The alerts of a full disk send people to du: it sorted the newest 20.
TEST(Disk, TheLargestIsShownHoweverOldItIs) {
    FakeDaemon daemon;
    list_jobs(daemon, 35);
    Cli cli(daemon);
    EXPECT_EQ(cli.verb("du"), Exit::ok);
    const std::string text = cli.out.str();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + kListed) << text;
    EXPECT_LT(text.find(numbered(34)), text.find(numbered(0))) << text;
    EXPECT_EQ(cli.err.str(), "35 jobs, 1.0 GiB; the largest are shown, --all shows all\n");
    Cli json(daemon);
    json.options.json = true;
    json.options.limit = 2;
    EXPECT_EQ(json.verb("du"), Exit::ok);
    const Json answer = Json::parse(json.out.str());
    EXPECT_EQ(answer["items"].size(), 2U);
    EXPECT_EQ(answer["items"][0]["id"], numbered(34));
    EXPECT_EQ(answer["jobs"], 35);
    EXPECT_EQ(answer["total_bytes"], 1'073'741'824 + 34 * 1'048'576);
    EXPECT_EQ(answer["not_measured"], 0);
}

TEST(Disk, WhatCannotBeMeasuredInAMinuteIsCountedUnlessAllIsAskedFor) {
    FakeDaemon daemon;
    Cli cli(daemon);
    Cli whole(daemon);
    daemon.on("GET /v1/jobs/", [&](const ClientRequest&) -> Result<ClientResponse> {
        cli.clock.advance(std::chrono::seconds{6});
        whole.clock.advance(std::chrono::seconds{6});
        return ClientResponse{200, R"({"total_bytes":1048576})", {}};
    });
    list_jobs(daemon, 35);
    EXPECT_EQ(cli.verb("du"), Exit::ok);
    EXPECT_EQ(cli.err.str(),
              "10 jobs, 10.0 MiB\n"
              "25 older jobs were not measured within 60 s; --all measures all\n");
    whole.options.all = true;
    EXPECT_EQ(whole.verb("du"), Exit::ok);
    EXPECT_EQ(whole.err.str(), "35 jobs, 35.0 MiB\n");
}

TEST(Remove, WaitsForAgentsThatAreLeaving) {
    FakeDaemon daemon;
    int tries = 0;
    daemon.on("GET /v1/jobs/", 200, job_text(kId, "2025-11-21T00:00:00Z"));
    daemon.on("DELETE", [&](const ClientRequest&) -> Result<ClientResponse> {
        return ++tries < 3 ? ClientResponse{503, R"({"detail":"its agents are still leaving"})", {}}
                           : ClientResponse{200, R"({"removed":"x"})", {}};
    });
    Cli cli(daemon);
    cli.options.ids = {kId};
    EXPECT_EQ(cli.verb("rm"), Exit::ok) << cli.err.str();
    EXPECT_EQ(tries, 3);
    EXPECT_EQ(cli.out.str(), std::string{kId} + "  is removed\n");
}

TEST(Remove, OneThatCannotGoDoesNotKeepTheOthers) {
    FakeDaemon daemon;
    daemon.on(std::string{"GET /v1/jobs/"} + kId, 200, job_text(kId, "2025-11-21T00:00:00Z"));
    daemon.on("GET /v1/jobs/" + kOther, 200, job_text(kOther, "2025-11-21T00:00:00Z"));
    daemon.on("DELETE /v1/jobs/" + kOther, 409, R"({"detail":"the job is not over"})");
    daemon.on("DELETE", 200, R"({"removed":"x"})");
    Cli cli(daemon);
    cli.options.ids = {kId, kOther, kId};
    cli.options.keep_checkpoints = true;
    EXPECT_EQ(cli.verb("rm"), Exit::conflict);
    EXPECT_EQ(deleted(daemon).size(), 2U) << "each once";
    EXPECT_EQ(deleted(daemon)[1], std::string{"/v1/jobs/"} + kId + "?checkpoints=keep");
    EXPECT_NE(cli.err.str().find(kOther), std::string::npos);
}

TEST(Remove, ADryRunForAProgramIsJson) {
    FakeDaemon daemon;
    daemon.on(std::string{"GET /v1/jobs/"} + kId + "/disk", 200, R"({"total_bytes":1024})");
    daemon.on("GET /v1/jobs/", 200, job_text(kId, "2025-11-21T00:00:00Z"));
    Cli cli(daemon);
    cli.options.ids = {kId};
    cli.options.dry_run = true;
    cli.options.json = true;
    EXPECT_EQ(cli.verb("rm"), Exit::ok);
    const Json answer = Json::parse(cli.out.str(), nullptr, false);
    ASSERT_TRUE(answer.is_object()) << cli.out.str();
    EXPECT_EQ(answer["items"][0]["id"], kId);
    EXPECT_EQ(answer["items"][0]["disk"]["total_bytes"], 1024);
    EXPECT_TRUE(deleted(daemon).empty());
}

TEST(Remove, AsksWhoeverIsThereAlsoWhenTheAnswerGoesElsewhere) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs/", 200, job_text(kId, "2025-11-21T00:00:00Z"));
    daemon.on("DELETE", 200, R"({"removed":"x"})");
    for (const bool json : {false, true}) {
        Cli cli(daemon);
        cli.terminal.asks = true;
        cli.options.ids = {kId};
        cli.options.json = json;
        const TypedAnswer no{"n\n"};
        EXPECT_EQ(cli.verb("rm"), Exit::ok);
        EXPECT_TRUE(deleted(daemon).empty());
        EXPECT_NE(cli.err.str().find("CHECKPOINTS"), std::string::npos) << "the table is shown";
        EXPECT_NE(cli.err.str().find("[y/N]"), std::string::npos);
        EXPECT_EQ(cli.out.str().find("CHECKPOINTS"), std::string::npos);
        EXPECT_EQ(Json::accept(cli.out.str()), json) << cli.out.str();
    }
    Cli cli(daemon);
    cli.terminal.asks = true;
    cli.options.ids = {kId};
    const TypedAnswer yes{"y\n"};
    EXPECT_EQ(cli.verb("rm"), Exit::ok);
    EXPECT_EQ(deleted(daemon).size(), 1U);
    EXPECT_EQ(cli.out.str(), std::string{kId} + "  is removed\n");
}

TEST(Remove, ByAgeTakesOnesOwnThatAreOverAndOldEnough) {
    FakeDaemon daemon;
    daemon.on("GET /v1/whoami", 200, R"({"user":"ada"})");
    const std::string kept = "ls-01JCXW3V5N8Q2R7T9ZABCDEFGK";
    std::string labelled = job_text(kept, "2025-10-01T00:00:00Z");
    labelled.replace(labelled.find("{}"), 2, R"({"keep":"x"})");
    daemon.on("GET /v1/jobs?", 200,
              R"({"items":[)" + job_text(kId, "2025-10-01T00:00:00Z") + "," +
                  job_text(kOther, "2025-11-21T00:00:00Z") + "," + labelled + "]}");
    daemon.on("DELETE", 200, R"({"removed":"x"})");
    Cli cli(daemon);
    cli.options.older_than = "30d";
    EXPECT_EQ(cli.verb("rm"), Exit::usage) << "nobody said yes";
    EXPECT_TRUE(deleted(daemon).empty());
    cli.options.yes = true;
    EXPECT_EQ(cli.verb("rm"), Exit::ok);
    EXPECT_EQ(deleted(daemon), std::vector<std::string>{std::string{"/v1/jobs/"} + kId});
    EXPECT_TRUE(std::any_of(daemon.asked.begin(), daemon.asked.end(), [](const auto& one) {
        return one.target.find("&user=ada") != std::string::npos;
    }));
}

}  // namespace
}  // namespace lockstep::cli
