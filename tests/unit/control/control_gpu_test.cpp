// What agents say of their nodes' GPUs.
#include "job/model/wire/gpu_batch.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string frame(std::uint32_t node, double use, std::vector<GpuUse> uses = {}) {
    GpuBatch batch;
    batch.node_rank = node;
    batch.time = 1'700'000'000.0;
    batch.gpus.resize(1);
    batch.gpus[0].gpu = 3;
    batch.gpus[0][GpuMetric::utilization] = use;
    batch.uses = std::move(uses);
    return encode_gpu_batch(batch);
}

class ControlGpus : public ControlTest {
  protected:
    std::string metrics() { return metrics_text(); }
    std::size_t xid_events(const std::string& id) {
        std::string events;
        auto run = [&]() -> Task<void> {
            const auto answer = co_await control_->events(ada_, id, first_events(1000));
            events = answer.value_or("");
        };
        wait(run());
        std::size_t count = 0;
        for (auto at = events.find("gpu_xid"); at != std::string::npos;
             at = events.find("gpu_xid", at + 1)) {
            ++count;
        }
        return count;
    }
};

TEST_F(ControlGpus, TheNewestLookIsShownOfItsOwnNodeOnly) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    first.session->on_binary(frame(0, 0.25));
    first.session->on_binary(frame(0, 0.5, {{0, 3, 7}}));
    first.session->on_binary(frame(1, 0.75));  // claims to be node 1's
    const std::string body = metrics();
    EXPECT_THAT(body, HasSubstr("lockstep_gpu_utilization_ratio{node=\"n0\",gpu=\"3\"} 0.5\n"));
    EXPECT_THAT(body, HasSubstr("rank=\"0\",node=\"n0\",local_rank=\"0\",gpu=\"3\"} 1\n"));
    EXPECT_THAT(body, Not(HasSubstr("0.75")));
    EXPECT_THAT(body, Not(HasSubstr("node=\"n1\",gpu=")));
    EXPECT_TRUE(first.peer->closed.empty());
}

// Its values were shown as those of a rank that runs elsewhere.
TEST_F(ControlGpus, ANodesGpuIsUsedByItsOwnRanksOnly) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_binary(frame(0, 0.5, {{0, 3, 7}, {1, 3, 8}, {1'000'000, 3, 9}}));
    const std::vector<telemetry::RankGpu> uses = context_->gpus.ranks(id, context_->now_seconds());
    ASSERT_EQ(uses.size(), 1U);
    EXPECT_EQ(uses[0].rank, 0U);
    const std::string body = metrics();
    EXPECT_THAT(body, HasSubstr("rank=\"0\",node=\"n0\",local_rank=\"0\",gpu=\"3\"} 1\n"));
    EXPECT_THAT(body, HasSubstr("lockstep_ingest_dropped_samples_total{reason=\"bad_frame\"} 2\n"));
    EXPECT_TRUE(first.peer->closed.empty());
    const auto kept = [&] {
        const telemetry::JobSeries* series = context_->series.find(id);
        return series != nullptr && series->gpus().directory().size() == 1;
    };
    until(kept, "the history has the GPU");
    const telemetry::GpuDirectory& history = context_->series.find(id)->gpus().directory();
    EXPECT_EQ(history.at(0).ranks, std::vector<std::uint32_t>{0});
}

TEST_F(ControlGpus, ADamagedFrameEndsTheConnectionAndIsCounted) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    first.session->on_binary(frame(0, 0.25) + "x");
    EXPECT_EQ(first.peer->closed, "bad GPU frame");
    EXPECT_THAT(metrics(),
                HasSubstr("lockstep_ingest_dropped_samples_total{reason=\"bad_frame\"} 1"));
}

TEST_F(ControlGpus, AnErrorIsOneEventHoweverOftenItIsSaidAndNothingElseChanges) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    wire::GpuXid error;
    error.event = 1;
    error.generation = 1;
    error.rank = 0;
    error.gpu = 3;
    error.xid = 79;
    error.time = 1000;
    first.say(error);
    const auto acknowledged = [&] {
        const auto* ack = first.peer->last<wire::Ack>();
        return ack != nullptr && ack->event == error.event;
    };
    until(acknowledged, "ACK");
    error.event = 2;  // the same, as after a reconnect under another number
    first.say(error);
    until(acknowledged, "ACK of what is known");
    EXPECT_EQ(xid_events(id), 1U);
    EXPECT_EQ(state(id), "running");
    error.event = 3;
    error.time = 2000;
    first.say(error);
    until(acknowledged, "ACK");
    EXPECT_EQ(xid_events(id), 2U);
}

}  // namespace
}  // namespace lockstep
