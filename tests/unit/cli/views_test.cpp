#include "job/cli/views.hpp"

#include "job/cli/fields.hpp"
#include "tests/unit/cli/in_zone.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string lines_of(const Lines& lines) {
    std::string out;
    for (const std::string& line : lines) {
        out += line + "\n";
    }
    return out;
}

TEST(CliViews, AJobShowsItsAttemptsGenerationsAndCause) {
    const Json job = Json::parse(R"({"id":"ls-1","name":"demo","state":"failed","user":"me",
        "framework":"native","resources":{"nodes":2,"spares":1,"ranks_per_node":2,"gpus_per_node":0},
        "labels":{"team":"vision"},"submitted_at":"2026-11-21T01:00:00.000Z",
        "started_at":"2026-11-21T01:00:10.000Z","finished_at":"2026-11-21T01:01:15.000Z","step":42,"ettr":0.5,
        "lost_steps":12,
        "attempts":[{"number":1,"scheduler_id":"local:1","nodes":["a","b"],"lost_nodes":["b"],
          "started_at":"2026-11-21T01:00:01.000Z","finished_at":"2026-11-21T01:01:01.000Z",
          "generations":[{"number":1,"started_at":"2026-11-21T01:00:02.000Z","finished_at":"2026-11-21T01:00:32.000Z"},
                         {"number":2,"started_at":"2026-11-21T01:00:33.000Z","resumed_from_step":20}]}],
        "cause":{"class":"rank_signal","message":"the kernel killed it","rank":3,"node":"b","signal":9,
                 "log_tail":"step 42\n"}})");
    const Terminal terminal;
    const std::string text = lines_of(job_view(terminal, job, *time_at(job, "finished_at")));
    EXPECT_THAT(text, HasSubstr("2 × 2 ranks, 1 spare node"));
    EXPECT_THAT(text, HasSubstr("lost        b"));
    EXPECT_THAT(text, HasSubstr("team=vision"));
    EXPECT_THAT(text, HasSubstr("50 % of the time since the start (ETTR)"));
    EXPECT_THAT(text, HasSubstr("lost steps    12, done again after a restart"));
    EXPECT_THAT(text, HasSubstr("ran           00:01:05"));
    EXPECT_THAT(text, HasSubstr("nodes       a b"));
    EXPECT_THAT(text, HasSubstr("resumed from step 20"));
    EXPECT_THAT(text,
                HasSubstr("cause  rank_signal: the kernel killed it (rank 3 on b, signal 9)"));
    EXPECT_THAT(text, HasSubstr("│ step 42"));
    EXPECT_THAT(text, Not(HasSubstr("GPU")));
}

TEST(CliViews, ACauseNamesItsNodeOnce) {
    EXPECT_EQ(cause_text(Json::parse(R"({"class":"node_lost","node":"n1",
        "message":"the agent of n1 was ended by signal 9"})")),
              "node_lost: the agent of n1 was ended by signal 9");
    EXPECT_EQ(cause_text(Json::parse(R"({"class":"node_lost","node":"n1",
        "message":"the agents of n12 and n1-a left"})")),
              "node_lost: the agents of n12 and n1-a left (n1)");
    EXPECT_EQ(cause_text(Json::parse(R"({"class":"rank_signal","node":"n1","rank":3,"signal":9,
        "message":"killed on n1."})")),
              "rank_signal: killed on n1. (rank 3, signal 9)");
}

TEST(CliViews, LostStepsAreDoneAgainOnceTheyHaveBeen) {
    const auto shown = [](const char* generations, std::int64_t lost = 30) {
        Json job = Json::parse(std::string{R"({"name":"demo","state":"running","attempts":[)"} +
                               R"({"number":1,"generations":)" + generations + "}]}");
        job["lost_steps"] = lost;
        return lines_of(job_view(Terminal{}, job, 0));
    };
    EXPECT_THAT(shown(R"([{"number":1,"step":130,"lost_steps":30},{"number":2,"step":100}])"),
                HasSubstr("lost steps    30\n"));
    EXPECT_THAT(shown(R"([{"number":1,"step":130,"lost_steps":30},{"number":2,"step":110}])"),
                HasSubstr("lost steps    30, 10 of them done again so far\n"));
    EXPECT_THAT(shown(R"([{"number":1,"step":130,"lost_steps":30},{"number":2,"step":400}])"),
                HasSubstr("lost steps    30, done again after a restart\n"));
    EXPECT_THAT(shown(R"([{"number":1,"step":130}])", 0), Not(HasSubstr("lost steps")));
}

TEST(CliViews, JobsHaveNumbersAgesAndOnATerminalShortIds) {
    const Json job = {{"id", "ls-01JCXW3V5N8Q2R7T9ZABCDEFGH"},
                      {"name", "demo"},
                      {"state", "queued"},
                      {"user", "me"},
                      {"submitted_at", "2026-11-21T01:00:00.000Z"}};
    const UnixMillis now = *time_at(job, "submitted_at") + 12 * 60'000;
    Terminal terminal;
    EXPECT_THAT(lines_of(jobs_table(terminal, {job}, now, true)),
                HasSubstr("@1  ls-01JCXW3V5N8Q2R7T9ZABCDEFGH  demo  queued     -    -  12m  me"));
    terminal.interactive = true;
    EXPECT_THAT(lines_of(jobs_table(terminal, {job}, now, false)), HasSubstr("…CDEFGH  demo"));
}

TEST(CliViews, SuspendedTimeIsNoneThatAJobRan) {
    const Json job = Json::parse(R"({"id":"ls-1","name":"demo","state":"succeeded",
        "started_at":"2026-11-21T01:00:00.000Z","finished_at":"2026-11-21T01:10:00.000Z",
        "spans":{"suspended_seconds":300}})");
    const std::string text = lines_of(job_view(Terminal{}, job, *time_at(job, "finished_at")));
    EXPECT_THAT(text, HasSubstr("ran           00:05:00"));
    EXPECT_THAT(text, HasSubstr("suspended     00:05:00"));
}

TEST(CliViews, ALossIsLackingOnlyAfterAMinuteOrASuccessWithoutAStep) {
    const auto lacking = [](const std::string& more, UnixMillis after) {
        const std::string job = R"({"started_at":"2025-11-21T01:00:00.000Z")";
        return lacks_loss(Json::parse(job + more + "}"), *time_of("2025-11-21T01:00:00Z") + after);
    };
    EXPECT_FALSE(lacking(R"(,"state":"running")", 59'000));
    EXPECT_TRUE(lacking(R"(,"state":"running")", 60'000));
    EXPECT_FALSE(lacking(R"(,"state":"running","step":0)", 60'000));
    const std::string over = R"(,"finished_at":"2025-11-21T01:00:02.000Z")";
    EXPECT_TRUE(lacking(over + R"(,"state":"succeeded")", 2'000));
    const std::string later = R"(,"finished_at":"2025-11-21T01:01:30.000Z")";
    EXPECT_FALSE(lacking(later + R"(,"state":"failed")", 90'000)) << "it has another cause";
    EXPECT_FALSE(lacking(later + R"(,"state":"cancelled")", 90'000));
    EXPECT_TRUE(lacking(later + R"(,"state":"succeeded","framework":"command")", 90'000));
    EXPECT_FALSE(lacking(over + R"(,"state":"succeeded","framework":"command")", 2'000));
    EXPECT_TRUE(lacking(R"(,"state":"running","framework":"command")", 60'000));
    EXPECT_FALSE(lacks_loss(Json::parse(R"({"state":"queued"})"), 0));
}

TEST(CliViews, MissingOrIllTypedFieldsReadAsUnknown) {
    const Terminal terminal;
    const Json odd = Json::parse(R"({"id":7,"state":[],"attempts":{},"labels":3,"cause":"x",
        "resources":null,"started_at":"yesterday"})");
    EXPECT_FALSE(job_view(terminal, odd, 0).empty());
    EXPECT_FALSE(jobs_table(terminal, {odd, Json(), Json::array()}, 0, true).empty());
    EXPECT_EQ(ranks_table(terminal, Json::parse(R"({"items":[{"rank":"a"},null,3]})")).size(), 4U);
    EXPECT_TRUE(
        plot_lines(Json::parse(R"({"series":[{"points":[[1,2],"x"]}]})"))[0].points.empty());
    EXPECT_TRUE(cause_view(terminal, Json()).empty());
}

TEST(CliViews, UnknownValuesAreDashesNeverZero) {
    const Terminal terminal;
    const auto lines =
        ranks_table(terminal, Json::parse(R"({"items":[{"rank":0,"state":"starting"}]})"));
    EXPECT_EQ(lines.at(1), "   0        starting     -     -          -    -    -");
}

TEST(CliViews, AnEventSaysHowManyOfTheRanksThatWereStartedWereWarmStandbys) {
    const auto line = [](const char* data) {
        return event_line(Terminal{}, Json::parse(std::string{R"({"kind":"ranks_started",
            "generation":2,"time":"2026-11-21T01:00:00.000Z","data":)"} +
                                                  data + "}"));
    };
    EXPECT_THAT(line("{}"), Not(HasSubstr("standb")));
    EXPECT_THAT(line(R"({"warm":0})"), Not(HasSubstr("standb")));
    EXPECT_THAT(line(R"({"warm":1})"), HasSubstr("generation 2  1 was a warm standby"));
    EXPECT_THAT(line(R"({"warm":4})"), HasSubstr("generation 2  4 were warm standbys"));
}

TEST(CliViews, RanksShowTheirGpusIfThereAreAny) {
    const Terminal terminal;
    const auto lines = ranks_table(terminal, Json::parse(R"({"items":[
        {"rank":0,"state":"running","gpus":[{"gpu":3,"utilization_ratio":0.974,
         "memory_used_bytes":1073741824,"power_watts":650.4,"temperature_celsius":71}]},
        {"rank":1,"state":"running","gpus":[{"gpu":4},{"gpu":5,"power_watts":80}]},
        {"rank":2,"state":"running"}]})"));
    EXPECT_NE(lines.at(0).find("GPU  USE  GPU MEM  POWER  TEMP"), std::string::npos) << lines[0];
    EXPECT_NE(lines.at(1).find("3  97%    1024M   650W   71C"), std::string::npos) << lines[1];
    EXPECT_NE(lines.at(2).find("4,5  -,-      -,-  -,80W   -,-"), std::string::npos) << lines[2];
}

TEST(CliViews, NodesShowHowOftenTheyWereAtFaultLately) {
    const Terminal terminal;
    const Json page = Json::parse(R"({"items":[
        {"name":"n1","state":"idle","usable":true,"partitions":["main"],"cpus":8,"cpus_used":0,
         "gpus":0,"gpus_used":0,"jobs":[],"history":{"faults":5,"faults_7d":3}},
        {"name":"n2","state":"idle","usable":true,"partitions":["main"],"cpus":8,"cpus_used":0,
         "gpus":0,"gpus_used":0,"jobs":[]}]})");
    const auto lines = nodes_table(terminal, page);
    EXPECT_NE(lines.at(0).find("FAULTS 7D"), std::string::npos) << lines[0];
    EXPECT_NE(lines.at(1).find("        3  main"), std::string::npos) << lines[1];
    EXPECT_NE(lines.at(2).find("        -  main"), std::string::npos) << lines[2];
}

TEST(CliViews, ANodeShowsWhatItWasBlamedFor) {
    const Terminal terminal;
    const Json node = Json::parse(R"({"name":"n1","state":"idle","jobs":[],"history":{
        "since":"2026-11-01T00:00:00.000Z","attempts":12,"faults":3,"faults_7d":1,
        "by_kind":{"hang":1,"node_lost":2},"slow":2,"excluded":1},
        "faults":[{"time":"2026-11-21T01:02:03.456Z","kind":"hang"},
                  {"time":"2026-11-20T01:02:03.456Z","kind":"node_lost","job":"ls-1",
                   "message":"it was silent"}]})");
    std::string text;
    for (const std::string& line : node_view(terminal, node)) {
        text += line + "\n";
    }
    EXPECT_THAT(text, HasSubstr("3 in 90 days, 1 in 7: hang 1, node_lost 2"));
    EXPECT_THAT(text, HasSubstr("12 since 2026-11-01T00:00:00.000Z"));
    EXPECT_THAT(text, HasSubstr("slow          2 times"));
    EXPECT_THAT(text, HasSubstr("last well     never"));
    EXPECT_THAT(text, HasSubstr("2026-11-21T01:02:03.456Z  hang       another's"));
    EXPECT_THAT(text, HasSubstr("it was silent"));
    EXPECT_EQ(node_view(terminal, Json::parse(R"({"name":7,"history":[]})")).size(), 2U);
}

// They were in UTC, which nothing said, beside others in local time.
TEST(CliViews, EveryTimeOnATerminalIsLocalWithItsZone) {
    const InZone zone("XST-9");
    Terminal terminal;
    terminal.interactive = true;
    terminal.width = 200;
    const Json node = Json::parse(R"({"name":"n1","state":"idle","jobs":[],
        "history":{"since":"2026-11-01T20:00:00.000Z","healthy_at":"2026-11-02T20:00:00.000Z"},
        "faults":[{"time":"2026-11-21T20:02:03.456Z","kind":"hang"}]})");
    const std::string seen = lines_of(node_view(terminal, node));
    EXPECT_THAT(seen, HasSubstr("since 2026-11-02 05:00:00 XST\n"));
    EXPECT_THAT(seen, HasSubstr("last well     2026-11-03 05:00:00 XST\n"));
    EXPECT_THAT(seen, HasSubstr("2026-11-22 05:02:03 XST  hang"));
    const Json job = Json::parse(R"({"name":"a","state":"running",
        "hang":{"since":"2026-11-21T20:00:00.000Z","message":"no step"},
        "desync":{"since":"2026-11-21T20:01:00.000Z","message":"rank 2"}})");
    const std::string shown = lines_of(job_view(terminal, job, *time_of("2026-11-21T20:05:00Z")));
    EXPECT_THAT(shown, HasSubstr("since 2026-11-22 05:00:00 XST (5m ago): no step"));
    EXPECT_THAT(shown, HasSubstr("since 2026-11-22 05:01:00 XST (4m ago): rank 2"));
    const Json token = Json::parse(R"({"id":"tk-1","name":"n","user":"u","role":"user",
        "last_used_at":"2026-11-21T20:00:00.000Z","expires_at":"2026-12-21T20:00:00.000Z"})");
    EXPECT_THAT(lines_of(tokens_table(terminal, {token}, 0)),
                HasSubstr("2026-11-22 05:00:00 XST  2026-12-22 05:00:00 XST"));
    EXPECT_THAT(lines_of(tokens_table(Terminal{}, {token}, 0)),
                HasSubstr("2026-11-21T20:00:00.000Z  2026-12-21T20:00:00.000Z"));
}

TEST(CliViews, TimesAreReadToTheMillisecond) {
    const Json json{{"t", "2026-11-21T01:02:03.456Z"}};
    EXPECT_EQ(time_at(json, "t"), 1'795'222'923'456);
    EXPECT_FALSE(time_at(json, "u").has_value());
}

TEST(CliViews, NumbersWrittenAsWordsAreRead) {
    const Json json = Json::parse(R"({"a":"nan","b":"-inf","c":1.5,"d":"x","e":null})");
    EXPECT_TRUE(std::isnan(*number_at(json, "a")));
    EXPECT_LT(*number_at(json, "b"), 0);
    EXPECT_EQ(number_at(json, "c"), 1.5);
    EXPECT_FALSE(number_at(json, "d").has_value());
    EXPECT_FALSE(number_at(json, "e").has_value());
}

}  // namespace
}  // namespace lockstep::cli
