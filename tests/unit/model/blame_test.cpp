// Which rank of those that failed is the cause.
#include "job/model/echo.hpp"
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <cstring>
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

// Of a job whose rank 2 ends with code 1 and this exception.
std::string cause_told(const std::string& type, const std::string& error) {
    History h;
    h.running();
    auto exit = h.exit(2, 1, 4500);
    exit.error_type = type;
    exit.error = error;
    h.must(exit);
    return due(h.job, h.now).cause.message;
}

TEST(Blame, TheWordsOfSysExitAreTheCausesAndItsNumberIsTheCode) {
    for (const auto& [said, words] :
         {std::pair{"no data in /scratch\nmore", ": no data in /scratch"}, std::pair{"1", ""},
          std::pair{"-1", ""}, std::pair{"", ""}}) {
        EXPECT_EQ(cause_told("SystemExit", said),
                  std::string{"rank 2 on n1 exited with code 1"} + words);
    }
}

TEST(Blame, AnExceptionIsToldByTheLineThatSaysWhatIsWrong) {
    for (const auto& [said, words] :
         {// torch 2.15, Module.load_state_dict()
          std::pair{"Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
                    "\"bias\". \n\tUnexpected key(s) in state_dict: \"b\". ",
                    ": Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "
                    "\"bias\"."},
          // transformers 5, requires_backends()
          std::pair{"\nTapasModel requires the pandas library but it was not found.\nInstall it.",
                    ": TapasModel requires the pandas library but it was not found."},
          std::pair{"Parser key \"lr\":\n  Expected a float",
                    ": Parser key \"lr\": Expected a float"},
          // torch 2.1 and later, NCCL 2.18; with and without a word of NCCL's
          std::pair{
              "NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1333, unhandled system error, NCCL "
              "version 2.18.6\nncclSystemError: System call (e.g. socket, malloc) or external "
              "library call failed or device error. \nLast error:\nsocketStartConnect: Connect "
              "to 192.168.19.14<52822> failed : No route to host",
              ": NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1333, unhandled system error, "
              "NCCL version 2.18.6: socketStartConnect: Connect to 192.168.19.14<52822> failed "
              ": No route to host"},
          std::pair{"NCCL error: unhandled system error, NCCL version 2.25.1\nncclSystemError: "
                    "failed. \nLast error:\n\nException raised from checkForNCCLErrors",
                    ": NCCL error: unhandled system error, NCCL version 2.25.1"},
          std::pair{"wanted:", ": wanted:"}, std::pair{" \n\n", ""}, std::pair{"", ""},
          std::pair{"labels\nmore", ": labels"}}) {
        EXPECT_EQ(cause_told("RuntimeError", said),
                  std::string{"rank 2 on n1 raised RuntimeError"} + words);
    }
}

// As torch 2.15 says it, and CUDA.
TEST(Blame, ARankThatFindsNoGpuOfAJobThatAsksForNoneIsToldWhereToAsk) {
    const std::string hint = " (the job asks for no GPU: resources.gpus_per_node, lockstep run -G)";
    for (const char* said :
         {"No CUDA GPUs are available", "nccl2 requires at least one CUDA device",
          "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
          "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
          "CUDA error: no CUDA-capable device is detected\nCUDA kernel errors might be reported"}) {
        const std::string line{said, std::strcspn(said, "\n")};
        EXPECT_EQ(cause_told("RuntimeError", said),
                  "rank 2 on n1 raised RuntimeError: " + line + hint);
    }
    History h{R"({"name":"t","framework":"command","command":["x"],
                  "resources":{"nodes":2,"ranks_per_node":2,"gpus_per_node":2}})"};
    h.running();
    auto exit = h.exit(2, 1, 4500);
    exit.error_type = "RuntimeError";
    exit.error = "No CUDA GPUs are available";
    h.must(exit);
    EXPECT_EQ(due(h.job, h.now).cause.message,
              "rank 2 on n1 raised RuntimeError: No CUDA GPUs are available")
        << "it has asked";
}

TEST(Blame, WhyAProgramDidNotBeginIsToldOfTheCauseAndOfTheOthers) {
    History h;
    h.running();
    auto exit = h.exit(2, 127, 4500);
    exit.error = "sh: 1: trian.py: not found";
    h.must(exit);
    exit.rank = 3;
    exit.at = 4600;
    h.must(exit);
    const Cause cause = with_others(h.job, due(h.job, h.now).cause);
    EXPECT_EQ(cause.message, "rank 2 on n1 exited with code 127: sh: 1: trian.py: not found");
    ASSERT_EQ(cause.others.size(), 1U);
    EXPECT_EQ(cause.others[0].value("error", ""), "sh: 1: trian.py: not found");
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
    EXPECT_EQ(due(h.job, h.now + 5000).cause.rank, -1) << "nothing says who is to blame";
    h.must(h.exit(1, 1, 4600));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop) << "it is here";
    EXPECT_EQ(due(h.job, h.now).cause.rank, 1);
}

// The earliest was blamed, which was a victim.
TEST(Blame, OfEchoesAloneNobodyIsBlamedWithoutEvidence) {
    History h;
    h.running();
    for (const int rank : {3, 1, 0, 2}) {
        h.must(echo_of(h.exit(rank, 1, 4000 + rank)));
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude) << "all have ended: nobody is awaited";
    const Cause cause = outcome(h.job).cause;
    EXPECT_EQ(cause.rank, -1);
    EXPECT_EQ(cause.node, "");
    EXPECT_EQ(cause.kind, CauseClass::rank_exit) << "so that the same follows of it";
    EXPECT_EQ(cause.message,
              "every failure is the echo of another rank's end or silence, and the first cause is "
              "not known. The earliest: rank 0 on n0 raised RuntimeError: Connection closed by "
              "peer");
    EXPECT_EQ(cause.error, "Connection closed by peer");
    EXPECT_EQ(cause.others.size(), 4U) << "all who failed: none is the cause";
}

TEST(Blame, WhoHadLeftWithZeroBeforeTheEchoesIsNamedWithItsStep) {
    for (const auto& [left_at, named] : {std::pair{3950, true}, std::pair{4001, false}}) {
        History h;
        h.running();
        auto left = h.exit(1, 0, left_at);
        left.step = 12;
        h.must(left);
        for (const int rank : {3, 0, 2}) {
            h.must(echo_of(h.exit(rank, 1, 4000 + rank)));
        }
        const Cause cause = outcome(h.job).cause;
        EXPECT_EQ(cause.rank, named ? 1 : -1) << "one that left after them may be a victim, too";
        if (named) {
            EXPECT_EQ(cause.node, "n0");
            EXPECT_EQ(
                cause.message,
                "rank 1 on n0 left with exit 0 at step 12 while 3 others went on. Then rank 0 "
                "on n0 raised RuntimeError: Connection closed by peer");
            EXPECT_EQ(cause.others.size(), 3U);
        } else {
            EXPECT_NE(cause.message.find("1 rank had left with exit 0"), std::string::npos);
        }
    }
    // A failure of its own is the cause, whoever left.
    History h;
    h.running();
    h.must(h.exit(1, 0, 3000));
    h.must(echo_of(h.exit(0, 1, 4000)));
    h.must(h.exit(2, 1, 4100));
    EXPECT_EQ(due(h.job, h.now).cause.rank, 2);
}

TEST(Blame, WhereMostHaveLeftWithZeroTheFirstOfThemIsNotBlamed) {
    History h;
    h.running();
    for (const int rank : {1, 2, 3}) {
        h.must(h.exit(rank, 0, 3000 + rank));
    }
    h.must(echo_of(h.exit(0, 1, 4000)));
    const Cause cause = outcome(h.job).cause;
    EXPECT_EQ(cause.rank, -1);
    EXPECT_NE(cause.message.find("3 ranks had left with exit 0. The earliest: rank 0"),
              std::string::npos)
        << cause.message;
}

TEST(Blame, WhoAFailedWaitNamesAsMissingIsTheCause) {
    const auto late = [](History& h, std::int32_t rank, const char* missing) {
        auto exit = echo_of(h.exit(rank, 1, 4000 + rank));
        exit.error_type = "lockstep.TimedOut";
        exit.error = std::string{"timed_out: missing: "} + missing;
        h.must(exit);
    };
    History h;
    h.running();
    late(h, 0, "rank 1, rank 3");
    late(h, 1, "rank 0, rank 3");
    const Cause cause = due(h.job, h.now + 5000).cause;
    EXPECT_EQ(cause.rank, 3) << "rank 1 waits in vain, too";
    EXPECT_EQ(cause.message,
              "rank 3 on n1 did not come to where it was waited for. Then rank 0 on n0 raised "
              "lockstep.TimedOut: timed_out: missing: rank 1, rank 3");
    History left;
    left.running();
    left.must(left.exit(3, 0, 9000));  // its clock is ahead
    late(left, 0, "rank 3");
    EXPECT_NE(
        due(left.job, left.now + 5000).cause.message.find("rank 3 on n1 left with exit 0 and"),
        std::string::npos);
    History each_other;
    each_other.running();
    late(each_other, 0, "rank 1");
    late(each_other, 1, "rank 0");
    EXPECT_EQ(due(each_other.job, each_other.now + 5000).cause.rank, -1);

    using Ranks = std::vector<std::int32_t>;
    EXPECT_EQ(named_missing("timed_out: missing: rank 1, rank 12 and 4 more"), (Ranks{1, 12}));
    EXPECT_EQ(named_missing("[Rank 0]: Rank 5 failed to pass monitoredBarrier in 1000 ms"),
              Ranks{5});
    EXPECT_EQ(named_missing("[Rank 0]: Ranks 5, 7 failed to pass monitoredBarrier in 9 ms"),
              (Ranks{5, 7}));
    EXPECT_EQ(named_missing("missing: weights/1"), Ranks{});
    EXPECT_EQ(named_missing("missing: rank 99999999999999999999"), Ranks{});
    EXPECT_EQ(named_missing(""), Ranks{});
}

TEST(Blame, WhoStoodAtAnEarlierStepWhenItWasStoppedIsNamed) {
    for (const std::int64_t step : {9, 12}) {
        History h;
        h.running();
        auto echo = echo_of(h.exit(0, 1, 4000));
        echo.step = 12;
        h.must(echo);
        for (const int rank : {1, 2, 3}) {
            auto stopped = h.exit(rank, -1, 6000);
            stopped.stopped = true;
            stopped.signal = 15;
            stopped.step = rank == 2 ? step : 12;
            h.must(stopped);
        }
        const Cause cause = outcome(h.job).cause;
        EXPECT_EQ(cause.rank, step == 9 ? 2 : -1);
        if (step == 9) {
            EXPECT_TRUE(
                cause.message.starts_with("rank 2 on n1 stood at step 9 while rank 0 was at step "
                                          "12. Then rank 0 on n0 raised"))
                << cause.message;
        }
    }
}

TEST(Blame, WhereRanksReportAtDifferentRatesNobodyIsSaidToHaveStood) {
    for (const std::int32_t witnesses : {0, 2}) {
        History h;
        h.running();
        auto echo = echo_of(h.exit(0, 1, 4000));
        echo.step = 18;
        h.must(echo);
        for (const int rank : {1, 2, 3}) {
            auto stopped = h.exit(rank, -1, 6000);
            stopped.stopped = true;
            stopped.signal = 15;
            stopped.step = rank <= witnesses + 1 ? 10 : -1;
            h.must(stopped);
        }
        EXPECT_EQ(outcome(h.job).cause.rank, -1) << witnesses << " others at the same step";
    }
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
