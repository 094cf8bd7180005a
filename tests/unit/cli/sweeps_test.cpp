#include "job/cli/sweeps.hpp"

#include "job/base/text.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// The best of a sweep may be any: the 20 newest say nothing of that.
TEST(CliJobs, OfASweepAllAreListedOrTheBest) {
    FakeDaemon daemon;
    const auto member = [](int number) {
        Json job = Json::object();
        job["id"] = "ls-" + std::to_string(100 + number);
        job["sweep"] = {{"id", "ls-100"}, {"parameters", {{"seed", number}}}};
        return job;
    };
    Json items = Json::array();
    for (int i = 0; i < 30; ++i) {
        items.push_back(member(i));
    }
    daemon.on("GET /v1/jobs?limit=500&sweep=ls-100", 200, dump_json({{"items", items}}));
    daemon.on("GET /v1/jobs?", 200, dump_json({{"items", {member(0)}}}));  // whose name it is
    daemon.on("GET /v1/jobs/ls-107/series", 200,
              R"({"series":[{"rank":0,"points":[[1,0.5,0.5,0.5]]}]})");
    daemon.on("GET /v1/jobs/ls-100", 200, dump_json(member(0)));
    const auto lines = [&](std::int64_t limit) {
        Cli run(daemon);
        run.options.sweep = "ls-100";
        run.options.limit = limit;
        EXPECT_EQ(run.verb("jobs"), Exit::ok) << run.err.str();
        return split(run.out.str(), '\n');
    };
    EXPECT_EQ(lines(kListed).size(), 1U + 30U + 1U);  // titles, jobs, the end of the last line
    const auto best = lines(2);
    ASSERT_EQ(best.size(), 1U + 2U + 1U);
    EXPECT_THAT(best[1], HasSubstr("ls-107"));
}

// Two points have a finite value in each, and the newest loss was taken for it.
TEST(CliJobs, OfASweepWhatEndedAsNanIsLastAndSaysSo) {
    FakeDaemon daemon;
    const auto member = [](const char* id, int seed) {
        return Json{{"id", id}, {"sweep", {{"id", "ls-200"}, {"parameters", {{"seed", seed}}}}}};
    };
    daemon.on("GET /v1/jobs?limit=500&sweep=ls-200", 200,
              dump_json({{"items", {member("ls-200", 1), member("ls-201", 2)}}}));
    daemon.on("GET /v1/jobs?", 200, dump_json({{"items", {member("ls-200", 1)}}}));
    daemon.on("GET /v1/jobs/ls-200/series", 200,
              R"({"series":[{"rank":0,"points":[[4,0.25,0.5,0.25],[9,0.125,0.25,null]],
                  "nonfinite":[[9,"nan"]],"nonfinite_total":1}]})");
    daemon.on("GET /v1/jobs/ls-201/series", 200,
              R"({"series":[{"rank":0,"points":[[9,1.5,2,1.5]]}]})");
    daemon.on("GET /v1/jobs/ls-200", 200, dump_json(member("ls-200", 1)));
    Cli run(daemon);
    run.options.sweep = "ls-200";
    ASSERT_EQ(run.verb("jobs"), Exit::ok) << run.err.str();
    const auto lines = split(run.out.str(), '\n');
    ASSERT_EQ(lines.size(), 1U + 2U + 1U);
    EXPECT_THAT(lines[1], HasSubstr("ls-201"));
    EXPECT_THAT(lines[2], HasSubstr("ls-200"));
    EXPECT_THAT(lines[2], HasSubstr("NaN"));
}

}  // namespace
}  // namespace lockstep::cli
