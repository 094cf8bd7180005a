#include "daemon/store/event_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

TEST_F(ControlTest, AJobGoesThroughItsLifeAndItsTelemetryIsKept) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_binary(batch(1, 0, 1));
    first.session->on_binary(batch(2, 0, 2));
    until(
        [&] { return first.peer->last<wire::Ack>() && first.peer->last<wire::Ack>()->batch == 2; },
        "the batches are acknowledged");
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    EXPECT_NE(first.peer->last<wire::Stop>(), nullptr);
    EXPECT_EQ(show(id)["step"], 2);
    shut_down();
    boot();
    EXPECT_EQ(state(id), "succeeded");
    std::string series;
    auto ask = [&]() -> Task<void> {
        SeriesQuery query;
        const auto text = co_await control_->series(ada_, id, query);
        EXPECT_TRUE(text.has_value());
        series = text.value_or("");
    };
    wait(ask());
    EXPECT_NE(series.find("[1,1.0,1.0,1.0],[2,0.5,0.5,0.5]"), std::string::npos) << series;
}

// It was read with all that had happened to the job, which may be hundreds of megabytes.
TEST_F(ControlTest, TheSpecificationOfAJobThatIsOverIsThatOfItsSubmission) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::vector<std::string> answers;
    const auto ask = [&](Caller caller) {
        auto run = [&]() -> Task<void> {
            const auto spec = co_await control_->spec(caller, id);
            answers.push_back(spec ? *spec : spec.error().message);
        };
        wait(run());
    };
    ask(ada_);
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    ask(ada_);
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_EQ((*parse_json(answers[1]))["name"], "t");
    ask(Caller{"bob", false, true});
    EXPECT_EQ(answers[2], "no job " + id);
}

TEST_F(ControlTest, TheFirstFailureStopsTheOthersAndIsTheCause) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    wire::Exited failed = exit(1, 1, 7);
    failed.log_tail = "Traceback: boom\n";
    second.say(failed);
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP to the other node");
    wire::Exited stopped = exit(1, 0, -1);
    stopped.signal = 15;
    stopped.stopped = true;
    first.say(stopped);
    until([&] { return state(id) == "failed"; }, "failed");
    const Json cause = show(id)["cause"];
    EXPECT_EQ(cause["class"], "rank_exit");
    EXPECT_EQ(cause["rank"], 1);
    EXPECT_EQ(cause["node"], "n1");
    EXPECT_EQ(cause["exit_code"], 7);
    EXPECT_EQ(cause["log_tail"], "Traceback: boom\n");
}

TEST_F(ControlTest, ARestartedDaemonTakesTheSameAgentsBackAndStartsNothingTwice) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_binary(batch(1, 0, 1));
    until([&] { return first.peer->last<wire::Ack>() != nullptr; }, "ACK");
    first.session->on_closed();
    second.session->on_closed();
    shut_down();
    boot();
    EXPECT_EQ(state(id), "running");
    first = hello(0, "i0", true);
    second = hello(1, "i1", true);
    until([&] { return second.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_EQ(second.peer->last<wire::Welcome>()->generation, 1);
    first.session->on_binary(batch(1, 0, 1));  // not known to be acknowledged: sent again
    first.session->on_binary(batch(2, 0, 2));
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    for (const auto& agent : {first, second}) {
        EXPECT_EQ(agent.peer->last<wire::Start>(), nullptr);
        EXPECT_EQ(agent.peer->last<wire::World>(), nullptr);
    }
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
}

// Its nodes could not call in while no lockstepd was there, and the job failed as soon as one was.
TEST_F(ControlTest, NodesHaveTheirTimeToCallInAfterALockstepdThatWasAwayForLong) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "it has its nodes");
    shut_down();
    clock_.advance(2 * limits::kGatherTimeout);
    boot();
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    EXPECT_EQ(state(id), "starting");
    clock_.advance(limits::kGatherTimeout);
    until([&] { return scheduler_.cancels > 0; }, "the nodes have not met since");
}

// A job of the local scheduler failed in the morning: "0 of 2 nodes called in".
TEST_F(ControlTest, AgentsThatEndedWhileNoLockstepdWasThereAreAnotherAttempt) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "it has its nodes");
    shut_down();
    clock_.advance(std::chrono::hours{12});
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.message = "the agent of n0 had ended when the daemon started";
    scheduler_.seen.lost_nodes = {0, 1};
    scheduler_.seen.ended_unwatched = true;
    boot();
    until([&] { return scheduler_.last.attempt == 2; }, "the second attempt");
    EXPECT_THAT(scheduler_.last.exclude, testing::IsEmpty());
    const Json cause = show(id)["attempts"][0]["cause"];
    EXPECT_EQ(cause["class"], "scheduler");
    EXPECT_EQ(cause["message"], "no lockstepd was there for its agents, and they have ended");
    TestAgent agent = hello(0);
    until([&] { return agent.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
}

// They were there, and lockstepd had sent them away.
TEST_F(ControlTest, AgentsThatWereSentAwayBeforeLockstepdWentAreNoOtherAttempt) {
    const std::string id = submit()->id;
    until([&] { return state(id) == "starting"; }, "it has its nodes");
    TestAgent agent = connect();
    wire::Hello wrong;
    wrong.node = "n0";
    wrong.incarnation = "i0";
    wrong.time = clock_.wall() - 3'600'000;
    agent.say(wrong);
    until([&] { return agent.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    until([&] { return show(id).value("pending_reason", "") != ""; }, "it is told");
    shut_down();
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.ended_unwatched = true;
    boot();
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
}

TEST_F(ControlTest, ADaemonRestartedBetweenWorldAndStartGoesOnWithTheSameGeneration) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    TestAgent first = hello(0);
    TestAgent second = hello(1);
    for (TestAgent* agent : {&first, &second}) {
        agent->say(wire::Join{"127.0.0.1", 5000, 1, 0, 0});
    }
    until([&] { return second.peer->last<wire::World>() != nullptr; }, "WORLD");
    first.session->on_closed();
    second.session->on_closed();
    shut_down();
    boot();
    first = hello(0);
    second = hello(1);
    for (TestAgent* agent : {&first, &second}) {
        until([&] { return agent->peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        agent->say(wire::Join{"127.0.0.1", 5000, 1, 0, 0});
        until([&] { return agent->peer->last<wire::World>() != nullptr; }, "WORLD again");
        EXPECT_EQ(agent->peer->last<wire::World>()->generation, 1);
        agent->say(wire::Ready{1});
    }
    until([&] { return first.peer->last<wire::Start>() != nullptr; }, "START");
    EXPECT_EQ(show(id)["attempts"][0]["generations"].size(), 1U);
}

TEST_F(ControlTest, ASecondAgentForANodeIsFenced) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    TestAgent impostor = hello(0, "somebody-else");
    until([&] { return impostor.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_EQ(impostor.peer->closed, "fenced");
    EXPECT_EQ(first.peer->closed, "");
}

TEST_F(ControlTest, AnAgentCannotSpeakForAnotherNodesRanks) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.say(exit(1, 1, 9));
    until([&] { return first.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_EQ(state(id), "running");
    second.session->on_binary(batch(1, 0, 1));  // a batch that claims to be node 0's
    EXPECT_EQ(second.peer->closed, "a batch of another node");
}

// Its ticket is the job's, which all nodes have: a node's agent wrote another node's losses.
TEST_F(ControlTest, AnAgentCannotReportAnotherNodesStepsAndLosses) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    Batch rows;
    rows.seq = 1;
    rows.generation = 1;
    rows.add_row(0, 7, 1'700'000'000.0);
    rows.set("loss", 0.5);
    rows.add_row(1, 9, 1'700'000'000.0);
    rows.set("loss", 99.0);
    rows.set("step_seconds", 1.0);
    rows.add_row(1, -1, 1'700'000'000.0);  // what NCCL's RAS tells one agent of all ranks
    rows.set("nccl_collectives", 40.0);
    first.session->on_binary(encode_batch(rows));
    until(
        [&] { return first.peer->last<wire::Ack>() && first.peer->last<wire::Ack>()->batch == 1; },
        "the batch is acknowledged");
    EXPECT_EQ(first.peer->closed, "");
    const auto expect_kept = [&] {
        const telemetry::JobSeries& series = *context_->series.find(id);
        EXPECT_EQ(series.rank(0).last_step(), 7);
        EXPECT_EQ(series.rank(1).last_step(), -1);
        EXPECT_EQ(series.rank(1).latest(telemetry::CoreMetric::loss), std::nullopt);
        EXPECT_EQ(series.rank(1).latest(telemetry::CoreMetric::nccl_collectives), 40.0);
    };
    expect_kept();
    EXPECT_THAT(
        metrics_text(),
        testing::HasSubstr("lockstep_ingest_dropped_samples_total{reason=\"bad_frame\"} 2\n"));
    shut_down();
    boot();
    until([&] { return context_->series.find(id) != nullptr; }, "what was kept is read back");
    until(
        [&] {
            return context_->series.find(id)->rank(1).latest(
                       telemetry::CoreMetric::nccl_collectives) == 40.0;
        },
        "all of it");
    expect_kept();
}

TEST_F(ControlTest, AnAgentCannotWarnUnderAnotherNodesRank) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::uint64_t number = 0;
    for (const std::int32_t rank : {0, 1}) {
        first.say(wire::Warned{++number, 1, rank, "warning of " + std::to_string(rank)});
        wire::GpuXid error;
        error.event = ++number;
        error.generation = 1;
        error.rank = rank;
        error.xid = 79 + rank;
        first.say(error);
    }
    until(
        [&] { return first.peer->last<wire::Ack>() && first.peer->last<wire::Ack>()->event == 4; },
        "ACK");
    std::vector<Event> events;
    auto read = [&]() -> Task<void> {
        const std::function<Result<std::vector<Event>>(Database&)> all = [](Database& db) {
            return EventRecords{db}.after(0, 1000);
        };
        events = (co_await store_->read<std::vector<Event>>(all)).value();
    };
    wait(read());
    std::vector<std::int32_t> warned;
    std::vector<std::int32_t> failed;
    for (const Event& one : events) {
        if (const auto* warning = std::get_if<event::WarningGiven>(&one.data)) {
            warned.push_back(warning->rank);
        }
        if (const auto* error = std::get_if<event::GpuXid>(&one.data)) {
            failed.push_back(error->rank);
        }
    }
    EXPECT_EQ(warned, (std::vector{0, -1}));
    EXPECT_EQ(failed, (std::vector{0, -1}));
}

TEST_F(ControlTest, GarbageFromAnAgentEndsItsConnectionOnly) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_text("{{{");
    EXPECT_EQ(first.peer->closed, "bad message");
    second.session->on_binary("not a batch");
    EXPECT_EQ(second.peer->closed, "bad batch");
    EXPECT_EQ(state(id), "running");
}

TEST_F(ControlTest, UnknownTicketsAreDenied) {
    auto peer = std::make_shared<TestPeer>();
    EXPECT_EQ(control_->agents().open(sha256_hex("guess"), peer, "x").error().code, Errc::denied);
}

TEST_F(ControlTest, KeysReachTheOtherNode) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    wire::KeyRequest request;
    request.generation = 1;
    request.id = 1;
    request.op = wire::KvOp::wait;
    request.keys = {"k"};
    first.say(request);
    request.op = wire::KvOp::set;
    request.rank = 1;
    request.value = "dg==";
    second.say(request);
    until([&] { return first.peer->last<wire::KeyReply>() != nullptr; }, "the waiter's answer");
    EXPECT_TRUE(first.peer->last<wire::KeyReply>()->ok);
    request.generation = 2;
    second.say(request);
    until([&] { return second.peer->last<wire::KeyReply>()->error == "conflict"; }, "stale keys");
}

// Whoever has the ticket may speak as the job's agents.
TEST_F(ControlTest, TheTicketIsForItsUserAlone) {
    submit();
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    const std::filesystem::path folder = scheduler_.last.directory;
    const auto mode = [](const std::filesystem::path& path) {
        return std::filesystem::status(path).permissions() & std::filesystem::perms::mask;
    };
    EXPECT_EQ(mode(folder / wire::kAttemptFileName),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_EQ(mode(folder), std::filesystem::perms::owner_all);
    // Written anew by the next daemon, which listens elsewhere.
    shut_down();
    boot("http://127.0.0.1:2");
    EXPECT_EQ(mode(folder / wire::kAttemptFileName),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace lockstep
