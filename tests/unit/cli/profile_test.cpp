// `lockstep profile`: asked once, waited for, fetched whole.
#include "job/base/files.hpp"
#include "job/cli/commands.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

const std::string kProfiledJob =
    std::string(R"({"id":")") + kId + R"(","name":"demo","state":"running"})";
constexpr const char* kProfileAsked = R"({"attempt":1,"generation":2,"profile":3,"ranks":[1],
  "seconds":5,"patience_seconds":4})";

std::string profiles(const std::string& name, int number = 3) {
    return R"({"items":[{"attempt":1,"generation":2,"profile":)" + std::to_string(number) +
           R"(,"ranks":[{"rank":1,"node":"n1","files":[{"name":")" + name +
           R"(","size":9}],"missing":[{"what":"trace","why":"no torch"}]}]}]})";
}

class CliProfile : public testing::Test {
  protected:
    void listed(const std::string& before, const std::string& after) {
        daemon_.on("POST " + base_ + "/profiles", 202, kProfileAsked);
        daemon_.on("GET " + base_ + "/profiles?",
                   [this, before, after](const ClientRequest&) -> Result<ClientResponse> {
                       return ClientResponse{200, ++looks_ < 3 ? before : after, {}};
                   });
        daemon_.on("GET " + base_, 200, kProfiledJob);
    }
    Exit run(Cli& cli) {
        cli.options.id = kId;
        cli.options.output = (folder_.path() / "out").string();
        return cli.verb("profile");
    }

    const std::string base_ = std::string("/v1/jobs/") + kId;
    test::TemporaryFolder folder_;
    FakeDaemon daemon_;
    int looks_ = 0;
};

TEST_F(CliProfile, WaitsForItsOwnAndFetchesTheFiles) {
    daemon_.on(
        "GET " + base_ + "/profiles/stacks.txt?attempt=1&generation=2&profile=3&rank=1&offset=0",
        200, "main 7\n");
    daemon_.on("GET " + base_ + "/profiles/", 200, "");
    listed(profiles("stacks.txt", 2), profiles("stacks.txt"));
    Cli cli(daemon_);
    cli.options.ranks = "1";
    EXPECT_EQ(run(cli), Exit::ok) << cli.err.str();
    EXPECT_EQ(looks_, 3) << "somebody else's newest is not it";
    EXPECT_EQ(*read_file(folder_.path() / "out" / "rank-00001.stacks.txt", 99), "main 7\n");
    EXPECT_THAT(cli.err.str(), HasSubstr("rank 1 on n1: no trace: no torch"));
    EXPECT_THAT(cli.err.str(), HasSubstr("recording 1 rank for 5 s"));
    std::string body;
    for (const ClientRequest& request : daemon_.asked) {
        body = request.method == "POST" ? request.body : body;
    }
    EXPECT_EQ(body, R"({"ranks":"1","seconds":5})");
}

// "rank 1: no profile" stood beside the file, and the exit status was 0.
TEST_F(CliProfile, NcclsOperationsAloneAreNoProfile) {
    daemon_.on("GET " + base_ + "/profiles/collectives.txt?", 200, "all_reduce\n");
    listed(profiles("collectives.txt"), profiles("collectives.txt"));
    Cli cli(daemon_);
    EXPECT_EQ(run(cli), Exit::not_found) << cli.err.str();
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "out" / "rank-00001.collectives.txt"))
        << "it is saved all the same";
}

TEST_F(CliProfile, DoesNotWaitForEver) {
    listed(profiles("stacks.txt", 2), profiles("stacks.txt", 2));
    Cli cli(daemon_);
    EXPECT_EQ(run(cli), Exit::unreachable);
    EXPECT_EQ(looks_, 2 * (4 + 5));
    EXPECT_THAT(cli.err.str(), HasSubstr("--last"));
}

TEST_F(CliProfile, AFileNameOfADaemonCannotLeaveTheFolder) {
    for (const char* name : {"../out.txt", ".bashrc", "a/b", "", "a\\u0000b"}) {
        looks_ = 2;
        listed(profiles(name), profiles(name));
        Cli cli(daemon_);
        EXPECT_NE(run(cli), Exit::ok) << name;
        EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "out")) << name;
    }
}

TEST_F(CliProfile, TheLastIsFetchedWithoutAnother) {
    daemon_.on("GET " + base_ + "/profiles?", 200, R"({"items":[]})");
    daemon_.on("GET " + base_, 200, kProfiledJob);
    Cli cli(daemon_);
    cli.options.last = true;
    EXPECT_EQ(run(cli), Exit::not_found);
    EXPECT_THAT(cli.err.str(), HasSubstr("no profile was recorded"));
    for (const ClientRequest& request : daemon_.asked) {
        EXPECT_NE(request.method, "POST");
    }
}

}  // namespace
}  // namespace lockstep::cli
