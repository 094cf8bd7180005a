#include "job/base/machine.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What `run --chdir DIR true` says and does with a lockstepd of such a cluster.
class CliChdir : public testing::Test {
  protected:
    Exit run(const std::string& cluster, const std::string& folder) {
        FakeDaemon daemon;
        daemon.on("GET /v1/cluster", cluster.empty() ? 503 : 200, cluster);
        daemon.on("POST /v1/jobs", 201, job_json("accepted"));
        Cli cli(daemon);
        cli.options.run.command = {"true"};
        cli.options.run.directory = folder;
        cli.options.run.bare = true;
        const Exit end = cli.verb("run");
        said_ = cli.err.str();
        submitted_ = daemon.asked.back().method == "POST";
        return end;
    }
    std::string said_;
    bool submitted_ = false;
};

TEST_F(CliChdir, AMissingFolderIsRefusedWhereTheRanksStartHere) {
    const std::string here = R"({"scheduler":"local","name":")" + host_name() + R"("})";
    EXPECT_EQ(run(here, "/no/such"), Exit::usage);
    EXPECT_EQ(said_,
              "error: --chdir /no/such: there is no such folder; create it, or leave --chdir out "
              "to start in this directory\n");
    EXPECT_FALSE(submitted_);
    EXPECT_EQ(run(here, "/dev/null"), Exit::usage);
    EXPECT_THAT(said_, HasSubstr("error: --chdir /dev/null: it is no folder; "));
    EXPECT_EQ(run(here, "/"), Exit::ok);
    EXPECT_TRUE(submitted_);
}

// The nodes may have a folder that a login node does not have.
TEST_F(CliChdir, AMissingFolderIsAWarningWhereTheyMayStartElsewhere) {
    for (const char* cluster : {R"({"scheduler":"slurm","name":"alps"})",
                                R"({"scheduler":"local","name":"other.host"})", ""}) {
        EXPECT_EQ(run(cluster, "/no/such"), Exit::ok) << cluster;
        EXPECT_TRUE(submitted_);
        EXPECT_THAT(said_, HasSubstr("warning: --chdir /no/such: there is no such folder on this "
                                     "machine; the job fails unless the nodes have it\n"));
        EXPECT_EQ(run(cluster, "/"), Exit::ok);
        EXPECT_THAT(said_, Not(HasSubstr("--chdir")));
    }
}

}  // namespace
}  // namespace lockstep::cli
