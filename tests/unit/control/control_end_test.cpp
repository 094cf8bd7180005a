// size: the ends of jobs, one test a way
#include "daemon/control/actor/render.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST_F(ControlTest, CancelStopsTheRanksAndForcesTheAllocation) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::string answer;
    auto run = [&]() -> Task<void> {
        const auto cancelled = co_await control_->commands().cancel(ada_, id);
        answer = cancelled.value_or("");
    };
    wait(run());
    EXPECT_NE(answer.find("cancel_requested_at"), std::string::npos);
    until([&] { return second.peer->last<wire::Stop>() != nullptr; }, "STOP");
    clock_.advance(limits::kStopGrace + std::chrono::seconds{6});  // the agents do not obey
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_EQ(scheduler_.cancels, 1);
    EXPECT_EQ(show(id)["cause"]["class"], "cancelled_by_user");
    wait(run());  // once more: not an error
    EXPECT_NE(answer.find("\"cancelled\""), std::string::npos);
}

// A daemon killed while it was stopping a job must know the job's agents again before it calls the
// job over: they are still running.
TEST_F(ControlTest, ARestartWhileStoppingAdoptsBeforeItConcludes) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    scheduler_.obeys = false;
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id); };
    wait(cancel());
    first.session->on_closed();
    second.session->on_closed();
    shut_down();
    scheduler_.submissions = 0;
    scheduler_.answers = false;
    boot();
    until([&] { return scheduler_.adoptions > 1; }, "asked again until the scheduler answers");
    scheduler_.answers = true;
    EXPECT_EQ(state(id), "running");
    first = hello(0, "i0", true);
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP to the agent");
    EXPECT_EQ(state(id), "running");
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "cancelled"; }, "cancelled once the allocation has ended");
    EXPECT_EQ(scheduler_.submissions, 0) << "what is to end is not handed over again";
}

TEST_F(ControlTest, AJobCancelledInTheQueueIsNotStartedByARestartedDaemon) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.obeys = false;
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id); };
    wait(cancel());
    shut_down();
    scheduler_.seen.kind = Observation::Kind::absent;
    boot();
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    EXPECT_EQ(scheduler_.submissions, 1) << "only the one before the restart";
    EXPECT_GE(scheduler_.adoptions, 1);
}

// Each try of an append that fails took the messages behind HELLO once more.
TEST_F(ControlTest, AFullDiskWhileAgentsCallInDoesNotRepeatWhatTheySaid) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    until([&] { return state(id) == "starting"; }, "placed");
    const Seq before = fill_store();
    std::vector<TestAgent> agents;
    for (std::int32_t node = 0; node < 2; ++node) {
        agents.push_back(hello(node, std::string(limits::kTextBytes, 'i')));
        wire::Join join;
        join.address = "127.0.0.1";
        join.port = 5000;
        agents.back().say(join);
        wire::CheckpointSaved saved;
        saved.event = 1;
        agents.back().say(saved);
    }
    until([&] { return store_->last_seq() >= before + 6; }, "three tries of two events");
    EXPECT_EQ(agents[0].peer->last<wire::Welcome>(), nullptr) << "nothing is durable yet";
    limit_store(1'000'000);
    for (TestAgent& agent : agents) {
        until([&] { return agent.peer->last<wire::World>() != nullptr; }, "WORLD");
    }
    agents[0].say(wire::Ready{1});
    agents[1].say(wire::Ready{1});
    until([&] { return agents[1].peer->last<wire::Start>() != nullptr; }, "START");
    for (const TestAgent& agent : agents) {
        const auto count = [&](auto is) {
            return std::count_if(agent.peer->received.begin(), agent.peer->received.end(), is);
        };
        EXPECT_EQ(count([](const auto& m) { return std::holds_alternative<wire::World>(m); }), 1);
        EXPECT_EQ(count([](const auto& m) { return std::holds_alternative<wire::Ack>(m); }), 1);
    }
}

// What is heard together is acknowledged once, and not before it is on disk.
TEST_F(ControlTest, AFullDiskWhileRanksEndAcknowledgesNothingUntilThereIsRoom) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    const auto acks = [&] { return first.peer->count<wire::Ack>(); };
    const auto had = acks();
    const Seq before = fill_store();
    wire::Exited ended = exit(1, 0, 7);
    ended.log_tail = std::string(limits::kTextBytes, 'x');
    first.say(ended);
    first.say(wire::Done{2, 1});
    until([&] { return store_->last_seq() >= before + 3; }, "three tries");
    EXPECT_EQ(acks(), had) << "nothing is durable yet";
    EXPECT_EQ(state(id), "running");
    limit_store(1'000'000);
    until([&] { return acks() > had; }, "heard");
    EXPECT_EQ(first.peer->last<wire::Ack>()->event, 2U);
    EXPECT_EQ(acks(), had + 1);
}

// It waited behind what the agent had said, as long as there was no room, and with it SIGTERM.
TEST_F(ControlTest, ACommandThatComesWhileAFullDiskIsWaitedForIsRefused) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    const Seq before = fill_store();
    wire::Exited ended = exit(1, 0, 7);
    ended.log_tail = std::string(limits::kTextBytes, 'x');
    first.say(ended);
    until([&] { return store_->last_seq() >= before + 1; }, "a try");
    Result<std::string> cancelled = fail(Errc::internal, "not run");
    auto cancel = [&]() -> Task<void> {
        cancelled = co_await control_->commands().cancel(ada_, id);
    };
    wait(cancel());
    ASSERT_FALSE(cancelled.has_value());
    EXPECT_EQ(cancelled.error().code, Errc::exhausted) << cancelled.error().message;
    limit_store(1'000'000);
    const auto had = first.peer->count<wire::Ack>();
    until([&] { return first.peer->count<wire::Ack>() > had; }, "what was said is heard");
}

TEST_F(ControlTest, TelemetryThatIsNotOnDiskIsNotAcknowledged) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    const auto acked = [&] {
        const auto* ack = first.peer->last<wire::Ack>();
        return ack != nullptr && ack->batch == 1;
    };
    fill_store();
    Batch large;
    large.seq = 1;
    large.generation = 1;
    for (int step = 0; step < 4'000; ++step) {
        large.add_row(0, step, 1'700'000'000.0 + std::sqrt(step));
        large.set("loss", std::sin(step));
    }
    first.session->on_binary(encode_batch(large));
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls; }, "a look at the job, once a second");
    EXPECT_FALSE(acked());
    limit_store(1'000'000);
    until(acked, "it is taken");
}

TEST_F(ControlTest, AnAgentThatComesBackAfterTheEndIsHeardAndSentHome) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.say(exit(1, 1, 7));
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "failed"; }, "failed");
    first = hello(0, "i0");
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    first.session->on_binary(batch(1, 0, 9));
    until([&] { return first.peer->last<wire::Ack>() != nullptr; }, "its last batch is taken");
    second.session->on_closed();
    clock_.advance(std::chrono::minutes{2});
    auto peer = std::make_shared<TestPeer>();
    const auto file = wire::decode_attempt_file(
        read_file(std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName, 10'000)
            .value());
    EXPECT_FALSE(control_->agents().open(sha256_hex(file->ticket), peer, "x").has_value());
}

TEST_F(ControlTest, AnAgentWhoseClockIsWrongIsFencedAndTheJobSaysSo) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    const auto call_in = [this](UnixMillis time, bool running) {
        TestAgent agent = connect();
        wire::Hello hello;
        hello.node = "n1";
        hello.incarnation = "i0";
        hello.time = time;
        hello.ranks_running = running;
        agent.say(hello);
        until([&] { return !agent.peer->received.empty(); }, "an answer");
        return agent;
    };
    const std::vector<std::pair<UnixMillis, std::string>> wrong{
        {clock_.wall() - 3'600'000, "the clock of n1 is 3600 s behind"},
        {clock_.wall() + 301'000, "the clock of n1 is 301 s ahead"}};
    for (const auto& [time, why] : wrong) {
        const TestAgent agent = call_in(time, false);
        ASSERT_NE(agent.peer->last<wire::Fenced>(), nullptr);
        EXPECT_EQ(agent.peer->last<wire::Fenced>()->message, why);
        EXPECT_EQ(agent.peer->closed, "fenced");
        EXPECT_EQ(show(id).value("pending_reason", ""), why);
    }
    // A number that only a broken or hostile agent sends.
    EXPECT_NE(call_in(std::numeric_limits<UnixMillis>::min(), false).peer->last<wire::Fenced>(),
              nullptr);
    EXPECT_NE(call_in(clock_.wall() - 299'000, false).peer->last<wire::Welcome>(), nullptr);
    // One that says nothing about its clock, and one that has ranks to lose.
    EXPECT_NE(call_in(0, false).peer->last<wire::Welcome>(), nullptr);
    EXPECT_NE(call_in(clock_.wall() - 3'600'000, true).peer->last<wire::Welcome>(), nullptr);
}

TEST_F(ControlTest, AgentsLearnTheCertificateFromTheAttemptsFileAlsoANewOne) {
    const auto fingerprint = [this] {
        return wire::decode_attempt_file(
                   read_file(
                       std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName,
                       10'000)
                       .value())
            ->fingerprint;
    };
    context_->settings.agents = {"https://127.0.0.1:1", "sha256:one"};
    submit();
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    EXPECT_EQ(fingerprint(), "sha256:one");
    ASSERT_TRUE(refresh_attempt(scheduler_.last.directory, {"https://127.0.0.1:1", "sha256:two"}));
    EXPECT_EQ(fingerprint(), "sha256:two");
    shut_down();
    boot();
    EXPECT_EQ(fingerprint(), "");  // this one listens without TLS
}

TEST_F(ControlTest, ABatchBeforeWelcomeEndsTheConnection) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    TestAgent impostor = hello(0, "somebody-else");
    impostor.session->on_binary(batch(999, 0, 1));
    EXPECT_EQ(impostor.peer->closed, "a batch before WELCOME");
}

TEST_F(ControlTest, ANodeWhoseAgentIsSilentForTooLongIsLost) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    second.session->on_closed();
    auto settle = [&]() -> Task<void> { co_await control_->ready(); };
    wait(settle());  // a round through the store: the end of the connection has been taken in
    clock_.advance(limits::kAgentLost + std::chrono::seconds{1});
    first.say(wire::Beat{0, 1, 0});
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    wire::Exited stopped = exit(1, 0, -1);
    stopped.signal = 15;
    stopped.stopped = true;
    first.say(stopped);
    first.session->on_closed();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["class"], "node_lost");
    EXPECT_EQ(show(id)["cause"]["node"], "n1");
}

void leave_results(const std::string& directory) {
    for (std::int32_t node = 0; node < 2; ++node) {
        wire::ResultFile result;
        result.generation = 1;
        wire::Exited done;
        done.event = 1;
        done.generation = 1;
        done.rank = node;
        done.exit_code = 0;
        done.time = 1001;
        result.exits.push_back(done);
        ASSERT_TRUE(
            write_file_atomic(std::filesystem::path{directory} / wire::result_file_name(node),
                              wire::encode_result_file(result))
                .has_value());
    }
}

TEST_F(ControlTest, WhatAgentsLeftBehindIsReadWhenTheyAreGone) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.session->on_closed();
    leave_results(scheduler_.last.directory);
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "succeeded"; }, "succeeded");
}

// Slurm purges a job after MinJobAge and may have no accounting: its silence says nothing, the
// files do, and without waiting for the minute after which an agent counts as lost.
TEST_F(ControlTest, ResultsAreReadAlsoWhenTheSchedulerHasForgottenTheJob) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.session->on_closed();
    scheduler_.seen = {};
    scheduler_.seen.kind = Observation::Kind::absent;
    const int polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "the absence was seen");
    EXPECT_EQ(state(id), "running") << "absence alone ends nothing";
    leave_results(scheduler_.last.directory);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
}

TEST_F(ControlTest, AnAllocationThatEndsWithoutAResultIsALostNode) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.message = "the agent exited with code 1";
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["message"],
              "the agent of node 0 ended without a result: the agent exited with code 1");
}

TEST_F(ControlTest, OnlyAWindowOfJobsIsHandedToTheScheduler) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.seen.reason = "waiting for cores";
    std::vector<std::string> ids;
    for (int i = 0; i < 5; ++i) {
        ids.push_back(submit()->id);
    }
    until([&] { return show(ids[1]).value("pending_reason", "") == "waiting for cores"; },
          "the second job is the scheduler's");
    EXPECT_EQ(state(ids[1]), "queued");
    EXPECT_EQ(state(ids[2]), "accepted");
    EXPECT_EQ(scheduler_.submissions, 2);
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, ids[0]); };
    wait(cancel());
    // This scheduler ends all it has at once, so the third may be over before anybody looks.
    until([&] { return state(ids[2]) != "accepted"; }, "the third moves up");
}

TEST_F(ControlTest, IdempotencyKeysGiveTheSameJobAlsoAfterARestart) {
    const auto first = submit("key", "body");
    const auto again = submit("key", "body");
    EXPECT_EQ(first->id, again->id);
    EXPECT_TRUE(again->repeated);
    const auto other = submit("key", "another body");
    ASSERT_FALSE(other.has_value());
    EXPECT_EQ(other.error().code, Errc::conflict);
    EXPECT_EQ(other.error().why, SubmitFailure::key_reused);
    shut_down();
    boot();
    EXPECT_EQ(submit("key", "body")->id, first->id);
}

TEST_F(ControlTest, WhatCanNeverRunIsRefusedAtOnce) {
    const auto refused = submit("", "b", R"(,"gpus_per_node":1)");
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().fields[0].pointer, "/resources/gpus_per_node");
}

TEST_F(ControlTest, OthersDoNotSeeTheJob) {
    const std::string id = submit()->id;
    const Caller eve{"eve", false, true};
    EXPECT_EQ(control_->show_now(eve, id).error().code, Errc::not_found);
    EXPECT_TRUE(control_->show_now({"root", true, true}, id).has_value());
    auto run = [&]() -> Task<void> {
        const auto cancelled = co_await control_->commands().cancel(eve, id);
        EXPECT_EQ(cancelled.error().code, Errc::not_found);
        JobQuery query;
        const auto page = co_await control_->list(eve, query);
        EXPECT_EQ(*page, "{\"items\":[]}");
        const auto events = co_await control_->events(eve, id, first_events(10));
        EXPECT_FALSE(events.has_value());
        const auto log = co_await control_->log_place(eve, id, 0, 0);
        EXPECT_FALSE(log.has_value());
    };
    wait(run());
}

TEST_F(ControlTest, RenderHashesPinWhatRuns) {
    const auto json = parse_json(R"({"name":"t","framework":"command","command":["x","{rank}"]})");
    const JobSpec spec = parse_spec(*json).value();
    const Json rendered = control_->render(ada_, spec).value();
    EXPECT_EQ(rendered["command"], Json::parse(R"(["x","0"])"));
    EXPECT_EQ(rendered, control_->render(ada_, spec).value());
    SubmitRequest request;
    request.spec = spec;
    request.if_match = "something else";
    std::optional<SubmitError> why;
    auto run = [&]() -> Task<void> {
        SubmitRequest copy = request;
        const auto refused = co_await control_->submit(ada_, std::move(copy));
        if (!refused) {
            why = refused.error();
        }
        request.if_match = rendered["render_hash"].get<std::string>();
        const auto taken = co_await control_->submit(ada_, request);
        EXPECT_TRUE(taken.has_value());
    };
    wait(run());
    ASSERT_TRUE(why);
    EXPECT_EQ(why->code, Errc::conflict);
    EXPECT_EQ(why->why, SubmitFailure::render_changed);
}

TEST_F(ControlTest, RenderSaysWhatIsKnownOnlyOnceItRuns) {
    JobSpec spec;
    spec.name = "t";
    spec.framework = Framework::pytorch;
    spec.command = {"x"};
    spec.resources.gpus_per_node = 2;
    const Json shown = render_json(spec, scheduler_, "/runs", {}).value()["environment"];
    EXPECT_EQ(shown["MASTER_PORT"], "<port held by node 0>");
    EXPECT_EQ(shown["NCCL_RAS_ADDR"], "127.0.0.1:<port held by the node>");
    EXPECT_EQ(shown["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], "<folder of the sockets>/flight-");
    EXPECT_EQ(shown["NCCL_SOCKET_MAGIC"], "<of the generation>");
    EXPECT_EQ(shown["NCCL_SOCKET_IFNAME"], "=<interface of the node's address>");
    EXPECT_FALSE(shown.contains("NCCL_IB_HCA"));  // of several nodes only
    EXPECT_EQ(shown["LOCKSTEP_HOSTS"], "<node 0>");
    const std::string package = "<folder above lockstep-agent's>/share/lockstep/python";
    EXPECT_EQ(shown["PYTHONPATH"], package + "/hooks:" + package);
    EXPECT_EQ(shown["SLURM_JOB_ID"], "<Slurm's id of the job>");
    EXPECT_EQ(shown["SLURM_NTASKS"], "1");
    EXPECT_FALSE(shown.contains("LOCKSTEP_OUTPUT"));  // of launchers only
    spec.launch = Launch::node;
    const Json launcher = render_json(spec, scheduler_, "/runs", {}).value()["environment"];
    EXPECT_TRUE(launcher.contains("LOCKSTEP_OUTPUT"));
}

TEST_F(ControlTest, RenderShowsTheJobsOwnVariablesAsTheyAre) {
    const auto json = parse_json(R"({"name":"t","framework":"pytorch","command":["x"],
        "resources":{"nodes":2,"gpus_per_node":1},
        "environment":{"X_PORT":"0","NCCL_SOCKET_MAGIC":"0x1","GLOO_SOCKET_IFNAME":"eth9"},
        "inherit_environment":true,"recorded_environment":{"Y_PORT":"0","NCCL_IB_HCA":"mlx5_1"}})");
    const Json shown =
        render_json(parse_spec(*json).value(), scheduler_, "/runs", {}).value()["environment"];
    EXPECT_EQ(shown["X_PORT"], "0");
    EXPECT_EQ(shown["Y_PORT"], "0");
    EXPECT_EQ(shown["NCCL_SOCKET_MAGIC"], "0x1");
    EXPECT_EQ(shown["GLOO_SOCKET_IFNAME"], "eth9");
    EXPECT_EQ(shown["TP_SOCKET_IFNAME"], "<interface of the node's address>");
    EXPECT_EQ(shown["NCCL_IB_HCA"], "mlx5_1");
    EXPECT_EQ(shown["LOCKSTEP_HOSTS"], "<node 0>,<node 1>");
    EXPECT_EQ(shown["SLURM_NODELIST"], "<node 0>,<node 1>");
}

TEST_F(ControlTest, RenderOfWhatReadsSlurmsVariablesHasTheRanksOwn) {
    const auto json =
        parse_json(R"({"name":"t","framework":"jax","command":["x"],"resources":{"nodes":2}})");
    const JobSpec spec = parse_spec(*json).value();
    const Json in_slurm = render_json(spec, scheduler_, "/runs", {}).value()["environment"];
    EXPECT_EQ(in_slurm["SLURM_JOB_ID"], "<Slurm's id of the job>");
    scheduler_.runs_scripts = false;
    const Json elsewhere = render_json(spec, scheduler_, "/runs", {}).value()["environment"];
    EXPECT_EQ(elsewhere["SLURM_JOB_ID"], "1");  // add_jax() makes it
    EXPECT_EQ(elsewhere["SLURM_STEP_NODELIST"], "<node 0>,<node 1>");
}

TEST_F(ControlTest, RenderNamesTheFileThatTheTrainerReads) {
    const JobSpec spec =
        parse_spec(*parse_json(R"({"name":"t","framework":"native","train":{"epochs":1}})"))
            .value();
    const Json shown = render_json(spec, scheduler_, "/runs", {}).value()["environment"];
    EXPECT_EQ(shown["LOCKSTEP_TRAIN_CONFIG"], "<attempt directory>/train-00000.json");
}

TEST_F(ControlTest, RenderShowsTheScriptThatWillBeSubmittedButForTheId) {
    slurm::BatchSite site;
    site.agent_path = "/usr/bin/lockstep-agent";
    site.default_time_limit_seconds = 3600;
    scheduler_.batch_site = site;
    const auto json = parse_json(R"({"name":"t","framework":"command","command":["x"]})");
    const JobSpec spec = parse_spec(*json).value();
    const Json rendered = control_->render(ada_, spec).value();
    const std::string id = "ls-01J3ZQ5T8W9XKCD2E4F6G8H0JK";
    const AttemptRequest request = attempt_request(
        JobId{id}, 1, spec, attempt_directory(folder_ / "runs", JobId{id}, 1).string());
    std::string text = rendered["script"].get<std::string>();
    const std::string zeros(26, '0');
    const std::string lower = "01j3zq5t8w9xkcd2e4f6g8h0jk";
    for (auto at = text.find(zeros); at != std::string::npos; at = text.find(zeros)) {
        const bool whole = at >= 3 && text.compare(at - 3, 3, "ls-") == 0;
        text.replace(at, zeros.size(), whole ? id.substr(3) : lower);
    }
    EXPECT_EQ(text, scheduler_.script(request).value().value());

    scheduler_.batch_site->default_time_limit_seconds = 60;  // the site has changed since
    EXPECT_NE(control_->render(ada_, spec).value()["render_hash"], rendered["render_hash"]);
    scheduler_.batch_site->default_time_limit_seconds = 0;
    EXPECT_EQ(control_->render(ada_, spec).error().fields.at(0).pointer, "/resources/time_limit");
}

TEST_F(ControlTest, TheScriptIsTheFileThatWasSubmitted) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    Result<std::string> text = fail(Errc::internal, "not run");
    auto run = [&]() -> Task<void> { text = co_await control_->script(ada_, id); };
    wait(run());
    EXPECT_EQ(text.error().code, Errc::unavailable) << "not written yet";
    scheduler_.runs_scripts = false;
    wait(run());
    EXPECT_EQ(text.error().code, Errc::not_found);
    scheduler_.runs_scripts = true;
    const auto path = std::filesystem::path{scheduler_.last.directory} / slurm::kBatchFileName;
    ASSERT_TRUE(write_file_atomic(path, "#!/bin/bash\n", 0600).has_value());
    wait(run());
    EXPECT_EQ(text.value_or(""), "#!/bin/bash\n");
    const Caller eve{"eve", false, true};
    auto ask = [&]() -> Task<void> { text = co_await control_->script(eve, id); };
    wait(ask());
    EXPECT_EQ(text.error().code, Errc::not_found);
}

TEST_F(ControlTest, TheStreamCarriesEventsInOrderAndCanBeReplayed) {
    std::vector<std::int64_t> live;
    const auto subscription = control_->stream().subscribe([&](const StreamMessage& message) {
        if (message.seq > 0) {
            live.push_back(message.seq);
        }
    });
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    EXPECT_TRUE(std::is_sorted(live.begin(), live.end()));
    std::vector<std::int64_t> stored;
    auto run = [&]() -> Task<void> {
        const auto messages = co_await control_->stream().replay(0, 100);
        EXPECT_TRUE(messages.has_value());
        for (const auto& message : *messages) {
            stored.push_back(message.seq);
            EXPECT_EQ(message.user, "ada");
        }
    };
    wait(run());
    EXPECT_EQ(stored, live);
}

// Found by killing lockstepd at every system call: an agent that had not heard of its job's end
// waited half an hour for a daemon that had another port by then, and held its allocation.
TEST_F(ControlTest, AfterARestartTheAgentsOfAJobThatEndedLatelyFindTheDaemon) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    const auto file = std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName;
    shut_down();
    boot("http://127.0.0.1:2");
    EXPECT_EQ(wire::decode_attempt_file(read_file(file, 10'000).value())->url,
              "http://127.0.0.1:2");
    clock_.advance(limits::kOrphanPatience + std::chrono::seconds{1});
    shut_down();
    boot("http://127.0.0.1:3");
    EXPECT_EQ(wire::decode_attempt_file(read_file(file, 10'000).value())->url, "http://127.0.0.1:2")
        << "nobody waits any more";
}

}  // namespace
}  // namespace lockstep
