// What ranks say over LOCKSTEP_SOCKET, through a real agent, and what comes out at the daemon.
#include "job/base/text.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// A rank in Python that has a connected SEQPACKET socket `s`.
JobSpec python(const std::string& body) {
    JobSpec spec;
    spec.name = "report-test";
    spec.framework = Framework::command;
    spec.command = {"/usr/bin/python3", "-c",
                    "import os, socket, json, time\n"
                    "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                    "s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)\n"
                    "s.connect(os.environ['LOCKSTEP_SOCKET'])\n"
                    "def send(m): s.send(m if isinstance(m, bytes) else json.dumps(m).encode())\n"
                    "def ask(m):\n"
                    "    send(m)\n"
                    "    return json.loads(s.recv(4 << 20))\n" +
                        body};
    return spec;
}

class ReportTest : public AgentTest {
  protected:
    // Runs the job to its end: agent and ranks end with 0.
    void run_well(FakeDaemon& daemon) {
        const auto agent = start(daemon);
        ASSERT_EQ(code_of(daemon, *agent), 0) << agent->log();
        for (const auto& exit : daemon.all<wire::Exited>()) {
            EXPECT_EQ(exit.exit_code, 0) << exit.log_tail;
        }
        log = agent->log();
    }
    std::string log;
};

TEST_F(ReportTest, ReportsBecomeRowsInOrderAlsoTheLastBeforeTheEnd) {
    FakeDaemon daemon{python("for i in range(1, 1001):\n"
                             "    send({'op': 'report', 'step': i, 'epoch': i // 500,\n"
                             "          'loss': 1.0 / i, 'step_seconds': 0.5,\n"
                             "          'comm_wait_seconds': 0.125, 'total_steps': 1000})\n"
                             "os._exit(0)\n"),
                      {}};
    run_well(daemon);
    const auto losses = daemon.values("loss");
    ASSERT_THAT(losses, SizeIs(1000));
    EXPECT_EQ(losses[999], 0.001);
    EXPECT_EQ(daemon.values("busy_seconds")[0], 0.375);
    EXPECT_EQ(daemon.values("epoch")[999], 2);
    EXPECT_EQ(daemon.values("total_steps")[0], 1000);
    EXPECT_EQ(daemon.batches[0].steps[0], 1);
    EXPECT_EQ(daemon.batches[0].ranks[0], 0U);
    EXPECT_EQ(daemon.batches[0].generation, 1U);
}

// Its first loss was there twice: transformers' printer and our callback are that close.
TEST_F(ReportTest, ALossThatIsPrintedAndThenReportedIsOne) {
    FakeDaemon daemon{python("os.write(1, b'step 1 loss 0.75\\n')\n"
                             "time.sleep(0.05)\n"
                             "send({'op': 'report', 'step': 1, 'loss': 0.5})\n"
                             "os.write(1, b'step 2 loss 0.25\\n')\n"
                             "os._exit(0)\n"),
                      {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.5));
}

// Whether what a rank prints has to wait is its own matter: rank 1 had only printed.
TEST_F(ReportTest, ALossIsOneAlsoAfterAnotherRankHasOnlyPrinted) {
    JobSpec spec = python(
        "if os.environ['RANK'] == '1':\n"
        "    os.write(1, b'step 1 loss 0.25\\n')\n"
        "while not os.path.exists('go'):\n"
        "    time.sleep(0.01)\n"
        "if os.environ['RANK'] == '0':\n"
        "    os.write(1, b'step 1 loss 0.75\\n')\n"
        "    send({'op': 'report', 'step': 1, 'loss': 0.5})\n");
    spec.resources.ranks_per_node = 2;
    FakeDaemon daemon{spec, ranks(2)};
    const auto agent = start(daemon);
    ASSERT_TRUE(daemon.run_until([&] { return daemon.values("loss").size() == 1; }));
    ASSERT_TRUE(write_file_atomic(folder / "go", "", 0644));
    ASSERT_EQ(code_of(daemon, *agent), 0) << agent->log();
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.25, 0.5));
}

TEST_F(ReportTest, WhatIsOnlyPrintedIsAllThereAlsoOfARankThatEndsAtOnce) {
    FakeDaemon daemon{python("os.write(1, b'step 1 loss 0.75\\nstep 2 loss 0.5\\n')\n"
                             "send({'op': 'report', 'step': 2, 'accuracy': 0.5})\n"
                             "os._exit(0)\n"),
                      {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.75, 0.5));
}

// Beside the batches, which lockstepd stores first: when it heard of the end it knew of none.
TEST_F(ReportTest, TheEndOfARankSaysTheLastStepThatItReported) {
    FakeDaemon daemon{python("for i in (1, 2, 12):\n"
                             "    send({'op': 'report', 'step': i, 'loss': 1.0})\n"
                             "os._exit(0)\n"),
                      {}};
    run_well(daemon);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].step, 12);
}

TEST_F(ReportTest, ALossThatIsNotFiniteArrivesAsItIs) {
    FakeDaemon daemon{python("for x in ('nan', 'inf', '-inf'):\n"
                             "    send({'op': 'report', 'step': 1, 'loss': x})\n"),
                      {}};
    run_well(daemon);
    const auto losses = daemon.values("loss");
    ASSERT_THAT(losses, SizeIs(3));
    EXPECT_TRUE(std::isnan(losses[0]));
    EXPECT_EQ(losses[1], INFINITY);
    EXPECT_EQ(losses[2], -INFINITY);
}

TEST_F(ReportTest, WhatIsNotAReportIsCountedAndHarmsNothing) {
    FakeDaemon daemon{python("send({'op': 'report', 'step': 1, 'loss': 1})\n"
                             "send(b'not json')\n"
                             "send(b'[' * 5000)\n"
                             "send({'op': 'report', 'step': 'two'})\n"
                             "send({'op': 'report', 'Bad Name': 1})\n"
                             "send({'op': 'report', 'x': 'y'})\n"
                             "send({'op': 'dance'})\n"
                             "send(b'\\xff\\xfe')\n"
                             "send(json.dumps({'op': 'report', 'pad': 'x' * 100000}).encode())\n"
                             "send({'op': 'report', 'step': 2, 'loss': 2})\n"),
                      {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(1, 2));
    EXPECT_THAT(daemon.values("bad_reports"), ElementsAre(8));
    EXPECT_THAT(log, HasSubstr("a report was refused; further ones of this rank are only counted"));
    EXPECT_THAT(log, HasSubstr("not JSON: syntax error"));
}

TEST_F(ReportTest, AReportOfTenMegabytesIsRefusedWithoutHarm) {
    // Linux refuses messages over about 4 MiB at the sender; smaller ones arrive if its buffer
    // (net.core.wmem_max, SO_SNDBUFFORCE for root) holds them, and are refused by the agent.
    FakeDaemon daemon{
        python("def attempt(size):\n"
               "    try:\n"
               "        send(b'{\"op\":\"report\",\"pad\":\"' + b'x' * size + b'\"}')\n"
               "        return 1\n"
               "    except OSError:\n"
               "        return 0\n"
               "if os.geteuid() == 0: s.setsockopt(socket.SOL_SOCKET, 32, 32 << 20)\n"
               "send({'op': 'report', 'step': 1, 'loss': 1})\n"
               "arrived = attempt(10_000_000) + attempt(3_000_000) + attempt(150_000)\n"
               "send({'op': 'report', 'step': 2, 'loss': 2, 'arrived': arrived})\n"),
        {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(1, 2));
    ASSERT_THAT(daemon.values("arrived"), SizeIs(1));
    EXPECT_GE(daemon.values("arrived")[0], 1);
    EXPECT_EQ(daemon.values("bad_reports"), daemon.values("arrived"));
    EXPECT_THAT(log, HasSubstr("a report was refused"));
}

TEST_F(ReportTest, PrintedLossesAreIgnoredOnceTheRankReportsItself) {
    FakeDaemon daemon{python("print('step=1 loss=10', flush=True)\n"
                             "send({'op': 'report', 'step': 1, 'loss': 1})\n"
                             "ask({'op': 'get', 'id': 1, 'key': ''})\n"  // an answer: it was read
                             "print('step=2 loss=20', flush=True)\n"
                             "send({'op': 'report', 'step': 2, 'loss': 2})\n"),
                      {}};
    run_well(daemon);
    const auto losses = daemon.values("loss");
    EXPECT_THAT(losses, Not(testing::Contains(20)));
    EXPECT_THAT(losses, testing::IsSupersetOf({1.0, 2.0}));
}

TEST_F(ReportTest, PhasesAndCheckpointsReachTheDaemon) {
    FakeDaemon daemon{python("send({'op': 'phase', 'phase': 'train'})\n"
                             "send({'op': 'checkpoint', 'step': 200, 'path': '/c/step-200'})\n"),
                      {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("phase_code"), ElementsAre(1));
    const auto saved = daemon.all<wire::CheckpointSaved>();
    ASSERT_THAT(saved, SizeIs(1));
    EXPECT_EQ(saved[0].step, 200);
    EXPECT_EQ(saved[0].path, "/c/step-200");
    EXPECT_EQ(saved[0].rank, 0);
}

TEST_F(ReportTest, KeyOperationsAreForwardedAndAnswered) {
    FakeDaemon daemon{python("a = ask({'op': 'set', 'id': 7, 'key': 'k', 'value': 'aGk='})\n"
                             "b = ask({'op': 'get', 'id': 8, 'key': 'k'})\n"
                             "c = ask({'op': 'add', 'id': 9, 'key': 'n', 'delta': 2})\n"
                             "d = ask({'op': 'wait', 'id': 10, 'keys': ['x'], 'timeout_ms': 5})\n"
                             "e = ask({'op': 'barrier', 'id': 11, 'name': 'b'})\n"
                             "f = ask({'op': 'set', 'id': 12, 'key': 'k', 'value': '%%%'})\n"
                             "print(json.dumps([a, b, c, d, e, f]))\n"),
                      {}};
    const auto agent = start(daemon);
    std::size_t answered = 0;
    ASSERT_TRUE(daemon.run_until([&] {
        const auto requests = daemon.all<wire::KeyRequest>();
        while (answered < requests.size()) {
            const auto& request = requests[answered++];
            wire::KeyReply reply;
            reply.id = request.id;
            reply.ok = request.op != wire::KvOp::wait;
            reply.has_value = request.op == wire::KvOp::get;
            reply.value = request.op == wire::KvOp::get ? "aGk=" : "";
            reply.number = request.op == wire::KvOp::add ? 5 : 0;
            reply.error = reply.ok ? "" : "timed_out";
            reply.message = reply.ok ? "" : "x is missing";
            daemon.send(0, reply);
        }
        return agent->ended();
    })) << agent->log();
    const auto requests = daemon.all<wire::KeyRequest>();
    ASSERT_THAT(requests, SizeIs(5)) << "the malformed value is refused by the agent itself";
    EXPECT_EQ(requests[0].op, wire::KvOp::set);
    EXPECT_EQ(requests[0].value, "aGk=");
    EXPECT_EQ(requests[0].generation, 1);
    EXPECT_EQ(requests[2].delta, 2);
    EXPECT_EQ(requests[3].timeout_ms, 5);
    EXPECT_THAT(requests[4].keys, ElementsAre("b"));
    EXPECT_EQ(
        rank_log(0),
        "[{\"id\": 7, \"ok\": true}, {\"id\": 8, \"ok\": true, \"value\": \"aGk=\"}, "
        "{\"id\": 9, \"ok\": true, \"value\": 5}, "
        "{\"id\": 10, \"ok\": false, \"error\": \"timed_out\", \"message\": \"x is missing\"}, "
        "{\"id\": 11, \"ok\": true}, "
        "{\"id\": 12, \"ok\": false, \"error\": \"invalid\", "
        "\"message\": \"/value: is not base 64\"}]\n");
}

TEST_F(ReportTest, AnUnansweredKeyRequestAndWhatWasSetSurviveTheDaemon) {
    FakeDaemon daemon{python("ask({'op': 'set', 'id': 1, 'key': 'k', 'value': 'aGk='})\n"
                             "print(ask({'op': 'wait', 'id': 2, 'keys': ['x']})['ok'])\n"),
                      {}};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::KeyRequest>() == 1; });
    wire::KeyReply yes;
    yes.ok = true;
    yes.id = daemon.all<wire::KeyRequest>()[0].id;
    daemon.send(0, yes);
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::KeyRequest>() == 2; }));
    daemon.kill();
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::KeyRequest>() == 4; }));
    const auto requests = daemon.all<wire::KeyRequest>();
    EXPECT_EQ(requests[2].op, wire::KvOp::set);
    EXPECT_TRUE(requests[2].replay);
    EXPECT_EQ(requests[2].id, requests[0].id);
    EXPECT_EQ(requests[3].op, wire::KvOp::wait);
    EXPECT_FALSE(requests[3].replay);
    EXPECT_EQ(requests[3].id, requests[1].id);
    yes.id = requests[3].id;
    daemon.send(0, yes);
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(rank_log(0), "True\n");
}

// The rest of such a message is lost, with it perhaps its id: the refusal has none.
TEST_F(ReportTest, AKeyRequestThatIsTooLargeToBeReadIsAnswered) {
    FakeDaemon daemon{
        python("if os.geteuid() == 0: s.setsockopt(socket.SOL_SOCKET, 32, 32 << 20)\n"
               "s.settimeout(20)\n"
               "try:\n"
               "    send(b'{\"op\":\"set\",\"id\":4,\"key\":\"k\",\"value\":\"' + b'A' * 2_200_000 "
               "+ b'\"}')\n"
               "    answer = json.loads(s.recv(4 << 20))\n"
               "except OSError as error:\n"
               "    answer = {'id': None, 'ok': False, 'message': f'1048576: not sent: {error}'}\n"
               "print(answer['id'], answer['ok'], '1048576' in answer['message'])\n"
               "send({'op': 'report', 'step': 1, 'loss': 1})\n"),
        {}};
    run_well(daemon);
    EXPECT_EQ(rank_log(0), "None False True\n");
    EXPECT_THAT(daemon.values("loss"), ElementsAre(1));
}

TEST_F(ReportTest, ReadsOfAWriteOnceValueReachTheDaemonOnce) {
    FakeDaemon daemon{python("a = ask({'op': 'get', 'id': 1, 'key': 'k'})\n"
                             "b = ask({'op': 'get', 'id': 2, 'key': 'k'})\n"
                             "c = ask({'op': 'multi_get', 'id': 3, 'keys': ['k']})\n"
                             "print(a['value'], b['value'], c['values'])\n"),
                      {}};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::KeyRequest>() == 1; });
    wire::KeyReply reply;
    reply.id = daemon.all<wire::KeyRequest>()[0].id;
    reply.ok = reply.has_value = true;
    reply.value = "aGk=";
    reply.once = "1";
    daemon.send(0, reply);
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(daemon.count<wire::KeyRequest>(), 1U);
    EXPECT_EQ(rank_log(0), "aGk= aGk= ['aGk=']\n");
}

TEST_F(ReportTest, TheShellCommandReports) {
    JobSpec spec;
    spec.name = "shell";
    spec.framework = Framework::command;
    spec.command = {"sh", "-c",
                    "\"$LOCKSTEP_AGENT\" report step=3 loss=0.5 tokens_per_second=1e3 &&"
                    "\"$LOCKSTEP_AGENT\" report loss=nan && ! \"$LOCKSTEP_AGENT\" report loss=x"};
    FakeDaemon daemon{spec, {}};
    run_well(daemon);
    const auto losses = daemon.values("loss");
    ASSERT_THAT(losses, SizeIs(2));
    EXPECT_EQ(losses[0], 0.5);
    EXPECT_TRUE(std::isnan(losses[1]));
    EXPECT_THAT(daemon.values("tokens_per_second"), ElementsAre(1000));
    EXPECT_THAT(rank_log(0), HasSubstr("\"x\" is not a number"));
}

TEST_F(ReportTest, ThePythonPackageIsOnThePathOfTheRank) {
    JobSpec spec;
    spec.name = "package";
    spec.framework = Framework::pytorch;
    spec.command = {"/usr/bin/python3", "-c",
                    "import lockstep\nlockstep.report(step=4, loss=0.25)\n"};
    FakeDaemon daemon{spec, {}};
    run_well(daemon);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.25));
}

TEST_F(ReportTest, EveryRankHasItsOwnSocketAndTheFolderGoesWithTheAgent) {
    JobSpec spec = python(
        "send({'op': 'report', 'step': 1, 'loss': int(os.environ['RANK']),\n"
        "      'rank': 99})\n"
        "print(os.environ['LOCKSTEP_SOCKET'])\n");
    FakeDaemon::Options options;
    options.ranks_per_node = 2;
    FakeDaemon daemon{spec, options};
    run_well(daemon);
    for (const Batch& batch : daemon.batches) {
        const BatchColumn* loss = batch.find("loss");
        for (std::size_t i = 0; loss != nullptr && i < batch.rows(); ++i) {
            EXPECT_EQ(static_cast<double>(batch.ranks[i]), loss->values[i]);
        }
    }
    EXPECT_THAT(daemon.values("loss"), SizeIs(2));
    const std::string socket{trim(rank_log(0))};
    EXPECT_LE(socket.size(), 100U);
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path{socket}.parent_path()));
}

}  // namespace
}  // namespace lockstep::test
