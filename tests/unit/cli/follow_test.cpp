#include "job/cli/follow.hpp"

#include "job/cli/views.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// A job that moves one state on with every sleep of the follower.
class Moving {
  public:
    Moving(FakeDaemon& daemon, Cli& run, std::vector<std::string> states, std::string cause = "{}")
        : states_(std::move(states)), cause_(std::move(cause)) {
        const std::string base = std::string("GET /v1/jobs/") + kId;
        daemon.on(base + "/ranks", 200,
                  R"({"items":[{"rank":0,"node":"a","step":3,"loss":0.5,"step_seconds":0.02},
                               {"rank":1,"node":"b","step":4,"loss":0.25,"step_seconds":0.04}]})");
        daemon.on(
            base + "/series", 200,
            R"({"metric":"total_steps","x":"step","series":[{"rank":0,"points":[[1,10,10,10]]}]})");
        daemon.on(base, [this](const ClientRequest&) -> Result<ClientResponse> {
            const std::string& state = states_.at(std::min(at_, states_.size() - 1));
            if (state == "gone") {
                return fail(Errc::unavailable, "connection refused");
            }
            if (state == "denied") {
                return ClientResponse{401, R"({"detail":"token expired"})", {}};
            }
            return ClientResponse{200,
                                  std::string(R"({"id":")") + kId + R"(","name":"demo","state":")" +
                                      state + R"(","step":4,"cause":)" + cause_ + "}",
                                  {}};
        });
        run.on_sleep = [this] { ++at_; };
    }

  private:
    std::vector<std::string> states_;
    std::string cause_;
    std::size_t at_ = 0;
};

TEST(Follow, InAPipePrintsChangesLossesAndTheEnd) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"queued", "running", "running", "succeeded"});
    EXPECT_EQ(follow_job(run.context, kId, false), Exit::ok);
    const std::string out = run.out.str();
    EXPECT_THAT(out, HasSubstr("queued\n"));
    EXPECT_THAT(out, HasSubstr("step 3/10 (30 %)  loss 0.5000 0.2500  step time"));
    EXPECT_THAT(out, HasSubstr(std::string("succeeded after 00:00:00, 4 steps  ") + kId));
    EXPECT_EQ(out.find('\x1b'), std::string::npos);
}

TEST(Follow, EndsWithHowALossIsNamedWhereNoneWasFound) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId;
    daemon.on(base + "/ranks", 200, R"({"items":[{"rank":0,"state":"exited","exit_code":0}]})");
    daemon.on(base + "/", 200, R"({"items":[]})");
    daemon.on(base, 200,
              R"({"name":"demo","state":"succeeded","started_at":"2025-11-21T01:00:00.000Z",
                  "finished_at":"2025-11-21T01:00:09.000Z"})");
    Cli run(daemon);
    EXPECT_EQ(follow_job(run.context, kId, false), Exit::ok);
    EXPECT_EQ(run.err.str(), std::string{kLossHint} + "\n");
    Cli waiting(daemon);
    EXPECT_EQ(follow_job(waiting.context, kId, true), Exit::ok);
    EXPECT_EQ(waiting.err.str(), "") << "no rank was looked at";
}

TEST(Follow, AFailureEndsWithItsCauseAndItsLog) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"running", "failed"},
               R"({"class":"rank_exit","message":"rank 1 exited","rank":1,"node":"b","exit_code":7,
                   "log_tail":"Traceback\nValueError: no\n"})");
    EXPECT_EQ(follow_job(run.context, kId, false), Exit::job_failed);
    EXPECT_THAT(run.out.str(), HasSubstr("cause  rank_exit: rank 1 exited\n"
                                         "  │ Traceback\n  │ ValueError: no\n"));
}

TEST(Follow, ACancelledJobHasAnExitCodeOfItsOwn) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"running", "cancelled"});
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::cancelled);
}

TEST(Follow, SurvivesARestartOfTheDaemonAndSaysSoOnce) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"running", "gone", "gone", "gone", "running", "succeeded"});
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::ok);
    const std::string out = run.out.str();
    const std::size_t first = out.find("no answer from http://fake:1");
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(out.find("no answer", first + 1), std::string::npos);
    EXPECT_THAT(out, HasSubstr("connected again\n"));
}

TEST(Follow, GivesUpWhenNobodyAnswersForTenMinutes) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"running", "gone"});
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::unreachable);
}

TEST(Follow, EndsAtOnceWhenItMayNotLookAnyMore) {
    FakeDaemon daemon;
    Cli run(daemon);
    Moving job(daemon, run, {"running", "denied"});
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::denied);
    EXPECT_THAT(run.err.str(), HasSubstr("token expired"));
}

TEST(Follow, TellsOfARestartInAPipeToo) {
    FakeDaemon daemon;
    Cli run(daemon);
    const std::string events = std::string("GET /v1/jobs/") + kId + "/events?limit=500&after=";
    bool over = false;
    daemon.on(events + "7", [&over](const ClientRequest&) -> Result<ClientResponse> {
        const bool now = std::exchange(over, false);
        return ClientResponse{200,
                              now ? R"({"items":[
                {"seq":8,"kind":"generation_ended","generation":1,"data":{"cause":{
                    "class":"hang","message":"no rank has made a step for 15 s"}}},
                {"seq":9,"kind":"generation_started","generation":2,
                 "data":{"resumed_from_step":60}}]})"
                                  : R"({"items":[]})",
                              {}};
    });
    daemon.on(events + "0", 200,
              R"({"items":[{"seq":7,"kind":"restart_requested","data":{"by":"long ago"}}]})");
    daemon.on(events, 200, R"({"items":[]})");
    Moving job(daemon, run, {"running", "running", "running", "succeeded"});
    run.on_sleep = [&over, moves = run.on_sleep] {
        over = true;
        moves();
    };
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::ok);
    const std::string out = run.out.str();
    EXPECT_THAT(out, HasSubstr("generation 1 ended  hang: no rank has made a step for 15 s\n"));
    EXPECT_THAT(out, HasSubstr("generation 2 starts from step 60\n"));
    EXPECT_EQ(out.find("generation 2 starts"), out.rfind("generation 2 starts"));
}

TEST(Follow, TellsWhatLastsWhenItComesLateAndNotWhatIsOver) {
    FakeDaemon daemon;
    Cli run(daemon);
    const std::string events = std::string("GET /v1/jobs/") + kId + "/events?limit=500&after=";
    daemon.on(events + "0", 200, R"({"items":[
        {"seq":5,"kind":"anomaly","generation":1,"data":{"anomaly":"hang","message":"no step"}},
        {"seq":6,"kind":"anomaly","generation":1,
         "data":{"anomaly":"desync","rank":2,"message":"rank 2 has not launched AllReduce 9"}},
        {"seq":7,"kind":"anomaly","generation":1,
         "data":{"anomaly":"hang","over":true,"message":"the ranks make steps again"}}]})");
    daemon.on(events + "7", 200, R"({"items":[]})");
    daemon.on(events, 200, R"({"items":[]})");
    Moving job(daemon, run, {"running", "succeeded"},
               R"({},"submitted_at":"2001-01-01T00:00:00.000Z")");
    EXPECT_EQ(follow_job(run.context, kId, true), Exit::ok);
    EXPECT_THAT(run.out.str(), HasSubstr("rank 2 has not launched AllReduce 9"));
    EXPECT_THAT(run.out.str(), ::testing::Not(HasSubstr("no step")));
}

TEST(Follow, OnATerminalRedrawsItsLinesInPlace) {
    FakeDaemon daemon;
    Cli run(daemon);
    run.terminal.interactive = true;
    Moving job(daemon, run, {"running", "running", "succeeded"});
    EXPECT_EQ(follow_job(run.context, kId, false), Exit::ok);
    const std::string out = run.out.str();
    EXPECT_THAT(out, HasSubstr("\x1b[5A\r"));  // head, progress, title, two ranks
    EXPECT_THAT(out, HasSubstr("0.5000"));
    EXPECT_THAT(out, HasSubstr("succeeded after"));
}

}  // namespace
}  // namespace lockstep::cli
