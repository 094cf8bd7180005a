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

}  // namespace
}  // namespace lockstep::cli
