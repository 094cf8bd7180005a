#include "job/agent/gpu/gpu_sampler.hpp"

#include "job/base/log.hpp"
#include "tests/unit/gpu/gpu_script.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

namespace lockstep {
namespace {

std::unique_ptr<Nvml> open(const char* library = FAKE_NVML_NEW) {
    auto nvml = Nvml::open(library);
    EXPECT_TRUE(nvml.has_value()) << nvml.error().message;
    return nvml ? std::move(*nvml) : nullptr;
}

struct Expected {
    GpuMetric metric;
    double value;
};

TEST(GpuSampler, ReadsEveryMetricInItsUnit) {
    const GpuScript script{
        "gpus 2\n"
        "gpu 1 utilization 97\n"
        "gpu 1 memory 1000 4000\n"
        "gpu 1 temperature 71\n"
        "gpu 1 clock 1500 2500\n"
        "gpu 1 gpm 2 25\ngpu 1 gpm 3 50\ngpu 1 gpm 5 75\ngpu 1 gpm 10 12.5\n"
        "gpu 1 field 83 long 7000\ngpu 1 field 186 int 650500\ngpu 1 field 190 int 700000\n"
        "gpu 1 field 82 int 88\n"
        "gpu 1 field 74 long 1000000000\ngpu 1 field 76 long 2000000000\n"
        "gpu 1 field 251 long 3000000000\ngpu 1 field 252 long 4000000000\n"
        "gpu 1 field 253 long 5000000000\n"
        "gpu 1 field 197 int 11\ngpu 1 field 198 int 12\ngpu 1 field 94 int 13\n"
        "gpu 1 field 138 long 2\ngpu 1 field 139 long 3\n"
        "gpu 1 field 59 int 21\ngpu 1 field 160 int 22\ngpu 1 field 209 long 23\n"
        "gpu 1 field 210 long 24\ngpu 1 field 211 long 25\ngpu 1 field 212 long 26\n"
        "gpu 1 field 214 long 27\n"
        "gpu 1 field 3 long 31\ngpu 1 field 4 long 32\ngpu 1 field 142 int 33\n"
        "gpu 1 field 143 int 34\ngpu 1 field 144 int 1\ngpu 1 field 145 int 1\n"
        "gpu 1 field 230 int 2\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    EXPECT_EQ(sampler.gpus(), 2U);
    EXPECT_TRUE(std::isnan(sampler.sample(1, RankProcesses{}).gpus.at(1)[GpuMetric::sm_active]))
        << "a mean needs two looks";
    const GpuBatch batch = sampler.sample(2, RankProcesses{});
    ASSERT_EQ(batch.gpus.size(), 2U);
    const GpuSample& gpu = batch.gpus[1];
    EXPECT_EQ(gpu.gpu, 1U);
    EXPECT_EQ(gpu.uuid, "GPU-fake-1");
    EXPECT_EQ(gpu.model, "Fake H100 80GB");
    EXPECT_EQ(gpu.driver, "570.1.fake");
    EXPECT_EQ(gpu.pci_bus_id, "00000000:02:00.0");
    using enum GpuMetric;
    const std::vector<Expected> expected{{utilization, 0.97},
                                         {sm_active, 0.25},
                                         {sm_occupancy, 0.5},
                                         {tensor_active, 0.75},
                                         {dram_active, 0.125},
                                         {memory_used, 1000},
                                         {memory_total, 4000},
                                         {energy, 7},
                                         {power, 650.5},
                                         {power_limit, 700},
                                         {temperature_core, 71},
                                         {temperature_memory, 88},
                                         {clock_sm, 1.5e9},
                                         {clock_memory, 2.5e9},
                                         {throttle_sw_power, 1},
                                         {throttle_sync_boost, 2},
                                         {throttle_sw_thermal, 3},
                                         {throttle_hw_thermal, 4},
                                         {throttle_hw_power_brake, 5},
                                         {pcie_sent, 11},
                                         {pcie_received, 12},
                                         {pcie_replays, 13},
                                         {nvlink_sent, 2048},
                                         {nvlink_received, 3072},
                                         {nvlink_recovery, 21},
                                         {nvlink_ecc, 22},
                                         {nvlink_remote, 23},
                                         {nvlink_general, 24},
                                         {nvlink_integrity, 25},
                                         {nvlink_discard, 26},
                                         {nvlink_recovery_failed, 27},
                                         {ecc_corrected, 31},
                                         {ecc_uncorrected, 32},
                                         {remapped_corrected, 33},
                                         {remapped_uncorrected, 34},
                                         {row_remap_pending, 1},
                                         {row_remap_failure, 1},
                                         {recovery_action, 2}};
    ASSERT_EQ(expected.size(), kGpuMetrics) << "a metric is not tested";
    for (const auto& [metric, value] : expected) {
        EXPECT_DOUBLE_EQ(gpu[metric], value) << kGpuMetricKeys[index(metric)];
    }
    EXPECT_EQ(batch.gpus[0][utilization], 0) << "the other GPU has values of its own";
}

TEST(GpuSampler, WhatIsNotSupportedIsUnknown) {
    const GpuScript script{
        "gpus 1\ngpu 0 nofield 82\ngpu 0 nofield 186\ngpu 0 nogpm\n"
        "gpu 0 nofield 138\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    sampler.sample(1, RankProcesses{});
    const GpuSample gpu = sampler.sample(2, RankProcesses{}).gpus.at(0);
    EXPECT_TRUE(std::isnan(gpu[GpuMetric::temperature_memory]));
    EXPECT_TRUE(std::isnan(gpu[GpuMetric::sm_active]));
    EXPECT_TRUE(std::isnan(gpu[GpuMetric::nvlink_sent]));
    EXPECT_EQ(gpu[GpuMetric::power], 55) << "asked for by itself";
}

TEST(GpuSampler, AnOldDriverHasLessAndNothingFails) {
    const GpuScript script{
        "gpus 2\ngpu 0 utilization 40\ngpu 0 memory 7 9\n"
        "gpu 0 process " +
        std::to_string(::getpid()) + " 77\n"};
    const auto nvml = open(FAKE_NVML_OLD_LIBRARY);
    EXPECT_EQ(nvml->api().fields, nullptr) << "it is not old";
    EXPECT_EQ(nvml->api().events_wait, nullptr);
    GpuSampler sampler{*nvml};
    sampler.sample(1, RankProcesses{});
    const GpuBatch batch = sampler.sample(2, RankProcesses{{{::getpid(), 5}}});
    ASSERT_EQ(batch.gpus.size(), 2U);
    const GpuSample& gpu = batch.gpus[0];
    EXPECT_EQ(gpu[GpuMetric::utilization], 0.4);
    EXPECT_EQ(gpu[GpuMetric::memory_used], 7);
    EXPECT_EQ(gpu[GpuMetric::memory_total], 9);
    EXPECT_EQ(gpu[GpuMetric::power], 55);
    EXPECT_EQ(gpu[GpuMetric::power_limit], 300);
    EXPECT_EQ(gpu[GpuMetric::energy], 5);
    EXPECT_TRUE(std::isnan(gpu[GpuMetric::tensor_active]));
    EXPECT_TRUE(std::isnan(gpu[GpuMetric::recovery_action]));
    ASSERT_EQ(batch.uses.size(), 1U);
    EXPECT_EQ(batch.uses[0].rank, 5U);
    EXPECT_EQ(batch.uses[0].memory_bytes, 77);
}

TEST(GpuSampler, ALostGpuHasNoSampleUntilItIsBack) {
    const GpuScript script{"gpus 3\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    EXPECT_EQ(sampler.sample(1, RankProcesses{}).gpus.size(), 3U);
    script.write("gpus 3\ngpu 1 lost\n");
    testing::internal::CaptureStderr();
    log::start("test", log::Level::info, false);
    const GpuBatch batch = sampler.sample(2, RankProcesses{});
    sampler.sample(3, RankProcesses{});
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_EQ(batch.gpus.size(), 2U);
    EXPECT_EQ(batch.gpus[1].gpu, 2U);
    EXPECT_NE(log.find("GPU is lost"), std::string::npos);
    EXPECT_EQ(log.find("GPU is lost"), log.rfind("GPU is lost")) << "said once";
    script.write("gpus 3\n");
    EXPECT_EQ(sampler.sample(4, RankProcesses{}).gpus.size(), 3U);
}

TEST(GpuSampler, A32BitPcieCounterGoesOnWhenItWraps) {
    const GpuScript script{
        "gpus 1\ngpu 0 field 197 int 4294967290\n"
        "gpu 0 field 198 long 4294967290\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    EXPECT_EQ(sampler.sample(1, RankProcesses{}).gpus[0][GpuMetric::pcie_sent], 4294967290.0);
    script.write("gpus 1\ngpu 0 field 197 int 4\ngpu 0 field 198 long 4294967306\n");
    const GpuBatch batch = sampler.sample(2, RankProcesses{});
    EXPECT_EQ(batch.gpus[0][GpuMetric::pcie_sent], 4294967300.0);
    EXPECT_EQ(batch.gpus[0][GpuMetric::pcie_received], 4294967306.0);
}

TEST(GpuSampler, ACounterOfAGpuThatWasResetDoesNotJump) {
    const GpuScript script{"gpus 1\ngpu 0 field 197 int 1000\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    sampler.sample(1, RankProcesses{});
    script.write("gpus 1\ngpu 0 lost\n");
    sampler.sample(2, RankProcesses{});
    script.write("gpus 1\ngpu 0 field 197 int 5\n");
    EXPECT_EQ(sampler.sample(3, RankProcesses{}).gpus.at(0)[GpuMetric::pcie_sent], 1005);
}

// Drivers number the three counters 251 to 253 or 269 to 271; the other three are then something
// else, of 32 bits.
TEST(GpuSampler, ThrottleCountersAreFoundUnderEitherNumber) {
    const GpuScript script{
        "gpus 1\ngpu 0 field 251 int 1\ngpu 0 field 252 int 0\ngpu 0 field 253 int 1\n"
        "gpu 0 field 269 long 3000000000\ngpu 0 field 270 long 4000000000\n"
        "gpu 0 field 271 long 5000000000\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    const GpuSample gpu = sampler.sample(1, RankProcesses{}).gpus.at(0);
    EXPECT_EQ(gpu[GpuMetric::throttle_sw_thermal], 3);
    EXPECT_EQ(gpu[GpuMetric::throttle_hw_thermal], 4);
    EXPECT_EQ(gpu[GpuMetric::throttle_hw_power_brake], 5);
}

TEST(GpuSampler, TheNumberIsThatOfTheDeviceFile) {
    const GpuScript script{"gpus 1\ngpu 0 minor 5\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    EXPECT_EQ(sampler.sample(1, RankProcesses{}).gpus.at(0).gpu, 5U);
}

TEST(GpuSampler, ARanksProcessesAndTheirDescendantsAreItsOwn) {
    const test::TemporaryFolder proc;
    const auto process = [&](int pid, int parent) {
        const auto folder = proc.path() / std::to_string(pid);
        std::filesystem::create_directory(folder);
        std::ofstream{folder / "stat"} << pid << " (a) b (c) S " << parent << " 1 1 0\n";
    };
    process(10, 1);
    process(11, 10);
    process(12, 11);
    process(20, 1);
    process(30, 30);
    const RankProcesses processes{{{10, 3}, {20, 4}}, proc.path()};
    EXPECT_EQ(processes.rank_of(10), 3U);
    EXPECT_EQ(processes.rank_of(12), 3U);
    EXPECT_EQ(processes.rank_of(20), 4U);
    EXPECT_FALSE(processes.rank_of(1).has_value());
    EXPECT_FALSE(processes.rank_of(99).has_value());
    EXPECT_FALSE(processes.rank_of(30).has_value()) << "a loop ends";

    const GpuScript script{
        "gpus 2\ngpu 0 process 12 100\ngpu 0 process 10 50\n"
        "gpu 1 process 20 7\ngpu 1 process 99 8\ngpu 1 process 10 9\n"};
    const auto nvml = open();
    GpuSampler sampler{*nvml};
    const auto uses = sampler.sample(1, processes).uses;
    ASSERT_EQ(uses.size(), 3U);
    EXPECT_EQ(std::pair(uses[0].rank, uses[0].gpu), std::pair(3U, 0U));
    EXPECT_EQ(uses[0].memory_bytes, 150) << "both of its processes";
    EXPECT_EQ(std::pair(uses[1].rank, uses[1].gpu), std::pair(3U, 1U));
    EXPECT_EQ(std::pair(uses[2].rank, uses[2].gpu), std::pair(4U, 1U));
}

TEST(Nvml, SaysWhyThereIsNone) {
    EXPECT_EQ(Nvml::open("libthere-is-no-such.so.9").error().code, Errc::not_found);
    EXPECT_EQ(Nvml::open("libm.so.6").error().message, "libm.so.6 is not NVML");
    ::unsetenv("FAKE_NVML");
    EXPECT_EQ(Nvml::open(FAKE_NVML_NEW).error().message, "Driver Not Loaded");
}

}  // namespace
}  // namespace lockstep
