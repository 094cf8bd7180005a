// Control with a real store, a scheduler and agents played by the test.
#pragma once

#include "daemon/control/control_service.hpp"
#include "daemon/store/database.hpp"
#include "job/async/sleep.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_driver.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

namespace lockstep {

// A job's events, oldest first.
inline EventsQuery first_events(std::size_t limit) {
    EventsQuery query;
    query.limit = limit;
    return query;
}

// One machine, so that its nodes are one to the notes; its files and logs are those of Slurm.
class TestScheduler final : public SlurmDriver {
  public:
    std::string_view name() const override { return "local"; }
    bool is_one_machine() const override { return true; }
    bool keeps_time_limit() const override { return keeps_time; }
    std::string_view batch_file() const override {
        return runs_scripts ? SlurmDriver::batch_file() : std::string_view{};
    }
    std::string_view allocation_variable() const override {
        return runs_scripts ? SlurmDriver::allocation_variable() : std::string_view{};
    }
    Task<void> stop() override { co_return; }
    Cluster cluster() override { return machines; }
    void on_change(Changed) override {}
    Result<Admission> admit(const JobSpec& spec) const override {
        if (spec.resources.gpus_per_node > 0) {
            return fail(field_errors({{"/resources/gpus_per_node", "this machine has 0"}}));
        }
        return Admission{};
    }
    Result<std::optional<std::string>> script(const AttemptRequest& request) const override {
        if (!batch_site) {
            return std::optional<std::string>{};
        }
        auto made = slurm::make_batch_script(request, *batch_site);
        if (!made) {
            return fail(made.error());
        }
        return std::optional<std::string>{std::move(made->text)};
    }
    Task<Handover> submit(AttemptRequest request) override {
        Handover out;
        if (needs_intent && !request.intent_is_fresh) {
            out.kind = request.intent_at == 0 ? Handover::Kind::again : unsure;
            out.reason = "looking for it";
            out.id = "17";
            co_return out;
        }
        ++submissions;
        last = std::move(request);
        out = handover;
        co_return out;
    }
    bool may_claim(const JobId&, std::int32_t, const std::string& allocation) override {
        return allocation != surplus;
    }
    void claimed(const JobId&, std::int32_t, const std::string& allocation) override {
        claimed_by = allocation;
    }
    Task<Result<bool>> adopt(AttemptRequest) override {
        ++adoptions;
        if (!answers) {
            co_return fail(Errc::unavailable, "no answer");
        }
        co_return seen.kind == Observation::Kind::state;
    }
    Task<Observation> poll(JobId, std::int32_t attempt) override {
        ++polls;
        if (attempt > seen_until) {
            co_return Observation{
                Observation::Kind::state, AllocationState::running, "", {}, {}, ""};
        }
        co_return seen;
    }
    std::optional<std::string> leaving(const JobId&) const override { return left; }
    Signatures* signatures() override { return signed_with; }
    Task<Status> cancel(JobId, std::int32_t) override {
        ++cancels;
        seen.state = obeys ? AllocationState::ended : seen.state;
        co_return Status{};
    }
    Task<Status> ping() override { co_return Status{}; }
    Cluster machines;
    Signatures* signed_with = nullptr;
    bool runs_scripts = true;
    bool keeps_time = false;
    std::optional<slurm::BatchSite> batch_site;  // set: it runs batch scripts

    Observation seen{Observation::Kind::state, AllocationState::running, "", {}, {}, ""};
    // Attempts after this one run, whatever `seen` says of those before: one that ends at once is
    // followed by the next before a test can look.
    std::int32_t seen_until = std::numeric_limits<std::int32_t>::max();
    std::optional<std::string> left;  // leaving()
    AttemptRequest last;
    // As a scheduler that may take an attempt without our hearing of it.
    bool needs_intent = false;
    Handover::Kind unsure = Handover::Kind::wait;  // what it says of an intent that is not fresh
    Handover handover{Handover::Kind::placed, "local-1", "", ""};
    std::string claimed_by;
    std::string surplus;  // an allocation that is being ended
    int submissions = 0;
    int polls = 0;
    int adoptions = 0;
    bool answers = true;  // adopt() does
    int cancels = 0;
    bool obeys = true;  // cancel() ends the allocation
};

// The listener's end of a connection: keeps what the daemon sends.
class TestPeer final : public AgentPeer {
  public:
    void send(WsMessage message) override {
        received.push_back(wire::decode_daemon(message.bytes).value());
    }
    void send_shared(std::shared_ptr<const std::string> text) override {
        send(WsMessage{false, *text});
        shared.push_back(std::move(text));
    }
    void close(std::string reason) override { closed = std::move(reason); }
    template <class M>
    std::size_t count() const {
        return static_cast<std::size_t>(
            std::count_if(received.begin(), received.end(),
                          [](const auto& one) { return std::holds_alternative<M>(one); }));
    }
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
    std::vector<std::shared_ptr<const std::string>> shared;  // of them, what others got too
    std::string closed;
};

struct TestAgent {
    std::shared_ptr<TestPeer> peer = std::make_shared<TestPeer>();
    std::shared_ptr<AgentSession> session;
    void say(const wire::AgentMessage& message) { session->on_text(wire::encode(message)); }
};

class ControlTest : public ::testing::Test {
  protected:
    void SetUp() override { boot(); }
    void TearDown() override { shut_down(); }

    void boot(const std::string& url = "http://127.0.0.1:1") {
        io_ = std::make_unique<net::io_context>(1);
        store_ = std::make_unique<Store>(*io_, std::move(Database::open(folder_ / "db").value()),
                                         Store::Hooks{});
        metrics_ = std::make_unique<telemetry::DaemonMetrics>();
        ControlSettings settings;
        settings.runs_dir = folder_ / runs_name_;
        settings.daemon_id = "daemon";
        settings.window = 2;
        settings.open_samples = open_samples_;
        settings.keep_days = keep_days_;
        settings.keep_bytes = keep_bytes_;
        settings.user_bytes = user_bytes_;
        settings.snapshots_dir = folder_ / "snapshots";
        // They go by the real clock: a machine that stands still for seconds after the test has
        // moved its own must not start the patience anew.
        settings.stalled = std::chrono::hours{1};
        settings.deaf = std::chrono::hours{1};
        // The test moves time on; jobs see soon that it has.
        settings.tick = tick_;
        context_ = std::make_unique<ControlContext>(*io_, clock_, *store_, scheduler_, *metrics_,
                                                    settings);
        control_ = std::make_unique<ControlService>(*context_);
        auto load = [this]() -> Task<void> {
            const Status loaded = co_await control_->load_jobs();
            EXPECT_TRUE(loaded.has_value());
        };
        wait(load());
        control_->begin({url});
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
        // Agents of the test may still hold their connections, and with them timers of this
        // context.
        old_contexts_.push_back(std::move(io_));
    }

    void wait(Task<void> task) {
        bool done = false;
        auto run = [&done](Task<void> inner) -> Task<void> {
            co_await std::move(inner);
            done = true;
        };
        net::co_spawn(*io_, run(std::move(task)), net::detached);
        while (!done) {
            ASSERT_GT(io_->run_one_for(std::chrono::seconds{60}), 0U);
        }
    }
    // Runs the control thread until the condition holds; fails after 60 s without it.
    // Throws, which fails and ends the test, if it never comes: what follows would wait as long, or
    // look at a message that is not there.
    void until(const std::function<bool()>& condition, const char* what) {
        // A busy machine takes its time, and then something always waits to run. What cannot come
        // any more is known sooner: nothing but the ticks has run for ten seconds in all.
        constexpr std::chrono::milliseconds kLook{10};
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
        std::chrono::milliseconds idle{0};
        while (!condition()) {
            if (idle >= std::chrono::seconds{10} || std::chrono::steady_clock::now() >= deadline) {
                throw std::runtime_error(std::string{"never came: "} + what);
            }
            idle += io_->run_one_for(kLook) == 0 ? kLook : std::chrono::milliseconds{0};
        }
    }

    SubmitResult<Submitted> submit(const std::string& key = "", const std::string& body = "body",
                                   const std::string& extra = "") {
        const auto json = parse_json(
            R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2)" + extra +
            "}}");
        SubmitRequest request;
        request.spec = parse_spec(*json).value();
        request.idempotency_key = key;
        request.body_sha256 = body;
        SubmitResult<Submitted> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            Caller caller = ada_;
            out = co_await control_->submit(std::move(caller), std::move(copy));
        };
        wait(run());
        return out;
    }
    // How many pages the database may have: few = its disk is full.
    void limit_store(std::int64_t pages) {
        auto run = [&]() -> Task<void> {
            const std::function<Result<bool>(Database&)> limit = [pages](Database& db) {
                return Result<bool>{db.limit_pages(pages).has_value()};
            };
            const auto limited = co_await store_->read<bool>(limit);
            EXPECT_TRUE(limited.value_or(false));
        };
        wait(run());
    }
    // Its disk is full, to the room that its pages still had. The newest event's number.
    Seq fill_store() {
        limit_store(1);
        while (submit().has_value()) {
        }
        return store_->last_seq();
    }
    Json show(const std::string& id) {
        Json out;
        auto run = [&]() -> Task<void> {
            Caller all = ada_;
            all.reads_all = true;  // others' jobs, too
            const auto shown = co_await control_->show(all, id);
            if (shown) {
                out = *parse_json(**shown);
            }
        };
        wait(run());
        return out;
    }
    // The body of GET /metrics, for a viewer unless said otherwise.
    std::string metrics_text(const Caller& caller = {"", false, false, true}) {
        std::string out;
        control_->exposition().metrics(caller, "").make([&out](std::string piece) {
            out += piece;
            return piece;
        });
        return out;
    }
    std::string state(const std::string& id) { return show(id).value("state", "?"); }

    TestAgent connect() {
        const auto file = wire::decode_attempt_file(
            read_file(std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName,
                      10'000)
                .value());
        TestAgent agent;
        agent.session =
            control_->agents().open(sha256_hex(file->ticket), agent.peer, "127.0.0.1").value();
        return agent;
    }
    TestAgent hello(std::int32_t node, const std::string& incarnation = "", bool running = false) {
        TestAgent agent = connect();
        wire::Hello hello;
        hello.node_rank = node;
        hello.node = "n" + std::to_string(node);
        hello.incarnation = incarnation.empty() ? "i" + std::to_string(node) : incarnation;
        hello.ranks_running = running;
        hello.generation = running ? 1 : 0;
        hello.profiles = profiles_;
        agent.say(hello);
        return agent;
    }
    // A job with both agents there and every rank started.
    std::string start_job_with(TestAgent& first, TestAgent& second, const std::string& extra = "") {
        const std::string id = submit("", "body", extra)->id;
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        first = hello(0);
        second = hello(1);
        start_ranks(first, second);
        until([&] { return state(id) == "running"; }, "running");
        return id;
    }
    // Of both nodes of a job, which have said HELLO.
    void start_ranks(TestAgent& first, TestAgent& second) {
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

    const test::TemporaryFolder folder_;
    std::vector<std::unique_ptr<net::io_context>> old_contexts_;
    bool profiles_ = true;  // the agents know how to
    const Caller ada_{"ada", false, true};
    std::size_t open_samples_ = ControlSettings{}.open_samples;  // from the next boot() on
    std::string runs_name_ = "runs";                             // the same
    std::int64_t keep_days_ = 0;                                 // from the next boot() on
    std::int64_t keep_bytes_ = 0;                                // the same
    std::int64_t user_bytes_ = 0;                                // the same
    std::chrono::milliseconds tick_{50};                         // the same
    TestClock clock_;
    TestScheduler scheduler_;
    std::unique_ptr<net::io_context> io_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<telemetry::DaemonMetrics> metrics_;
    std::unique_ptr<ControlContext> context_;
    std::unique_ptr<ControlService> control_;
};

}  // namespace lockstep
