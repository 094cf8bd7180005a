// size: one table of what a local attempt may be when it is taken up, on one fixture
// The local scheduler with agents that are shell scripts: they take the claim as the real one does
// and do what the test's folder tells them.
#include "scheduler-integration/local/local_scheduler.hpp"

#include "tests/support/log_lines.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <functional>
#include <optional>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Runs a coroutine on the test's thread.
template <class T>
T await(net::io_context& io, Task<T> task) {
    std::optional<T> out;
    auto body = [](Task<T> inner, std::optional<T>* result) -> Task<void> {
        *result = co_await std::move(inner);
    };
    net::co_spawn(io, body(std::move(task), &out), net::detached);
    io.restart();
    while (!out) {
        io.run_one();
    }
    return std::move(*out);
}

// What stands for the agent: claims its node like the real one (locked as long as it lives), says
// so, then obeys the files `finish` (leave a result, exit 0) and `crash` (exit 9).
constexpr const char* kAgentScript = R"(#!/usr/bin/python3
import fcntl, json, os, signal, sys, time
args = sys.argv[sys.argv.index('run') + 1:]
options = dict(zip(args[0::2], args[1::2]))
folder, node = options['--attempt-dir'], int(options['--node'])
path = f'{folder}/node-{node:05d}.claim'
temporary = f'{path}.{os.getpid()}'
fd = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, json.dumps({'pid': os.getpid(), 'incarnation': str(os.getpid()),
                         'node': options['--node-name']}).encode())
try:
    os.link(temporary, path)
except FileExistsError:
    sys.exit(3)
finally:
    os.unlink(temporary)
print('agent', node, options['--node-name'], os.environ.get('LOCKSTEP_TOKEN'), flush=True)
def leave(*_):
    with open(f'{folder}/node-{node:05d}.result.json', 'w') as f:
        f.write('{}')
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.path.exists(f'{folder}/stubborn') else leave)
print('ready', flush=True)
while True:
    if os.path.exists(f'{folder}/finish'): leave()
    if os.path.exists(f'{folder}/crash-{node}'): os._exit(9)
    time.sleep(0.01)
)";

class LocalSchedulerTest : public testing::Test {
  protected:
    LocalSchedulerTest() {
        const auto written = write_file_atomic(folder / "agent", kAgentScript, 0755);
        EXPECT_TRUE(written);
        make();
    }
    ~LocalSchedulerTest() override { forget(); }

    // A daemon starts.
    void make() {
        LocalScheduler::Options options;
        options.agent_program = (folder / "agent").string();
        options.capacity = Machine{2, 1000, 0};
        options.kill_after = kill_after;
        scheduler = std::make_unique<LocalScheduler>(io, options);
        scheduler->on_change([this](const JobId& job, std::int32_t attempt) {
            changes.push_back(job.value + "/" + std::to_string(attempt));
        });
    }
    // A daemon ends; its agents stay.
    void forget() {
        bool stopped = false;
        auto body = [](LocalScheduler* what, bool* done) -> Task<void> {
            co_await what->stop();
            *done = true;
        };
        net::co_spawn(io, body(scheduler.get(), &stopped), net::detached);
        io.restart();
        while (!stopped) {
            io.run_one();
        }
        scheduler.reset();
    }
    AttemptRequest request(const std::string& job, std::int32_t nodes = 1,
                           std::int64_t memory = 0) {
        AttemptRequest out;
        out.job = JobId{job};
        out.name = job;
        out.resources.nodes = nodes;
        out.resources.memory_mb_per_node = memory;
        out.directory = (folder / job).string();
        std::filesystem::create_directories(out.directory);
        directories.push_back(out.directory);
        return out;
    }
    std::string submit(const AttemptRequest& what) {
        const Handover done = await(io, scheduler->submit(what));
        EXPECT_EQ(done.kind, Handover::Kind::placed);
        return done.id;
    }
    Observation poll(const std::string& job) { return await(io, scheduler->poll(JobId{job}, 1)); }
    void cancel(const std::string& job) {
        EXPECT_TRUE(await(io, scheduler->cancel(JobId{job}, 1)));
    }
    bool until(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) {
                return false;
            }
            io.restart();
            io.run_one_for(std::chrono::milliseconds{5});
        }
        return true;
    }
    bool until_state(const std::string& job, AllocationState state) {
        return until([&] { return poll(job).state == state; });
    }
    std::string agent_log(const std::string& job, int node = 0) const {
        return text_of(folder / (job + "/agent-0000" + std::to_string(node) + ".log"));
    }
    bool until_ready(const std::string& job, int node = 0) {
        return until([&] { return agent_log(job, node).find("ready") != std::string::npos; });
    }
    void tell(const std::string& job, const std::string& what) {
        ASSERT_TRUE(write_file_atomic(folder / (job + "/" + what), ""));
    }

    // Agents outlive everything here but this: a test that fails must not leave one behind.
    struct EndAgents {
        std::vector<std::string>* directories;
        ~EndAgents() {
            for (const auto& directory : *directories) {
                for (std::int32_t node = 0; node < 3; ++node) {
                    if (const auto left = adopt_agent(directory, node)) {
                        signal_agent(left->pidfd.get(), SIGKILL);
                    }
                }
            }
        }
    };

    TemporaryFolder folder;
    std::vector<std::string> directories;
    EndAgents end_agents{&directories};
    net::io_context io{1};
    std::vector<std::string> changes;
    std::chrono::milliseconds kill_after{60'000};  // from the next make() on
    std::unique_ptr<LocalScheduler> scheduler;
};

TEST_F(LocalSchedulerTest, StartsOneAgentPerNodeAndSaysWhenAllHaveEnded) {
    ::setenv("LOCKSTEP_TOKEN", "secret", 1);
    EXPECT_EQ(submit(request("j", 2)), "local-j-a1");
    const auto running = poll("j");
    EXPECT_EQ(running.kind, Observation::Kind::state);
    EXPECT_EQ(running.state, AllocationState::running);
    EXPECT_THAT(running.nodes, ElementsAre(host_name() + "-n0", host_name() + "-n1"));
    ASSERT_TRUE(until_ready("j", 0) && until_ready("j", 1));
    EXPECT_THAT(agent_log("j", 1), StartsWith("agent 1 " + host_name() + "-n1 None\n"))
        << "the daemon's token is not handed on";
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").lost_nodes, IsEmpty());
    EXPECT_THAT(changes, testing::Contains("j/1"));
}

// They had only the attempt's name, and a job's own lines are to be found by its id.
TEST_F(LocalSchedulerTest, LinesOfTheLogAboutAnAttemptNameItsJob) {
    const LogLines log;
    submit(request("j"));
    ASSERT_TRUE(until_ready("j"));
    EXPECT_THAT(log.text(), HasSubstr("msg=\"attempt started\" job=j id=local-j-a1 nodes=1\n"));
    tell("j", "crash-0");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(log.text(), HasSubstr("msg=\"agent lost\" job=j id=local-j-a1 "));
}

TEST_F(LocalSchedulerTest, SubmittingAgainChangesNothing) {
    const auto one = request("j");
    EXPECT_EQ(submit(one), submit(one));
    ASSERT_TRUE(until_ready("j"));
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_EQ(submit(one), "local-j-a1");
    EXPECT_EQ(poll("j").state, AllocationState::ended);
}

TEST_F(LocalSchedulerTest, AnAgentThatEndsWithoutAResultIsALostNode) {
    submit(request("j", 2));
    ASSERT_TRUE(until_ready("j", 0) && until_ready("j", 1));
    tell("j", "crash-1");
    ASSERT_TRUE(until([&] { return !poll("j").lost_nodes.empty(); }));
    EXPECT_THAT(poll("j").lost_nodes, ElementsAre(1));
    EXPECT_EQ(poll("j").state, AllocationState::running) << "the other node is still there";
    EXPECT_THAT(poll("j").message, HasSubstr("-n1 exited with code 9 and left no result"));
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").lost_nodes, ElementsAre(1));
}

TEST_F(LocalSchedulerTest, WhatDoesNotFitWaitsWithAReasonAndStartsWhenThereIsRoom) {
    submit(request("a", 1, 600));
    submit(request("b", 1, 600));
    EXPECT_EQ(poll("a").state, AllocationState::running);
    EXPECT_EQ(poll("b").state, AllocationState::pending);
    EXPECT_EQ(poll("b").reason, "waiting for memory: needs 600 MiB, 400 MiB free");
    ASSERT_TRUE(until_ready("a"));
    tell("a", "finish");
    ASSERT_TRUE(until_state("b", AllocationState::running));
    ASSERT_TRUE(until_ready("b"));
    tell("b", "finish");
    ASSERT_TRUE(until_state("b", AllocationState::ended));
}

TEST_F(LocalSchedulerTest, CancelTakesAWaitingJobOutOfTheQueue) {
    submit(request("a", 1, 600));
    submit(request("b", 1, 600));
    cancel("b");
    EXPECT_EQ(poll("b").state, AllocationState::ended);
    EXPECT_FALSE(std::filesystem::exists(folder / "b/agent-00000.log"));
    ASSERT_TRUE(until_ready("a"));
    cancel("a");
    cancel("a");
    ASSERT_TRUE(until_state("a", AllocationState::ended));
    EXPECT_THAT(poll("a").lost_nodes, IsEmpty())
        << "an agent that was told to end leaves its result";
    cancel("never-heard-of");
}

TEST_F(LocalSchedulerTest, AnAgentThatIgnoresTermIsKilled) {
    forget();
    kill_after = std::chrono::milliseconds{200};
    make();
    const auto one = request("j");
    tell("j", "stubborn");
    submit(one);
    ASSERT_TRUE(until_ready("j"));
    cancel("j");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").message, HasSubstr("ended by signal 9"));
}

TEST_F(LocalSchedulerTest, ARestartedDaemonAdoptsWhatRunsAndCountsIt) {
    const auto one = request("a", 1, 600);
    submit(one);
    ASSERT_TRUE(until_ready("a"));
    forget();
    make();
    EXPECT_EQ(poll("a").kind, Observation::Kind::absent) << "until the store's attempt comes back";
    submit(one);
    submit(request("b", 1, 600));
    EXPECT_EQ(poll("a").state, AllocationState::running);
    EXPECT_EQ(poll("b").state, AllocationState::pending);
    EXPECT_EQ(agent_log("a").find("ready"), agent_log("a").rfind("ready")) << "started once";
    tell("a", "finish");
    ASSERT_TRUE(until_state("b", AllocationState::running)) << "its end is noticed without a child";
    EXPECT_EQ(poll("a").state, AllocationState::ended);
    EXPECT_THAT(poll("a").lost_nodes, IsEmpty());
    ASSERT_TRUE(until_ready("b"));
    cancel("b");
    ASSERT_TRUE(until_state("b", AllocationState::ended));
}

// Jobs are taken up in the order of their ids: one that waits may come before one that runs, and
// was given what that has.
TEST_F(LocalSchedulerTest, WhatWaitsIsNotStartedBeforeAllThatRunsIsTakenUp) {
    const auto running = request("b", 1, 600);
    const auto waiting = request("a", 1, 600);
    submit(running);
    submit(waiting);
    ASSERT_TRUE(until_ready("b"));
    forget();
    make();
    std::vector<Handover::Kind> kinds;
    const auto hand_over = [&](const AttemptRequest& what) {
        auto body = [](LocalScheduler* to, AttemptRequest one,
                       std::vector<Handover::Kind>* out) -> Task<void> {
            const Handover done = co_await to->submit(std::move(one));
            out->push_back(done.kind);
        };
        net::co_spawn(io, body(scheduler.get(), what, &kinds), net::detached);
    };
    hand_over(waiting);
    hand_over(running);
    scheduler->taking_up();
    ASSERT_TRUE(until([&] { return kinds.size() == 2; }));
    EXPECT_EQ(poll("b").state, AllocationState::running);
    EXPECT_EQ(poll("a").state, AllocationState::pending);
    EXPECT_THAT(poll("a").reason, HasSubstr("waiting for memory"));
    tell("b", "finish");
    ASSERT_TRUE(until_ready("a"));
    cancel("a");
    ASSERT_TRUE(until_state("a", AllocationState::ended));
}

// It stayed at the front of the queue for ever, and with it everything behind it.
TEST_F(LocalSchedulerTest, WhatTheMachineCanNoLongerHoldWaitsAndTheOthersGoOn) {
    const Handover done = await(io, scheduler->submit(request("large", 1, 1001)));
    EXPECT_EQ(done.kind, Handover::Kind::wait);
    EXPECT_THAT(done.reason, HasSubstr("needs 1001 MiB, there are 1000 MiB"));
    submit(request("j"));
    ASSERT_TRUE(until_ready("j"));
    cancel("j");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
}

TEST_F(LocalSchedulerTest, AdoptionTellsAnAgentThatFinishedFromOneThatWasLost) {
    const auto one = request("j", 2);
    submit(one);
    ASSERT_TRUE(until_ready("j", 0) && until_ready("j", 1));
    tell("j", "crash-0");
    ASSERT_TRUE(until([&] { return !poll("j").lost_nodes.empty(); }));
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    forget();
    make();
    submit(one);
    EXPECT_EQ(poll("j").state, AllocationState::ended);
    EXPECT_THAT(poll("j").lost_nodes, ElementsAre(0));
    EXPECT_THAT(poll("j").message, HasSubstr("had ended when the daemon started"));
}

TEST_F(LocalSchedulerTest, OnlyAnAttemptThatHadEndedWhenItWasTakenUpEndedUnwatched) {
    auto one = request("j");
    submit(one);
    ASSERT_TRUE(until_ready("j"));
    tell("j", "crash-0");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_FALSE(poll("j").ended_unwatched);
    forget();
    make();
    submit(one);
    EXPECT_EQ(poll("j").state, AllocationState::ended);
    EXPECT_TRUE(poll("j").ended_unwatched);
    forget();
    make();
    one.follow_only = "restored from a backup";
    submit(one);
    EXPECT_EQ(poll("j").state, AllocationState::ended);
    EXPECT_FALSE(poll("j").ended_unwatched) << "another attempt is its original's to begin";
}

TEST_F(LocalSchedulerTest, ADaemonThatDiedBetweenTwoStartsStartsTheRest) {
    const auto both = request("j", 2);
    AttemptRequest first = both;
    first.resources.nodes = 1;
    submit(first);
    ASSERT_TRUE(until_ready("j", 0));
    forget();
    make();
    submit(both);
    ASSERT_TRUE(until_ready("j", 1));
    EXPECT_EQ(poll("j").state, AllocationState::running);
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").lost_nodes, IsEmpty());
}

// It was called unwatched, so that the job began attempts that could not start either.
TEST_F(LocalSchedulerTest, AnAttemptWhoseRestCannotBeStartedDidNotEndUnwatched) {
    const auto both = request("j", 2);
    AttemptRequest first = both;
    first.resources.nodes = 1;
    submit(first);
    ASSERT_TRUE(until_ready("j", 0));
    tell("j", "crash-0");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    forget();
    std::filesystem::remove(folder / "agent");
    make();
    submit(both);
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").message, HasSubstr("could not be started"));
    EXPECT_FALSE(poll("j").ended_unwatched);
}

TEST_F(LocalSchedulerTest, AdoptingStartsNothing) {
    const auto both = request("j", 2);
    AttemptRequest first = both;
    first.resources.nodes = 1;
    EXPECT_EQ(await(io, scheduler->adopt(both)), false) << "nobody has claimed a node";
    EXPECT_EQ(poll("j").kind, Observation::Kind::absent);
    submit(first);
    ASSERT_TRUE(until_ready("j", 0));
    forget();
    make();
    EXPECT_EQ(await(io, scheduler->adopt(both)), true);
    EXPECT_EQ(await(io, scheduler->adopt(both)), true);
    EXPECT_THAT(poll("j").lost_nodes, ElementsAre(1));
    cancel("j");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_FALSE(std::filesystem::exists(folder / "j/agent-00001.log"));
}

TEST_F(LocalSchedulerTest, ASecondAgentForANodeEndsAndTheFirstIsFollowed) {
    // The daemon died after the start and before the claim: the next one starts the node again.
    const auto one = request("j");
    AgentCommand command;
    command.program = (folder / "agent").string();
    command.attempt_directory = one.directory;
    command.node_name = "early";
    submit(one);
    const auto other = start_agent(command);
    ASSERT_TRUE(other);
    ASSERT_TRUE(until_ready("j"));
    EXPECT_EQ(poll("j").state, AllocationState::running);
    tell("j", "finish");
    ASSERT_TRUE(until_state("j", AllocationState::ended));
    EXPECT_THAT(poll("j").lost_nodes, IsEmpty());
    ::waitpid(other->pid, nullptr, 0);
}

TEST_F(LocalSchedulerTest, WithoutTheAgentProgramPingFailsAndAnAttemptEndsSayingSo) {
    EXPECT_TRUE(await(io, scheduler->ping()));
    std::filesystem::remove(folder / "agent");
    EXPECT_EQ(await(io, scheduler->ping()).error().code, Errc::unavailable);
    submit(request("j"));
    EXPECT_EQ(poll("j").state, AllocationState::ended);
    EXPECT_THAT(poll("j").message, HasSubstr("could not be started: "));
    EXPECT_THAT(poll("j").lost_nodes, ElementsAre(0));
}

TEST_F(LocalSchedulerTest, AdmitWarnsAndRefuses) {
    JobSpec spec;
    spec.resources.ranks_per_node = 4;
    const auto admitted = scheduler->admit(spec);
    ASSERT_TRUE(admitted);
    EXPECT_THAT(admitted->warnings,
                ElementsAre("4 ranks × 1 CPU on 2 cores: ranks will share cores"));
    spec.resources.gpus_per_node = 1;
    EXPECT_EQ(scheduler->admit(spec).error().fields.at(0).pointer, "/resources/gpus_per_node");
}

TEST_F(LocalSchedulerTest, AdmitSaysWhatNeedsSlurm) {
    JobSpec spec;
    spec.slurm.partition = "gpu";
    spec.slurm.account = "a";
    spec.checkpoint.seconds_before_timeout = 60;
    const auto admitted = scheduler->admit(spec);
    ASSERT_TRUE(admitted);
    EXPECT_THAT(
        admitted->warnings,
        ElementsAre(HasSubstr("partition gpu has no effect"), HasSubstr("slurm has no effect"),
                    HasSubstr("checkpoint.seconds_before_timeout has no effect")));
    spec.submission = Submission::manual;
    EXPECT_EQ(scheduler->admit(spec).error().fields.at(0).pointer, "/submission");
}

}  // namespace
}  // namespace lockstep::test
