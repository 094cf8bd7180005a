#include "daemon/telemetry/exposition/gpu_exposition.hpp"

#include "daemon/telemetry/exposition/exposition.hpp"
#include "job/base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kGpuNow = 1'000'000;

GpuBatch node_of(std::uint32_t gpus, double each = 1) {
    GpuBatch batch;
    for (std::uint32_t i = 0; i < gpus; ++i) {
        GpuSample gpu;
        gpu.gpu = i;
        gpu.uuid = "GPU-" + std::to_string(i);
        gpu.model = "H100";
        gpu.values.fill(each);
        batch.gpus.push_back(gpu);
    }
    return batch;
}

std::string render(const GpuTable& table, double now = kGpuNow) {
    std::string out;
    MetricText text{TextFormat::prometheus, out};
    write_gpus(text, shown_gpus(table, now));
    return out;
}

std::size_t lines_with(const std::string& body, const std::string& text) {
    std::size_t count = 0;
    for (auto at = body.find(text); at != std::string::npos; at = body.find(text, at + 1)) {
        ++count;
    }
    return count;
}

// Labels are made when a look comes and kept with it.
TEST(GpuExposition, LabelsFollowTheGpusOfALook) {
    GpuTable table;
    table.take({"ls-1", 0}, "n0", node_of(2), kGpuNow);
    table.take({"ls-1", 0}, "n0", node_of(2), kGpuNow + 1);
    EXPECT_THAT(render(table), HasSubstr("watts{node=\"n0\",gpu=\"1\"} 1\n"));
    GpuBatch other = node_of(2);
    other.gpus[1].gpu = 7;
    table.take({"ls-1", 0}, "n0", other, kGpuNow + 2);
    EXPECT_THAT(render(table), HasSubstr("watts{node=\"n0\",gpu=\"7\"} 1\n"));
    EXPECT_THAT(render(table), Not(HasSubstr("gpu=\"1\"")));
    table.take({"ls-1", 0}, "n\"1", other, kGpuNow + 3);
    EXPECT_THAT(render(table), HasSubstr("watts{node=\"n\\\"1\",gpu=\"7\"} 1\n"));
    table.take({"ls-1", 0}, "n2", node_of(3), kGpuNow + 4);
    EXPECT_EQ(lines_with(render(table), "lockstep_gpu_power_watts{node=\"n2\""), 3U);
}

// A series that is there twice costs the whole scrape.
TEST(GpuExposition, AGpuThatALookHasTwiceIsShownOnce) {
    GpuTable table;
    GpuBatch batch = node_of(3);
    batch.gpus[2].gpu = 0;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    EXPECT_EQ(lines_with(render(table), "lockstep_gpu_power_watts{node=\"n0\""), 2U);
}

TEST(GpuExposition, HasEveryNameOfTheCatalogue) {
    GpuTable table;
    table.take({"ls-1", 0}, "n0", node_of(1, 0.5), kGpuNow);
    const std::string body = render(table);
    for (const char* series :
         {"lockstep_gpu_info{node=\"n0\",gpu=\"0\",uuid=\"GPU-0\",model=\"H100\"} 1",
          "lockstep_gpu_utilization_ratio{node=\"n0\",gpu=\"0\"} 0.5",
          "lockstep_gpu_sm_active_ratio{",
          "lockstep_gpu_sm_occupancy_ratio{",
          "lockstep_gpu_tensor_active_ratio{",
          "lockstep_gpu_dram_active_ratio{",
          "lockstep_gpu_memory_used_bytes{",
          "lockstep_gpu_memory_total_bytes{",
          "lockstep_gpu_energy_joules_total{",
          "lockstep_gpu_power_watts{",
          "lockstep_gpu_power_limit_watts{",
          "lockstep_gpu_temperature_celsius{node=\"n0\",gpu=\"0\",sensor=\"core\"}",
          "lockstep_gpu_temperature_celsius{node=\"n0\",gpu=\"0\",sensor=\"memory\"}",
          "lockstep_gpu_clock_hertz{node=\"n0\",gpu=\"0\",domain=\"sm\"}",
          "lockstep_gpu_clock_hertz{node=\"n0\",gpu=\"0\",domain=\"memory\"}",
          "lockstep_gpu_throttle_seconds_total{node=\"n0\",gpu=\"0\",reason=\"sw_power\"}",
          "reason=\"sync_boost\"}",
          "reason=\"sw_thermal\"}",
          "reason=\"hw_thermal\"}",
          "reason=\"hw_power_brake\"}",
          "lockstep_gpu_pcie_bytes_total{node=\"n0\",gpu=\"0\",direction=\"tx\"}",
          "lockstep_gpu_pcie_bytes_total{node=\"n0\",gpu=\"0\",direction=\"rx\"}",
          "lockstep_gpu_pcie_replays_total{",
          "lockstep_gpu_nvlink_bytes_total{node=\"n0\",gpu=\"0\",direction=\"tx\"}",
          "lockstep_gpu_nvlink_errors_total{node=\"n0\",gpu=\"0\",kind=\"recovery\"}",
          "kind=\"ecc\"}",
          "kind=\"remote\"}",
          "kind=\"recovery_failed\"}",
          "lockstep_gpu_ecc_errors_total{node=\"n0\",gpu=\"0\",type=\"corrected\"}",
          "lockstep_gpu_ecc_errors_total{node=\"n0\",gpu=\"0\",type=\"uncorrected\"}",
          "lockstep_gpu_remapped_rows_total{node=\"n0\",gpu=\"0\",type=\"corrected\"}",
          "lockstep_gpu_row_remap_pending{",
          "lockstep_gpu_row_remap_failure{",
          "lockstep_gpu_recovery_action{"}) {
        EXPECT_THAT(body, HasSubstr(series));
    }
    EXPECT_EQ(lines_with(body, "{node="), kGpuMetrics + 1);
    EXPECT_EQ(lines_with(body, "# TYPE lockstep_gpu_throttle_seconds_total"), 1U);
}

TEST(GpuExposition, WhatIsUnknownLeavesNoTrace) {
    GpuBatch batch = node_of(2, kGpuUnknown);
    batch.gpus[1][GpuMetric::power] = 70;
    GpuTable table;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    const std::string body = render(table);
    EXPECT_THAT(body, HasSubstr("lockstep_gpu_power_watts{node=\"n0\",gpu=\"1\"} 70"));
    EXPECT_THAT(body, Not(HasSubstr("lockstep_gpu_power_watts{node=\"n0\",gpu=\"0\"}")));
    EXPECT_THAT(body, Not(HasSubstr("lockstep_gpu_energy")));
    EXPECT_EQ(render(GpuTable{}), "");
}

TEST(GpuExposition, ALostGpuGoesAtOnceANodeThatFellSilentAfterThirtySeconds) {
    GpuTable table;
    table.take({"ls-1", 0}, "n0", node_of(2), kGpuNow);
    GpuBatch one = node_of(2);
    one.gpus.pop_back();
    table.take({"ls-1", 0}, "n0", one, kGpuNow + 1);
    EXPECT_THAT(render(table, kGpuNow + 1), Not(HasSubstr("gpu=\"1\"")));
    EXPECT_THAT(render(table, kGpuNow + 31), HasSubstr("gpu=\"0\""));
    EXPECT_EQ(render(table, kGpuNow + 31.5), "");
}

TEST(GpuExposition, TwoJobsOnANodeShowItsGpusOnceAsTheNewerLookSays) {
    GpuTable table;
    table.take({"ls-1", 0}, "n0", node_of(2, 0.25), kGpuNow - 2);
    table.take({"ls-2", 0}, "n0", node_of(1, 0.75), kGpuNow - 1);
    const std::string body = render(table);
    EXPECT_THAT(body, HasSubstr("lockstep_gpu_utilization_ratio{node=\"n0\",gpu=\"0\"} 0.75"));
    EXPECT_THAT(body, HasSubstr("lockstep_gpu_utilization_ratio{node=\"n0\",gpu=\"1\"} 0.25"));
    EXPECT_EQ(lines_with(body, "lockstep_gpu_utilization_ratio{"), 2U);
}

TEST(GpuExposition, TheNewestErrorOfANumberIsShownAlsoOfALostGpu) {
    GpuBatch batch = node_of(1);
    batch.xids = {{5, 79, 900}, {0, 63, 800}};
    GpuTable table;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    batch.xids = {{5, 79, 700}};
    table.take({"ls-2", 0}, "n0", batch, kGpuNow);
    const std::string body = render(table);
    const std::string name = "lockstep_gpu_xid_last_timestamp_seconds{node=\"n0\",";
    EXPECT_THAT(body, HasSubstr(name + "gpu=\"5\",xid=\"79\"} 900\n"));
    EXPECT_THAT(body, HasSubstr(name + "gpu=\"0\",xid=\"63\"} 800\n"));
    EXPECT_EQ(lines_with(body, name), 2U);
}

TEST(GpuExposition, ManyGpusAreSlimAndWhatIsLeftOutIsCounted) {
    GpuTable table;
    const auto nodes = static_cast<std::int32_t>(limits::kGpusShownInFull / 8);
    for (std::int32_t i = 0; i < nodes; ++i) {
        table.take({"ls-1", i}, "n" + std::to_string(i), node_of(8), kGpuNow);
    }
    EXPECT_EQ(shown_gpus(table, kGpuNow).suppressed, 0U);
    table.take({"ls-1", nodes}, "more", node_of(1), kGpuNow);
    const ShownGpus shown = shown_gpus(table, kGpuNow);
    const std::string body = render(table);
    EXPECT_EQ(lines_with(body, "node=\"more\""), 20U) << "the slim profile, info included";
    EXPECT_EQ(shown.suppressed, shown.gpus.size() * (kGpuMetrics + 1 - 20));
    EXPECT_THAT(body, Not(HasSubstr("lockstep_gpu_pcie_bytes_total")));
}

TEST(GpuExposition, BeyondTheMostGpusNoneIsShownAndAllAreCounted) {
    GpuTable table;
    constexpr std::uint32_t kEach = 16;
    const auto nodes = static_cast<std::int32_t>(limits::kGpusShown / kEach);
    for (std::int32_t i = 0; i < nodes; ++i) {
        table.take({"ls-1", i}, "n" + std::to_string(i), node_of(kEach, kGpuUnknown), kGpuNow);
    }
    EXPECT_EQ(shown_gpus(table, kGpuNow).suppressed, 0U);
    GpuBatch more = node_of(3, kGpuUnknown);
    more.gpus[0][GpuMetric::power] = 70;
    table.take({"ls-1", nodes}, "more", more, kGpuNow - 1);
    const ShownGpus shown = shown_gpus(table, kGpuNow);
    EXPECT_EQ(shown.gpus.size(), limits::kGpusShown);
    EXPECT_EQ(shown.suppressed, 4U);
}

TEST(GpuExposition, ARankHasSixteenGpusAtMost) {
    GpuBatch batch = node_of(40);
    for (std::uint32_t gpu = 0; gpu < 40; ++gpu) {
        batch.uses.push_back({0, gpu, 1});
    }
    GpuTable table;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    const std::vector<RankMetricsView> ranks{{0, 0, "n0"}};
    std::vector<JobMetricsView> jobs(1);
    jobs[0].job_id = "ls-1";
    jobs[0].ranks = ranks;
    MetricsView view;
    view.now = kGpuNow;
    view.active = jobs;
    view.gpus = &table;
    std::string body;
    MetricText text{TextFormat::prometheus, body};
    write_jobs(text, view);
    EXPECT_EQ(lines_with(body, "lockstep_rank_info{job_id=\"ls-1\",rank=\"0\""), 16U);
    EXPECT_THAT(body, HasSubstr("lockstep_exposition_suppressed_series 24\n"));
}

TEST(GpuExposition, RankInfoJoinsRanksWithTheirGpus) {
    GpuBatch batch = node_of(4);
    batch.uses = {{0, 2, 1}, {1, 0, 1}, {1, 3, 1}, {7, 9, 1}};
    GpuTable table;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    table.take({"ls-10", 0}, "n9", batch, kGpuNow);
    const std::vector<RankMetricsView> ranks{{0, 0, "n0"}, {1, 1, "n0"}, {2, 2, "n0"}};
    std::vector<JobMetricsView> jobs(1);
    jobs[0].job_id = "ls-1";
    jobs[0].ranks = ranks;
    MetricsView view;
    view.now = kGpuNow;
    view.active = jobs;
    view.gpus = &table;
    std::string body;
    MetricText text{TextFormat::prometheus, body};
    write_jobs(text, view);
    const std::string name = "lockstep_rank_info{job_id=\"ls-1\",rank=";
    EXPECT_THAT(body, HasSubstr(name + "\"0\",node=\"n0\",local_rank=\"0\",gpu=\"2\"} 1"));
    EXPECT_THAT(body, HasSubstr(name + "\"1\",node=\"n0\",local_rank=\"1\",gpu=\"0\"} 1"));
    EXPECT_THAT(body, HasSubstr(name + "\"1\",node=\"n0\",local_rank=\"1\",gpu=\"3\"} 1"));
    EXPECT_THAT(body, HasSubstr(name + "\"2\",node=\"n0\",local_rank=\"2\"} 1"));
    EXPECT_EQ(lines_with(body, name), 4U);
    EXPECT_EQ(table.ranks("ls-1", kGpuNow).size(), 3U) << "GPU 9 is not there";
}

TEST(GpuExposition, PromtoolAcceptsIt) {
    if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
        GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
    }
    GpuBatch batch = node_of(8);
    batch.xids = {{5, 79, 900}};
    GpuTable table;
    table.take({"ls-1", 0}, "n0", batch, kGpuNow);
    FILE* promtool = popen("promtool check metrics 2>&1", "w");
    ASSERT_NE(promtool, nullptr);
    const std::string body = render(table);
    EXPECT_EQ(std::fwrite(body.data(), 1, body.size(), promtool), body.size());
    const int status = pclose(promtool);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see promtool's output above";
}

}  // namespace
}  // namespace lockstep::telemetry
