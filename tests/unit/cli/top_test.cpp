// size: the frames of one screen, in every state and at every size
// The frames of `lockstep top` as they stand on a screen, and what they must keep to at any size.
#include "job/cli/fields.hpp"
#include "job/cli/top_view.hpp"
#include "job/cli/views.hpp"
#include "tests/unit/cli/fake_daemon.hpp"
#include "tests/unit/cli/in_zone.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr UnixMillis kNow = 1'763'687'120'000;  // 2025-11-21T01:05:20Z

Terminal screen(std::size_t width, std::size_t height) {
    Terminal::detect();  // sets the locale for widths
    Terminal terminal;
    terminal.interactive = true;
    terminal.width = width;
    terminal.height = height;
    return terminal;
}

Json parsed(const std::string& text) {
    return Json::parse(text);
}

Json top_job() {
    return parsed(R"({"id":"ls-01JCXW3V5N8Q2R7T9ZABCDEFGH","name":"digits","state":"running",
        "step":120,"total_steps":400,"ettr":0.9834,"started_at":"2025-11-21T01:03:20.000Z",
        "anomalies":{"straggler":1},
        "attempts":[{"number":1,"generations":[{"number":1},{"number":2}]}]})");
}

Json ranks(bool gpus) {
    Json out = parsed(R"({"total":4,"ranks_reporting":4,"samples_per_second":3321.5,"items":[
        {"rank":2,"node":"node-b","state":"running","step":120,"loss":0.51234,"step_seconds":0.031,
         "busy_seconds":0.030,"comm_wait_seconds":0.0008,"data_wait_seconds":0.0002,
         "report_age_seconds":0.4},
        {"rank":0,"node":"node-a","state":"running","step":121,"loss":"nan","step_seconds":0.031,
         "busy_seconds":0.011,"comm_wait_seconds":0.0199,"data_wait_seconds":0.0001,
         "report_age_seconds":0.2},
        {"rank":3,"node":"node-b","state":"failed","exit_code":7,"step":119,"loss":0.5,
         "busy_seconds":0.010},
        {"rank":1,"node":"node-a","state":"waiting"}]})");
    for (Json& rank : out["items"]) {
        if (gpus) {
            rank["gpus"] = parsed(R"([{"gpu":0,"utilization_ratio":0.97,"power_watts":312.4,
                "memory_used_bytes":76450000000,"memory_total_bytes":85899345920}])");
        }
    }
    return out;
}

Json anomaly() {
    return parsed(R"({"seq":9,"time":"2025-11-21T01:04:55.250Z","kind":"anomaly","attempt":1,
        "generation":2,"rank":2,"node":"node-b",
        "data":{"anomaly":"straggler","step":110,"message":"busy 3.0 times as long as the median"}})");
}

TopView some(bool gpus) {
    TopView view;
    view.take_job(top_job(), kNow);
    view.take_ranks(ranks(gpus), 0);
    view.take_event(anomaly());
    return view;
}

std::string screen_of(const std::vector<std::string>& lines) {
    std::string out = "\n";
    for (const std::string& line : lines) {
        out += line + "\n";
    }
    return out;
}

TEST(Top, OnASmallScreenWhatMattersMostStays) {
    const InZone zone("UTC0");
    EXPECT_EQ(screen_of(some(true).frame(screen(40, 10), {})), R"(
digits  running  step 120/400  00:02:00
4/4 reporting  1 anomaly  0.0 s old
   RANK    STEP       LOSS     BUSY▼
!     2     120     0.5123   30.0 ms
!     0     121        nan   11.0 ms
x     3     119     0.5000   10.0 ms
      1       -          -         -

! 01:04:55  straggler  rank 2  on node-…
q quit  s sort: busy  ? help  1-4 of 4
)");
}

TEST(Top, OnAUsualScreen) {
    const InZone zone("UTC0");
    EXPECT_EQ(screen_of(some(false).frame(screen(80, 24), {})), R"(
digits  running  step 120/400  30 %  00:02:00  ls-01JCXW3V5N8Q2R7T9ZABCDEFGH
4/4 reporting  3322 samples/s  ETTR 98.3 %  1 restart  1 anomaly  0.0 s old
   RANK  NODE      STEP       LOSS  STEP TIME     BUSY▼      WAIT     AGE
!     2  node-b     120     0.5123    31.0 ms   30.0 ms    800 us   0.4 s
!     0  node-a     121        nan    31.0 ms   11.0 ms   19.9 ms   0.2 s
x     3  node-b     119     0.5000          -   10.0 ms         -       -
      1  node-a       -          -          -         -         -       -















! 01:04:55  straggler  rank 2  on node-b  step 110  busy 3.0 times as long as t…
q quit  s sort: busy  r reverse  space pause  ↑↓ scroll  ? help  1-4 of 4
)");
}

TEST(Top, OnAWideScreenEveryColumnIsThere) {
    const auto lines = some(true).frame(screen(200, 50), {});
    ASSERT_EQ(lines.size(), 50U);
    EXPECT_EQ(screen_of({lines.begin(), lines.begin() + 7}), R"(
digits  running  step 120/400  30 %  00:02:00  ls-01JCXW3V5N8Q2R7T9ZABCDEFGH
4/4 reporting  3322 samples/s  ETTR 98.3 %  1 restart  1 anomaly  0.0 s old
   RANK  NODE      STEP       LOSS  STEP TIME     BUSY▼      WAIT      DATA    GPU    MEMORY   POWER     AGE
!     2  node-b     120     0.5123    31.0 ms   30.0 ms    800 us    200 us   97 %  71.2 GiB   312 W   0.4 s  straggler
!     0  node-a     121        nan    31.0 ms   11.0 ms   19.9 ms    100 us   97 %  71.2 GiB   312 W   0.2 s
x     3  node-b     119     0.5000          -   10.0 ms         -         -   97 %  71.2 GiB   312 W       -  exit 7
      1  node-a       -          -          -         -         -         -   97 %  71.2 GiB   312 W       -  waiting
)");
}

TEST(Top, WithoutUtf8AllIsAscii) {
    Terminal terminal = screen(80, 12);
    terminal.unicode = false;
    TopView view = some(false);
    Json named = top_job();
    named["name"] = "größe 日本";
    view.take_job(named, kNow);
    const std::string frame = screen_of(view.frame(terminal, {}));
    EXPECT_TRUE(std::all_of(frame.begin(), frame.end(), [](char c) {
        return c == '\n' || (c >= ' ' && c <= '~');
    })) << frame;
    EXPECT_THAT(frame, HasSubstr("gr??e ????"));
    EXPECT_THAT(frame, HasSubstr("BUSYv"));
}

TEST(Top, ColoursAreClosedAndCountForNothing) {
    Terminal plain = screen(80, 24);
    Terminal coloured = plain;
    coloured.colour = true;
    const auto without = some(true).frame(plain, {});
    const auto with = some(true).frame(coloured, {});
    ASSERT_EQ(with.size(), without.size());
    for (std::size_t i = 0; i < with.size(); ++i) {
        EXPECT_EQ(harmless(with[i]), without[i]);
        const std::size_t last = with[i].rfind('\x1b');
        EXPECT_TRUE(last == std::string::npos || with[i].substr(last, 4) == "\x1b[0m") << i;
    }
    EXPECT_THAT(screen_of(with), HasSubstr("\x1b[31m! "));  // the loss that is NaN
    EXPECT_THAT(screen_of(with), HasSubstr("\x1b[31mx "));  // the rank that has failed
    EXPECT_THAT(screen_of(with), HasSubstr("\x1b[33m! "));  // the straggler
    EXPECT_THAT(screen_of(without), Not(HasSubstr("\x1b")));
}

TEST(Top, EverySizeIsKeptTo) {
    TopView view = some(true);
    TopChoice choice;
    choice.note = "no answer from http://127.0.0.1:8470; the job continues without it, retrying";
    for (const bool help : {false, true}) {
        choice.help = help;
        for (std::size_t width = 1; width < 230; width += 7) {
            for (std::size_t height = 1; height < 60; height += 3) {
                const auto lines = view.frame(screen(width, height), choice);
                ASSERT_EQ(lines.size(), height);
                for (const std::string& line : lines) {
                    ASSERT_LE(visible_width(line), width) << line;
                }
            }
        }
    }
}

TEST(Top, AJobWithoutRanksSaysWhatItWaitsFor) {
    TopView view;
    view.take_job(
        parsed(R"({"id":"ls-1","name":"a","state":"queued","pending_reason":"Priority"})"), kNow);
    view.take_ranks(parsed(R"({"items":[],"total":0})"), 0);
    const std::string frame = screen_of(view.frame(screen(60, 8), {}));
    EXPECT_THAT(frame, HasSubstr("a  queued"));
    EXPECT_THAT(frame, HasSubstr("pending: Priority"));
    EXPECT_THAT(frame, HasSubstr("no ranks yet"));
}

TEST(Top, WhatRanksSendCannotSteerTheTerminal) {
    Json hostile = ranks(false);
    hostile["items"][0]["node"] =
        "\x1b[2J\x1b]0;owned\x07n\xc2\x9b"
        "31mx\xe2\x80\xae"
        "evil\r\n";
    hostile["items"][1]["state"] = "run\x1b[31mning\x08";
    Json event = anomaly();
    event["data"]["message"] = "\x1b[H\x1b[Jboo\nnew line";
    Json named = top_job();
    named["name"] = "\x1b]2;title\x07name";
    TopView view;
    view.take_job(named, kNow);
    view.take_ranks(hostile, 0);
    view.take_event(event);
    for (const std::vector<std::string>& lines :
         {view.frame(screen(160, 20), {}), view.table(Terminal{})}) {
        for (const std::string& line : lines) {
            for (std::size_t i = 0; i < line.size(); ++i) {
                const auto c = static_cast<unsigned char>(line[i]);
                EXPECT_TRUE(c >= 0x20 && c != 0x7f) << line;
                const bool c1 = c == 0xc2 && static_cast<unsigned char>(line[i + 1]) < 0xa0;
                EXPECT_FALSE(c1) << line;
            }
            EXPECT_THAT(line, Not(HasSubstr("\xe2\x80\xae")));
        }
    }
    EXPECT_THAT(screen_of(view.frame(screen(160, 20), {})), HasSubstr("boo new line"));
}

// It was in UTC, which nothing said, and `events` of the same anomaly in local time.
TEST(Top, AnAnomalyHasTheLocalTimeOnATerminalAndAllOfItInAPipe) {
    const InZone zone("XST-9");
    const TopView view = some(false);
    EXPECT_THAT(screen_of(view.frame(screen(80, 24), {})), HasSubstr("! 10:04:55  straggler"));
    EXPECT_THAT(screen_of(view.table(Terminal{})),
                HasSubstr("! 2025-11-21T01:04:55.250Z  straggler"));
}

TEST(Top, AnOldAnomalyOrOneOfAnotherGenerationMarksNoRank) {
    const InZone zone("UTC0");
    TopView view;
    view.take_job(top_job(), kNow);
    view.take_ranks(ranks(false), 0);
    Json other = anomaly();
    other["generation"] = 1;
    view.take_event(other);
    Json old = anomaly();
    old["time"] = "2025-11-21T00:50:00.000Z";
    view.take_event(old);
    const auto lines = view.frame(screen(80, 24), {});
    EXPECT_EQ(lines.at(3).substr(0, 2), "  ");
    EXPECT_THAT(screen_of(lines), HasSubstr("! 00:50:00  straggler  rank 2  on node-b"));
    view.take_event(anomaly());
    EXPECT_EQ(view.frame(screen(80, 24), {}).at(3).substr(0, 2), "! ");
}

// After ten minutes the rank that held all others up looked as well as they did.
TEST(Top, ARankThatStillHangsIsMarkedHoweverLongAgoItBegan) {
    for (const char* kind : {"hang", "desync"}) {
        TopView view;
        view.take_job(top_job(), kNow);
        view.take_ranks(ranks(false), 0);
        Json hang = anomaly();
        hang["time"] = "2025-11-20T23:00:00.000Z";
        hang["data"]["anomaly"] = kind;
        view.take_event(hang);
        EXPECT_EQ(view.frame(screen(80, 24), {}).at(3).substr(0, 2), "! ") << kind;
        EXPECT_THAT(view.frame(screen(100, 24), {}).at(3), HasSubstr(kind));
        Json over = hang;
        over["data"]["over"] = true;
        view.take_event(over);
        EXPECT_EQ(view.frame(screen(80, 24), {}).at(3).substr(0, 2), "  ") << kind;
    }
}

// Of a hang in which all ranks stand at the same step no row had a mark, and the line at the foot
// made room for later ones.
TEST(Top, AJobThatHangsSaysSoAboveItsRanksWhoeverItIs) {
    TopView view;
    Json job = top_job();
    view.take_job(job, kNow);
    view.take_ranks(ranks(false), 0);
    const auto before = view.frame(screen(100, 24), {});
    job["hang"] = {{"message", "no rank has made a step for 5 s; all are at step 7"}};
    view.take_job(job, kNow);
    const auto hangs = view.frame(screen(100, 24), {});
    EXPECT_EQ(hangs.at(2), "HANGS  no rank has made a step for 5 s; all are at step 7");
    EXPECT_EQ(hangs.at(3), before.at(2)) << "the titles come below it";
    job["hang"] = nullptr;
    job["desync"] = {{"message", "rank 1 is waited for"}};
    view.take_job(job, kNow);
    EXPECT_EQ(view.frame(screen(100, 24), {}).at(2), "WAITED FOR  rank 1 is waited for");
    job["desync"] = nullptr;
    view.take_job(job, kNow);
    EXPECT_EQ(view.frame(screen(100, 24), {}), before);
}

TEST(Top, ThatNoLossIsFoundIsSaidWithWhatHelps) {
    Json job = top_job();
    job.erase("step");
    TopView view;
    view.take_job(job, kNow);
    view.take_ranks(parsed(R"({"total":1,"items":[{"rank":0,"state":"running"}]})"), 0);
    EXPECT_EQ(view.frame(screen(200, 24), {}).at(2), kLossHint);
    const auto lines = view.frame(screen(80, 24), {});
    EXPECT_EQ(lines.at(2) + " " + lines.at(3), kLossHint);
    view.take_job(top_job(), kNow);
    EXPECT_THAT(view.frame(screen(80, 24), {}).at(2), HasSubstr("RANK"));
}

TEST(Top, OfASlowNodeEveryRankIsMarked) {
    TopView view;
    view.take_job(top_job(), kNow);
    view.take_ranks(ranks(false), 0);
    Json slow = anomaly();
    slow["data"]["anomaly"] = "slow_node";
    view.take_event(slow);
    const std::string frame = screen_of(view.frame(screen(100, 24), {}));
    EXPECT_THAT(frame, HasSubstr("slow_node"));
    const auto lines = view.frame(screen(100, 24), {});
    EXPECT_THAT(lines.at(3), HasSubstr("  slow_node"));
    EXPECT_THAT(lines.at(4), Not(HasSubstr("slow_node"))) << "it is of node-a";
}

// 10,000 ranks of which some are there, as they are fetched.
TEST(Top, ScrollsThroughWhatIsFetchedAndEndsAtTheLastRank) {
    Json answer = parsed(R"({"total":10000,"ranks_reporting":10000,"items":[]})");
    for (int rank = 100; rank < 160; ++rank) {
        answer["items"].push_back({{"rank", rank}, {"node", "n"}, {"state", "running"}});
    }
    TopView view;
    view.take_job(top_job(), kNow);
    view.take_ranks(answer, 100);
    const Terminal terminal = screen(80, 24);
    TopChoice choice;
    choice.first = 120;
    EXPECT_EQ(view.page(terminal, choice), 20U);
    auto lines = view.frame(terminal, choice);
    EXPECT_THAT(lines.at(3), HasSubstr("  120  "));
    EXPECT_THAT(lines.back(), HasSubstr("121-140 of 10000"));
    choice.first = 1'000'000;
    EXPECT_EQ(view.clamp(choice.first, terminal, choice), 9980U);
    lines = view.frame(terminal, choice);
    EXPECT_THAT(lines.back(), HasSubstr("9981-10000 of 10000"));
    EXPECT_EQ(lines.at(3), "") << "not fetched yet";
}

// Ten times the ranks must not be ten times the work: as much is drawn as the screen shows. Against
// a frame of fewer ranks, so that neither the machine nor a sanitizer counts; the best of a few
// rounds, because another process may have any of them.
TEST(Top, AFrameCostsLittle) {
    const auto cost = [terminal = screen(80, 24)](int count) {
        Json answer = parsed(R"({"total":10000,"ranks_reporting":10000,"items":[]})");
        answer["items"] = Json::array_t(static_cast<std::size_t>(count), ranks(true)["items"][0]);
        TopView view;
        view.take_job(top_job(), kNow);
        view.take_ranks(answer, 0);
        const std::clock_t begin = std::clock();
        for (int i = 0; i < 10; ++i) {
            view.frame(terminal, {});
        }
        return static_cast<double>(std::clock() - begin) + 1;
    };
    double few = cost(60);
    double many = cost(600);
    for (int round = 0; round < 5; ++round) {
        few = std::min(few, cost(60));
        many = std::min(many, cost(600));
    }
    EXPECT_LT(many, 3 * few);
}

TEST(Top, TheSortIsTheServers) {
    TopChoice choice;
    EXPECT_EQ(sort_query(choice), "sort=-busy_seconds");
    choice.reversed = true;
    EXPECT_EQ(sort_query(choice), "sort=busy_seconds");
    choice = {};
    choice.sort = TopSort::step;
    EXPECT_EQ(sort_query(choice), "sort=step") << "the lowest first: who lags";
    choice.sort = TopSort::gpu;
    EXPECT_EQ(sort_query(choice), "sort=utilization_ratio");
    EXPECT_EQ(parse_top_sort("gpu"), TopSort::gpu);
    EXPECT_FALSE(parse_top_sort("GPU"));
}

TEST(CliTop, InAPipeIsOneTableOfAllRanks) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId;
    daemon.on(base + "/ranks?sort=-busy_seconds&offset=0", 200, dump_json(ranks(true)));
    daemon.on(base + "/events?limit=1000&after=0", 200,
              R"({"items":[{"seq":1,"kind":"submitted"},)" + dump_json(anomaly()) + "]}");
    daemon.on(base, 200, dump_json(top_job()));
    Cli run(daemon);
    run.options.id = kId;
    run.clock.advance(std::chrono::milliseconds{120'000});
    EXPECT_EQ(run.verb("top"), Exit::ok);
    EXPECT_EQ("\n" + run.out.str(), R"(
digits  running  step 120/400  30 %  00:02:00  ls-01JCXW3V5N8Q2R7T9ZABCDEFGH
4/4 reporting  3322 samples/s  ETTR 98.3 %  1 restart  1 anomaly  0.0 s old
   RANK  NODE    STEP    LOSS  STEP TIME     BUSY     WAIT    DATA   GPU    MEMORY  POWER    AGE  NOTE
!     2  node-b   120  0.5123    31.0 ms  30.0 ms   800 us  200 us  97 %  71.2 GiB  312 W  0.4 s  straggler
!     0  node-a   121     nan    31.0 ms  11.0 ms  19.9 ms  100 us  97 %  71.2 GiB  312 W  0.2 s
x     3  node-b   119  0.5000          -  10.0 ms        -       -  97 %  71.2 GiB  312 W      -  exit 7
      1  node-a     -       -          -        -        -       -  97 %  71.2 GiB  312 W      -  waiting
! 2025-11-21T01:04:55.250Z  straggler  rank 2  on node-b  step 110  busy 3.0 times as long as the median
)");
    EXPECT_EQ(run.err.str(), "");
}

// It said "0/4 ranks" of four that run.
TEST(Top, HowManyReportIsSaidAsThat) {
    TopView view = some(false);
    Json silent = ranks(false);
    silent["ranks_reporting"] = 0;
    view.take_ranks(silent, 0);
    EXPECT_THAT(view.frame(screen(80, 24), {}).at(1), ::testing::StartsWith("0/4 reporting  "));
    silent.erase("ranks_reporting");
    view.take_ranks(silent, 0);
    EXPECT_THAT(view.frame(screen(80, 24), {}).at(1), ::testing::StartsWith("4 ranks  "));
}

// They were sorted by a column of dashes.
TEST(CliTop, RanksThatNobodyIsKnownToWaitForAreSortedByStepUnlessAnotherIsAskedFor) {
    const std::string base = std::string("GET /v1/jobs/") + kId;
    const auto asked = [&](const Json& answer, const std::string& sort) {
        FakeDaemon daemon;
        daemon.on(base + "/ranks", 200, dump_json(answer));
        daemon.on(base, 200, R"({"state":"running"})");
        Cli run(daemon);
        run.options.id = kId;
        run.options.sort = sort;
        EXPECT_EQ(run.verb("top"), Exit::ok);
        return daemon.asked.back().target;
    };
    Json steps = parsed(R"({"total":2,"items":[{"rank":0},{"rank":1,"step":7,"loss":0.5}]})");
    EXPECT_THAT(asked(steps, ""), HasSubstr("/ranks?sort=step&"));
    EXPECT_THAT(asked(steps, "busy"), HasSubstr("/ranks?sort=-busy_seconds&"));
    steps["items"][0]["busy_seconds"] = 0.1;
    EXPECT_THAT(asked(steps, ""), HasSubstr("/ranks?sort=-busy_seconds&"));
    const Json nothing = parsed(R"({"total":1,"items":[{"rank":0}]})");
    EXPECT_THAT(asked(nothing, ""), HasSubstr("/ranks?sort=-busy_seconds&"))
        << "what its script will tell is not known yet";
}

TEST(CliTop, EventsAreReadOnlyIfThereAreAnomalies) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId;
    daemon.on(base + "/ranks", 200, dump_json(ranks(false)));
    Json calm = top_job();
    calm.erase("anomalies");
    daemon.on(base, 200, dump_json(calm));
    Cli run(daemon);
    run.options.id = kId;
    EXPECT_EQ(run.verb("top"), Exit::ok);
    EXPECT_EQ(daemon.asked.size(), 2U);
}

TEST(CliTop, JsonIsTheThreeAnswers) {
    FakeDaemon daemon;
    const std::string base = std::string("GET /v1/jobs/") + kId;
    daemon.on(base + "/ranks?sort=loss&", 200, dump_json(ranks(false)));
    daemon.on(base + "/events", 200, R"({"items":[)" + dump_json(anomaly()) + "]}");
    daemon.on(base, 200, dump_json(top_job()));
    Cli run(daemon);
    run.options.id = kId;
    run.options.json = true;
    run.options.sort = "loss";
    run.options.reverse = true;
    EXPECT_EQ(run.verb("top"), Exit::ok);
    const Json out = parsed(run.out.str());
    EXPECT_EQ(out["job"], top_job());
    EXPECT_EQ(out["ranks"], ranks(false));
    EXPECT_EQ(out["anomalies"], Json::array({anomaly()}));
}

TEST(CliTop, WhatIsNotThereOrNotAllowedEndsIt) {
    for (const auto& [status, exit] : std::vector<std::pair<int, Exit>>{
             {404, Exit::not_found}, {403, Exit::denied}, {503, Exit::unreachable}}) {
        FakeDaemon daemon;
        daemon.on("GET ", status, R"({"detail":"no"})");
        Cli run(daemon);
        run.options.id = kId;
        EXPECT_EQ(run.verb("top"), exit) << status;
        EXPECT_THAT(run.err.str(), HasSubstr("no"));
    }
}

}  // namespace
}  // namespace lockstep::cli
