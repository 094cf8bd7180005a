// `lockstep evidence` and the part of `lockstep show` that is of a hang.
#include "job/cli/commands.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

const std::string kRunning =
    std::string(R"({"id":")") + kId + R"(","name":"demo","state":"running"})";

constexpr const char* kEvidence = R"json({"items":[{"attempt":1,"generation":2,
  "time":"2026-11-21T01:02:03.456Z","reason":"no rank has made a step","message":"had: all","step":7,
  "ranks":[{"rank":1,"node":"n1","step":5,"behind":true,"state":"T","wchan":"do_signal_stop",
            "files":[{"name":"state.txt","size":6}],"missing":[{"what":"native","why":"stopped"}]},
           {"rank":0,"node":"n0","step":7,"behind":false,"state":"S","frame":"spin (a.py:3)",
            "files":[{"name":"python.txt","size":9},{"name":"state.txt","size":6}],"missing":[]}]}]})json";

TEST(CliShow, OfAHangShowsWhoLagsFirst) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/evidence", 200, kEvidence);
    daemon.on(std::string("GET /v1/jobs/") + kId, 200, kRunning);
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("show"), Exit::ok);
    const std::string text = run.out.str();
    EXPECT_THAT(text, HasSubstr("no rank has made a step"));
    const auto lagging = text.find("do_signal_stop");
    const auto other = text.find("spin (a.py:3)");
    ASSERT_NE(lagging, std::string::npos) << text;
    ASSERT_NE(other, std::string::npos) << text;
    EXPECT_LT(lagging, other);
}

TEST(CliEvidence, PrintsTheTextsOfARankAndWhatIsMissing) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId + "/evidence";
    daemon.on(base + "/python.txt?attempt=1&generation=2&rank=0&offset=0", 200, "spin\n");
    daemon.on(base + "/state.txt?attempt=1&generation=2&rank=0&offset=0", 200, "asleep\n");
    daemon.on(base + "/", 200, "");
    daemon.on(base, 200, kEvidence);
    Cli all(daemon);
    all.options.id = kId;
    all.options.evidence_rank = "0";
    EXPECT_EQ(all.verb("evidence"), Exit::ok);
    EXPECT_EQ(all.out.str(), "==> rank 0 state.txt\nasleep\n==> rank 0 python.txt\nspin\n");
    Cli python(daemon);
    python.options.id = kId;
    python.options.evidence_rank = "0";
    python.options.what = "python";
    EXPECT_EQ(python.verb("evidence"), Exit::ok);
    EXPECT_EQ(python.out.str(), "spin\n");
    Cli stack(daemon);
    stack.options.id = kId;
    stack.options.evidence_rank = "1";
    stack.options.what = "stack";
    EXPECT_EQ(stack.verb("evidence"), Exit::not_found);
    EXPECT_THAT(stack.err.str(), HasSubstr("rank 1: no native: stopped"));
}

// The list ends after the first 256 ranks; the files are there.
TEST(CliEvidence, ARankThatTheListHasNoRoomForIsPrintedToo) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId + "/evidence";
    daemon.on(base + "/state.txt?attempt=1&generation=2&rank=300&offset=0", 200, "asleep\n");
    daemon.on(base + "/", 404, "{}");
    daemon.on(base, 200, kEvidence);
    Cli run(daemon);
    run.options.id = kId;
    run.options.evidence_rank = "300";
    EXPECT_EQ(run.verb("evidence"), Exit::ok);
    EXPECT_EQ(run.out.str(), "==> rank 300 state.txt\nasleep\n");
    Cli none(daemon);
    none.options.id = kId;
    none.options.evidence_rank = "301";
    EXPECT_EQ(none.verb("evidence"), Exit::not_found);
    EXPECT_THAT(none.err.str(), HasSubstr("there is none of rank 301"));
}

// A list of all looks is megabytes, and --now asks four times a second.
TEST(CliEvidence, OnlyTheNewestLookIsAskedFor) {
    FakeDaemon daemon;
    int looks = 0;
    daemon.on(std::string("POST /v1/jobs/") + kId, 200, kRunning);
    daemon.on(std::string("GET /v1/jobs/") + kId + "/evidence",
              [&](const ClientRequest&) -> Result<ClientResponse> {
                  return ClientResponse{200, ++looks < 2 ? R"({"items":[]})" : kEvidence, {}};
              });
    daemon.on(std::string("GET /v1/jobs/") + kId, 200, kRunning);
    for (const char* verb : {"show", "evidence"}) {
        Cli run(daemon);
        run.options.id = kId;
        run.options.now = std::string_view{verb} == "evidence";
        looks = 0;
        EXPECT_EQ(run.verb(verb), Exit::ok) << verb;
    }
    int asked = 0;
    for (const ClientRequest& request : daemon.asked) {
        const auto at = request.target.find("/evidence");
        if (request.method == "GET" && at != std::string::npos) {
            EXPECT_EQ(request.target.substr(at), "/evidence?limit=1");
            ++asked;
        }
    }
    EXPECT_EQ(asked, 4);  // show: one; evidence --now: before, after, to print
}

TEST(CliEvidence, NowWaitsForTheNewLook) {
    FakeDaemon daemon;
    const std::string base = std::string("/v1/jobs/") + kId;
    int asked = 0;
    daemon.on("POST " + base + "/evidence", 200, kRunning);
    daemon.on("GET " + base + "/evidence", [&](const ClientRequest&) -> Result<ClientResponse> {
        return ClientResponse{200, ++asked < 3 ? R"({"items":[]})" : kEvidence, {}};
    });
    Cli run(daemon);
    run.options.id = kId;
    run.options.now = true;
    EXPECT_EQ(run.verb("evidence"), Exit::ok);
    EXPECT_EQ(asked, 4) << "what there was, twice what there is, and what is printed";
    EXPECT_THAT(run.out.str(), HasSubstr("spin (a.py:3)"));
}

}  // namespace
}  // namespace lockstep::cli
