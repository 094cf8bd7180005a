// Whose fault a rank's end is, by what it told and printed.
#include "job/model/failure.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep {
namespace {

ExceptionNote note_of(std::string type, std::string message, UnixMillis at = 1'000) {
    ExceptionNote note;
    note.pid = 7;
    note.final = true;
    note.at = at;
    note.type = std::move(type);
    note.message = std::move(message);
    note.traceback =
        "Traceback (most recent call last):\n" + note.type + ": " + note.message + "\n";
    note.chain = {{note.type, note.message}};
    return note;
}

FailureFacts facts_of(std::vector<ExceptionNote> notes = {}) {
    FailureFacts facts;
    facts.pid = 7;
    facts.exit_code = 1;
    facts.ended_at = 2'000;
    facts.notes = std::move(notes);
    return facts;
}

// Texts as the frameworks print them.
TEST(FailureKinds, WhatSpeaksOfAPeerThatIsGoneIsAnEcho) {
    const std::vector<std::pair<const char*, const char*>> echoes{
        {"RuntimeError",
         "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:17805"},
        {"RuntimeError",
         "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection reset by peer"},
        {"RuntimeError", "Application timeout caused pair closure"},
        {"RuntimeError",
         "[unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"},
        {"torch.distributed.DistBackendError",
         "NCCL error in: ProcessGroupNCCL.cpp:1275, remote process exited or there was a network "
         "error, NCCL version 2.14.3\nncclRemoteError: A call failed possibly due to a network "
         "error"},
        {"RuntimeError",
         "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"},
        {"RuntimeError", "Socket Timeout"},
        {"torch.distributed.DistNetworkError", "The client socket has timed out after 60s"},
        {"torch.distributed.DistStoreError",
         "Timed out after 11 seconds waiting for clients. 1/2 clients joined."},
        {"RuntimeError", "failed to recv, got 0 bytes"},
        {"lockstep.TimedOut", "timed_out: missing: rank 1"},
        {"", "timed_out: gloo: connect: missing: rank 3"},  // lockstep-train's
        {"", "timed_out: NCCL's initialisation: missing: rank 3"},
        {"lockstep::Error", "barrier epoch 3: missing: rank 1"},
        {"lockstep.TimedOut", "timed_out: missing: unknown: the agent does not answer"},
        {"lockstep::Error", "barrier epoch 3: missing: unknown: the agent does not answer"},
        {"horovod.common.exceptions.HorovodInternalError", "Horovod has been shut down."},
    };
    for (const auto& [type, message] : echoes) {
        EXPECT_EQ(failure_kind(type, message), FailureKind::echo) << type << ": " << message;
    }
    EXPECT_EQ(failure_kind("ConnectionResetError", "[Errno 104] Connection reset by peer"),
              FailureKind::network);
    EXPECT_EQ(failure_kind("BrokenPipeError", "[Errno 32] Broken pipe"), FailureKind::network);
    EXPECT_EQ(failure_kind("requests.exceptions.ReadTimeout", "Read timed out. (read timeout=5)"),
              FailureKind::network);
    EXPECT_EQ(failure_kind("lockstep.TimedOut", "timed_out: the agent does not answer"),
              FailureKind::network)
        << "of a set or a get: nobody was waited for";
    for (const char* message : {"label 17 out of range", "CUDA out of memory",
                                "mat1 and mat2 shapes", "peer weights are empty", ""}) {
        EXPECT_EQ(failure_kind("RuntimeError", message), FailureKind::own) << message;
    }
}

// Seen with a killed rank of Paddle, in one run of many: the one that had met its end was blamed.
TEST(FailureKinds, WhatEndedAPaddleProcessIsFoundAboveItsOwnReport) {
    const std::string output =
        "epoch: 4, batch: 1, loss is: [0.07532601]\n"
        "terminate called after throwing an instance of 'gloo::IoException'\n"
        "  what():  [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:576] Read error "
        "[127.0.0.1]:7095: Connection reset by peer\n\n\n"
        "--------------------------------------\nC++ Traceback (most recent call last):\n"
        "--------------------------------------\n"
        "0   paddle::pybind::ThrowExceptionToPython(std::__exception_ptr::exception_ptr)\n\n"
        "----------------------\nError Message Summary:\n----------------------\n"
        "FatalError: `Process abort signal` is detected by the operating system.\n"
        "  [TimeInfo: *** Aborted at 1795718780 (unix time) ***]\n"
        "  [SignalInfo: *** SIGABRT (@0x78b8) received by PID 30904 ***]\n\n";
    EXPECT_EQ(failure_kind_of_output(output), FailureKind::echo);
    EXPECT_EQ(failure_kind_of_output("terminate called after throwing an instance of "
                                     "'std::bad_alloc'\n  what():  std::bad_alloc\n"),
              FailureKind::own);
}

// Both say the same words of all ranks; the type says who speaks.
TEST(FailureKinds, AVerdictOfACollectiveIsTheCulpritsOwnAndTheOthersEcho) {
    const std::string words = "rank 2 is behind: … rank 0 noticed: ncclRemoteError, timed out";
    EXPECT_EQ(failure_kind("CollectiveError", words), FailureKind::own);
    EXPECT_EQ(failure_kind("PeerFault", words), FailureKind::echo);
}

TEST(FailureKinds, AnErrorOfItsOwnStaysOneWhateverTheCleanUpMet) {
    ExceptionNote note = note_of("RuntimeError", "Connection closed by peer");
    note.chain = {{"ValueError", "label 17"}, {"RuntimeError", "Connection closed by peer"}};
    EXPECT_EQ(failure_kind(note), FailureKind::own);
    const Failure failure = judge_failure(facts_of({note}));
    EXPECT_EQ(failure.type, "ValueError") << "why, not what came of it";
    // And what was made of an echo is one.
    ExceptionNote wrapped = note_of("TrainingFailed", "step 12");
    wrapped.chain = {{"RuntimeError", "Connection closed by peer"}, {"TrainingFailed", "step 12"}};
    EXPECT_EQ(judge_failure(facts_of({wrapped})).kind, FailureKind::echo);
}

TEST(FailureKinds, TheLastTracebackOfAnOutputIsFoundWithWhatItCameFrom) {
    const std::string output =
        "epoch 1 loss 0.5\nTraceback (most recent call last):\n  File \"a.py\", line 1, in x\n"
        "OSError: an old one\nloss 0.4\n"
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in f\n"
        "[rank1]:     load()\n[rank1]: KeyError: 'w'\n[rank1]: \n"
        "[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n"
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 9, in "
        "<module>\n"
        "[rank1]: my.pkg.Failed: no weights: w\nand some line\n";
    const auto found = last_traceback(output);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->type, "my.pkg.Failed");
    EXPECT_EQ(found->message, "no weights: w");
    EXPECT_EQ(
        found->text.rfind("Traceback (most recent call last):\n  File \"t.py\", line 3, in f", 0),
        0U)
        << found->text;
    EXPECT_EQ(found->text.find("OSError"), std::string::npos);
    EXPECT_FALSE(last_traceback("loss 0.3\n"));
    EXPECT_FALSE(last_traceback("Traceback (most recent call last):\n  File \"t.py\", line 3\n"));
}

TEST(FailureJudgement, TheMomentIsTheExceptionsNotTheEnds) {
    const Failure failure = judge_failure(facts_of({note_of("ValueError", "label 17", 1'200)}));
    EXPECT_EQ(failure.at, 1'200);
    EXPECT_EQ(failure.kind, FailureKind::own);
    EXPECT_EQ(failure.type, "ValueError");
}

TEST(FailureJudgement, AChildsExceptionStandsForTheWordThatAChildFailed) {
    ExceptionNote child = note_of("ValueError", "label 17", 1'100);
    child.pid = 8;
    child.final = false;
    ExceptionNote sibling = note_of("RuntimeError", "Connection closed by peer", 1'050);
    sibling.pid = 9;
    const ExceptionNote parent = note_of("torch.multiprocessing.spawn.ProcessRaisedException",
                                         "-- Process 0 terminated with the following error", 1'300);
    const Failure failure = judge_failure(facts_of({sibling, child, parent}));
    EXPECT_EQ(failure.type, "ValueError");
    EXPECT_EQ(failure.at, 1'100);
    // Only echoes: the parent's is one.
    EXPECT_EQ(judge_failure(facts_of({sibling, parent})).kind, FailureKind::echo);
}

TEST(FailureJudgement, AHelpersOldExceptionDoesNotExcuseAnEcho) {
    ExceptionNote thread = note_of("KeyError", "'x'", 500);
    thread.thread = "Thread-1";
    thread.final = false;
    const ExceptionNote own = note_of("RuntimeError", "Connection closed by peer", 1'500);
    const Failure failure = judge_failure(facts_of({thread, own}));
    EXPECT_EQ(failure.kind, FailureKind::echo);
    EXPECT_EQ(failure.at, 1'500);
}

TEST(FailureJudgement, UnderAShellTheLastExceptionOfTheScriptCountsToo) {
    ExceptionNote thread = note_of("KeyError", "'x'", 500);
    thread.thread = "Thread-1";
    thread.final = false;
    ExceptionNote own = note_of("RuntimeError", "Connection closed by peer", 1'500);
    thread.pid = own.pid = 8;  // the rank's own process is the shell
    EXPECT_EQ(judge_failure(facts_of({thread, own})).kind, FailureKind::echo);
}

TEST(FailureJudgement, SysExitAfterAThreadDiedIsTheThreads) {
    ExceptionNote thread = note_of("ValueError", "bad batch", 1'500);
    thread.thread = "loader";
    thread.final = false;
    ExceptionNote exit = note_of("SystemExit", "1", 1'600);
    exit.final = false;
    const Failure failure = judge_failure(facts_of({thread, exit}));
    EXPECT_EQ(failure.type, "ValueError");
    EXPECT_EQ(failure.at, 1'500);
}

TEST(FailureJudgement, TheWordsOfSysExitSayMoreThanTheNumberOfAChilds) {
    // python -m lockstep.ray says who has not joined and stops `ray start`, which exits with 1.
    ExceptionNote child = note_of("SystemExit", "1", 1'700);
    child.pid = 8;
    ExceptionNote own = note_of("SystemExit", "1 of 2 nodes have not joined", 1'600);
    own.final = child.final = false;
    EXPECT_EQ(judge_failure(facts_of({own, child})).message, "1 of 2 nodes have not joined");
    own.message = "1";
    EXPECT_EQ(judge_failure(facts_of({own, child})).at, 1'700) << "neither says more: the child's";
    child.type = "ValueError";
    child.message = "bad batch";
    own.message = "training failed";
    EXPECT_EQ(judge_failure(facts_of({own, child})).type, "ValueError");
}

TEST(FailureJudgement, ARankThatWasFailingWhenItWasStoppedFailedByItself) {
    FailureFacts facts = facts_of({note_of("ValueError", "label 17", 1'000)});
    facts.exit_code = -1;
    facts.signal = SIGTERM;
    facts.stopped_at = 1'900;
    EXPECT_FALSE(judge_failure(facts).stopped);
    facts.notes.front().at = 1'950;  // KeyboardInterrupt and the like: because it was stopped
    EXPECT_TRUE(judge_failure(facts).stopped);
    facts.notes.clear();
    EXPECT_TRUE(judge_failure(facts).stopped);
    facts.printed_at = 1'800;
    facts.output = "Traceback (most recent call last):\n  File\nValueError: x\n";
    EXPECT_FALSE(judge_failure(facts).stopped) << "without the hooks, what it printed counts";
}

// Seen with Ray, one of whose processes had called sys.exit() 20 s before: the rank, killed after
// its grace period, was blamed for SIGKILL instead of the one that had failed.
TEST(FailureJudgement, AChildThatWasGoneBeforeDoesNotBlameARankThatWasKilledWhenItDidNotStop) {
    ExceptionNote child = note_of("SystemExit", "1", 1'000);
    child.pid = 8;
    child.final = false;
    FailureFacts facts = facts_of({child});
    facts.exit_code = -1;
    facts.signal = SIGKILL;
    facts.stopped_at = 21'000;
    facts.ended_at = 31'000;
    EXPECT_TRUE(judge_failure(facts).stopped);
    facts.notes.front().type = "ImportError";  // for which it called sys.exit()
    EXPECT_TRUE(judge_failure(facts).stopped);
    facts.notes.front().pid = facts.pid;
    EXPECT_FALSE(judge_failure(facts).stopped) << "its own, which it had not come to the end of";
    facts.notes.front().pid = 8;
    facts.notes.front().final = true;
    EXPECT_FALSE(judge_failure(facts).stopped) << "it may have been waiting for that child";

    facts.notes.front().final = false;
    ExceptionNote worker = note_of("ValueError", "bad batch", 20'500);
    worker.pid = 9;
    worker.final = false;  // on its way out, as mp.spawn's are
    facts.notes.push_back(worker);
    EXPECT_FALSE(judge_failure(facts).stopped) << "another child was failing";
}

TEST(FailureJudgement, WithoutHooksWhatItPrintsDecides) {
    FailureFacts facts = facts_of();
    facts.output =
        "step 4\nTraceback (most recent call last):\n  File \"t.py\", line 2\nValueError: label "
        "17\n";
    facts.printed_at = 1'700;
    Failure failure = judge_failure(facts);
    EXPECT_EQ(failure.type, "ValueError");
    EXPECT_EQ(failure.at, 1'700);
    facts.output =
        "terminate called after throwing an instance of 'gloo::IoException'\n  what():  "
        "[pair.cc:589] Read error [127.0.0.1]:1: Connection reset by peer\n";
    facts.signal = SIGABRT;
    facts.exit_code = -1;
    failure = judge_failure(facts);
    EXPECT_NE(failure.kind, FailureKind::own);
    facts.output = "loss 0.4\n";
    facts.printed_at = 0;
    EXPECT_EQ(judge_failure(facts).kind, FailureKind::own) << "a plain abort is its own";
}

TEST(FailureJudgement, AKillIsTheCauseNotWhatTheProcessSurvived) {
    ExceptionNote survived = note_of("RuntimeError", "Connection closed by peer", 1'900);
    survived.final = false;
    survived.thread = "watch";
    FailureFacts facts = facts_of({survived});
    facts.exit_code = -1;
    facts.signal = SIGKILL;
    const Failure failure = judge_failure(facts);
    EXPECT_EQ(failure.kind, FailureKind::own);
    EXPECT_EQ(failure.type, "");
    EXPECT_EQ(failure.at, 2'000);
}

}  // namespace
}  // namespace lockstep
