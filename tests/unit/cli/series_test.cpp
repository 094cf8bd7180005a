// The verb `series`: what it asks for, its rows in a pipe, and what it says when there is nothing.
#include "job/cli/views.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kBase = std::string("GET /v1/jobs/") + kId;

class Series : public testing::Test {
  protected:
    Series() : run_(daemon_) {
        run_.options.id = kId;
        run_.options.metric = "loss";
    }
    // The target of the request for the series.
    std::string asked() {
        EXPECT_EQ(run_.verb("series"), Exit::ok) << run_.err.str();
        return daemon_.asked.empty() ? "" : daemon_.asked.front().target;
    }
    void answers() {
        daemon_.on(kBase + "/series", 200,
                   R"({"metric":"loss","x":"step","series":[{"rank":0,"points":[[1,2,2,2]]}]})");
    }
    FakeDaemon daemon_;
    Cli run_;
};

TEST_F(Series, InAPipeIsRowsWithTabsAndAllDigits) {
    daemon_.on(kBase + "/series?metric=loss&x=step&points=800&ranks=0-1", 200,
               R"({"metric":"loss","x":"step","series":[
                   {"rank":0,"points":[[1,2.0,2.5,2.25],[2,0.1234567,1,1]]},
                   {"rank":1,"points":[[2,null,null,null],[3,1,1,null]],
                    "nonfinite":[[2,"inf"]],"nonfinite_total":2}]})");
    run_.options.ranks = "0-1";
    EXPECT_EQ(run_.verb("series"), Exit::ok);
    EXPECT_EQ(run_.out.str(),
              "step\trank\tmin\tmax\tlast\n"
              "1\t0\t2\t2.5\t2.25\n"
              "2\t0\t0.1234567\t1\t1\n"
              "2\t1\tinf\tinf\tinf\n"
              "3\t1\t1\t1\tnan\n");
}

TEST_F(Series, ARangeOfStepsIsPassedOn) {
    answers();
    run_.options.from = "100";
    run_.options.to = "2500";
    EXPECT_THAT(asked(), AllOf(HasSubstr("&x=step"), HasSubstr("&from=100&to=2500")));
}

TEST_F(Series, ARangeOfTimesMakesTheAxisOne) {
    answers();
    run_.options.from = "30m";  // of 2025-11-21T01:03:20Z
    run_.options.to = "2025-11-21T01:00:00Z";
    EXPECT_THAT(asked(), AllOf(HasSubstr("&x=time"), HasSubstr("&from=1763685200&to=1763686800")));
}

TEST_F(Series, NumbersOnATimeAxisAreSeconds) {
    answers();
    run_.options.x = "time";
    run_.options.from = "1763687000.5";
    EXPECT_THAT(asked(), AllOf(HasSubstr("&x=time"), HasSubstr("&from=1763687000.5")));
}

TEST_F(Series, ARangeThatIsNoneIsRefusedBeforeAnythingIsAsked) {
    for (const auto& [from, to, x] :
         std::vector<std::array<std::string, 3>>{{"soon", "", ""},
                                                 {"2025-11-21T01:00:00+02:00", "", ""},
                                                 {"5", "10m", ""},
                                                 {"10m", "5", ""},
                                                 {"10m", "", "step"},
                                                 {"-3m", "", ""},
                                                 {"nan", "", ""}}) {
        run_.options.from = from;
        run_.options.to = to;
        run_.options.x = x;
        EXPECT_EQ(run_.verb("series"), Exit::usage) << from << " " << to;
    }
    EXPECT_TRUE(daemon_.asked.empty());
}

TEST_F(Series, AMetricNobodyReportedIsNotFoundAndTheOthersAreNamed) {
    daemon_.on(kBase + "/series", 200,
               R"({"metric":"x","x":"step","series":[],"metrics":["loss","busy_seconds"]})");
    run_.options.metric = "x\x1b[2J";
    EXPECT_EQ(run_.verb("series"), Exit::not_found);
    EXPECT_EQ(run_.err.str(), "error: nothing was reported as x; there are: loss, busy_seconds\n");
}

TEST_F(Series, ARangeOrRanksWithoutAValueAreToldApart) {
    daemon_.on(
        kBase + "/series", 200,
        R"({"metric":"loss","x":"step","series":[{"rank":0,"points":[]}],"metrics":["loss"]})");
    EXPECT_EQ(run_.verb("series"), Exit::not_found);
    EXPECT_EQ(run_.err.str(), "error: these ranks reported nothing as loss in this range\n");
}

TEST_F(Series, BeforeTheFirstReportItSaysWhatTheJobWaitsFor) {
    daemon_.on(kBase + "/series", 200, R"({"metric":"loss","x":"step","series":[],"metrics":[]})");
    daemon_.on(kBase, 200, R"({"state":"queued","pending_reason":"Priority"})");
    EXPECT_EQ(run_.verb("series"), Exit::not_found);
    EXPECT_EQ(run_.err.str(),
              "error: nothing was reported yet; the job is queued, pending: Priority\n");
}

TEST_F(Series, AfterAJobWhoseLossWasNotFoundItSaysHowALossIsNamed) {
    daemon_.on(kBase + "/series", 200, R"({"metric":"loss","x":"step","series":[],"metrics":[]})");
    daemon_.on(kBase, 200,
               R"({"state":"succeeded","started_at":"2025-11-21T01:00:00.000Z",
                   "finished_at":"2025-11-21T01:00:09.000Z"})");
    EXPECT_EQ(run_.verb("series"), Exit::not_found);
    EXPECT_EQ(run_.err.str(), "error: nothing was reported; the job is succeeded\n" +
                                  std::string{kLossHint} + "\n");
}

TEST_F(Series, AJobThatIsNotThereIsNotFound) {
    EXPECT_EQ(run_.verb("series"), Exit::not_found);
}

TEST_F(Series, OnATerminalIsAPlotWithTheRestarts) {
    daemon_.on(kBase + "/series", 200,
               R"({"metric":"busy_seconds","x":"step","series":[{"rank":0,"points":
                   [[0,0.5,0.5,0.5],[50,0.25,0.25,0.25],[100,0.125,0.125,0.125]]}]})");
    daemon_.on(kBase, 200,
               R"({"name":"digits","attempts":[{"generations":[{"number":1}]},
                   {"generations":[{"number":1,"resumed_from_step":40}]}]})");
    run_.options.metric = "busy_seconds";
    run_.terminal.interactive = true;
    EXPECT_EQ(run_.verb("series"), Exit::ok);
    EXPECT_THAT(run_.out.str(),
                AllOf(HasSubstr("busy_seconds [s]  digits\n"), HasSubstr("500.0 ms ┤"),
                      HasSubstr("R ranks restarted"),
                      HasSubstr("rank 0  min 125.0 ms (100)  max 500.0 ms (0)  last 125.0 ms")));
}

}  // namespace
}  // namespace lockstep::cli
