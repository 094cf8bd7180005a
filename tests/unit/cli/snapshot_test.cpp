// run --snapshot: which copies of the work tree stay.
#include "job/cli/snapshot.hpp"

#include "job/base/files.hpp"
#include "job/cli/interrupt.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// A work tree with two files, and a command line that runs there.
class CliSnapshot : public testing::Test {
  protected:
    void SetUp() override {
        work_ = (folder_ / "work").string();
        std::filesystem::create_directories(work_);
        ASSERT_TRUE(write_file_atomic(work_ + "/one", "1"));
        ASSERT_TRUE(write_file_atomic(work_ + "/two", "2"));
        const std::string git = "git -C " + work_ + " ";
        if (std::system((git + "init -q && " + git + "add .").c_str()) != 0) {
            GTEST_SKIP() << "there is no git";
        }
        run_.options.data_dir = (folder_ / "data").string();
        run_.options.run.command = {"true"};
        run_.options.run.directory = work_;
        run_.options.run.snapshot = true;
        run_.options.run.bare = true;
    }
    void answers(int status, const std::string& body) {
        daemon_.on("GET /v1/whoami", 200, R"({"user":"me"})");
        daemon_.on("POST /v1/jobs", status, body);
    }
    std::size_t copies() const {
        std::error_code ec;
        const std::filesystem::directory_iterator all{snapshots_folder(run_.options), ec};
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }

    test::TemporaryFolder folder_;
    std::string work_;
    FakeDaemon daemon_;
    Cli run_{daemon_};
};

TEST_F(CliSnapshot, OfAJobThatWasAcceptedStays) {
    answers(201, job_json("submitted"));
    EXPECT_EQ(run_.verb("run"), Exit::ok) << run_.err.str();
    EXPECT_EQ(copies(), 1U);
}

// Nothing ever removed it.
TEST_F(CliSnapshot, OfAJobThatWasRefusedIsRemoved) {
    answers(400, R"({"detail":"the specification is wrong"})");
    EXPECT_EQ(run_.verb("run"), Exit::usage);
    EXPECT_EQ(copies(), 0U);
}

TEST_F(CliSnapshot, StaysWhereWhetherTheJobWasAcceptedIsNotKnown) {
    answers(503, R"({"detail":"not now"})");
    EXPECT_EQ(run_.verb("run"), Exit::unreachable);
    EXPECT_THAT(run_.err.str(), HasSubstr("Whether the job was accepted is not known"));
    EXPECT_EQ(copies(), 1U);
}

// "Whether the job was accepted is not known" was said of a job that had not left the machine.
TEST_F(CliSnapshot, IsRemovedWhereNobodyTookTheConnection) {
    bool lost = false;
    int asked = 0;
    daemon_.on("GET /v1/whoami", 200, R"({"user":"me"})");
    daemon_.on("POST /v1/jobs", [&](const ClientRequest& request) -> Result<ClientResponse> {
        *request.unsent = !(lost && asked == 0);
        ++asked;
        return fail(Errc::unavailable, "connection refused");
    });
    EXPECT_EQ(run_.verb("run"), Exit::unreachable);
    EXPECT_EQ(asked, 4);
    EXPECT_THAT(run_.err.str(), HasSubstr("connection refused"));
    EXPECT_THAT(run_.err.str(), ::testing::Not(HasSubstr("not known")));
    EXPECT_EQ(copies(), 0U);
    lost = true;  // the first of them was sent
    asked = 0;
    EXPECT_EQ(run_.verb("run"), Exit::unreachable);
    EXPECT_THAT(run_.err.str(), HasSubstr("Whether the job was accepted is not known"));
    EXPECT_EQ(copies(), 1U);
}

TEST_F(CliSnapshot, ALimitAfterALostAnswerIsNoRefusal) {
    int asked = 0;
    daemon_.on("GET /v1/whoami", 200, R"({"user":"me"})");
    daemon_.on("POST /v1/jobs", [&asked](const ClientRequest&) -> Result<ClientResponse> {
        if (++asked == 1) {
            return fail(Errc::timed_out, "the answer was lost");
        }
        return ClientResponse{429, R"({"detail":"you have a job already"})", {}};
    });
    run_.verb("run");
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(copies(), 1U);
}

TEST_F(CliSnapshot, IsNotMadeWithoutALockstepd) {
    daemon_.on("GET /v1/whoami", [](const ClientRequest&) -> Result<ClientResponse> {
        return fail(Errc::unavailable, "connection refused");
    });
    EXPECT_EQ(run_.verb("run"), Exit::unreachable);
    EXPECT_FALSE(std::filesystem::exists(snapshots_folder(run_.options)));
}

TEST_F(CliSnapshot, ADryRunCopiesNothing) {
    run_.options.run.dry_run = true;
    EXPECT_EQ(run_.verb("run"), Exit::ok) << run_.err.str();
    EXPECT_FALSE(std::filesystem::exists(snapshots_folder(run_.options)));
    EXPECT_THAT(run_.err.str(), HasSubstr("a copy of " + work_ + ", commit none"));
    EXPECT_THAT(run_.err.str(), HasSubstr(", 2 files"));
    EXPECT_TRUE(daemon_.asked.empty());
}

TEST_F(CliSnapshot, ThatASpecificationNamesStaysAndIsSaidToStay) {
    run_.options.run.dry_run = true;
    run_.options.run.output = (folder_ / "job.json").string();
    EXPECT_EQ(run_.verb("run"), Exit::ok) << run_.err.str();
    EXPECT_EQ(copies(), 1U);
    EXPECT_THAT(run_.err.str(), HasSubstr("the copy stays, as the specification names it: " +
                                          snapshots_folder(run_.options).string()));
    EXPECT_THAT(test::text_of(folder_ / "job.json"),
                HasSubstr(snapshots_folder(run_.options).string()));
}

// After Ctrl-C the part that had been copied stayed.
TEST_F(CliSnapshot, ThatIsInterruptedLeavesNothing) {
    std::size_t looks = 0;
    const auto taken = take_snapshot(work_, snapshots_folder(run_.options), [&] {
        EXPECT_EQ(copies(), 1U);
        return ++looks == 2;  // one file of two is there
    });
    ASSERT_FALSE(taken.has_value());
    EXPECT_EQ(taken.error().code, Errc::cancelled);
    EXPECT_EQ(looks, 2U);
    EXPECT_EQ(copies(), 0U);
}

TEST(CliStop, ASecondInterruptAndOneOutsideOfTheWorkAreNotHeeded) {
    Stop stop;
    EXPECT_FALSE(stop.ask()) << "nothing is being done";
    stop.begin();
    EXPECT_FALSE(stop.asked());
    EXPECT_TRUE(stop.ask());
    EXPECT_TRUE(stop.asked());
    EXPECT_FALSE(stop.ask()) << "ends the program";
    EXPECT_TRUE(stop.end());
    EXPECT_FALSE(stop.ask());
}

}  // namespace
}  // namespace lockstep::cli
