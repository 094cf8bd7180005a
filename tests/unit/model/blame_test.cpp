// Which rank of those that failed is the cause.
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep {
namespace {

event::RankExited echo_of(event::RankExited exit, const char* kind = "echo") {
    exit.failure = kind;
    exit.error_type = "RuntimeError";
    exit.error = "Connection closed by peer";
    return exit;
}

TEST(Blame, AnEchoNeverWinsAgainstAFailureOfItsOwn) {
    History h;
    h.running();
    h.must(echo_of(h.exit(1, 1, 4000)));
    h.must(echo_of(h.exit(0, 1, 3000), "network"));
    auto culprit = h.exit(2, 1, 4500);
    culprit.error_type = "ValueError";
    culprit.error = "label 17 out of range\nmore";
    h.must(culprit);
    const Action action = due(h.job, h.now);
    EXPECT_EQ(action.kind, ActionKind::stop);
    EXPECT_EQ(action.cause.message, "rank 2 on n1 raised ValueError: label 17 out of range");
    EXPECT_EQ(action.cause.rank, 2);
    const Json others = outcome(h.job).cause.others;
    ASSERT_EQ(others.size(), 2U);
    EXPECT_EQ(others[0]["rank"], 0) << "by the moment they failed";
    EXPECT_EQ(others[1]["failure"], "echo");
    EXPECT_EQ(others[1]["error"], "RuntimeError: Connection closed by peer");
}

TEST(Blame, WhoTheOthersWaitedForInNcclAndNotWhoGaveUpFirst) {
    for (const bool gone_on : {false, true}) {
        History h;
        h.running();
        event::AnomalySeen desync;
        desync.attempt = 1;
        desync.generation = 1;
        desync.rank = 2;
        desync.node = "n1";
        desync.anomaly = "desync";
        desync.message = "rank 2 has not launched AllReduce 9";
        h.must(desync);
        if (gone_on) {
            desync.over = true;
            h.must(desync);
        }
        h.must(echo_of(h.exit(1, 1, 4000)));
        const Cause& cause = *h.job.live_generation()->first_failure;
        EXPECT_EQ(cause.rank, gone_on ? 1 : 2);
        EXPECT_EQ(cause.kind, CauseClass::rank_exit) << "so that the same follows of it";
        if (!gone_on) {
            EXPECT_EQ(cause.node, "n1");
            EXPECT_EQ(cause.exit_code, -1) << "it has not ended";
            EXPECT_TRUE(
                cause.message.starts_with("rank 2 has not launched AllReduce 9. Then rank 1"))
                << cause.message;
        }
        // A failure of its own is one, whoever waited for whom.
        h.must(h.exit(3, 1, 4100));
        EXPECT_EQ(h.job.live_generation()->first_failure->rank, 3);
    }
}

TEST(Blame, TheWordsOfSysExitAreTheCausesAndItsNumberIsTheCode) {
    for (const auto& [said, words] :
         {std::pair{"no data in /scratch\nmore", ": no data in /scratch"}, std::pair{"1", ""},
          std::pair{"-1", ""}, std::pair{"", ""}}) {
        History h;
        h.running();
        auto exit = h.exit(2, 1, 4500);
        exit.error_type = "SystemExit";
        exit.error = said;
        h.must(exit);
        EXPECT_EQ(due(h.job, h.now).cause.message,
                  std::string{"rank 2 on n1 exited with code 1"} + words);
    }
}

TEST(Blame, TheMomentOfTheFailureCountsNotTheOneOfTheExit) {
    History h;
    h.running();
    h.must(h.exit(3, 1, 4000));
    auto late = h.exit(1, 1, 4080);
    late.failed_at = 3990;
    h.must(late);
    EXPECT_EQ(due(h.job, h.now).cause.rank, 1);
}

TEST(Blame, AfterEchoesAloneTheCulpritIsWaitedForAMoment) {
    History h;
    h.running();
    h.must(echo_of(h.exit(3, 1, 4000)));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::watch);
    EXPECT_EQ(due(h.job, h.now + 5000).kind, ActionKind::stop) << "not for ever";
    EXPECT_EQ(due(h.job, h.now + 5000).cause.rank, 3);
    h.must(h.exit(1, 1, 4600));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop) << "it is here";
    EXPECT_EQ(due(h.job, h.now).cause.rank, 1);
}

TEST(Blame, OfEchoesAloneTheEarliestIsTheCause) {
    History h;
    h.running();
    for (const int rank : {3, 1, 0, 2}) {
        h.must(echo_of(h.exit(rank, 1, 4000 + rank)));
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude) << "all have ended: nobody is awaited";
    EXPECT_EQ(outcome(h.job).cause.rank, 0);
}

TEST(Blame, TheLongTextsOfACauseAreToldOnce) {
    History h;
    h.running();
    auto exit = h.exit(1, 7, 4000);
    exit.log_tail = "the last lines";
    exit.error_type = "ValueError";
    exit.traceback = "Traceback (most recent call last):";
    h.must(exit);
    const event::Finished end = outcome(h.job);
    h.must(event::GenerationEnded{1, 1, end.cause});
    h.must(event::AttemptEnded{1, end.cause});
    h.must(end);
    const std::string text = dump_json(job_json(h.job, {}));
    const auto count = [&](const std::string& what) {
        std::size_t times = 0;
        for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
            ++times;
        }
        return times;
    };
    EXPECT_EQ(count("the last lines"), 1U) << text;
    EXPECT_EQ(count("most recent call last"), 1U) << text;
    EXPECT_GE(count("ValueError"), 3U) << "which error it was is told everywhere";
}

}  // namespace
}  // namespace lockstep
