// History of GPUs through a real store: log, chunks, questions, restarts.
#include "job/model/wire/gpu_batch.hpp"
#include "tests/unit/control/history_fixture.hpp"

namespace lockstep {
namespace {

class GpuHistoryTest : public HistoryTest {
  protected:
    // One look at the two GPUs of a node; rank `node` is on the second.
    void see(TestAgent& agent, std::uint32_t node, double time, double use) {
        clock_.advance(std::chrono::milliseconds{600});
        see_at_once(agent, node, time, use);
    }
    static void see_at_once(TestAgent& agent, std::uint32_t node, double time, double use) {
        GpuBatch batch;
        batch.node_rank = node;
        batch.time = time;
        batch.gpus.resize(2);
        batch.gpus[1].gpu = 1;
        batch.gpus[0][GpuMetric::utilization] = use / 2;
        batch.gpus[1][GpuMetric::utilization] = use;
        batch.uses = {{node, 1, 7}};
        agent.session->on_binary(encode_gpu_batch(batch));
    }
    Json gpus(const std::string& id) {
        Json out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->gpus(ada_, id, 0, 1000);
            out = *parse_json(text.value_or("{}"));
        };
        wait(run());
        return out;
    }
    Json of_gpu(const std::string& id, std::int32_t gpu, bool by_time) {
        Json out;
        auto run = [&]() -> Task<void> {
            SeriesQuery query;
            query.of_gpus = true;
            query.metric = "gpu_utilization_ratio";
            query.gpus = {gpu};
            query.by_time = by_time;
            const auto text = co_await control_->series(ada_, id, query);
            out = *parse_json(text.value_or("{}"));
        };
        wait(run());
        return out;
    }
    std::size_t gpu_points(const std::string& id, std::int32_t gpu, bool by_time = true) {
        const Json all = of_gpu(id, gpu, by_time)["series"];
        return all.empty() ? 0 : all[0]["points"].size();
    }
};

TEST_F(GpuHistoryTest, ALookThatIsNotItsNodesTurnIsCountedByItsValues) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    see(first, 0, 1'700'000'000, 0.25);
    until([&] { return gpus(id)["total"] == 2; }, "a look is kept");
    see(first, 0, 1'700'000'001, 0.5);
    const std::string counter = "lockstep_ingest_dropped_samples_total{reason=\"rate_limited\"} ";
    EXPECT_NE(metrics_text().find(counter + "0\n"), std::string::npos);
    see_at_once(first, 0, 1'700'000'001, 0.5);  // the clock stands still
    EXPECT_NE(metrics_text().find(counter + "2\n"), std::string::npos) << "one of each GPU";
}

TEST_F(GpuHistoryTest, ChunksAndLogOfGpusAnswerAfterRestartsWhileTheJobRunsAndAfterItsEnd) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    see(first, 0, 1'700'000'000, 0.25);
    until([&] { return gpus(id)["total"] == 2; }, "a look is kept");
    EXPECT_EQ(gpus(id)["items"][1], (Json{{"id", 1}, {"node", "n0"}, {"gpu", 1}, {"ranks", {0}}}));
    std::uint64_t seq = 0;
    for (std::int64_t step = 0; step < 9 * kBatch; step += kBatch) {
        send(first, ++seq, 0, step, kBatch);
    }
    until([&] { return stored().chunks > 1; },
          "a full block becomes a chunk, and with it the GPUs'");
    see(first, 0, 1'700'000'001, 0.5);
    until([&] { return gpu_points(id, 1) == 2; }, "a look is in no chunk yet");
    EXPECT_EQ(of_gpu(id, 1, false)["series"][0]["points"], Json::parse("[[71999, 0.5, 0.5, 0.5]]"))
        << "where its rank was then";

    for (int restart = 0; restart < 2; ++restart) {
        const Json directory = gpus(id);
        const Json live = of_gpu(id, 1, true);
        first.session->on_closed();
        second.session->on_closed();
        shut_down();
        boot();
        EXPECT_EQ(of_gpu(id, 1, true), live);
        EXPECT_EQ(gpus(id), directory);
        first = hello(0, "i0", true);
        second = hello(1, "i1", true);
        until([&] { return second.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        see(second, 1, 1'700'000'010 + restart, 0.75);
        until([&] { return gpu_points(id, 3) == static_cast<std::size_t>(restart) + 1; },
              "node 1 follows");
    }
    EXPECT_EQ(gpus(id)["items"][3], (Json{{"id", 3}, {"node", "n1"}, {"gpu", 1}, {"ranks", {1}}}));
    EXPECT_EQ(gpus(id)["metrics"], Json::parse("[\"gpu_utilization_ratio\"]"));

    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "the rest becomes a chunk when the job is over");
    const Json over = of_gpu(id, 3, true);
    const Json directory = gpus(id);
    EXPECT_EQ(over["series"][0]["points"].size(), 2U);
    EXPECT_EQ(over["series"][0]["ranks"], Json::parse("[1]"));
    see(first, 0, 1'700'000'020, 0.5);  // nobody's any more
    shut_down();
    boot();
    EXPECT_EQ(of_gpu(id, 3, true), over);
    EXPECT_EQ(gpus(id), directory);
    EXPECT_EQ(gpu_points(id, 1), 2U);
}

// What looks alone have made of a job must not look like reports of its ranks.
TEST_F(GpuHistoryTest, AJobWhoseRanksReportNothingHasItsGpus) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    see(first, 0, 1'700'000'000, 0.25);
    until([&] { return gpus(id)["total"] == 2; }, "a look is kept");
    EXPECT_EQ(gpu_points(id, 0), 1U);
    EXPECT_EQ(gpu_points(id, 0, false), 0U) << "it has no step";
    EXPECT_EQ(points(id), 0U);
    finish(id, first, second);
    until([&] { return logged(id) == 0; }, "chunks");
    EXPECT_EQ(gpu_points(id, 0), 1U);
    shut_down();
    boot();
    EXPECT_EQ(gpu_points(id, 0), 1U);
    EXPECT_EQ(points(id), 0U);
}

}  // namespace
}  // namespace lockstep
