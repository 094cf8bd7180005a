#include "tests/unit/control/control_fixture.hpp"

namespace lockstep {
namespace {

TEST_F(ControlTest, CancelStopsTheRanksAndForcesTheAllocation) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::string answer;
    auto run = [&]() -> Task<void> {
        const auto cancelled = co_await control_->cancel(ada_, id);
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
    auto cancel = [&]() -> Task<void> { co_await control_->cancel(ada_, id); };
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
    auto cancel = [&]() -> Task<void> { co_await control_->cancel(ada_, id); };
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
    limit_store(1);
    while (submit().has_value()) {  // what room the pages still have
    }
    const Seq before = store_->last_seq();
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
    EXPECT_FALSE(control_->open(sha256_hex(file->ticket), peer, "x").has_value());
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

TEST_F(ControlTest, WhatAgentsLeftBehindIsReadWhenTheyAreGone) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.session->on_closed();
    for (std::int32_t node = 0; node < 2; ++node) {
        wire::ResultFile result;
        result.generation = 1;
        result.exits.push_back(exit(1, node, 0));
        ASSERT_TRUE(write_file_atomic(std::filesystem::path{scheduler_.last.directory} /
                                          wire::result_file_name(node),
                                      wire::encode_result_file(result))
                        .has_value());
    }
    scheduler_.seen.state = AllocationState::ended;
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
    auto cancel = [&]() -> Task<void> { co_await control_->cancel(ada_, ids[0]); };
    wait(cancel());
    until([&] { return state(ids[2]) == "queued"; }, "the third moves up");
}

TEST_F(ControlTest, IdempotencyKeysGiveTheSameJobAlsoAfterARestart) {
    const auto first = submit("key", "body");
    const auto again = submit("key", "body");
    EXPECT_EQ(first->id, again->id);
    EXPECT_TRUE(again->repeated);
    const auto other = submit("key", "another body");
    ASSERT_FALSE(other.has_value());
    EXPECT_EQ(other.error().code, Errc::conflict);
    EXPECT_TRUE(other.error().message.starts_with("reused"));
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
        const auto cancelled = co_await control_->cancel(eve, id);
        EXPECT_EQ(cancelled.error().code, Errc::not_found);
        JobQuery query;
        const auto page = co_await control_->list(eve, query);
        EXPECT_EQ(*page, "{\"items\":[]}");
        const auto events = co_await control_->events(eve, id, 0, 10);
        EXPECT_FALSE(events.has_value());
        const auto log = co_await control_->log_place(eve, id, 0);
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
    Errc code = Errc::internal;
    auto run = [&]() -> Task<void> {
        SubmitRequest copy = request;
        const auto refused = co_await control_->submit(ada_, std::move(copy));
        code = refused ? Errc::internal : refused.error().code;
        request.if_match = rendered["render_hash"].get<std::string>();
        const auto taken = co_await control_->submit(ada_, request);
        EXPECT_TRUE(taken.has_value());
    };
    wait(run());
    EXPECT_EQ(code, Errc::conflict);
}

TEST_F(ControlTest, TheStreamCarriesEventsInOrderAndCanBeReplayed) {
    std::vector<std::int64_t> live;
    const auto subscription = control_->subscribe([&](const StreamMessage& message) {
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
        const auto messages = co_await control_->replay(0, 100);
        EXPECT_TRUE(messages.has_value());
        for (const auto& message : *messages) {
            stored.push_back(message.seq);
            EXPECT_EQ(message.user, "ada");
        }
    };
    wait(run());
    EXPECT_EQ(stored, live);
}

}  // namespace
}  // namespace lockstep
