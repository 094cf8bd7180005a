// The routes that hand out what was written: logs, evidence and the stream of events.
#include "daemon/http/routes/log_follower.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/log_marks.hpp"
#include "tests/unit/http/routes_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

namespace lockstep {
namespace {

TEST_F(RoutesTest, LogsComeInSlices) {
    write_log("one\ntwo\nthree\n");
    const auto all = get(of_job("/logs"));
    EXPECT_EQ(all.status, 200);
    EXPECT_EQ(all.body, "one\ntwo\nthree\n");
    EXPECT_EQ(all.header("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_EQ(all.header("Lockstep-Log-Offset"), "0");
    EXPECT_EQ(all.header("Lockstep-Log-Next"), "14");
    EXPECT_EQ(get(of_job("/logs?rank=0&tail=2")).body, "two\nthree\n");
    EXPECT_EQ(get(of_job("/logs?offset=4")).body, "two\nthree\n");
    EXPECT_EQ(get(of_job("/logs?rank=1")).status, 404);
    EXPECT_EQ(get(of_job("/logs?tail=1&offset=1")).status, 400);
    EXPECT_EQ(get(of_job("/logs?rank=-1")).status, 400);
    EXPECT_EQ(get(of_job("/logs?rank=../../etc")).status, 400);
}

// Another attempt's log is another file: an offset of the one before means nothing in it.
TEST_F(RoutesTest, LogsSayWhichAttemptTheyAreOf) {
    write_log("one\n");
    control_.place.attempt = 3;
    EXPECT_EQ(get(of_job("/logs")).header("Lockstep-Log-Attempt"), "3");
    EXPECT_EQ(get(of_job("/logs?offset=4")).header("Lockstep-Log-Attempt"), "3");
    EXPECT_EQ(get(of_job("/logs?follow=true")).header("Lockstep-Log-Attempt"), "3");
    control_.place.path = (folder_ / "none").string();
    EXPECT_EQ(get(of_job("/logs")).header("Lockstep-Log-Attempt"), "3") << "it prints nothing yet";
    control_.place_error = Error{Errc::not_found, "rank 0 was not started"};
    EXPECT_EQ(get(of_job("/logs")).header("Lockstep-Log-Attempt"), "");
}

TEST_F(RoutesTest, LogsOfAnAttemptCanBeAskedFor) {
    write_log("one\n");
    EXPECT_EQ(get(of_job("/logs")).status, 200);
    EXPECT_EQ(get(of_job("/logs?attempt=2")).body, "one\n");
    EXPECT_EQ(control_.log_attempts, (std::vector<std::int32_t>{0, 2}));
    EXPECT_EQ(get(of_job("/logs?attempt=2&follow=true")).body, "one\n");
    for (std::size_t i = 2; i < control_.log_attempts.size(); ++i) {
        EXPECT_EQ(control_.log_attempts[i], 2) << i;
    }
    for (const char* wrong : {"0", "-1", "x"}) {
        EXPECT_EQ(get(of_job("/logs?attempt=") + wrong).status, 400) << wrong;
    }
}

// Asked for backwards, an offset inside of it gave what follows it again and again.
TEST_F(RoutesTest, LogsSayWhichBytesWereDropped) {
    write_log(std::string(4096, 'a') + std::string(8192, 'b') + std::string(4096, 'c'));
    const UniqueFd fd{::open(control_.place.path.c_str(), O_RDWR)};
    if (::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192) != 0) {
        GTEST_SKIP() << "this file system cannot free the middle of a file";
    }
    const auto inside = get(of_job("/logs?offset=10000"));
    EXPECT_TRUE(inside.body.starts_with("[lockstep: 2288 bytes dropped]\ncc")) << inside.body;
    EXPECT_EQ(inside.header("Lockstep-Log-Offset"), "10000");
    EXPECT_EQ(inside.header("Lockstep-Log-Dropped"), "4096-12288");
    EXPECT_EQ(get(of_job("/logs")).header("Lockstep-Log-Dropped"), "4096-12288");
    EXPECT_EQ(get(of_job("/logs?offset=12288")).header("Lockstep-Log-Dropped"), "");
}

// The times were looked for beside the rank's own log, which is not there: none was known.
TEST_F(RoutesTest, TheTimesOfALaunchersOutputAreBesideIt) {
    control_.place.path = (folder_ / "rank-00001.log").string();
    control_.place.instead = (folder_ / "rank-00000.log").string();
    control_.place.instead_rank = 0;
    std::ofstream{control_.place.instead} << "one\n";
    const auto row = encode_log_mark(LogMark{0, 1'763'687'000'000, 2});
    std::ofstream{log_marks_path(control_.place.instead), std::ios::binary}.write(row.data(),
                                                                                  row.size());
    const auto stamped = get(of_job("/logs?timestamps=true"));
    EXPECT_EQ(stamped.header("Lockstep-Log-Rank"), "0");
    EXPECT_EQ(stamped.body, "2025-11-21T01:03:20.000Z 2 one\n");
}

TEST_F(RoutesTest, EvidenceIsAListAndItsFiles) {
    const auto listed = get(of_job("/evidence"));
    EXPECT_EQ(listed.status, 200);
    EXPECT_EQ(get(of_job("/evidence?limit=1")).status, 200);
    EXPECT_EQ(control_.evidence_limits, (std::vector<std::size_t>{50, 1}));
    EXPECT_EQ(get(of_job("/evidence?before=7")).status, 200);
    EXPECT_EQ(get(of_job("/profiles?before=8")).status, 200);
    EXPECT_EQ(control_.evidence_before, (std::vector<std::int64_t>{0, 0, 7, 8}));
    EXPECT_EQ(get(of_job("/evidence?before=0")).status, 400);
    EXPECT_EQ(get(of_job("/evidence?limit=0")).status, 400);
    EXPECT_EQ(get(of_job("/evidence?limit=51")).status, 400);
    EXPECT_EQ(get(of_job("/evidence?rank=1")).status, 400);
    control_.evidence_at = {folder_.path().string(), {"evidence", "gen-1", "rank-00000"}};
    const auto at = folder_ / "evidence" / "gen-1" / "rank-00000";
    std::filesystem::create_directories(at);
    std::ofstream{at / "python.txt"} << "spin (a.py:3)\n";
    std::ofstream{at / "flight-recorder", std::ios::binary} << std::string("\x80\0x", 3);
    const auto text = get(of_job("/evidence/python.txt?attempt=1&generation=2&rank=0&offset=5"));
    EXPECT_EQ(text.status, 200);
    EXPECT_EQ(text.body, "(a.py:3)\n");
    EXPECT_EQ(text.header("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_EQ(text.header("Lockstep-Log-Next"), "14");
    ASSERT_EQ(control_.evidence_queries.size(), 1U);
    EXPECT_EQ(control_.evidence_queries[0].attempt, 1);
    EXPECT_EQ(control_.evidence_queries[0].generation, 2);
    EXPECT_EQ(control_.evidence_queries[0].name, "python.txt");
    const auto dump = get(of_job("/evidence/flight-recorder"));
    EXPECT_EQ(dump.header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(dump.body.size(), 3U);
    EXPECT_EQ(get(of_job("/evidence/ras.txt")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/agent.json")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/..%2F..%2Fagent.json")).status, 400);
    EXPECT_EQ(get(of_job("/evidence/python.txt?rank=1")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/python.txt?rank=../x")).status, 400);
}

TEST_F(RoutesTest, AProfileIsAskedForListedAndFetched) {
    EXPECT_EQ(call("POST", of_job("/profiles")).status, 202);
    EXPECT_EQ(
        call("POST", of_job("/profiles"), "user-token", R"({"ranks":"3,0-1","seconds":60})").status,
        202);
    ASSERT_EQ(control_.profile_queries.size(), 2U);
    EXPECT_EQ(control_.profile_queries[0].seconds, 5);
    EXPECT_EQ(control_.profile_queries[1].ranks, (std::vector<std::int32_t>{0, 1, 3}));
    EXPECT_EQ(control_.profile_queries[1].seconds, 60);
    for (const char* wrong : {R"({"ranks":"0-64"})", R"({"ranks":"x"})", R"({"ranks":3})",
                              R"({"seconds":0})", R"({"seconds":61})", R"({"seconds":1.5})",
                              R"({"rank":"1"})", "[]", "{", R"({"ranks":"8"})"}) {
        EXPECT_EQ(call("POST", of_job("/profiles"), "user-token", wrong).status, 400) << wrong;
    }
    EXPECT_EQ(control_.profile_queries.size(), 3U) << "only who the ranks are is the job's matter";
    EXPECT_EQ(get(of_job("/profiles?limit=1")).status, 200);
    EXPECT_EQ(get(of_job("/profiles?limit=0")).status, 400);
    control_.evidence_at = {folder_.path().string(), {"profile", "gen-1", "take-2", "rank-00000"}};
    const auto at = folder_ / "profile" / "gen-1" / "take-2" / "rank-00000";
    std::filesystem::create_directories(at);
    std::ofstream{at / "2.trace.json.gz", std::ios::binary} << std::string("\x1f\x8b\0x", 4);
    std::ofstream{at / "stacks.txt"} << "main;spin 7\n";
    const auto trace = get(of_job("/profiles/2.trace.json.gz?profile=2&generation=1&rank=0"));
    EXPECT_EQ(trace.status, 200);
    EXPECT_EQ(trace.header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(trace.body.size(), 4U);
    ASSERT_EQ(control_.evidence_queries.size(), 1U);
    EXPECT_EQ(control_.evidence_queries[0].profile, 2);
    EXPECT_EQ(control_.evidence_queries[0].generation, 1);
    EXPECT_EQ(get(of_job("/profiles/stacks.txt?offset=5")).body, "spin 7\n");
    EXPECT_EQ(get(of_job("/profiles/operations.txt")).status, 404);
    EXPECT_EQ(get(of_job("/profiles/stacks.txt?profile=0")).status, 400);
}

TEST_F(RoutesTest, ALogThatIsNotThereYetIsEmptyOr404) {
    control_.place.path = (folder_ / "none").string();
    const auto empty = get(of_job("/logs"));
    EXPECT_EQ(empty.status, 200);
    EXPECT_EQ(empty.body, "");
    control_.place_error = Error{Errc::unavailable, "rank 0 was not started yet"};
    EXPECT_EQ(get(of_job("/logs")).status, 404);
}

TEST_F(RoutesTest, AFollowedLogEndsWhereNoMoreMayCome) {
    write_log("one\ntwo\n");
    control_.place.may_grow = true;
    std::string got;
    ClientRequest request;
    request.target = of_job("/logs?follow=true&tail=1");
    request.headers.emplace_back("Authorization", "Bearer user-token");
    const auto done = http_stream_now(
        {"127.0.0.1", std::to_string(server_->port())}, request, [&](std::string_view bytes) {
            got += bytes;
            if (got == "two\n") {
                write_log("three\n");
                server_->on_thread([&] { control_.place.may_grow = false; });
            }
            return true;
        });
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, 200);
    EXPECT_EQ(done->header("X-Accel-Buffering"), "no") << "nginx would hold back what comes";
    EXPECT_EQ(got, "two\nthree\n");
}

class FollowedLog : public RoutesTest {
  protected:
    // Of rank 0 in that attempt; "": it has printed nothing, there is no file.
    LogPlace attempt_log(std::int32_t number, const std::string& text) {
        const auto folder = folder_ / ("a" + std::to_string(number));
        std::filesystem::create_directory(folder);
        if (!text.empty()) {
            std::ofstream{folder / "rank-00000.log"} << text;
        }
        LogPlace place;
        place.path = (folder / "rank-00000.log").string();
        place.attempt = number;
        return place;
    }
    // All that comes until the end. `look` sees what has come so far.
    std::string followed(const std::string& more,
                         const std::function<void(const std::string& got)>& look = {}) {
        std::string got;
        ClientRequest request;
        request.target = of_job("/logs?follow=true" + more);
        request.headers.emplace_back("Authorization", "Bearer user-token");
        const auto done = http_stream_now({"127.0.0.1", std::to_string(server_->port())}, request,
                                          [&](std::string_view bytes) {
                                              got += bytes;
                                              if (look) {
                                                  look(got);
                                              }
                                              return true;
                                          });
        EXPECT_TRUE(done);
        return got;
    }
};

// With launch node the next attempt may have the launcher's output alone, too: the stream stayed at
// the first attempt's.
TEST_F(FollowedLog, GoesOnWithTheLaunchersOutputOfTheNextAttempt) {
    const auto of_attempt = [this](std::int32_t number, const std::string& text) {
        LogPlace place = attempt_log(number, text);
        place.instead = std::exchange(
            place.path, (folder_ / ("a" + std::to_string(number)) / "rank-00001.log").string());
        place.instead_rank = 0;
        return place;
    };
    control_.place = of_attempt(1, "first\n");
    control_.place.may_grow = true;
    const LogPlace second = of_attempt(2, "second\n");
    EXPECT_EQ(followed("",
                       [&](const std::string& got) {
                           if (got == "first\n") {
                               server_->on_thread([&] { control_.place = second; });
                           }
                       }),
              "first\nsecond\n");
}

// Attempts that came and went between two looks were left out, and the first line of an attempt
// went on with the last one of that before.
TEST_F(FollowedLog, HasEachAttemptInTurnAndOnALineOfItsOwn) {
    control_.place = attempt_log(1, "one\ncut");
    control_.place.may_grow = true;
    // The second printed nothing, the fourth started no ranks.
    control_.earlier_places = {{1, control_.place},
                               {2, attempt_log(2, "")},
                               {3, attempt_log(3, "three\n")},
                               {5, attempt_log(5, "five\n")}};
    const LogPlace newest = attempt_log(6, "six\n");
    EXPECT_EQ(followed("",
                       [&](const std::string& got) {
                           if (got == "one\ncut") {
                               server_->on_thread([&] { control_.place = newest; });
                           }
                       }),
              "one\ncut\nthree\nfive\nsix\n");
}

// Whoever goes on after a proxy's timeout has the old attempt's last bytes already.
TEST_F(FollowedLog, ThatGoesOnBehindACutLineBeginsTheNextAttemptOnItsOwn) {
    control_.earlier_places = {{{1, attempt_log(1, "one\ncut")}}};
    control_.place = attempt_log(2, "two\n");
    // The head of the answer names the first attempt; the second begins before the stream looks.
    control_.first_place = control_.earlier_places->at(1);
    EXPECT_EQ(followed("&offset=7"), "\ntwo\n");
    control_.first_place = control_.earlier_places->at(1);
    EXPECT_EQ(followed("&offset=4"), "cut\ntwo\n");
}

// Each stream of a quiet log looked five times a second for as long as its job took.
TEST(LogFollowerTest, LooksMoreRarelyAtALogThatIsQuiet) {
    using namespace std::chrono_literals;
    EXPECT_EQ(look_pause(0s), 200ms);
    EXPECT_EQ(look_pause(4800ms), 200ms);
    EXPECT_EQ(look_pause(5s), 1s);
    EXPECT_EQ(look_pause(59s), 1s);
    EXPECT_EQ(look_pause(1min), 2s);
    EXPECT_EQ(look_pause(24h), 2s);
}

TEST_F(RoutesTest, EventStreamResumesByIdAndFollowsAndTellsNothingOfOthersJobs) {
    const auto message = [](std::int64_t seq, const char* user = "uma") {
        return FakeControl::message(seq, "job." + std::string{kJob}, user);
    };
    control_.stored = {message(1), message(2, "vic"), message(3)};
    std::string got;
    ClientRequest request;
    request.target = "/v1/events?topics=jobs";
    request.headers = {{"Authorization", "Bearer user-token"}, {"Last-Event-ID", "1"}};
    bool sent = false;
    const auto done = http_stream_now(
        {"127.0.0.1", std::to_string(server_->port())}, request, [&](std::string_view bytes) {
            got += bytes;
            if (!sent && got.find("id: 3\n") != std::string::npos) {
                sent = true;
                server_->on_thread([&] {
                    control_.publish(message(3));  // published a moment after it was replayed
                    control_.publish(message(4, "vic"));
                    control_.publish(message(5));
                });
            }
            return got.find("id: 5\n") == std::string::npos;
        });
    ASSERT_TRUE(done);
    EXPECT_EQ(done->header("Content-Type"), "text/event-stream");
    EXPECT_EQ(got.find("id: "), got.find("id: 3\n")) << "old, or another user's:\n" << got;
    EXPECT_EQ(got.find("id: ", got.find("id: 3\n") + 1), got.find("id: 5\n")) << got;
    EXPECT_NE(got.find("id: 5\nevent: submitted\ndata: {\"seq\":5}\n\n"), std::string::npos) << got;
    EXPECT_EQ(get("/v1/events?topics=weather").status, 400);
    EXPECT_EQ(call("GET", "/v1/events", "user-token", "", {{"Last-Event-ID", "x"}}).status, 400);
}

// A page that is older than the backup which was restored: what happened up to its id was hidden,
// for days perhaps, while the stream looked alive.
TEST_F(RoutesTest, AnEventIdThatTheStoreHasNotReachedHidesNothing) {
    const auto message = [](std::int64_t seq) {
        return FakeControl::message(seq, "job." + std::string{kJob}, "uma");
    };
    control_.stored = {message(1), message(3)};
    std::string got;
    ClientRequest request;
    request.target = "/v1/events?topics=jobs";
    request.headers = {{"Authorization", "Bearer user-token"}, {"Last-Event-ID", "100"}};
    bool sent = false;
    const auto done = http_stream_now({"127.0.0.1", std::to_string(server_->port())}, request,
                                      [&](std::string_view bytes) {
                                          got += bytes;
                                          if (!sent && got.find("\n\n") != std::string::npos) {
                                              sent = true;
                                              server_->on_thread([&] {
                                                  control_.publish(message(4));
                                                  control_.publish(message(101));
                                              });
                                          }
                                          return got.find("id: 101\n") == std::string::npos;
                                      });
    ASSERT_TRUE(done);
    EXPECT_NE(got.find("\nid: 3\n\n"), std::string::npos) << "where it is now:\n" << got;
    EXPECT_EQ(got.find("id: 1\n"), std::string::npos) << "nothing is resumed:\n" << got;
    EXPECT_NE(got.find("id: 4\nevent: submitted\n"), std::string::npos) << got;
}

}  // namespace
}  // namespace lockstep
