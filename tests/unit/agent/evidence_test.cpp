// size: one fixture, a test for each way in which a look at ranks goes
// What an agent finds out about its ranks when they are to be looked at: real processes, debuggers
// played by scripts in the ranks' PATH.
#include "job/model/evidence.hpp"

#include "job/agent/diagnostics/flight_dump.hpp"
#include "job/agent/diagnostics/nccl_ras.hpp"
#include "job/agent/ranks/process_look.hpp"
#include "job/agent/ranks/rank_state.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class EvidenceTest : public AgentTest {
  protected:
    EvidenceTest() { std::filesystem::create_directories(tools()); }
    std::filesystem::path tools() const { return folder / "tools"; }
    // A program of that name, first in the ranks' PATH.
    void tool(const std::string& name, const std::string& script) const {
        const auto path = tools() / name;
        std::ofstream{path} << "#!/bin/sh\n" << script << "\n";
        ::chmod(path.c_str(), 0755);
    }
    // A debugger that finds one frame.
    void plain_gdb() const {
        tool("gdb", "echo 'Thread 1 (LWP 1):'; echo '#0  0x1 in waiting_for_godot ()'");
    }
    // Without the hooks: a Python that answers by itself needs no tool (python_stacks_test.cpp).
    JobSpec job(const std::string& script, std::int32_t ranks = 1) const {
        JobSpec spec = shell("touch started-$RANK; " + script, ranks);
        spec.environment[std::string{kPythonHooks}] = "off";
        spec.environment["PATH"] = tools().string() + ":/usr/bin:/bin";
        spec.working_directory = folder.path().string();
        return spec;
    }
    void wait_for(FakeDaemon& daemon, const std::string& name) const {
        ASSERT_TRUE(daemon.run_until([&] { return std::filesystem::exists(folder / name); }));
    }
    // What the agent says of the ranks, which must have been started.
    wire::EvidenceSaved look(FakeDaemon& daemon, std::vector<std::int32_t> first = {}) const {
        const std::size_t before = daemon.count<wire::EvidenceSaved>();
        daemon.send(0, wire::Examine{1, "a test", std::move(first)});
        const bool told =
            daemon.run_until([&] { return daemon.count<wire::EvidenceSaved>() > before; });
        EXPECT_TRUE(told);
        return told ? daemon.all<wire::EvidenceSaved>().back() : wire::EvidenceSaved{};
    }
    std::string text(std::int32_t rank, std::string_view name) const {
        std::filesystem::path at = folder.path();
        for (const auto& part : evidence_folders(1, rank)) {
            at /= part;
        }
        return text_of(at / name);
    }
    static std::string why(const wire::RankEvidence& evidence, const std::string& what) {
        std::string last;  // of what was tried, in turn
        for (const wire::EvidenceGap& gap : evidence.missing) {
            last = gap.what == what ? gap.why : last;
        }
        return last;
    }
    static void end(FakeDaemon& daemon, AgentProcess& agent) {
        daemon.send(0, wire::Stop{"the test is over", 0});
        code_of(daemon, agent);
    }
};

TEST_F(EvidenceTest, EveryRankHasItsStateAndItsStackWrittenAndNamed) {
    plain_gdb();
    FakeDaemon daemon{job("sleep 600 & sleep 601; true", 2), ranks(2)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-1"); });
    wait_for(daemon, "started-0");
    const auto saved = look(daemon, {1});
    EXPECT_EQ(saved.generation, 1);
    ASSERT_THAT(saved.ranks, SizeIs(2));
    EXPECT_EQ(saved.ranks[0].rank, 1) << "the one that is behind comes first";
    for (const wire::RankEvidence& one : saved.ranks) {
        EXPECT_EQ(one.frame, "waiting_for_godot");
        const std::string state = text(one.rank, kStateText);
        EXPECT_THAT(state, HasSubstr("command: sh -c"));
        EXPECT_THAT(text(one.rank, kNativeText), HasSubstr("waiting_for_godot"));
        for (const wire::EvidenceFile& file : one.files) {
            EXPECT_EQ(file.size, static_cast<std::int64_t>(text(one.rank, file.name).size()));
        }
    }
    EXPECT_EQ(daemon.count<wire::Examined>(), 1U);
    end(daemon, *agent);
}

TEST_F(EvidenceTest, ADebuggerThatHangsIsEndedAndTheRankGoesOn) {
    tool("gdb", "echo pid $$ > " + (tools() / "gdb.pid").string() + "; exec sleep 600");
    FakeDaemon daemon{job("while [ ! -e end ]; do sleep 0.05; done"), ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-0"); });
    const auto began = std::chrono::steady_clock::now();
    const auto saved = look(daemon);
    EXPECT_LT(std::chrono::steady_clock::now() - began, limits::kEvidencePatience);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    // The debugger's own time, or, if it came to it late, the time of the look.
    EXPECT_TRUE(why(saved.ranks[0], "native").find("gdb did not end within") != std::string::npos ||
                why(saved.ranks[0], "all") == "the time for it was over")
        << why(saved.ranks[0], "native") << why(saved.ranks[0], "all");
    EXPECT_THAT(text(0, kStateText), HasSubstr("process"));
    std::ofstream{folder / "end"} << "";
    EXPECT_EQ(code_of(daemon, *agent), 0) << "the rank was left as it was";
    EXPECT_EQ(daemon.all<wire::Exited>().at(0).exit_code, 0);
}

// Its child was the only process that is no shell, and had just ended.
TEST_F(EvidenceTest, AShellThatIsYetToNoticeThatItsChildEndedIsLookedAtItself) {
    plain_gdb();
    const auto shell = tools() / "dash";  // by its name
    std::filesystem::copy_file("/bin/sleep", shell);
    FakeDaemon daemon{job("true & exec " + shell.string() + " 600"), ranks(1)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() > 0; });
    const std::string pid = std::to_string(daemon.all<wire::Started>()[0].ranks.at(0).pid);
    ASSERT_TRUE(daemon.run_until([&] {
        std::error_code ec;
        if (std::filesystem::read_symlink("/proc/" + pid + "/exe", ec) != shell) {
            return false;
        }
        const std::string ended = ") Z " + pid + " ";  // proc(5): state and parent in stat
        for (const auto& one : std::filesystem::directory_iterator{"/proc", ec}) {
            if (text_of(one.path() / "stat").find(ended) != std::string::npos) {
                return true;
            }
        }
        return false;
    }));
    const auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_EQ(saved.ranks[0].frame, "waiting_for_godot");
    end(daemon, *agent);
}

TEST_F(EvidenceTest, AnAbortDoesNotWaitForADebugger) {
    tool("gdb", "touch " + (folder / "attached").string() + "; exec sleep 600");
    FakeDaemon daemon{job("exec sleep 600"), ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-0"); });
    daemon.send(0, wire::Examine{1, "a test", {}});
    wait_for(daemon, "attached");
    const auto began = std::chrono::steady_clock::now();
    end(daemon, *agent);
    EXPECT_LT(std::chrono::steady_clock::now() - began, limits::kEvidenceTool);
    EXPECT_EQ(daemon.count<wire::EvidenceSaved>(), 0U);
}

// A py-spy that is killed because the ranks are to end has found nothing, and gdb used to be tried
// then: it held the rank that was to end.
TEST_F(EvidenceTest, OnceTheRanksAreToEndNoDebuggerIsStarted) {
    tool("py-spy", "touch " + (folder / "asked").string() + "; exec sleep 600");
    tool("gdb", "touch " + (folder / "gdb-ran").string() + "; exec sleep 600");
    FakeDaemon daemon{
        job("python3 -c 'import time; open(\"python\", \"w\"); time.sleep(600)'; true"), ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "python"); });
    daemon.send(0, wire::Examine{1, "a test", {}});
    wait_for(daemon, "asked");
    end(daemon, *agent);
    EXPECT_FALSE(std::filesystem::exists(folder / "gdb-ran"));
}

// Its process's number may be another process's by now.
TEST_F(EvidenceTest, ARankThatHasEndedIsNotLookedAt) {
    plain_gdb();
    FakeDaemon daemon{job("if [ $RANK = 1 ]; then exit 0; fi; exec sleep 600", 2), ranks(2)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Exited>() == 1; });
    wait_for(daemon, "started-0");
    const auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_EQ(saved.ranks[0].rank, 0);
    const auto examined = daemon.all<wire::Examined>().at(0);
    ASSERT_THAT(examined.ranks, SizeIs(2));
    EXPECT_NE(examined.ranks[0].state, "X");
    EXPECT_EQ(examined.ranks[1].state, "X");
    EXPECT_EQ(text(1, kStateText), "");
    end(daemon, *agent);
}

TEST_F(EvidenceTest, AStoppedRankIsNotWokenByADebugger) {
    plain_gdb();
    FakeDaemon daemon{job("kill -STOP $$; sleep 600"), ranks(1)};
    const auto agent = start_until(daemon, [&] {
        return std::filesystem::exists(folder / "started-0") && daemon.count<wire::Started>() == 1;
    });
    const auto pid = daemon.all<wire::Started>().at(0).ranks.at(0).pid;
    ASSERT_TRUE(daemon.run_until([&] { return look_at_rank(0, pid).state == "T"; }));
    const auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_THAT(why(saved.ranks[0], "native"), HasSubstr("is stopped"));
    EXPECT_THAT(text(0, kStateText), HasSubstr("state T"));
    EXPECT_EQ(look_at_rank(0, pid).state, "T");
    end(daemon, *agent);
}

TEST_F(EvidenceTest, APythonRankIsAskedByPySpyAndElseByTheDebugger) {
    plain_gdb();
    tool("py-spy",
         "test \"$1 $2 $3\" = 'dump --nonblocking --pid' || exit 1\n"
         "printf 'Thread 1 (active): \"MainThread\"\\n    spin (a.py:3)\\n'");
    FakeDaemon daemon{
        job("python3 -c 'import time; open(\"python\", \"w\"); time.sleep(600)'; true"), ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "python"); });
    auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_EQ(saved.ranks[0].frame, "spin (a.py:3)");
    EXPECT_THAT(text(0, kPythonText), HasSubstr("spin (a.py:3)"));
    EXPECT_EQ(text(0, kNativeText), "") << "one of them is enough";
    tool("py-spy", "echo 'Error: Permission denied' >&2; exit 1");
    saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_EQ(why(saved.ranks[0], "python"), "py-spy: Error: Permission denied");
    EXPECT_EQ(saved.ranks[0].frame, "waiting_for_godot");
    EXPECT_EQ(text(0, kPythonText), "") << "that of the look before is gone";
    end(daemon, *agent);
}

// A RAS server for one question, and for another one about its diagnostics if it has them.
class RasServer {
  public:
    explicit RasServer(const std::string& hello, std::string diagnostics = "")
        : diagnostics_(std::move(diagnostics)), acceptor_(io_, {tcp::v4(), 0}) {
        thread_ = std::thread{[this, hello] {
            serve(hello);
            serve_diagnostics();
        }};
    }
    ~RasServer() {
        ::shutdown(acceptor_.native_handle(), SHUT_RDWR);  // if nobody came
        thread_.join();
    }
    std::string address() const {
        return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
    }
    std::string heard;

  private:
    std::string line(tcp::socket& socket) {
        std::string out;
        char letter = 0;
        ErrorCode ec;
        while (out.empty() || out.back() != '\n') {
            if (socket.read_some(net::buffer(&letter, 1), ec) == 0 || ec) {
                break;
            }
            out += letter;
        }
        heard += out;
        return out;
    }
    void serve(const std::string& hello) {
        tcp::socket socket{io_};
        ErrorCode ec;
        acceptor_.accept(socket, ec);
        line(socket);
        socket.write_some(net::buffer(hello), ec);
        if (line(socket).empty()) {
            return;
        }
        socket.write_some(net::buffer(std::string{"OK\n"}), ec);
        line(socket);
        socket.write_some(net::buffer(std::string{"NCCL version 2.27\nRank 1 is behind\n"}), ec);
    }
    // As NCCL: what it does not know it says, and waits for the next line.
    void serve_diagnostics() {
        tcp::socket socket{io_};
        ErrorCode ec;
        acceptor_.accept(socket, ec);
        if (line(socket).empty()) {
            return;
        }
        socket.write_some(net::buffer(std::string{"SERVER PROTOCOL 2\n"}), ec);
        const std::string command = line(socket);
        if (diagnostics_.empty()) {
            socket.write_some(net::buffer("ERROR: Unknown command " + command), ec);
            line(socket);
        } else {
            socket.write_some(net::buffer(diagnostics_), ec);
        }
    }
    std::string diagnostics_;
    net::io_context io_;
    tcp::acceptor acceptor_;
    std::thread thread_;
};

TEST_F(EvidenceTest, NcclIsAskedOnceForAllRanksOfTheNode) {
    plain_gdb();
    RasServer server{"SERVER PROTOCOL 2\n"};
    JobSpec spec = job("exec sleep 600", 2);
    spec.environment["NCCL_RAS_ADDR"] = server.address();
    FakeDaemon daemon{spec, ranks(2)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-1"); });
    wait_for(daemon, "started-0");
    const auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(2));
    EXPECT_EQ(text(0, kRasText), "NCCL version 2.27\nRank 1 is behind\n");
    EXPECT_EQ(text(1, kRasText), "");
    EXPECT_THAT(server.heard, HasSubstr("CLIENT PROTOCOL 2\nTIMEOUT "));
    EXPECT_THAT(server.heard, HasSubstr("\nVERBOSE STATUS\n"));
    end(daemon, *agent);
}

// The words of NCCL's guide (troubleshooting/ras.rst of 8898068, 2.31).
TEST_F(EvidenceTest, WhatNcclsDiagnosticsFindIsWrittenAndTold) {
    plain_gdb();
    const std::string said =
        "node042:12345 NCCL DIAG === RAS Diagnostics ===\n"
        "node042:12345 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm "
        "0x1234\n"
        "node042:12345 NCCL DIAG [INFO] NCCL environment: mismatch across 8 ranks in comm 0x1234 "
        "for NCCL_DEBUG\n"
        "node042:12345 NCCL DIAG [INFO] NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1,2,3}\n"
        "node042:12345 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 RAS peers\n";
    RasServer server{"SERVER PROTOCOL 2\n", said};
    JobSpec spec = job("exec sleep 600");
    spec.environment["NCCL_RAS_ADDR"] = server.address();
    FakeDaemon daemon{spec, ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-0"); });
    look(daemon);
    EXPECT_EQ(text(0, kRasText), "NCCL version 2.27\nRank 1 is behind\n\n" + said);
    const auto told = [&] {
        for (const auto& one : daemon.all<wire::Warned>()) {
            if (one.message ==
                "NCCL's diagnostics: NCCL environment: mismatch across 8 ranks in comm 0x1234 for "
                "NCCL_DEBUG; NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1,2,3}") {
                return true;
            }
        }
        return false;
    };
    EXPECT_TRUE(daemon.run_until(told));
    end(daemon, *agent);
}

// Each node has an address of RAS from Lockstep: of eight nodes only that was told, and no Xid.
TEST(NcclDiagnostics, LockstepsOwnVariableHidesNoFinding) {
    std::string said;
    const auto line = [&said](const std::string& words) {
        said += "node042:12345 NCCL DIAG [INFO] " + words + "\n";
    };
    line("NCCL environment: mismatch across 16 ranks in comm 0x1234 for NCCL_RAS_ADDR");
    for (int node = 0; node < 8; ++node) {
        line("NCCL environment: NCCL_RAS_ADDR=127.0.0.1:4" + std::to_string(node) + " on rank(s)");
    }
    line("NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1}");
    line("GPU 0000:1b:00.0: Xid 79 in the kernel's log");
    EXPECT_EQ(diagnostics_found(said),
              (std::vector<std::string>{"GPU 0000:1b:00.0: Xid 79 in the kernel's log",
                                        "NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1}"}));
}

TEST_F(EvidenceTest, WhatIsNotNcclIsSaidToBeSo) {
    plain_gdb();
    RasServer server{"HTTP/1.1 400 Bad Request\n"};
    JobSpec spec = job("exec sleep 600");
    spec.environment["NCCL_RAS_ADDR"] = server.address();
    FakeDaemon daemon{spec, ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "started-0"); });
    const auto saved = look(daemon);
    ASSERT_THAT(saved.ranks, SizeIs(1));
    EXPECT_THAT(why(saved.ranks[0], "ras"), HasSubstr("it is not NCCL: HTTP/1.1 400"));
    end(daemon, *agent);
}

TEST_F(EvidenceTest, TorchsFlightRecorderIsAskedForThroughItsPipe) {
    plain_gdb();
    // As torch does it: the dump is written whenever something comes through the pipe, which stays
    // open. One opened anew for each word may be open before the agent has closed its end, and
    // ends.
    JobSpec spec =
        job("if [ $RANK = 0 ]; then mkfifo fr-0.pipe; exec 3<> fr-0.pipe; touch ready; "
            "while read x <&3; do printf 'PICKLE %s' \"$x\" > dump-0; done; fi; "
            "exec sleep 600",
            2);
    spec.environment["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "100";
    spec.environment["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = "fr-";
    spec.environment["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = (folder / "dump-").string();
    FakeDaemon daemon{spec, ranks(2)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "ready"); });
    wait_for(daemon, "started-1");
    // The dump may come after the first look.
    wire::EvidenceSaved saved;
    for (int looks = 0; looks < 20 && text(0, kFlightDumpName).empty(); ++looks) {
        saved = look(daemon);
        ASSERT_THAT(saved.ranks, SizeIs(2));
    }
    EXPECT_EQ(text(0, kFlightDumpName), "PICKLE 1");
    EXPECT_THAT(why(saved.ranks[1], "flight-recorder"), HasSubstr("fr-1.pipe"));
    end(daemon, *agent);
}

// As torch and NCCL find it where the job says nothing of either.
TEST_F(EvidenceTest, WithGpusTheJobNeedsToSayNothing) {
    plain_gdb();
    JobSpec spec =
        job("echo ras $NCCL_RAS_ADDR; [ $TORCH_NCCL_TRACE_BUFFER_SIZE -gt 0 ] || exit 1; "
            "pipe=${TORCH_NCCL_DEBUG_INFO_PIPE_FILE}0.pipe; mkfifo $pipe; exec 3<> $pipe; "
            "touch ready; while read x <&3; do "
            "printf 'PICKLE %s' \"$x\" > ${TORCH_NCCL_DEBUG_INFO_TEMP_FILE}0; done");
    spec.resources.gpus_per_node = 1;
    FakeDaemon daemon{spec, ranks(1)};
    const auto agent =
        start_until(daemon, [&] { return std::filesystem::exists(folder / "ready"); });
    wire::EvidenceSaved saved;
    for (int looks = 0; looks < 20 && text(0, kFlightDumpName).empty(); ++looks) {
        saved = look(daemon);
        ASSERT_THAT(saved.ranks, SizeIs(1));
    }
    EXPECT_EQ(text(0, kFlightDumpName), "PICKLE 1");
    ASSERT_TRUE(rank_log(0).starts_with("ras 127.0.0.1:")) << rank_log(0);
    const std::string address = rank_log(0).substr(4, rank_log(0).find('\n') - 4);
    EXPECT_NE(address, "127.0.0.1:28028");
    EXPECT_THAT(why(saved.ranks[0], "ras"), HasSubstr("no answer at " + address));
    end(daemon, *agent);
    for (const auto& one : std::filesystem::directory_iterator("/tmp")) {
        if (one.path().filename().string().starts_with(daemon.welcome.job_id + "-nccl_trace_")) {
            std::filesystem::remove(one.path());
        }
    }
}

std::vector<ProcessLook> with(const std::map<std::string, std::string>& environment,
                              bool nccl = false) {
    ProcessLook one;
    one.environment = environment;
    one.nccl = nccl;
    one.folder = "/w";
    return {one};
}

TEST(Ras, WhereNcclListensIsInTheRanksEnvironment) {
    EXPECT_EQ(ras_address(with({})), std::nullopt) << "no NCCL: nobody to ask";
    EXPECT_EQ(ras_address(with({}, true)), (RasAddress{"localhost", 28028}));
    EXPECT_EQ(ras_address(with({{"NCCL_RAS_ENABLE", "0"}}, true)), std::nullopt);
    EXPECT_EQ(ras_address(with({{"NCCL_RAS_ADDR", "10.0.0.1:77"}})), (RasAddress{"10.0.0.1", 77}));
    EXPECT_EQ(ras_address(with({{"NCCL_RAS_ADDR", ":77"}})), (RasAddress{"localhost", 77}));
    EXPECT_EQ(ras_address(with({{"NCCL_RAS_ADDR", "[::1]:77"}})), (RasAddress{"::1", 77}));
    EXPECT_EQ(ras_address(with({{"NCCL_RAS_ADDR", "host:x"}})), std::nullopt);
}

TEST(FlightRecorder, IsOnOnlyWithABuffer) {
    EXPECT_FALSE(flight_recorder(with({{"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "p"}}), 3));
    EXPECT_FALSE(flight_recorder(with({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "0"}}), 3));
    auto found = flight_recorder(with({{"TORCH_FR_BUFFER_SIZE", "2000"}, {"HOME", "/h/a"}}), 3);
    ASSERT_TRUE(found);
    EXPECT_FALSE(ask_for_dump(*found));
    EXPECT_EQ(found->dumps.back(), "/h/a/.cache/torch/comm_lib_trace_rank_3");
    found = flight_recorder(with({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "9"},
                                  {"RANK", "12"},
                                  {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "p"},
                                  {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/t/d"}}),
                            3);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->pipe, "/w/p12.pipe");
    EXPECT_EQ(found->dumps.at(0), "/t/d12");
}

TEST(ProcessLooks, AProcessThatIsGoneIsNothing) {
    EXPECT_TRUE(look_at_tree(0x7ffffff, {}).empty());
    const auto own = look_at_tree(::getpid(), {});
    ASSERT_THAT(own, SizeIs(1));
    EXPECT_THAT(own[0].text, HasSubstr("VmRSS:"));
    EXPECT_THAT(own[0].text, HasSubstr("thread " + std::to_string(::getpid())));
    EXPECT_FALSE(own[0].stuck);
}

}  // namespace
}  // namespace lockstep::test
