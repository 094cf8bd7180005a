#include "job/model/job_view.hpp"

#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(JobView, ShowsTheContractsFieldsAndLeavesUnknownOnesOut) {
    History h;
    Json early = job_json(h.job, LiveView{});
    EXPECT_EQ(early["state"], "accepted");
    for (const char* absent :
         {"started_at", "finished_at", "step", "ettr", "spans", "lost_steps", "cause"}) {
        EXPECT_FALSE(early.contains(absent)) << absent;
    }
    h.running();
    LiveView live;
    live.step = 12;
    live.now = h.now + 20'000;
    live.reports = {{1, 1, 1, 10, h.now + 10'000, h.now + 20'000, 0}};
    const Json view = job_json(h.job, live);
    EXPECT_EQ(view["step"], 12);
    EXPECT_EQ(view["ettr"], 0.5);
    EXPECT_EQ(view["spans"]["init_seconds"], 10);
    EXPECT_EQ(view["spans"]["lost_seconds"], 0);
    EXPECT_FALSE(view.contains("lost_steps"));
    EXPECT_EQ(view["attempts"][0]["generations"][0]["step"], 10);
    EXPECT_EQ(view["attempts"][0]["nodes"], Json::parse(R"(["n0","n1"])"));
    EXPECT_EQ(view["attempts"][0]["generations"][0]["number"], 1);
    EXPECT_EQ(rank_json(h.job, 3)["node"], "n1");
    EXPECT_EQ(rank_json(h.job, 3)["state"], "running");
    h.must(h.exit(3, 4));
    EXPECT_EQ(rank_json(h.job, 3)["exit_code"], 4);
    EXPECT_EQ(rank_json(h.job, 3)["state"], "failed");
}

TEST(JobView, ASweepThatAnOlderVersionStoredShowsNoValueOfTheEnvironment) {
    Event event;
    event.job = JobId{"ls-01J00000000000000000000000"};
    event::Submitted submitted;
    submitted.user = "ada";
    submitted.spec = *parse_json(R"({"name":"t","framework":"command","command":["x"],
                                     "environment":{"KEY":"k"}})");
    submitted.sweep = event.job.value;
    submitted.sweep_size = 1;
    submitted.sweep_parameters = *parse_json(R"({"environment.KEY":"k","labels.a":"b"})");
    event.data = std::move(submitted);
    const auto job = start_job(event);
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(dump_json(job_json(*job, LiveView{})["sweep"]["parameters"]),
              R"({"environment.KEY":"***","labels.a":"b"})");
}

TEST(JobView, ResourcesAreThoseOfTheSpecification) {
    const History h{R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2,
        "spares":1,"min_nodes":1,"ranks_per_node":4,"gpus_per_node":2,"gpu_type":"h100",
        "ranks_per_gpu":2,"memory_mb_per_node":1000,"time_limit":"01:00:00"},"recovery":{}})"};
    const Json shown = job_json(h.job, LiveView{})["resources"];
    EXPECT_EQ(shown["ranks_per_gpu"], 2);
    EXPECT_EQ(shown, to_json(h.job.spec)["resources"]);
}

TEST(JobView, AnAttemptThatSomebodyCancelledHasNotFailed) {
    for (const auto& [kind, state] : {std::pair{CauseClass::none, "succeeded"},
                                      {CauseClass::cancelled_by_user, "cancelled"},
                                      {CauseClass::rank_exit, "failed"}}) {
        History h;
        h.running();
        event::AttemptEnded ended;
        ended.attempt = 1;
        ended.cause.kind = kind;
        h.must(ended);
        EXPECT_EQ(job_json(h.job, LiveView{})["attempts"][0]["state"], state);
    }
}

}  // namespace
}  // namespace lockstep
