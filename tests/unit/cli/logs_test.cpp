// lockstep logs: one rank or several, picked, followed, into a pipe and onto a terminal.
#include "job/cli/commands.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// A log that grows by one piece a look.
class GrowingLog {
  public:
    GrowingLog(FakeDaemon& daemon, std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
        daemon.on(std::string("GET /v1/jobs/") + kId + "/logs",
                  [this](const ClientRequest& request) -> Result<ClientResponse> {
                      const std::size_t at = request.target.find("offset=");
                      const std::size_t offset = std::stoul(request.target.substr(at + 7));
                      const std::string body = text_.substr(offset);
                      return ClientResponse{
                          200, body, {{"Lockstep-Log-Next", std::to_string(text_.size())}}};
                  });
        daemon.on(std::string("GET /v1/jobs/") + kId,
                  [this](const ClientRequest&) -> Result<ClientResponse> {
                      if (next_ < pieces_.size()) {
                          text_ += pieces_[next_++];
                          return ClientResponse{200, job_json("running"), {}};
                      }
                      return ClientResponse{200, job_json("succeeded"), {}};
                  });
    }

  private:
    std::vector<std::string> pieces_;
    std::size_t next_ = 0;
    std::string text_;
};

// The logs of ranks 0 and 1 of a job that has ended, with times, cut into two answers each.
class StampedLogs {
  public:
    explicit StampedLogs(FakeDaemon& daemon) {
        const std::vector<std::string> first{
            "2025-11-21T01:00:00.000Z 1 zero a\n2025-11-21T01:00:02.000Z 1 zero b\n",
            "2025-11-21T01:00:04.000Z 2 zero c"};
        const std::vector<std::string> second{
            "- - [lockstep: 7 bytes dropped]\n2025-11-21T01:00:01.000Z 1 one ",
            "a\n2025-11-21T01:00:03.000Z 2 one b\n"};
        serve(daemon, 0, first);
        serve(daemon, 1, second);
        daemon.on(std::string("GET /v1/jobs/") + kId + "/ranks", 200,
                  R"({"items":[{"rank":0,"state":"stopped"},
                               {"rank":1,"state":"failed","exit_code":1}]})");
        daemon.on(std::string("GET /v1/jobs/") + kId, 200, job_json("failed"));
    }

  private:
    static void serve(FakeDaemon& daemon, int rank, const std::vector<std::string>& pieces) {
        daemon.on(std::string("GET /v1/jobs/") + kId +
                      "/logs?timestamps=true&rank=" + std::to_string(rank) + "&offset=",
                  [pieces](const ClientRequest& request) -> Result<ClientResponse> {
                      const std::size_t at = request.target.find("offset=");
                      const std::size_t piece = std::stoul(request.target.substr(at + 7));
                      const bool any = piece < pieces.size();
                      return ClientResponse{
                          200,
                          any ? pieces[piece] : "",
                          {{"Lockstep-Log-Next", std::to_string(any ? piece + 1 : piece)}}};
                  });
    }
};

TEST(CliLogs, OfSeveralRanksAreMergedByTimeWithGenerationsMarked) {
    FakeDaemon daemon;
    const StampedLogs logs(daemon);
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "all";
    EXPECT_EQ(run.verb("logs"), Exit::ok);
    EXPECT_EQ(run.out.str(),
              "[1] [lockstep: 7 bytes dropped]\n[0] zero a\n[1] one a\n[0] zero b\n"
              "--- generation 2 ---\n[1] one b\n[0] zero c\n");
}

TEST(CliLogs, HaveTimesAndArePickedByTextTimeAndFailure) {
    const auto printed = [](const std::function<void(Options&)>& choose) {
        FakeDaemon daemon;
        const StampedLogs logs(daemon);
        Cli run(daemon);
        run.options.id = kId;
        choose(run.options);
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        return run.out.str();
    };
    EXPECT_EQ(printed([](Options& options) {
                  options.timestamps = true;
                  options.grep = "[ac]$";
              }),
              "2025-11-21T01:00:00.000Z zero a\n--- generation 2 ---\n"
              "2025-11-21T01:00:04.000Z zero c\n");
    EXPECT_EQ(printed([](Options& options) {
                  options.failed = true;
                  options.grep = "one";
              }),
              "one a\n--- generation 2 ---\none b\n");
    EXPECT_EQ(printed([](Options& options) {
                  options.rank = "0,1";
                  options.since = "2025-11-21T01:00:03Z";
              }),
              "[1] one b\n[0] zero c\n");
    EXPECT_EQ(printed([](Options& options) {
                  options.failed = true;
                  options.json = true;
                  options.grep = "one b";
              }),
              R"({"time":"2025-11-21T01:00:03.000Z","rank":1,"generation":2,"text":"one b"})"
              "\n");
}

TEST(CliLogs, AWrongExpressionOrTimeIsRefused) {
    FakeDaemon daemon;
    Cli run(daemon);
    run.options.id = kId;
    run.options.grep = "(";
    EXPECT_EQ(run.verb("logs"), Exit::usage);
    EXPECT_THAT(run.err.str(), HasSubstr("--grep: missing"));
    run.options.grep.clear();
    run.options.since = "yesterday";
    EXPECT_EQ(run.verb("logs"), Exit::usage);
    EXPECT_THAT(run.err.str(), HasSubstr("--since: give a time in UTC"));
}

TEST(CliLogs, FollowingPrintsEveryByteOnceUntilTheJobHasEnded) {
    FakeDaemon daemon;
    GrowingLog log(daemon, {"one\ntw", "o\n", "", "three"});
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok);
    EXPECT_EQ(run.out.str(), "one\ntwo\nthree\n");
    EXPECT_EQ(run.watched, kId);
}

TEST(CliLogs, APipeGetsTheBytesAndATerminalHarmlessText) {
    for (const bool terminal : {false, true}) {
        FakeDaemon daemon;
        GrowingLog log(daemon, {"\x1b[31mred\x1b[0m\a\n"});
        Cli run(daemon);
        run.terminal.interactive = terminal;
        run.options.id = kId;
        EXPECT_EQ(run.verb("logs"), Exit::ok);
        EXPECT_EQ(run.out.str(), terminal ? "red\n" : "\x1b[31mred\x1b[0m\a\n");
    }
}

// Held until its line is complete, a progress bar stood still until its end.
TEST(CliLogs, FollowingOnATerminalDrawsTheUnfinishedLineAgain) {
    FakeDaemon daemon;
    GrowingLog log(daemon, {"begin\n\r 10%", "\r 50%", "", "\r100%\n", "loss 1"});
    Cli run(daemon);
    run.terminal.interactive = true;
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok);
    EXPECT_EQ(run.out.str(),
              "begin\n 10%\x1b[K\n\x1b[J"
              "\x1b[1A\r 50%\x1b[K\n\x1b[J"
              "\x1b[1A\r\x1b[J100%\n"
              "loss 1\x1b[K\n\x1b[J"
              "\x1b[1A\r\x1b[Jloss 1\n");
}

TEST(CliLogs, APipeGetsTheEndOfALineThatWasDrawnAgain) {
    std::string bar;
    for (int i = 0; i <= 20'000; ++i) {  // more than is held
        bar += "\r" + std::to_string(i) + "/20000";
    }
    FakeDaemon daemon;
    GrowingLog log(daemon, {"\r 10%", "\r100%\n", bar, " it\n", "dos\r\nend"});
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok);
    EXPECT_EQ(run.out.str(), "100%\n20000/20000 it\ndos\r\nend\n");
}

TEST(CliLogs, ALineThatIsTooLongToBeHeldIsPrintedInPiecesOfWholeCharacters) {
    const std::string much(70'000, 'x');
    for (const bool terminal : {false, true}) {
        FakeDaemon daemon;
        GrowingLog log(daemon, {much + "\xe6\x97", "\xa5", "!\n"});
        Cli run(daemon);
        run.terminal.interactive = terminal;
        run.options.id = kId;
        run.options.log_follow = true;
        EXPECT_EQ(run.verb("logs"), Exit::ok);
        EXPECT_EQ(run.out.str(), much + "日!\n") << terminal;
    }
}

// The stamp that lockstepd puts before a line is none of the line: \r does not go back over it.
TEST(CliLogs, OfSeveralRanksTheEndOfALineThatWasDrawnAgainIsPrinted) {
    FakeDaemon daemon;
    for (const std::string rank : {"0", "1"}) {
        daemon.on(
            std::string("GET /v1/jobs/") + kId + "/logs?timestamps=true&rank=" + rank + "&offset=",
            [rank](const ClientRequest& request) -> Result<ClientResponse> {
                const bool first = request.target.ends_with("offset=0");
                return ClientResponse{
                    200,
                    first ? "2025-11-21T01:00:0" + rank + ".000Z 1 \r 10%\r100% of " + rank + "\n"
                          : "",
                    {{"Lockstep-Log-Next", "50"}}};
            });
    }
    daemon.on(std::string("GET /v1/jobs/") + kId, 200, job_json("succeeded"));
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "0,1";
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "[0] 100% of 0\n[1] 100% of 1\n");
}

// It said that rank 0 was not started, and that was all.
TEST(CliLogs, RunWithLogsTellsWhyAJobHasEndedWhoseRanksNeverBegan) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/logs", 404,
              R"({"detail":"rank 0 was not started"})");
    daemon.on(std::string("GET /v1/jobs/") + kId, 200,
              std::string(R"({"id":")") + kId +
                  R"(","name":"demo","state":"failed","cause":{"class":"scheduler",)"
                  R"("message":"no program /nowhere/lockstep-agent on n1"}})");
    Cli cli(daemon);
    EXPECT_EQ(follow_logs(cli.context, kId), Exit::job_failed);
    EXPECT_THAT(cli.out.str() + cli.err.str(), HasSubstr("no program /nowhere/lockstep-agent"));
}

}  // namespace
}  // namespace lockstep::cli
