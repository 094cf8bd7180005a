// The pre-flight's events, and those of a run that goes wrong: how many, and which.
#include "daemon/store/event_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

namespace lockstep {
namespace {

class ControlPreflightTest : public ControlTest {
  protected:
    ControlPreflightTest() { tick_ = std::chrono::seconds{1}; }
    std::string start(std::int32_t nodes, const std::string& mode) {
        const auto json =
            parse_json(R"({"name":"t","framework":"command","command":["x"],)"
                       R"("preflight":{"mode":")" +
                       mode + R"("},"resources":{"nodes":)" + std::to_string(nodes) + "}}");
        std::string id;
        auto run = [&]() -> Task<void> {
            SubmitRequest request;
            request.spec = parse_spec(*json).value();
            Caller caller = ada_;
            auto done = co_await control_->submit(std::move(caller), std::move(request));
            id = done->id;
        };
        wait(run());
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        return id;
    }
    Json findings(const std::string& id) {
        return show(id)["attempts"][0].value("preflight", Json::array());
    }
    // What the job's events have of a kind.
    std::vector<Event> events(const std::string& id, EventKind kind) {
        std::vector<Event> out;
        auto run = [&]() -> Task<void> {
            const std::function<Result<std::vector<Event>>(Database&)> work = [id](Database& db) {
                return EventRecords{db}.of_job(JobId{id}, 0, 10'000);
            };
            auto all = co_await store_->read<std::vector<Event>>(work);
            out = all.value_or(std::vector<Event>{});
        };
        wait(run());
        std::erase_if(out, [&](const Event& one) { return one.kind() != kind; });
        return out;
    }
};

// Who asks for nothing but the pre-flight was told that all is well of nodes nobody had looked at.
TEST_F(ControlPreflightTest, AloneItWarnsOfNodesWhoseAgentsDoNotKnowIt) {
    const std::string id = start(2, "only");
    TestAgent first = hello(0);
    TestAgent second = hello(1);
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    const Json found = findings(id);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0]["check"], "answer");
    EXPECT_EQ(found[0]["severity"], "warn");
}

// Neither would a spare be waited for, nor would the failure of a node that has one end the job.
TEST_F(ControlPreflightTest, AloneItTakesNoSpares) {
    const auto json = parse_json(R"({"name":"t","framework":"command","command":["x"],)"
                                 R"("preflight":{"mode":"only"},)"
                                 R"("resources":{"nodes":2,"spares":1}})");
    SubmitResult<Submitted> done = fail(Errc::internal, "not run");
    auto run = [&]() -> Task<void> {
        SubmitRequest request;
        request.spec = parse_spec(*json).value();  // of one that is stored already
        Caller caller = ada_;
        done = co_await control_->submit(std::move(caller), std::move(request));
    };
    wait(run());
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Errc::invalid);
    EXPECT_EQ(done.error().fields.at(0).pointer, "/preflight/mode");
    EXPECT_FALSE(control_->render(ada_, parse_spec(*json).value()).has_value());
}

// In documents of 0.1.0 gpu_test was the test of the CPUs: those are read, and not handed in as
// they are.
TEST_F(ControlPreflightTest, ATestOfGpusNeedsGpus) {
    const auto json = [](int gpus) {
        return parse_json(R"({"name":"t","framework":"command","command":["x"],)"
                          R"("preflight":{"gpu_test":true},)"
                          R"("resources":{"nodes":2,"gpus_per_node":)" +
                          std::to_string(gpus) + "}}");
    };
    const JobSpec without = parse_spec(*json(0)).value();  // one that is stored already
    EXPECT_TRUE(without.preflight.gpu_test);
    EXPECT_FALSE(without.preflight.cpu_test);
    const auto refused = control_->render(ada_, without);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().fields.at(0).pointer, "/preflight/gpu_test");
    EXPECT_THAT(refused.error().fields.at(0).message, testing::HasSubstr("is cpu_test"));
    const auto with = control_->render(ada_, parse_spec(*json(2)).value());
    ASSERT_FALSE(with.has_value());
    EXPECT_EQ(with.error().fields.at(0).pointer, "/resources/gpus_per_node")
        << "the scheduler of these tests has none";
}

TEST_F(ControlPreflightTest, WarningsTakeAtMostHalfOfTheRoom) {
    constexpr std::int32_t kNodes = 40;
    const std::string id = start(kNodes, "only");
    std::vector<TestAgent> agents;
    for (std::int32_t node = 0; node < kNodes; ++node) {
        agents.push_back(hello(node));
    }
    until([&] { return agents.front().peer->last<wire::Stop>() != nullptr; }, "STOP");
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    EXPECT_EQ(findings(id).size(), limits::kPreflightEvents / 2);
}

TEST_F(ControlPreflightTest, AnomaliesOfOneKindLeaveRoomForTheOthers) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    std::uint64_t seq = 0;
    const auto report = [&](const std::function<void(Batch&)>& set) {
        Batch out;
        out.seq = ++seq;
        out.generation = 1;
        out.add_row(0, static_cast<std::int64_t>(seq), 1'700'000'000.0 + static_cast<double>(seq));
        set(out);
        first.session->on_binary(encode_batch(out));
        until(
            [&] {
                const auto* ack = first.peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "acknowledged");
        second.say(wire::Beat{});
        clock_.advance(std::chrono::seconds{2});
        control_->scheduler_changed(JobId{id});
    };
    const auto count = [&](const char* kind) {
        return show(id).value("anomalies", Json::object()).value(kind, 0);
    };
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (int i = 0; i < limits::kAnomalyEvents; ++i) {
        report([&](Batch& batch) { batch.set("metric_" + std::to_string(i), kNan); });
        until([&] { return count("nonfinite") == i + 1; }, "told");
    }
    // Of ten more none is told; what is of another kind is.
    report([&](Batch& batch) {
        for (int i = 0; i < 10; ++i) {
            batch.set("other_" + std::to_string(i), kNan);
        }
    });
    for (int i = 0; i < 120; ++i) {
        report([](Batch& batch) { batch.set("grad_norm", 1.0); });
    }
    report([](Batch& batch) { batch.set("grad_norm", 1000.0); });
    until([&] { return count("grad_norm_spike") == 1; }, "another kind is told");
    EXPECT_EQ(count("nonfinite"), limits::kAnomalyEvents);
    EXPECT_EQ(events(id, EventKind::anomaly).size(), std::size_t{limits::kAnomalyEvents} + 1);
}

// The watch finds each thing once; that it could not be stored was the end of it.
TEST_F(ControlPreflightTest, AnAnomalyThatFindsNoRoomIsToldOnceThereIsSome) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    Batch batch;
    batch.seq = 1;
    batch.generation = 1;
    batch.add_row(0, 1, 1'700'000'000.0);
    // As many as are told, so that they do not fit into what room a page still has.
    for (int i = 0; i < limits::kAnomalyEvents; ++i) {
        batch.set("metric_" + std::to_string(i), std::numeric_limits<double>::quiet_NaN());
    }
    first.session->on_binary(encode_batch(batch));
    until([&] { return first.peer->last<wire::Ack>() != nullptr; }, "acknowledged");
    const auto told = [&] {
        return show(id).value("anomalies", Json::object()).value("nonfinite", 0);
    };
    ASSERT_EQ(told(), 0) << "the clock stands still: nobody has looked";
    const Seq before = fill_store();
    until(
        [&] {
            first.say(wire::Beat{});
            second.say(wire::Beat{});
            clock_.advance(std::chrono::seconds{2});
            control_->scheduler_changed(JobId{id});
            return store_->last_seq() >= before + 2;
        },
        "two tries");
    ASSERT_EQ(told(), 0);
    limit_store(1'000'000);
    until([&] { return told() > 0; }, "told");
    EXPECT_EQ(told(), limits::kAnomalyEvents);
    EXPECT_EQ(events(id, EventKind::anomaly).size(), std::size_t{limits::kAnomalyEvents});
}

}  // namespace
}  // namespace lockstep
