// Launch node: a launcher in Python that starts ranks, through a real agent.
#include "job/model/log_marks.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <map>

namespace lockstep::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// `child`: the body of a rank that knows `rank` and `report(step, loss)`.
JobSpec launcher(const std::string& child, const std::string& after = "", std::int32_t ranks = 2) {
    JobSpec spec;
    spec.name = "children-test";
    spec.framework = Framework::command;
    spec.launch = Launch::node;
    spec.resources.ranks_per_node = ranks;
    // Without them every rank would say who it is, and print into a pipe of its own.
    spec.environment["LOCKSTEP_PYTHON_HOOKS"] = "off";
    spec.command = {
        "/usr/bin/python3", "-c",
        "import os, sys, subprocess\n"
        "child = '''\n"
        "import os, sys, socket, json, time, signal\n"
        "rank = int(os.environ.get('RANK', -1))\n"
        "def connect():\n"
        "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "    s.connect(os.environ['LOCKSTEP_SOCKET'])\n"
        "    s.send(json.dumps({'op': 'hello', 'rank': rank}).encode())\n"
        "    return s\n"
        "def report(step, loss):\n"
        "    connect().send(json.dumps({'op': 'report', 'step': step, 'loss': loss}).encode())\n"
        "def hello():\n"
        "    s = connect()\n"
        "    s.send(json.dumps({'op': 'hello', 'id': 1, 'rank': rank}).encode())\n"
        "    return json.loads(s.recv(4096))\n" +
            child +
            "\n'''\n"
            "count = int(os.environ.get('COUNT', os.environ['LOCKSTEP_RANKS_PER_NODE']))\n"
            "ranks = [subprocess.Popen([sys.executable, '-c', child], env=dict(os.environ, "
            "RANK=str(i), LOCAL_RANK=str(i), WORLD_SIZE=str(count))) for i in range(count)]\n"
            "codes = [r.wait() for r in ranks]\n" +
            after};
    return spec;
}

// A rank that hands over a pipe of its own, which it prints into from then on.
constexpr const char* kHandsOver =
    "import array\n"
    "r, w = os.pipe()\n"
    "s = connect()\n"
    "s.sendmsg([json.dumps({'op': 'hello', 'id': 1, 'rank': rank}).encode()],\n"
    "          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [r]))])\n"
    "assert json.loads(s.recv(4096)) == {'id': 1, 'ok': True, 'known': True}\n"
    "os.dup2(w, 1)\n";

class ChildrenTest : public AgentTest {
  protected:
    // Losses by rank.
    static std::map<std::uint32_t, std::vector<double>> losses(const FakeDaemon& daemon) {
        std::map<std::uint32_t, std::vector<double>> out;
        for (const Batch& batch : daemon.batches) {
            const BatchColumn* loss = batch.find("loss");
            for (std::size_t row = 0; loss != nullptr && row < batch.rows(); ++row) {
                if (loss->present[row] != 0) {
                    out[batch.ranks[row]].push_back(loss->values[row]);
                }
            }
        }
        return out;
    }
    static std::vector<std::string> warnings(const FakeDaemon& daemon) {
        std::vector<std::string> out;
        for (const auto& warned : daemon.all<wire::Warned>()) {
            out.push_back(warned.message);
        }
        return out;
    }
};

TEST_F(ChildrenTest, EachProcessReportsAsTheRankItIs) {
    FakeDaemon daemon{launcher("for step in range(1, 6): report(step, 100 * rank + step)"),
                      ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon), ElementsAre(Pair(0, ElementsAre(1, 2, 3, 4, 5)),
                                            Pair(1, ElementsAre(101, 102, 103, 104, 105))));
    EXPECT_THAT(warnings(daemon), IsEmpty());
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_EQ(exits.size(), 2U);
    EXPECT_EQ(exits[0].exit_code, 0);
    EXPECT_EQ(exits[1].rank, 1);
    EXPECT_FALSE(exits[1].launcher);
}

TEST_F(ChildrenTest, LinesWithALaunchersMarkAreTheirRanksAndOthersAreNobodys) {
    JobSpec spec =
        launcher("os.write(1, b'[default%d]:step: 1, loss: %d.5%c' % (rank, rank + 1, 10))",
                 "print('step: 9, loss: 77.0', flush=True)\n");
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon), ElementsAre(Pair(0, ElementsAre(1.5)), Pair(1, ElementsAre(2.5))));
}

// Two ranks that print into one pipe were one series of both.
TEST_F(ChildrenTest, UnmarkedLossesOfSeveralRanksAreInNoSeries) {
    FakeDaemon daemon{launcher("report(1, 0.25)\nprint('step: 1, loss: 3.5', flush=True)"),
                      ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon),
                ElementsAre(Pair(0, ElementsAre(0.25)), Pair(1, ElementsAre(0.25))));
}

// The line was read before the reports that said who had printed it, and was rank 0's.
TEST_F(ChildrenTest, UnmarkedLossesAreInNoSeriesAlsoIfTheAgentReadsThemFirst) {
    JobSpec spec = launcher("report(1, 0.25)",
                            "print('step: 1, loss: 3.5', flush=True)\n"
                            "os.kill(os.getppid(), 18)\n");
    spec.command.back().insert(0, "import os\nos.kill(os.getppid(), 19)\n");  // stop, go on
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon),
                ElementsAre(Pair(0, ElementsAre(0.25)), Pair(1, ElementsAre(0.25))));
}

// A rank whose launcher sets its environment first and sends its output into a file then was found
// in between: the file was never read. Its last line, a bar's last draw say, was lost without a
// newline.
TEST_F(ChildrenTest, AFileThatARanksOutputGoesIntoOnceItIsKnownIsReadFromItsBeginning) {
    FakeDaemon daemon{
        launcher("agent = int(open('/proc/%d/stat' % os.getppid()).read().split()[3])\n"
                 "def texts(folder, read):\n"
                 "    for name in os.listdir('/proc/%d/%s' % (agent, folder)):\n"
                 "        try: yield read('/proc/%d/%s/%s' % (agent, folder, name))\n"
                 "        except OSError: pass\n"
                 "def known(): return any('Pid:%c%d%c' % (9, os.getpid(), 10) in text\n"
                 "                        for text in texts('fdinfo', lambda p: open(p).read()))\n"
                 "while not known(): time.sleep(0.01)\n"
                 "name = os.path.abspath('late-%d' % rank)\n"
                 "os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), 1)\n"
                 "os.write(1, b'step: 1, loss: %d.5%c' % (rank, 10))\n"
                 "while name not in texts('fd', os.readlink): time.sleep(0.01)\n"
                 "os.write(1, b'step: 2, loss: %d.25' % rank)"),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon),
                ElementsAre(Pair(0, ElementsAre(0.5, 0.25)), Pair(1, ElementsAre(1.5, 1.25))));
}

// torchrun --tee copies a rank's file; of a line that is written in two pieces it may copy the
// first, and then another rank's line behind it: one rank's loss was lost, the other's stood for
// both.
TEST_F(ChildrenTest, ALauncherThatJoinsTwoRanksLinesLosesNoLossOfAFileOfTheRanksOwn) {
    FakeDaemon daemon{
        launcher("shared = os.dup(1)\n"
                 "os.dup2(os.open('out-%d' % rank, os.O_CREAT | os.O_WRONLY), 1)\n"
                 "agent = int(open('/proc/%d/stat' % os.getppid()).read().split()[3])\n"
                 "def touch(name): open(name, 'w').close()\n"
                 "def wait(name):\n"
                 "    while not os.path.exists(name): time.sleep(0.01)\n"
                 "hello()\n"
                 "if rank == 1:\n"
                 "    touch('known'); wait('stopped')\n"
                 "    os.write(1, b'step: 3, loss: 1.25%cstep: 4, loss: 1.5%c' % (10, 10))\n"
                 "    touch('written')\n"
                 "else:\n"
                 "    wait('known'); os.kill(agent, 19); touch('stopped'); wait('written')\n"
                 "    os.write(1, b'step: 3, loss: 0.25%cstep: 4, loss: 0.5%c' % (10, 10))\n"
                 "    os.write(shared, b'[default1]:step: 3, loss: 1.25%c' % 10 +\n"
                 "                     b'[default0]:step: 4, loss: 0.5'\n"
                 "                     b'[default1]:step: 4, loss: 1.5%c' % 10)\n"
                 "    os.kill(agent, 18)"),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon),
                ElementsAre(Pair(0, ElementsAre(0.25, 0.5)), Pair(1, ElementsAre(1.25, 1.5))));
}

TEST_F(ChildrenTest, AnOutputThatIsHandedOverHasALogAndASeriesOfItsOwn) {
    FakeDaemon daemon{
        launcher(std::string{kHandsOver} +
                 "for step in range(1, 4): print('step: %d, loss: %d.%d' % (step, rank, step), "
                 "flush=True)"),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon), ElementsAre(Pair(0, ElementsAre(0.1, 0.2, 0.3)),
                                            Pair(1, ElementsAre(1.1, 1.2, 1.3))));
    EXPECT_THAT(rank_log(0), HasSubstr("loss: 0.3"));
    EXPECT_EQ(rank_log(1), "step: 1, loss: 1.1\nstep: 2, loss: 1.2\nstep: 3, loss: 1.3\n");
}

// Lines of every generation were those of the first, for all ranks of a launcher but its first.
TEST_F(ChildrenTest, ALogOfItsOwnIsNotedWithTheGenerationThatWritesIt) {
    FakeDaemon daemon{launcher(std::string{kHandsOver} + "print('hello', flush=True)"), ranks(2)};
    daemon.generation = 2;
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(rank_log(1), "hello\n");
    const std::string marks = text_of(log_marks_path(folder / wire::rank_log_name(1)));
    ASSERT_GE(marks.size(), kLogMarkBytes);
    EXPECT_EQ(decode_log_mark(marks.data()).generation, 2);
}

// Such a job succeeded without a word.
TEST_F(ChildrenTest, OutputThatAFullDiskHasLostIsWarnedOfBeforeItsRanksEnd) {
    const auto log = folder / wire::rank_log_name(1);
    ASSERT_TRUE(write_file_atomic(log, ""));
    if (::mount("/dev/full", log.c_str(), "", MS_BIND, nullptr) != 0) {
        GTEST_SKIP() << "needs the right to mount";
    }
    FakeDaemon daemon{launcher(std::string{kHandsOver} + "print('hello', flush=True)"), ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    ::umount2(log.c_str(), MNT_DETACH);
    EXPECT_THAT(warnings(daemon),
                ElementsAre("rank 1 lost 6 bytes of its output: the disk was full"));
    bool warned = false;
    for (const wire::AgentMessage& message : daemon.messages) {
        warned = warned || std::holds_alternative<wire::Warned>(message);
        EXPECT_TRUE(warned || !std::holds_alternative<wire::Exited>(message))
            << "of a job that has ended nothing is heard";
    }
}

TEST_F(ChildrenTest, TheRankThatFailedFirstIsToldWithItsOwnEnd) {
    JobSpec spec = launcher(
        "hello()\n"
        "if rank == 0: open('ready', 'w').close(); signal.pause()\n"
        "while not os.path.exists('ready'): time.sleep(0.01)\n"
        "os._exit(9)");
    // As torchrun does: the first failure ends the others, and then it fails itself.
    auto& script = spec.command.back();
    script.replace(
        script.find("codes = "), std::string::npos,
        "codes = [ranks[1].wait()]\nranks[0].terminate(); ranks[0].wait()\nsys.exit(1)\n");
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_EQ(exits.size(), 2U);
    EXPECT_EQ(exits[0].signal, SIGTERM);
    EXPECT_TRUE(exits[0].stopped) << "its launcher told it to";
    EXPECT_EQ(exits[1].exit_code, 9);
    EXPECT_FALSE(exits[1].stopped);
    EXPECT_FALSE(exits[1].launcher);
}

TEST_F(ChildrenTest, ALauncherThatFailsByItselfIsNoneOfItsRanks) {
    FakeDaemon daemon{launcher("report(1, 1)", "sys.exit(3)\n"), ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_EQ(exits.size(), 2U);
    EXPECT_TRUE(exits[0].launcher);
    EXPECT_EQ(exits[0].exit_code, 3);
}

TEST_F(ChildrenTest, MoreProcessesThanRanksAreAWarningAndInNoSeries) {
    JobSpec spec = launcher("report(1, rank)");
    spec.environment["COUNT"] = "3";
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(losses(daemon), ElementsAre(Pair(0, ElementsAre(0)), Pair(1, ElementsAre(1))));
    EXPECT_THAT(warnings(daemon), Contains(HasSubstr("calls itself rank 2, and")));
}

TEST_F(ChildrenTest, FewerProcessesThanRanksAreAWarning) {
    JobSpec spec = launcher("report(1, rank)");
    spec.environment["COUNT"] = "1";
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(warnings(daemon), Contains(HasSubstr("1 of the 2 ranks")));
}

TEST_F(ChildrenTest, AWorldOfOneIsAWarningAlsoWithLaunchRank) {
    FakeDaemon daemon{
        shell("/usr/bin/python3 -c \"\n"
              "import os, socket\n"
              "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              "s.connect(os.environ['LOCKSTEP_SOCKET'])\n"
              "s.send(b'{\\\"op\\\": \\\"hello\\\", \\\"rank\\\": 0, \\\"world_size\\\": 1}')\n"
              "\"",
              2),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(warnings(daemon), Contains(HasSubstr("a world size 1 of an expected 2")));
}

TEST_F(ChildrenTest, PaddlesWarningBecomesOne) {
    FakeDaemon daemon{
        shell("echo 'UserWarning: Currently not a parallel execution environment, x'", 2),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_THAT(warnings(daemon), Contains(HasSubstr("not a parallel execution environment")));
}

}  // namespace
}  // namespace lockstep::test
