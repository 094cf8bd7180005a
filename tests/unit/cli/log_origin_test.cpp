// lockstep logs: whose log an answer is of, and ranks that have none.
#include "job/cli/commands.hpp"
#include "tests/unit/cli/fake_daemon.hpp"
#include "tests/unit/cli/rank_logs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

std::string stamped(int second, const std::string& text) {
    return "2025-11-21T01:00:0" + std::to_string(second) + ".000Z 1 " + text + "\n";
}

// It went on in the second attempt's log at the byte that the first one's had been read to.
TEST(CliLogOrigin, FollowingBeginsTheLogOfANewAttemptAtItsFirstByte) {
    for (const bool with_times : {false, true}) {
        FakeDaemon daemon;
        const RankLogs logs(
            daemon, {[&](auto& files) {
                         files[0].text =
                             with_times ? stamped(1, "loss 1") + "2025-11-21T01:00:02.000Z 1 lo"
                                        : "loss 1\nlo";
                     },
                     [&](auto& files) {
                         files[0] = {with_times ? stamped(3, "from step 7") + stamped(4, "loss 2")
                                                : "from step 7\nloss 2\n",
                                     -1, 2};
                     }});
        Cli run(daemon);
        run.options.id = kId;
        run.options.log_follow = true;
        run.options.grep = with_times ? "." : "";  // of lines with times
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        EXPECT_EQ(run.out.str(), "loss 1\nlo\nfrom step 7\nloss 2\n") << with_times;
    }
}

// What a rank had written last, its traceback above all, was skipped: the next answer was the new
// attempt's. And nothing told the two from each other.
TEST(CliLogOrigin, FollowingReadsAnAttemptToItsEndAndSaysWhereTheNextBegins) {
    for (const bool merged : {false, true}) {
        FakeDaemon daemon;
        RankLogs logs(daemon, {});
        const auto text = [merged](int second, const std::string& line) {
            return merged ? stamped(second, line) : line + "\n";
        };
        logs.turns = {[&](auto& files) { files[0].text = text(1, "loss 1"); },
                      [&](auto& files) {
                          logs.earlier = {{0, {text(1, "loss 1") + text(2, "CUDA error"), -1, 1}}};
                          files[0] = {text(3, "loss 2"), -1, 2};
                      }};
        Cli run(daemon);
        run.options.id = kId;
        run.options.log_follow = true;
        run.options.grep = merged ? "." : "";
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        EXPECT_EQ(run.out.str(), "loss 1\nCUDA error\nloss 2\n") << merged;
        EXPECT_EQ(run.err.str(), "-- attempt 2 begins\n") << merged;
    }
}

// Those that came and went between two looks were left out, without a word.
TEST(CliLogOrigin, FollowingReadsTheAttemptsInBetweenInTurn) {
    for (const bool merged : {false, true}) {
        FakeDaemon daemon;
        RankLogs logs(daemon, {});
        const auto text = [merged](int second, const std::string& line) {
            return merged ? stamped(second, line) : line + "\n";
        };
        logs.no_ranks = {3};
        logs.turns = {[&](auto& files) { files[0].text = text(1, "loss 1"); },
                      [&](auto& files) {
                          logs.earlier = {{0, {text(1, "loss 1") + text(2, "CUDA error"), -1, 1}},
                                          {0, {text(3, "loss 2"), -1, 2}},
                                          {0, {text(4, "loss 4"), -1, 4}}};
                          files[0] = {text(5, "loss 5"), -1, 5};
                      }};
        Cli run(daemon);
        run.options.id = kId;
        run.options.log_follow = true;
        run.options.grep = merged ? "." : "";
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        EXPECT_EQ(run.out.str(), "loss 1\nCUDA error\nloss 2\nloss 4\nloss 5\n") << merged;
        EXPECT_EQ(run.err.str(), "-- attempt 2 begins\n-- attempt 4 begins\n-- attempt 5 begins\n")
            << merged;
    }
}

// With launch node: what is left of the shared output is another stream's to print, and with it the
// rank was given up in the last round.
TEST(CliLogOrigin, ARankThatSharedAnOutputHasItsLaterAttemptPrinted) {
    FakeDaemon daemon;
    RankLogs logs(daemon, {});
    logs.size = 2;
    const std::string shared = stamped(1, "loss 1");
    const std::string longer = shared + stamped(2, "CUDA error");
    logs.turns = {[&](auto& files) {
        files[0] = {shared, -1, 1};
        files[1] = {shared, 0, 1};
    }};
    logs.at_end = [&](auto& files) {
        logs.earlier = {{0, {longer, -1, 1}}, {1, {longer, 0, 1}}};
        files[0] = {stamped(3, "of zero"), -1, 2};
        files[1] = {stamped(4, "of one"), -1, 2};
    };
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "all";
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "[0] loss 1\n[0] CUDA error\n[0] of zero\n[1] of one\n");
}

// It ended with "?attempt unknown parameter".
TEST(CliLogOrigin, AnOlderLockstepdHasTheNewestAttemptAlone) {
    FakeDaemon daemon;
    RankLogs logs(daemon, {});
    logs.older = true;
    logs.turns = {[&](auto& files) { files[0].text = "loss 1\n"; },
                  [&](auto& files) { files[0] = {"loss 4\n", -1, 4}; }};
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "loss 1\nloss 4\n");
}

// An elastic job that has shrunk: the upper ranks of the larger attempt were left out.
TEST(CliLogOrigin, AllRanksOfAnEarlierAttemptAreThoseThatItHad) {
    FakeDaemon daemon;
    RankLogs logs(daemon, {});
    logs.size_now = 1;
    logs.attempts = {{{"number", 1}, {"generations", {{{"world_size", 3}}, {{"world_size", 2}}}}},
                     {{"number", 2}, {"generations", Json::array({{{"world_size", 1}}})}}};
    for (const int rank : {0, 1, 2}) {
        logs.earlier.push_back({rank, {stamped(rank, "first"), -1, 1}});
        logs.logs[rank] = {rank == 0 ? stamped(5, "second") : "", -1, 2};
    }
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "all";
    run.options.log_attempt = 1;
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "[0] first\n[1] first\n[2] first\n");
}

TEST(CliLogOrigin, GenerationsOfEachAttemptAreMarked) {
    FakeDaemon daemon;
    RankLogs logs(daemon, {});
    const auto of = [](int second, int generation) {
        return "2025-11-21T01:00:0" + std::to_string(second) + ".000Z " +
               std::to_string(generation) + " line\n";
    };
    logs.turns = {[&](auto& files) { files[0].text = of(1, 1) + of(2, 2); },
                  [&](auto& files) { files[0] = {of(3, 1) + of(4, 2), -1, 2}; }};
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    run.options.grep = "line";
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(),
              "line\n--- generation 2 ---\nline\nline\n--- generation 2 ---\nline\n");
}

TEST(CliLogOrigin, AnAttemptThatIsNamedIsFollowedToItsOwnEnd) {
    const auto run_with = [](std::int64_t attempt, std::string& out) {
        FakeDaemon daemon;
        RankLogs logs(daemon, {});
        logs.earlier = {{0, {"loss 1\n", -1, 1}}};
        logs.logs[0] = {"loss 2\n", -1, 2};
        logs.attempts = {{{"number", 1}, {"finished_at", "2025-11-21T01:00:02.000Z"}},
                         {{"number", 2}}};
        logs.turns = {[](auto&) {}, [](auto&) {}};
        Cli run(daemon);
        run.options.id = kId;
        run.options.log_follow = true;
        run.options.log_attempt = attempt;
        int waited = 0;
        run.on_sleep = [&waited] { ++waited; };
        const Exit end = run.verb("logs");
        out = run.out.str() + run.err.str();
        EXPECT_EQ(waited, attempt == 2 ? 2 : 0);
        return end;
    };
    std::string out;
    EXPECT_EQ(run_with(1, out), Exit::ok);
    EXPECT_EQ(out, "loss 1\n");
    EXPECT_EQ(run_with(2, out), Exit::ok);
    EXPECT_EQ(out, "loss 2\n");
    EXPECT_EQ(run_with(3, out), Exit::not_found);
    EXPECT_THAT(out, HasSubstr("no attempt 3: the job has had 2"));
}

TEST(CliLogOrigin, ANewAttemptWithoutALogYetLosesNothing) {
    FakeDaemon daemon;
    const RankLogs logs(daemon, {[](auto& files) { files[0].text = "loss 1\n"; },
                                 [](auto& files) { files[0] = {"", -1, 0}; },
                                 [](auto& files) { files[0] = {"loss 2, again\n", -1, 2}; }});
    Cli run(daemon);
    run.options.id = kId;
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "loss 1\nloss 2, again\n");
}

// It was waited for, without a word, for as long as the job ran.
TEST(CliLogOrigin, FollowingARankThatTheJobDoesNotHaveFailsAtOnce) {
    for (const char* ranks : {"0-7", "3"}) {
        FakeDaemon daemon;
        const RankLogs logs(daemon, {[](auto& files) { files[0].text = stamped(1, "loss 1"); },
                                     [](auto&) {}, [](auto&) {}});
        Cli run(daemon);
        run.options.id = kId;
        run.options.rank = ranks;
        run.options.log_follow = true;
        int waited = 0;
        run.on_sleep = [&waited] { ++waited; };
        EXPECT_EQ(run.verb("logs"), Exit::not_found);
        EXPECT_EQ(waited, 0) << ranks;
        EXPECT_THAT(run.err.str(), HasSubstr("no rank 3: the job has 0-2"));
    }
}

// What the others printed was held back until it had started.
TEST(CliLogOrigin, FollowingPrintsWhatThereIsWhileARankHasNotStarted) {
    FakeDaemon daemon;
    const RankLogs logs(daemon, {[](auto& files) { files[1].text = stamped(1, "one"); },
                                 [](auto& files) { files[0].text = stamped(2, "zero"); }});
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "0,1";
    run.options.log_follow = true;
    std::vector<std::string> printed;
    run.on_sleep = [&] { printed.push_back(run.out.str()); };
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    ASSERT_FALSE(printed.empty());
    EXPECT_EQ(printed.front(), "[1] one\n");
    EXPECT_EQ(run.out.str(), "[1] one\n[0] zero\n");
}

TEST(CliLogOrigin, WhatWasHeldOfALineIsPrintedWhereAnotherRankHasNoLog) {
    FakeDaemon daemon;
    RankLogs logs(daemon, {});
    logs.logs[0].text = "2025-11-21T01:00:01.000Z 1 the last words";
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "0,1";
    EXPECT_EQ(run.verb("logs"), Exit::unreachable);
    EXPECT_EQ(run.out.str(), "[0] the last words\n");
}

// torchrun's one log was printed once for each of its ranks, as if each had written it.
TEST(CliLogOrigin, TheLogThatRanksShareWithTheirLauncherIsPrintedOnceAndAsItsOwn) {
    for (const bool json : {false, true}) {
        FakeDaemon daemon;
        RankLogs logs(daemon, {});
        for (const int rank : {0, 1, 2}) {
            logs.logs[rank] = {stamped(1, "[default1]: loss 1"), rank == 0 ? -1 : 0, 1};
        }
        Cli run(daemon);
        run.options.id = kId;
        run.options.rank = "all";
        run.options.grep = "loss";
        run.options.json = json;
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        EXPECT_EQ(run.out.str(), json
                                     ? R"({"time":"2025-11-21T01:00:01.000Z","rank":0,"attempt":1,)"
                                       R"("generation":1,"text":"[default1]: loss 1"})"
                                       "\n"
                                     : "[0] [default1]: loss 1\n");
    }
}

TEST(CliLogOrigin, ARanksOwnLogBeginsAtItsFirstByteAfterItsLaunchers) {
    const std::string launchers = stamped(1, "starting 3 processes");
    const std::vector<RankLogs::Turn> turns{
        [&](auto& files) {
            for (const int rank : {0, 1, 2}) {
                files[rank] = {launchers, rank == 0 ? -1 : 0, 1};
            }
        },
        [&](auto& files) {
            files[1] = {stamped(2, "a") + stamped(3, "b"), -1, 1};
            files[0].text = files[2].text = launchers + stamped(4, "one is ready");
        }};
    const auto printed = [&](const std::string& ranks) {
        FakeDaemon daemon;
        const RankLogs logs(daemon, turns);
        Cli run(daemon);
        run.options.id = kId;
        run.options.rank = ranks;
        run.options.log_follow = true;
        EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
        return run.out.str();
    };
    EXPECT_EQ(printed("all"), "[0] starting 3 processes\n[1] a\n[1] b\n[0] one is ready\n");
    EXPECT_EQ(printed("1,2"), "[0] starting 3 processes\n[1] a\n[1] b\n[0] one is ready\n")
        << "rank 2 goes on where rank 1 has left off";
}

TEST(CliLogOrigin, OfOneRankItsOwnLogBeginsAtItsFirstByteAfterItsLaunchers) {
    FakeDaemon daemon;
    const RankLogs logs(daemon, {[](auto& files) { files[1] = {"starting 3 processes\n", 0, 1}; },
                                 [](auto& files) { files[1] = {"loss 1\n", -1, 1}; }});
    Cli run(daemon);
    run.options.id = kId;
    run.options.rank = "1";
    run.options.log_follow = true;
    EXPECT_EQ(run.verb("logs"), Exit::ok) << run.err.str();
    EXPECT_EQ(run.out.str(), "starting 3 processes\nloss 1\n");
}

}  // namespace
}  // namespace lockstep::cli
