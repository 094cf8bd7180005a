// resources.binding on made-up machines: two sockets with hyper-threads, a part of them, none
// known.
#include "job/agent/ranks/binding.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CpuList cpus(std::string_view text) {
    return parse_cpu_list(text).value_or(CpuList{-1});
}

// Two NUMA nodes of four cores of two threads: CPU n and n + 8 are one core, 0-3 are on node 0.
class BindingTest : public testing::Test {
  protected:
    void SetUp() override {
        put("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
        put("sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
        put("sys/devices/system/node/possible", "0-1\n");
        for (int cpu = 0; cpu < 16; ++cpu) {
            put("sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                    "/topology/thread_siblings_list",
                std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8) + "\n");
        }
    }
    void put(const std::string& path, const std::string& text) {
        const auto file = folder_.path() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream{file} << text;
    }
    void put_gpu(const std::string& address, int minor, const std::string& uuid, int node) {
        put("proc/driver/nvidia/gpus/" + address + "/information",
            "Model: \t\t NVIDIA H100\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " +
                std::to_string(minor) + "\n");
        put("sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node) + "\n");
    }
    CpuTopology topology(std::string_view allowed) {
        return read_topology(cpus(allowed), folder_.path());
    }
    static std::vector<std::string> texts(const BindingPlan& plan) {
        std::vector<std::string> out;
        for (const RankBinding& rank : plan.ranks) {
            out.push_back(cpu_list_text(rank.cpus));
        }
        return out;
    }

    TemporaryFolder folder_;
};

TEST(CpuLists, AreTheKernels) {
    EXPECT_EQ(cpus("0-3,8"), (CpuList{0, 1, 2, 3, 8}));
    EXPECT_EQ(cpus("7,0,1\n"), (CpuList{0, 1, 7}));
    EXPECT_EQ(cpus(""), CpuList{});
    for (const char* wrong : {"a", "3-1", "-1", "1-", "0-99999999"}) {
        EXPECT_FALSE(parse_cpu_list(wrong)) << wrong;
    }
    EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
    EXPECT_EQ(cpu_list_text({}), "");
    EXPECT_FALSE(allowed_cpus().empty());
}

TEST_F(BindingTest, NoneLeavesEverythingAsItIs) {
    const auto plan = plan_binding(Binding::none, 4, topology("0-15"));
    EXPECT_THAT(texts(plan), ElementsAre("", "", "", ""));
    EXPECT_EQ(plan.ranks[0].memory_node, -1);
}

TEST_F(BindingTest, NumaSpreadsTheRanksOverTheNodes) {
    const auto plan = plan_binding(Binding::numa, 4, topology("0-15"));
    EXPECT_THAT(texts(plan), ElementsAre("0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"));
    EXPECT_EQ(plan.ranks[0].memory_node, 0);
    EXPECT_EQ(plan.ranks[3].memory_node, 1);
    EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST_F(BindingTest, CoresGivesEachRankWholeCoresOfItsOwn) {
    EXPECT_THAT(texts(plan_binding(Binding::cores, 4, topology("0-15"))),
                ElementsAre("0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"));
    EXPECT_THAT(texts(plan_binding(Binding::cores, 3, topology("0-15"))),
                ElementsAre("0-1,8-9", "2-3,10-11", "4-7,12-15"));
}

TEST_F(BindingTest, OnlyWhatTheAllocationLeavesIsUsed) {
    EXPECT_THAT(texts(plan_binding(Binding::cores, 2, topology("2-3,10-11"))),
                ElementsAre("2,10", "3,11"));
    EXPECT_THAT(texts(plan_binding(Binding::cores, 2, topology("3-4"))), ElementsAre("3", "4"));
    EXPECT_THAT(texts(plan_binding(Binding::numa, 2, topology("3-4"))), ElementsAre("3", "4"));
}

TEST_F(BindingTest, TooFewCoresAreSharedAndSaid) {
    const auto plan = plan_binding(Binding::cores, 3, topology("0,8"));
    EXPECT_THAT(texts(plan), ElementsAre("0,8", "0,8", "0,8"));
    EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("3 ranks and 1 cores on NUMA node 0")));
}

TEST_F(BindingTest, ARankIsWhereItsGpuIs) {
    const auto plan = plan_binding(Binding::cores, 4, topology("0-15"), {1, 1, 0, 0});
    EXPECT_THAT(texts(plan), ElementsAre("4-5,12-13", "6-7,14-15", "0-1,8-9", "2-3,10-11"));
    EXPECT_EQ(plan.ranks[0].memory_node, 1);
    const auto far = plan_binding(Binding::numa, 2, topology("0-3"), {1, 0});
    EXPECT_THAT(texts(far), ElementsAre("0-3", "0-3"));
    EXPECT_THAT(far.warnings, ElementsAre(HasSubstr("GPUs are at NUMA node 1")));
}

TEST_F(BindingTest, AMachineThatSaysNothingIsOneNode) {
    const auto plain = read_topology(cpus("0-3"), folder_.path() / "nowhere");
    EXPECT_EQ(plain.nodes, 1);
    const auto plan = plan_binding(Binding::cores, 2, plain);
    EXPECT_THAT(texts(plan), ElementsAre("0-1", "2-3"));
    EXPECT_EQ(plan.ranks[0].memory_node, -1);
    EXPECT_THAT(plan_binding(Binding::cores, 2, CpuTopology{}).warnings,
                ElementsAre(HasSubstr("does not say which CPUs")));
}

TEST_F(BindingTest, GpusAreFoundByUuidNumberAndSlurmsMinor) {
    put_gpu("0000:17:00.0", 1, "GPU-aaaa-1", 0);
    put_gpu("0000:98:00.0", 0, "GPU-bbbb-2", 1);
    const auto nodes = [&](std::map<std::string, std::string> environment) {
        return gpu_nodes(environment, folder_.path());
    };
    EXPECT_THAT(nodes({{"CUDA_VISIBLE_DEVICES", "GPU-bbbb,GPU-aaaa-1"}}), ElementsAre(1, 0));
    EXPECT_THAT(nodes({{"CUDA_VISIBLE_DEVICES", "0,1"}}), ElementsAre(0, 1));
    EXPECT_THAT(nodes({{"CUDA_VISIBLE_DEVICES", "0"}, {"SLURM_STEP_GPUS", "0"}}), ElementsAre(1));
    EXPECT_THAT(nodes({{"CUDA_VISIBLE_DEVICES", "MIG-1,7"}}), ElementsAre(-1, -1));
    EXPECT_THAT(nodes({}), IsEmpty());
}

TEST(BoundThreads, HaveTheirCpusAndGiveThemBack) {
    const CpuList before = allowed_cpus();
    {
        RankBinding binding;
        binding.cpus = {before.back()};
        const BoundThread bound{binding};
        EXPECT_EQ(bound.problem(), "");
        EXPECT_EQ(allowed_cpus(), CpuList{before.back()});
    }
    EXPECT_EQ(allowed_cpus(), before);
    RankBinding nowhere;
    nowhere.cpus = {60'000};
    EXPECT_THAT(BoundThread{nowhere}.problem(), HasSubstr("CPUs 60000"));
    EXPECT_EQ(allowed_cpus(), before);
}

}  // namespace
}  // namespace lockstep
