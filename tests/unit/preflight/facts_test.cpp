// What a node says of itself, from made-up trees of /proc, /dev and the job's folders.
#include "job/agent/preflight/preflight_facts.hpp"
#include "tests/support/temporary_folder.hpp"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <fstream>

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class FactsTest : public testing::Test {
  protected:
    void write(const fs::path& path, const std::string& text) const {
        fs::create_directories((root() / path).parent_path());
        std::ofstream{root() / path} << text;
    }
    fs::path root() const { return folder.path(); }
    std::map<std::string, std::string> versions(const JobSpec& spec) const {
        NodeFacts out;
        take_versions(look_at_versions(root(), spec, {{"PATH", (root() / "venv/bin").string()}},
                                       root() / "lockstep/bin/lockstep-train"),
                      out);
        return out.versions;
    }
    // A file of ELF that has nothing but a run path: DT_RPATH or DT_RUNPATH.
    void write_elf(const fs::path& path, Elf64_Sxword tag, const std::string& run_path) const {
        struct {
            Elf64_Ehdr head{};
            std::array<Elf64_Phdr, 2> parts{};
            std::array<Elf64_Dyn, 3> dynamic{};
        } file;
        constexpr Elf64_Addr kAddress = 0x400000;
        std::memcpy(file.head.e_ident, ELFMAG, SELFMAG);
        file.head.e_ident[EI_CLASS] = ELFCLASS64;
        file.head.e_ident[EI_DATA] =
            __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
        file.head.e_phoff = offsetof(decltype(file), parts);
        file.head.e_phnum = 2;
        file.parts[0].p_type = PT_LOAD;
        file.parts[0].p_vaddr = kAddress;
        file.parts[0].p_filesz = sizeof(file) + run_path.size() + 2;
        file.parts[1].p_type = PT_DYNAMIC;
        file.parts[1].p_offset = offsetof(decltype(file), dynamic);
        file.parts[1].p_filesz = sizeof(file.dynamic);
        file.dynamic[0].d_tag = DT_STRTAB;
        file.dynamic[0].d_un.d_ptr = kAddress + sizeof(file);
        file.dynamic[1].d_tag = tag;
        file.dynamic[1].d_un.d_val = 1;
        std::string bytes(sizeof(file) + 1, '\0');
        std::memcpy(bytes.data(), &file, sizeof(file));
        write(path, bytes + run_path + '\0');
    }
    TemporaryFolder folder;
};

TEST_F(FactsTest, VersionsAreFoundWithoutLoadingAnything) {
    write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
    write("usr/local/cuda/version.json", R"({"cuda": {"name": "CUDA SDK", "version": "12.2.1"}})");
    write("usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3", "");
    fs::create_symlink("libnccl.so.2.18.3", root() / "usr/lib/x86_64-linux-gnu/libnccl.so.2");
    write("venv/bin/python", "#!/bin/sh\n");
    ::chmod((root() / "venv/bin/python").c_str(), 0755);
    write("venv/lib/python3.11/site-packages/torch-2.1.0.dist-info/METADATA", "");
    write("venv/lib/python3.11/site-packages/torchvision-0.16.dist-info/METADATA", "");
    write("run/code/.git/HEAD", "ref: refs/heads/main\n");
    write("run/code/.git/packed-refs",
          "# pack-refs with: peeled fully-peeled sorted\n"
          "1111111111111111111111111111111111111111 refs/heads/other\n"
          "2222222222222222222222222222222222222222 refs/heads/main\n");
    JobSpec spec;
    spec.command = {"python", "train.py"};
    spec.working_directory = (root() / "run/code").string();
    auto found = versions(spec);
    EXPECT_EQ(found["driver"], "535.104.05");
    EXPECT_EQ(found["cuda"], "12.2.1");
    EXPECT_EQ(found["nccl"], "2.18.3");
    EXPECT_EQ(found["torch"], "2.1.0");
    EXPECT_EQ(found["code"], "2222222222222222222222222222222222222222");
    write("venv/lib/python3.11/site-packages/nvidia_nccl_cu12-2.19.3.dist-info/METADATA", "");
    EXPECT_EQ(versions(spec)["nccl"], "2.19.3") << "torch brings its own";
    spec.environment["LD_PRELOAD"] = "/opt/nccl/lib/libnccl.so.2";
    EXPECT_EQ(versions(spec).count("nccl"), 0U) << "which version that is, is not known";
    spec.environment.erase("LD_PRELOAD");
    write("run/code/.git/refs/heads/main", "3333333333333333333333333333333333333333\n");
    EXPECT_EQ(versions(spec)["code"], "3333333333333333333333333333333333333333");
}

// Nodes read their folders in orders of their own: identical ones would differ.
TEST_F(FactsTest, OfSeveralPackagesThatBringTheSameTheOrderOfTheFolderDoesNotDecide) {
    write("venv/bin/python", "#!/bin/sh\n");
    ::chmod((root() / "venv/bin/python").c_str(), 0755);
    const fs::path packages = "venv/lib/python3.11/site-packages";
    for (const char* name :
         {"nvidia_nccl_cu11-2.10.3.dist-info", "nvidia_nccl_cu13-2.32.3.dist-info",
          "pytorch_lightning-2.6.6.dist-info", "nvidia_nccl_cu12-2.19.3.dist-info",
          "lightning-2.5.0.dist-info", "lightning-2.4.0.dist-info"}) {
        write(packages / name / "METADATA", "");
    }
    JobSpec spec;
    spec.command = {"python", "train.py"};
    const auto found = versions(spec);
    EXPECT_EQ(found.at("nccl"), "2.19.3");
    EXPECT_EQ(found.at("lightning"), "2.4.0");
}

TEST_F(FactsTest, EachFrameworksVersionIsFoundWhateverItsPackageIsCalled) {
    write("venv/bin/python", "#!/bin/sh\n");
    ::chmod((root() / "venv/bin/python").c_str(), 0755);
    for (const char* name :
         {"tensorflow_cpu-2.21.0.dist-info", "tensorflow_estimator-2.15.0.dist-info",
          "jaxlib-0.10.2.dist-info", "paddlepaddle_gpu-3.3.1.dist-info", "keras-3.15.1.dist-info",
          "ray-2.60.0.dist-info", "raycluster-9.9.dist-info", "numpy-2.1.0.dist-info"}) {
        write(fs::path{"venv/lib/python3.11/site-packages"} / name / "METADATA", "");
    }
    JobSpec spec;
    spec.command = {"python", "train.py"};
    auto found = versions(spec);
    found.erase("lockstep");
    EXPECT_THAT(found, ElementsAre(Pair("jaxlib", "0.10.2"), Pair("keras", "3.15.1"),
                                   Pair("paddle", "3.3.1"), Pair("ray", "2.60.0"),
                                   Pair("tensorflow", "2.21.0")));
}

// The system's NCCL was compared, which no rank loads.
TEST_F(FactsTest, OfTheNativeTrainerTheNcclIsThatOfTheWheelItIsLinkedWith) {
    const fs::path site = "venv/lib/python3.11/site-packages";
    write("usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3", "");
    fs::create_symlink("libnccl.so.2.18.3", root() / "usr/lib/x86_64-linux-gnu/libnccl.so.2");
    write("lib/libnccl.so.2.21.5", "");
    fs::create_symlink("libnccl.so.2.21.5", root() / "lib/libnccl.so.2");
    write(site / "nvidia/nccl/lib/libnccl.so.2", "");
    write(site / "nvidia_nccl_cu13-2.28.9.dist-info/METADATA", "");
    write(site / "torch-2.15.0+cu130.dist-info/METADATA", "");
    write(site / "jaxlib-0.10.2.dist-info/METADATA", "");
    const fs::path train = "lockstep/bin/lockstep-train";
    const fs::path torch = site / "torch/lib/libtorch_cuda.so";
    write_elf(train, DT_RPATH, "/nowhere:" + (root() / torch).parent_path().string() + "/");
    write_elf(torch, DT_RPATH, "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nccl/lib");
    JobSpec spec;
    spec.framework = Framework::native;
    spec.environment["LD_LIBRARY_PATH"] = (root() / "lib").string();
    auto found = versions(spec);
    found.erase("lockstep");
    EXPECT_THAT(found, ElementsAre(Pair("nccl", "2.28.9"), Pair("torch", "2.15.0+cu130")));
    write_elf(torch, DT_RUNPATH, "$ORIGIN/../../nvidia/nccl/lib");
    EXPECT_EQ(versions(spec)["nccl"], "2.21.5") << "LD_LIBRARY_PATH goes before DT_RUNPATH";
    spec.environment.clear();
    EXPECT_EQ(versions(spec)["nccl"], "2.28.9");
    // A package that is not there leaves NCCL's version unknown: no other one counts.
    fs::remove_all(root() / site / "nvidia_nccl_cu13-2.28.9.dist-info");
    EXPECT_EQ(versions(spec).count("nccl"), 0U);
    // Debian's LibTorch brings none.
    write_elf(train, DT_RPATH, "$ORIGIN/../lib/lockstep/stand-ins:");
    found = versions(spec);
    found.erase("lockstep");
    EXPECT_THAT(found, ElementsAre(Pair("nccl", "2.18.3")));
    for (const char* text : {"", "#!/bin/sh\n",
                             "\x7f"
                             "ELF"}) {
        write(train, text);
        EXPECT_EQ(versions(spec)["nccl"], "2.18.3") << "no program";
    }
}

TEST_F(FactsTest, WhatIsNotThereIsLeftOut) {
    auto found = versions(JobSpec{});
    found.erase("lockstep");
    EXPECT_THAT(found, IsEmpty());
}

TEST_F(FactsTest, LimitsAreThisProcesss) {
    write("proc/sys/net/core/somaxconn", "128\n");
    NodeFacts out;
    read_limits(root(), out);
    EXPECT_EQ(out.somaxconn, 128);
    EXPECT_GT(out.open_files, 0);
    EXPECT_FALSE(out.rdma);
    fs::create_directories(root() / "sys/class/infiniband/mlx5_0");
    read_limits(root(), out);
    EXPECT_TRUE(out.rdma);
}

TEST_F(FactsTest, MountsThatGoOverANetworkAreFound) {
    write("proc/self/mountinfo",
          "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
          "36 22 0:32 / /data rw,relatime shared:2 - nfs4 server:/data rw,vers=4.2\n"
          "37 22 0:33 / /mnt/with\\040space rw - fuse.sshfs a:/b rw\n"
          "38 22 0:34 / /proc rw - proc proc rw\n"
          "39 22 0:35 / /scratch rw master:1 - lustre mds@tcp:/s rw\n");
    EXPECT_THAT(network_mounts(root()), ElementsAre("/data", "/mnt/with space", "/scratch"));
}

TEST_F(FactsTest, XidsOfTheLastHourAreNamed) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const auto at = [&](std::int64_t seconds_ago) {
        return std::to_string((now.tv_sec - seconds_ago) * 1'000'000);
    };
    write("proc/driver/nvidia/version", "NVRM version: 535.104.05\n");
    write("dev/nvidia0", "");
    write("dev/kmsg", "4,1," + at(10) + ",-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off\n" +
                          "4,2," + at(20) + ",-;NVRM: Xid (PCI:0000:3b:00): 48, DBE\n" + "4,3," +
                          at(30) + ",-;NVRM: Xid (PCI:0000:3b:00): 31, MMU fault\n" + "4,4," +
                          at(7'000) + ",-;NVRM: Xid (PCI:0000:5e:00): 95, old\n");
    // A time before the machine's start is no time at all.
    const bool up_for_long = now.tv_sec > 7'000;
    GpuFacts out;
    take_gpus(look_at_gpus(read_gpus, root()), out);
    EXPECT_TRUE(out.driver);
    EXPECT_THAT(out.unseen, IsEmpty());
    ASSERT_FALSE(out.faults.empty());
    EXPECT_EQ(out.faults.front(), "XID 79 of PCI:0000:3b:00 in the last hour");
    ASSERT_FALSE(out.doubts.empty());
    EXPECT_EQ(out.doubts.front(), "XID 48 of PCI:0000:3b:00 in the last hour");
    if (up_for_long) {
        EXPECT_EQ(out.faults.size(), 1U) << "the GPU may have been reset since";
        EXPECT_THAT(out.doubts, ElementsAre("XID 48 of PCI:0000:3b:00 in the last hour",
                                            "XID 95 of PCI:0000:5e:00 more than an hour ago"));
    }
}

TEST_F(FactsTest, ALogThatMayNotBeReadIsSaidToBeUnseen) {
    write("proc/driver/nvidia/version", "NVRM version: 535.104.05\n");
    GpuFacts out;
    take_gpus(look_at_gpus(read_gpus, root()), out);
    EXPECT_THAT(out.unseen, ElementsAre("XIDs in the kernel's log: No such file or directory"));
    EXPECT_THAT(out.faults, IsEmpty());
}

TEST_F(FactsTest, WithoutADriverNothingIsSaidOfGpus) {
    EXPECT_FALSE(read_gpus(root()).driver);
}

TEST_F(FactsTest, FoldersAreLookedAt) {
    const auto look = [](std::string_view use, const fs::path& where) {
        PathFact path{std::string{use}, where.string()};
        take_path(look_at_path(path), path);
        return path;
    };
    EXPECT_EQ(look(kPathWorking, root() / "none").error, ENOENT);
    const auto here = look(kPathWorking, root());
    EXPECT_EQ(here.error, 0);
    EXPECT_TRUE(here.directory && here.enter && here.write);
    EXPECT_GE(here.free_mb, 0);
    write("file", "x");
    EXPECT_FALSE(look(kPathWorking, root() / "file").directory);
    const auto to_come = look(kPathCheckpoint, root() / "to/be/made");
    EXPECT_EQ(to_come.error, 0) << "it can be made";
    EXPECT_TRUE(to_come.write);
}

TEST_F(FactsTest, TheAddressThatReachedTheDaemonComesFirst) {
    const auto found = read_addresses("127.0.0.1");
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().address, "127.0.0.1");
    EXPECT_EQ(found.front().interface, "lo");
    for (std::size_t i = 1; i < found.size(); ++i) {
        EXPECT_NE(found[i].interface, "lo");
        EXPECT_EQ(found[i].address.find(':'), std::string::npos) << "of the same family";
    }
}

}  // namespace
}  // namespace lockstep::test
