// Ranks that srun starts: a script plays srun, everything else is real.
#include "job/agent/ranks/task_wire.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Starts `lockstep-agent task` as srun would, one per rank of node 0, and waits for them.
constexpr const char* kSrun = R"sh(#!/bin/sh
n=1
while :; do
    case $1 in
        --ntasks=*) n=${1#--ntasks=} ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
[ -z "$SLURM_NTASKS" ] || { echo "told of the agents' step" >&2; exit 1; }
i=0
while [ $i -lt "$n" ]; do
    SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NODEID=0 PMI_RANK=$i "$@" &
    i=$((i + 1))
done
wait
)sh";

class TaskTest : public AgentTest {
  protected:
    void SetUp() override { put_srun(kSrun); }
    void TearDown() override {
        ::setenv("PATH", path_.c_str(), 1);
        ::unsetenv("SLURM_NTASKS");
    }
    void put_srun(const std::string& script) {
        const auto program = tools_ / "srun";
        ASSERT_TRUE(write_file_atomic(program, script, 0700));
        ::setenv("PATH", (tools_.path().string() + ":" + path_).c_str(), 1);
        ::setenv("SLURM_NTASKS", "9", 1);
    }
    static JobSpec task(const std::string& script, std::int32_t ranks = 2) {
        JobSpec spec = shell(script, ranks);
        spec.launch = Launch::task;
        return spec;
    }
    pid_t pid_of(FakeDaemon& daemon, std::size_t rank) {
        return static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[rank].pid);
    }

    TemporaryFolder tools_;
    std::string path_ = std::getenv("PATH");
};

bool gone(pid_t pid) {
    const std::string state = text_of("/proc/" + std::to_string(pid) + "/stat");
    return state.empty() || state.find(") Z") != std::string::npos;
}

TEST_F(TaskTest, RanksHaveTheirEnvironmentTheirLogsAndTheirLosses) {
    FakeDaemon daemon{
        task("echo step=1 loss=$RANK.5; echo rank $RANK of $WORLD_SIZE pmi $PMI_RANK; "
             "echo $LOCKSTEP_TASK_GENERATION >&2"),
        ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(rank_log(0), "step=1 loss=0.5\nrank 0 of 2 pmi 0\n\n");
    EXPECT_EQ(rank_log(1), "step=1 loss=1.5\nrank 1 of 2 pmi 1\n\n");
    EXPECT_EQ(daemon.values("loss").size(), 2U);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(2));
    EXPECT_EQ(exits[0].exit_code, 0);
    ASSERT_THAT(daemon.all<wire::Started>(), SizeIs(1)) << "once all are there";
    EXPECT_THAT(daemon.all<wire::Started>()[0].ranks, SizeIs(2));
}

TEST_F(TaskTest, ARankThatFailsIsReportedWithItsLastLinesAndTheOthersAreStopped) {
    FakeDaemon daemon{task("[ $RANK = 1 ] || exec sleep 600; echo no such file; exit 7"), ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(2));
    EXPECT_EQ(exits[0].rank, 1);
    EXPECT_EQ(exits[0].exit_code, 7);
    EXPECT_THAT(exits[0].log_tail, HasSubstr("no such file"));
    EXPECT_EQ(exits[1].signal, SIGTERM);
    EXPECT_TRUE(exits[1].stopped);
}

TEST_F(TaskTest, AnSrunThatStartsNothingIsTheCauseInItsOwnWords) {
    put_srun("#!/bin/sh\necho srun: error: no such partition >&2\nexit 1\n");
    FakeDaemon daemon{task("true"), ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].cause_class, "scheduler");
    EXPECT_THAT(faults[0].message, HasSubstr("no such partition"));
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(2));
    EXPECT_TRUE(exits[0].stopped && exits[1].stopped);
}

TEST_F(TaskTest, RanksThatNeverComeEndWithAStop) {
    put_srun("#!/bin/sh\nexec sleep 600\n");
    FakeDaemon::Options options = ranks(2);
    options.stop_when_done = false;
    FakeDaemon daemon{task("true"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    daemon.send(0, wire::Stop{"a test", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
}

TEST_F(TaskTest, RanksDieWithAnAgentThatIsKilled) {
    FakeDaemon daemon{task("exec sleep 600", 1), ranks(1)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    const pid_t pid = pid_of(daemon, 0);
    agent->signal(SIGKILL);
    EXPECT_TRUE(daemon.run_until([&] { return gone(pid); }));
}

TEST_F(TaskTest, ATaskThatIsKilledTakesItsRankAlong) {
    FakeDaemon daemon{task("echo $PPID > task.pid; exec sleep 600", 1), ranks(1)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    ASSERT_TRUE(daemon.run_until([&] { return !text_of(folder / "task.pid").empty(); }));
    ::kill(std::stoi(text_of(folder / "task.pid")), SIGKILL);
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(daemon.all<wire::Exited>()[0].signal, SIGKILL);
    EXPECT_TRUE(daemon.run_until([&] { return gone(pid_of(daemon, 0)); }));
}

// PR_SET_PDEATHSIG is gone after a setuid exec, and comes after the task's socket has closed.
TEST_F(TaskTest, ARankThatWouldOutliveItsTaskIsEndedBeforeItsEndIsTold) {
    FakeDaemon daemon{task("echo $PPID > task.pid; exec python3 -c \"import ctypes, time; "
                           "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); open('free', 'w'); "
                           "time.sleep(600)\"",
                           1),
                      ranks(1)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    ASSERT_TRUE(daemon.run_until([&] { return std::filesystem::exists(folder / "free"); }));
    ::kill(std::stoi(text_of(folder / "task.pid")), SIGKILL);
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Exited>() == 1; }));
    EXPECT_TRUE(gone(pid_of(daemon, 0)));
    const auto exited = daemon.all<wire::Exited>()[0];
    EXPECT_EQ(exited.signal, SIGKILL);
    EXPECT_FALSE(exited.stopped);
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

// What comes in at the gate is looked at before it is believed.
TEST_F(TaskTest, StrangersAtTheGateDoNoHarm) {
    put_srun(std::string{"#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\n"} +
             (kSrun + std::string_view{"#!/bin/sh\n"}.size()));
    FakeDaemon daemon{task("exit 0"), ranks(2)};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    const std::string path = text_of(folder / task_wire::file_name(0));
    const std::string other =
        task_wire::frame(R"({"rank":5,"local_rank":5,"generation":1,"environment":""})");
    for (const std::string& bytes :
         {std::string{}, std::string(3, '\0'), std::string(4, '\xff'), task_wire::frame("{}"),
          task_wire::frame("[1]"), task_wire::frame(R"({"rank":-1})"), other}) {
        const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM, 0)};
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        if (!bytes.empty()) {
            ASSERT_GT(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
        }
    }
    ASSERT_TRUE(write_file_atomic(folder / "go", ""));
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(daemon.count<wire::Exited>(), 2U);
}

// srun runs on the first node, and may start a task where START is still on its way: it was refused
// for good, and the job failed after 300 s with rendezvous_timeout.
class EarlyTaskTest : public TaskTest {
  protected:
    void SetUp() override { put_srun("#!/bin/sh\nexec sleep 600\n"); }
    void TearDown() override {
        if (task_ > 0 && !status_) {
            ::kill(task_, SIGKILL);
            ::waitpid(task_, nullptr, 0);
        }
        TaskTest::TearDown();
    }
    // As srun starts the first rank of the first generation.
    void start_task() {
        task_ = ::fork();
        if (task_ == 0) {
            ::setenv("SLURM_PROCID", "0", 1);
            ::setenv("SLURM_LOCALID", "0", 1);
            ::setenv("SLURM_NODEID", "0", 1);
            ::setenv("LOCKSTEP_TASK_GENERATION", "1", 1);
            ::execl(LOCKSTEP_AGENT, LOCKSTEP_AGENT, "task", "--attempt-dir", folder.path().c_str(),
                    nullptr);
            ::_exit(127);
        }
    }
    bool task_ended() {
        int status = 0;
        if (!status_ && ::waitpid(task_, &status, WNOHANG) == task_) {
            status_ = WEXITSTATUS(status);
        }
        return status_.has_value();
    }
    // An agent that is READY, and a task that waits there.
    std::unique_ptr<AgentProcess> start_with_task(FakeDaemon& daemon) {
        auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
        start_task();
        const auto waits = [&] {
            return agent->log().find("a task waits for START") != std::string::npos;
        };
        daemon.run_until([&] { return waits() || task_ended(); });
        EXPECT_TRUE(waits() && !task_ended()) << agent->log();
        return agent;
    }
    static FakeDaemon::Options without_start() {
        FakeDaemon::Options options = ranks(1);
        options.start = false;
        return options;
    }

    pid_t task_ = -1;
    std::optional<int> status_;
};

TEST_F(EarlyTaskTest, ATaskThatComesBeforeStartWaitsForIt) {
    FakeDaemon daemon{task("echo here", 1), without_start()};
    const auto agent = start_with_task(daemon);
    daemon.send(0, wire::Start{1});
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_TRUE(daemon.run_until([&] { return task_ended(); }));
    EXPECT_EQ(status_, 0);
    EXPECT_EQ(rank_log(0), "here\n");
    EXPECT_THAT(daemon.all<wire::Started>(), SizeIs(1));
}

TEST_F(EarlyTaskTest, ATaskWhoseGenerationIsAbortedBeforeStartIsSentAway) {
    FakeDaemon::Options options = without_start();
    options.stop_when_done = false;
    FakeDaemon daemon{task("true", 1), options};
    const auto agent = start_with_task(daemon);
    daemon.generation = 2;  // that of the next WORLD
    daemon.send(0, wire::Abort{1, "a test", 0});
    EXPECT_TRUE(daemon.run_until([&] { return task_ended(); }));
    EXPECT_EQ(status_, 125);
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
    daemon.send(0, wire::Stop{"a test", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

TEST(TaskWire, ReadsBackWhatItWrites) {
    task_wire::Hello hello{3, 1, 2, {{"A", "x=y\nz"}, {"B", "\xff\xfe"}}};
    const auto again = task_wire::decode_hello(encode(hello));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->rank, 3);
    EXPECT_EQ(again->environment, hello.environment) << "not only UTF-8";
    task_wire::Plan plan{"", "/bin/x", {"x", ""}, "/d", {{"A", ""}}};
    const auto planned = task_wire::decode_plan(encode(plan));
    ASSERT_TRUE(planned) << planned.error().message;
    EXPECT_THAT(planned->argv, ElementsAre("x", ""));
    EXPECT_EQ(planned->environment, plan.environment);
    EXPECT_EQ(task_wire::decode_pid(task_wire::encode_pid(77)).value(), 77);
    EXPECT_FALSE(task_wire::decode_pid(R"({"pid":1})"));
    EXPECT_FALSE(task_wire::decode_pid("{}"));
    EXPECT_EQ(task_wire::decode_exited(encode(task_wire::Exited{-1, 9})).value().signal, 9);
}

TEST(TaskWire, FramesComeInPieces) {
    task_wire::Reader reader;
    const std::string bytes = task_wire::frame("one") + task_wire::frame("two");
    std::vector<std::string> seen;
    for (const char byte : bytes) {
        reader.feed(std::string_view{&byte, 1});
        while (auto next = reader.next().value()) {
            seen.push_back(*next);
        }
    }
    EXPECT_THAT(seen, ElementsAre("one", "two"));
    reader.feed("\xff\xff\xff\x7f");
    EXPECT_FALSE(reader.next());
}

}  // namespace
}  // namespace lockstep::test
