// What Prometheus reads: which jobs are targets for whom, and when a job's exposition ends.
#include "daemon/control/actor/dropped_reports.hpp"
#include "job/model/wire/gpu_batch.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

#include <set>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ControlMetrics : public ControlTest {
  protected:
    std::vector<std::string> targets(const Caller& caller) {
        std::vector<std::string> out;
        for (const auto& one : control_->exposition().scrape_targets(caller)) {
            out.push_back(one.job);
        }
        return out;
    }
    Result<MetricsBody> one(const std::string& id, const Caller& caller, const char* accept = "") {
        return control_->exposition().job_metrics(caller, id, {}, accept);
    }
    const Caller bob_{"bob", false, true};
    const Caller viewer_{"", false, false, true};
};

TEST_F(ControlMetrics, AJobIsATargetFromItsAllocationToItsEndAndForWhoMaySeeIt) {
    EXPECT_THAT(targets(viewer_), IsEmpty());
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    EXPECT_THAT(targets(viewer_), testing::ElementsAre(id));
    EXPECT_THAT(targets(ada_), testing::ElementsAre(id));
    EXPECT_THAT(targets(bob_), IsEmpty());
    const auto target = control_->exposition().scrape_targets(ada_).front();
    EXPECT_EQ(target.user, "ada");
    EXPECT_EQ(target.name, "t");
    EXPECT_EQ(target.framework, "command");
    EXPECT_EQ(target.allocation, "local-" + id + "-a1");  // as its agents say
    EXPECT_EQ(target.shards, 1U);

    const auto running = one(id, ada_);
    ASSERT_TRUE(running);
    EXPECT_THAT(running->body, HasSubstr("lockstep_job_state{job_id=\"" + id + "\""));
    EXPECT_THAT(running->body, Not(HasSubstr("lockstep_build_info")));
    EXPECT_THAT(running->content_type, HasSubstr("version=0.0.4"));
    EXPECT_EQ(one(id, bob_).error().code, Errc::not_found);
    EXPECT_EQ(one("ls-nobody", viewer_).error().code, Errc::not_found);
    EXPECT_THAT(one(id, viewer_, "application/openmetrics-text")->body,
                testing::EndsWith("# EOF\n"));

    first.say(exit(1, 0, 0));
    second.say(exit(1, 1, 0));
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    EXPECT_THAT(targets(viewer_), IsEmpty());
    // Empty, so that Prometheus ends the series and sees no failed scrape; then unknown.
    EXPECT_EQ(one(id, ada_)->body, "");
    EXPECT_EQ(one(id, viewer_, "application/openmetrics-text")->body, "# EOF\n");
    EXPECT_EQ(one(id, bob_).error().code, Errc::not_found);
    clock_.advance(std::chrono::seconds{30});
    EXPECT_EQ(one(id, ada_)->body, "");
    clock_.advance(std::chrono::milliseconds{1});
    EXPECT_EQ(one(id, ada_).error().code, Errc::not_found);
}

TEST_F(ControlMetrics, WithoutJobsThereIsTheDaemonAlone) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    EXPECT_THAT(metrics_text(), HasSubstr(id));
    const std::string own = control_->exposition().own_metrics("").body;
    EXPECT_THAT(own, Not(HasSubstr(id)));
    EXPECT_THAT(own, HasSubstr("lockstep_jobs{state=\"running\"} 1\n"));
    EXPECT_THAT(own, HasSubstr("lockstep_agents_connected 2\n"));
    EXPECT_THAT(own, HasSubstr("lockstep_build_info"));
    const telemetry::MetricSamples samples = control_->samples();
    std::set<std::string> names;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        names.emplace(samples.series(i).name);
        if (samples.series(i).name == "lockstep_job_ranks_expected") {
            EXPECT_EQ(samples.series(i).labels, "job_id=\"" + id + "\"");
            EXPECT_EQ(samples.value(i), 2);
        }
    }
    EXPECT_TRUE(names.contains("lockstep_job_ranks_expected"));
    EXPECT_FALSE(names.contains("lockstep_build_info"));
}

// It was: with any token, /metrics named everybody's jobs.
TEST_F(ControlMetrics, AUsersTokenReadsTheNumbersOfItsOwnJobsOnly) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    GpuBatch look;
    look.time = 1'700'000'000.0;
    look.gpus.resize(1);
    look.gpus[0][GpuMetric::utilization] = 0.5;
    first.session->on_binary(encode_gpu_batch(look));
    EXPECT_THAT(metrics_text(ada_), HasSubstr("lockstep_job_state{job_id=\"" + id + "\""));
    EXPECT_THAT(metrics_text(ada_),
                HasSubstr("lockstep_gpu_utilization_ratio{node=\"n0\",gpu=\"0\"} 0.5\n"));
    EXPECT_THAT(metrics_text(viewer_), HasSubstr("lockstep_gpu_utilization_ratio{node=\"n0\""));
    const std::string foreign = metrics_text(bob_);
    EXPECT_THAT(foreign, Not(HasSubstr(id)));
    EXPECT_THAT(foreign, Not(HasSubstr("lockstep_gpu_utilization_ratio{")));
    EXPECT_THAT(foreign, Not(HasSubstr("user=\"ada\"")));
    EXPECT_THAT(foreign, HasSubstr("lockstep_jobs{state=\"running\"} 1\n"));
}

TEST_F(ControlMetrics, AJobThatWaitsHasNoSeriesYetAndIsNoTarget) {
    scheduler_.handover = {Handover::Kind::wait, "", "not now"};
    const std::string id = submit()->id;
    EXPECT_THAT(targets(viewer_), IsEmpty());
    EXPECT_EQ(one(id, ada_)->body, "");
}

// Its series ended as if the job had: Grafana drew its end, remote write marked all of it stale.
TEST_F(ControlMetrics, AJobWhoseSecondAttemptWaitsKeepsItsSeriesWithoutThoseOfRanks) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second, R"(},"recovery":{},"labels":{)");
    Batch report;
    report.seq = 1;
    report.generation = 1;
    report.add_row(0, 7, 1'700'000'000.0);
    report.set("loss", 0.5);
    report.set("tokens", 64);
    report.set("step_seconds", 0.25);
    report.set("data_wait_seconds", 0.125);
    first.session->on_binary(encode_batch(report));
    until([&] { return metrics_text().find("lockstep_rank_loss{") != std::string::npos; },
          "rank 0 reports");
    EXPECT_THAT(metrics_text(), HasSubstr("lockstep_job_nodes{job_id=\"" + id + "\"} 2\n"));

    scheduler_.handover = {Handover::Kind::wait, "", "not now"};
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.cause.kind = CauseClass::preempted;
    first.session->on_closed();
    second.session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    ASSERT_EQ(state(id), "queued");

    EXPECT_THAT(targets(viewer_), testing::ElementsAre(id));
    const std::string own = "{job_id=\"" + id + "\"";
    for (const std::string& text : {metrics_text(), one(id, ada_)->body}) {
        EXPECT_THAT(text, HasSubstr("lockstep_job_info" + own));
        EXPECT_THAT(text, HasSubstr("lockstep_job_state" + own + ",state=\"queued\"} 1\n"));
        EXPECT_THAT(text, HasSubstr("lockstep_job_state" + own + ",state=\"running\"} 0\n"));
        EXPECT_THAT(text,
                    HasSubstr("lockstep_job_restarts_total" + own + ",cause=\"preempted\"} 1\n"));
        EXPECT_THAT(text, HasSubstr("lockstep_job_step" + own + "} 7\n"));
        EXPECT_THAT(text, HasSubstr("lockstep_job_tokens_total" + own + "} 64\n"));
        EXPECT_THAT(text, HasSubstr("lockstep_job_ranks_reporting" + own + "} 0\n"));
        // What alerts are about that would go on for as long as it waits.
        for (const char* of_ranks :
             {"lockstep_job_loss", "lockstep_job_step_time_seconds", "lockstep_job_data_wait_ratio",
              "lockstep_job_straggler_ranks", "lockstep_job_nodes", "lockstep_job_hang",
              "lockstep_rendezvous_ranks_missing"}) {
            EXPECT_THAT(text, Not(HasSubstr("\n" + (of_ranks + own)))) << of_ranks;
        }
        EXPECT_THAT(text, Not(HasSubstr("lockstep_rank_loss{")));
        EXPECT_THAT(text, Not(HasSubstr("lockstep_rank_info{")));
    }
    const telemetry::MetricSamples sent = control_->samples();
    std::set<std::string> names;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        names.emplace(sent.series(i).name);
    }
    EXPECT_TRUE(names.contains("lockstep_job_tokens_total"));
    EXPECT_FALSE(names.contains("lockstep_rank_loss"));
}

// Each connection began at 0: an agent that had once lost reports and lost its connection now and
// then was an alert for ever.
TEST_F(ControlMetrics, WhatAnAgentHasLostCountsOnceHoweverOftenItReconnects) {
    TestAgent first;
    TestAgent second;
    start_job_with(first, second);
    const auto lost = [](TestAgent& agent, std::uint64_t total) {
        wire::Beat beat;
        beat.generation = 1;
        beat.dropped_rows = total;
        agent.say(beat);
    };
    const auto counted = [this](const char* count) {
        const std::string line =
            std::string{"\nlockstep_agent_dropped_reports_total "} + count + "\n";
        return metrics_text().find(line) != std::string::npos;
    };
    lost(first, 7);
    lost(second, 100);
    EXPECT_TRUE(counted("107"));
    for (int i = 0; i < 3; ++i) {
        first.session->on_closed();
        first = hello(0, "", true);
        until([&] { return first.peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        lost(first, 7);
        EXPECT_TRUE(counted("107"));
    }
    lost(first, 9);
    EXPECT_TRUE(counted("109")) << "those are new";
}

TEST(DroppedReports, AnotherProcessBeginsAtNothing) {
    DroppedReports reports;
    Agent agent{1, "10.0.0.1"};
    agent.node_rank = 3;
    agent.incarnation = "first";
    EXPECT_EQ(reports.take(agent, 5), 5U);
    EXPECT_EQ(reports.take(agent, 5), 0U);
    Agent again{1, "10.0.0.1"};  // an elastic job's agent that was started again
    again.node_rank = 3;
    again.incarnation = "second";
    EXPECT_EQ(reports.take(again, 2), 2U);
    EXPECT_EQ(reports.take(again, 4), 2U);
    Agent requeued{2, "10.0.0.1"};
    requeued.node_rank = 3;
    requeued.incarnation = "third";
    EXPECT_EQ(reports.take(requeued, 1), 1U);
    EXPECT_EQ(reports.take(again, 9), 0U) << "of an attempt that is over";
    EXPECT_EQ(reports.take(requeued, 1), 0U);
    Agent other{2, "10.0.0.2"};
    other.node_rank = 4;
    other.incarnation = "fourth";
    EXPECT_EQ(reports.take(other, 1), 1U) << "of another node";
}

}  // namespace
}  // namespace lockstep
