#include "job/base/machine.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

class MachineTest : public testing::Test {
  protected:
    void file(const std::string& path, const std::string& text) {
        const auto full = root.path() / path;
        std::filesystem::create_directories(full.parent_path());
        ASSERT_TRUE(write_file_atomic(full, text));
    }
    TemporaryFolder root;
};

TEST_F(MachineTest, ThisOneHasCoresMemoryAndAName) {
    const Machine here = read_machine();
    EXPECT_GE(here.cores, 1);
    EXPECT_GT(here.memory_mb, 16);
    EXPECT_FALSE(host_name().empty());
}

TEST_F(MachineTest, MemoryIsThePhysicalOneWithoutALimit) {
    file("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n");
    file("proc/self/cgroup", "0::/user.slice/me\n");
    file("sys/fs/cgroup/user.slice/me/memory.max", "max\n");
    EXPECT_EQ(read_machine(root.path()).memory_mb, 16000);
}

TEST_F(MachineTest, TheSmallestLimitUpTheTreeCounts) {
    file("proc/meminfo", "MemTotal:       16384000 kB\n");
    file("proc/self/cgroup", "0::/a/b\n");
    file("sys/fs/cgroup/a/b/memory.max", "8589934592\n");
    file("sys/fs/cgroup/a/memory.max", "4294967296\n");
    EXPECT_EQ(read_machine(root.path()).memory_mb, 4096);
}

TEST_F(MachineTest, VersionOneLimitsCountTooAndItsHugeNumberIsNone) {
    file("proc/meminfo", "MemTotal:       16384000 kB\n");
    file("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
    file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(read_machine(root.path()).memory_mb, 1024);
}

TEST_F(MachineTest, FreeMemoryIsTheLeastOfTheMachinesAndTheGroups) {
    file("proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:    8192000 kB\n");
    file("proc/self/cgroup", "0::/a/b\n");
    EXPECT_EQ(free_memory_mib(root.path()), 8000);
    file("sys/fs/cgroup/a/b/memory.max", "max\n");
    file("sys/fs/cgroup/a/b/memory.current", "1073741824\n");
    file("sys/fs/cgroup/a/memory.max", "4294967296\n");
    file("sys/fs/cgroup/a/memory.current", "1073741824\n");
    EXPECT_EQ(free_memory_mib(root.path()), 3072);
    file("sys/fs/cgroup/a/memory.current", "4294967299\n");
    EXPECT_EQ(free_memory_mib(root.path()), 0);
}

TEST_F(MachineTest, GpusAreTheirNumberedDeviceNodes) {
    EXPECT_EQ(read_machine(root.path()).gpus, 0);
    for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"}) {
        file(std::string{"dev/"} + name, "");
    }
    EXPECT_EQ(read_machine(root.path()).gpus, 3);
}

TEST_F(MachineTest, GpusAreNamedAsTheDriverNamesThem) {
    const auto information = [&](const std::string& address, const std::string& uuid) {
        file("proc/driver/nvidia/gpus/" + address + "/information",
             "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t " + uuid + "\n");
    };
    for (const char* name : {"nvidia0", "nvidia1"}) {
        file(std::string{"dev/"} + name, "");
    }
    using Names = std::vector<std::string>;
    EXPECT_EQ(gpu_names(nullptr, root.path()), (Names{"0", "1"}));
    information("0000:b3:00.0", "GPU-22222222-aaaa");
    EXPECT_EQ(gpu_names(nullptr, root.path()), (Names{"0", "1"})) << "of one nothing is known";
    information("0000:1b:00.0", "GPU-11111111-aaaa");
    EXPECT_EQ(gpu_names(nullptr, root.path()), (Names{"GPU-11111111-aaaa", "GPU-22222222-aaaa"}));
    information("0000:1b:00.0", "GPU-" + std::string(8, '?'));  // nobody has opened it yet
    EXPECT_EQ(gpu_names(nullptr, root.path()), (Names{"0", "1"}));
}

TEST_F(MachineTest, OnlyTheGpusThatAreVisibleAreNamed) {
    using Names = std::vector<std::string>;
    file("dev/nvidia0", "");
    EXPECT_EQ(gpu_names("MIG-5c6f, GPU-11,2", root.path()), (Names{"MIG-5c6f", "GPU-11", "2"}));
    EXPECT_EQ(gpu_names("0,-1,2", root.path()), Names{"0"}) << "CUDA ignores what follows";
    EXPECT_EQ(gpu_names("", root.path()), Names{});
    EXPECT_EQ(gpu_names("NoDevFiles", root.path()), Names{});
}

TEST_F(MachineTest, OutOfMemoryKillsAreCountedWhereTheKernelSays) {
    EXPECT_EQ(oom_kills(root.path()), -1);
    file("proc/self/cgroup", "0::/a\n");
    file("sys/fs/cgroup/a/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 1\n");
    EXPECT_EQ(oom_kills(root.path()), 3);
}

}  // namespace
}  // namespace lockstep::test
