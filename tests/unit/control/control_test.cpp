// size: one fixture plays scheduler and agents for all of these tests
// Control with a real store, a scheduler and agents played by the test.
#include "daemon/control/control_service.hpp"
#include "job/async/sleep.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

namespace lockstep {
namespace {

class TestClock final : public Clock {
  public:
    UnixMillis wall() const override { return wall_; }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::time_point{std::chrono::milliseconds{wall_}};
    }
    void advance(std::chrono::milliseconds time) { wall_ += time.count(); }

  private:
    UnixMillis wall_ = 1'700'000'000'000;
};

class TestScheduler final : public Scheduler {
  public:
    std::string_view name() const override { return "local"; }
    Result<Admission> admit(const JobSpec& spec) const override {
        if (spec.resources.gpus_per_node > 0) {
            return fail(field_errors({{"/resources/gpus_per_node", "this machine has 0"}}));
        }
        return Admission{};
    }
    Task<Result<std::string>> submit(AttemptRequest request) override {
        ++submissions;
        last = std::move(request);
        co_return "local-1";
    }
    Task<Observation> poll(JobId, std::int32_t) override { co_return seen; }
    Task<Status> cancel(JobId, std::int32_t) override {
        ++cancels;
        seen.state = AllocationState::ended;
        co_return Status{};
    }
    Task<Status> ping() override { co_return Status{}; }

    Observation seen{Observation::Kind::state, AllocationState::running, "", {}, {}, ""};
    AttemptRequest last;
    int submissions = 0;
    int cancels = 0;
};

// The listener's end of a connection: keeps what the daemon sends.
class TestPeer final : public AgentPeer {
  public:
    void send(WsMessage message) override {
        received.push_back(wire::decode_daemon(message.bytes).value());
    }
    void close(std::string reason) override { closed = std::move(reason); }
    template <class M>
    const M* last() const {
        for (auto message = received.rbegin(); message != received.rend(); ++message) {
            if (const M* found = std::get_if<M>(&*message)) {
                return found;
            }
        }
        return nullptr;
    }
    std::vector<wire::DaemonMessage> received;
    std::string closed;
};

struct TestAgent {
    std::shared_ptr<TestPeer> peer = std::make_shared<TestPeer>();
    std::shared_ptr<AgentSession> session;
    void say(const wire::AgentMessage& message) { session->on_text(wire::encode(message)); }
};

class ControlTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = ::testing::TempDir() + "lockstep-control-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        boot();
    }
    void TearDown() override {
        shut_down();
        std::filesystem::remove_all(folder_);
    }

    void boot() {
        io_ = std::make_unique<net::io_context>(1);
        store_ = std::make_unique<Store>(*io_, std::move(Database::open(folder_ / "db").value()),
                                         Store::Hooks{});
        metrics_ = std::make_unique<telemetry::DaemonMetrics>();
        ControlSettings settings;
        settings.runs_dir = folder_ / "runs";
        settings.daemon_id = "daemon";
        settings.window = 2;
        context_ = std::make_unique<ControlContext>(*io_, clock_, *store_, scheduler_, *metrics_,
                                                    settings);
        control_ = std::make_unique<ControlService>(*context_);
        auto load = [this]() -> Task<void> {
            const Status loaded = co_await control_->load_jobs();
            EXPECT_TRUE(loaded.has_value());
        };
        wait(load());
        control_->begin("http://127.0.0.1:1");
    }
    // Everything in memory goes; what the store has stays.
    void shut_down() {
        if (!control_) {
            return;
        }
        wait(control_->stop());
        store_->stop();
        control_.reset();
        context_.reset();
        metrics_.reset();
        store_.reset();
        io_.reset();
    }

    void wait(Task<void> task) {
        bool done = false;
        auto run = [&done](Task<void> inner) -> Task<void> {
            co_await std::move(inner);
            done = true;
        };
        net::co_spawn(*io_, run(std::move(task)), net::detached);
        while (!done) {
            ASSERT_GT(io_->run_one_for(std::chrono::seconds{20}), 0U);
        }
    }
    // Runs the control thread until the condition holds; fails after 20 s without it.
    void until(const std::function<bool()>& condition, const char* what) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        while (!condition()) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << what;
            io_->run_one_for(std::chrono::milliseconds{100});
        }
    }

    Result<Submitted> submit(const std::string& key = "", const std::string& body = "body",
                             const std::string& extra = "") {
        const auto json = parse_json(
            R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2)" + extra +
            "}}");
        SubmitRequest request;
        request.spec = parse_spec(*json).value();
        request.idempotency_key = key;
        request.body_sha256 = body;
        Result<Submitted> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            Caller caller = ada_;
            out = co_await control_->submit(std::move(caller), std::move(copy));
        };
        wait(run());
        return out;
    }
    Json show(const std::string& id) {
        Json out;
        auto run = [&]() -> Task<void> {
            const auto shown = co_await control_->show(ada_, id);
            if (shown) {
                out = *parse_json(**shown);
            }
        };
        wait(run());
        return out;
    }
    std::string state(const std::string& id) { return show(id).value("state", "?"); }

    TestAgent connect() {
        const auto file = wire::decode_attempt_file(
            read_file(std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName,
                      10'000)
                .value());
        TestAgent agent;
        agent.session = control_->open(sha256_hex(file->ticket), agent.peer, "127.0.0.1").value();
        return agent;
    }
    TestAgent hello(std::int32_t node, const std::string& incarnation = "", bool running = false) {
        TestAgent agent = connect();
        wire::Hello hello;
        hello.node_rank = node;
        hello.node = "n" + std::to_string(node);
        hello.incarnation = incarnation.empty() ? "i" + std::to_string(node) : incarnation;
        hello.ranks_running = running;
        agent.say(hello);
        return agent;
    }
    // A job with both agents there and every rank started.
    std::string start_job_with(TestAgent& first, TestAgent& second) {
        const std::string id = submit()->id;
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        first = hello(0);
        second = hello(1);
        for (TestAgent* agent : {&first, &second}) {
            until([&] { return agent->peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
            wire::Join join;
            join.address = "127.0.0.1";
            join.port = 5000;
            agent->say(join);
        }
        for (TestAgent* agent : {&first, &second}) {
            until([&] { return agent->peer->last<wire::World>() != nullptr; }, "WORLD");
            EXPECT_EQ(agent->peer->last<wire::Start>(), nullptr);
            agent->say(wire::Ready{1});
        }
        std::int32_t rank = 0;
        for (TestAgent* agent : {&first, &second}) {
            until([&] { return agent->peer->last<wire::Start>() != nullptr; }, "START");
            wire::Started started;
            started.generation = 1;
            started.ranks.push_back({rank, 100 + rank});
            ++rank;
            agent->say(started);
        }
        until([&] { return state(id) == "running"; }, "running");
        return id;
    }
    static wire::Exited exit(std::uint64_t event, std::int32_t rank, std::int32_t code) {
        wire::Exited out;
        out.event = event;
        out.generation = 1;
        out.rank = rank;
        out.exit_code = code;
        out.time = 1000 + static_cast<UnixMillis>(event);
        return out;
    }
    static std::string batch(std::uint64_t seq, std::uint32_t node, std::int64_t step) {
        Batch out;
        out.seq = seq;
        out.generation = 1;
        out.node_rank = node;
        out.add_row(node, step, 1'700'000'000.0);
        out.set("loss", 1.0 / static_cast<double>(step));
        return encode_batch(out);
    }

    const Caller ada_{"ada", false, true};
    std::filesystem::path folder_;
    TestClock clock_;
    TestScheduler scheduler_;
    std::unique_ptr<net::io_context> io_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<telemetry::DaemonMetrics> metrics_;
    std::unique_ptr<ControlContext> context_;
    std::unique_ptr<ControlService> control_;
};

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
    EXPECT_EQ(control_->open(sha256_hex("guess"), peer, "x").error().code, Errc::denied);
}

TEST_F(ControlTest, KeysReachTheOtherNode) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    wire::KeyRequest request;
    request.generation = 1;
    request.id = 1;
    request.op = "wait";
    request.keys = {"k"};
    first.say(request);
    request.op = "set";
    request.rank = 1;
    request.value = "dg==";
    second.say(request);
    until([&] { return first.peer->last<wire::KeyReply>() != nullptr; }, "the waiter's answer");
    EXPECT_TRUE(first.peer->last<wire::KeyReply>()->ok);
    request.generation = 2;
    second.say(request);
    until([&] { return second.peer->last<wire::KeyReply>()->error == "conflict"; }, "stale keys");
}

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
