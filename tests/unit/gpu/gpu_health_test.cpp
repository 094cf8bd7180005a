// What the pre-flight asks NVML about the GPUs, from the stand-in for the library.
#include "job/agent/gpu/gpu_health.hpp"

#include "tests/unit/gpu/gpu_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class GpuHealthTest : public testing::Test {
  protected:
    GpuLook look(const std::string& script, const char* visible = nullptr,
                 const char* library = FAKE_NVML_NEW) {
        const GpuScript gpus{script};
        const auto nvml = Nvml::open(library);
        EXPECT_TRUE(nvml) << nvml.error().message;
        const std::string list = visible == nullptr ? "" : visible;
        return nvml ? look_at_gpu_health(**nvml, visible == nullptr ? nullptr : &list, root.path())
                    : GpuLook{};
    }
    test::TemporaryFolder root;
};

TEST_F(GpuHealthTest, AGoodGpuHasNothingToShow) {
    const GpuLook found = look("gpus 2\ngpu * links 18\n");
    EXPECT_THAT(found.unseen, IsEmpty());
    ASSERT_THAT(found.gpus, SizeIs(2));
    const GpuHealth& gpu = found.gpus[1];
    EXPECT_EQ(gpu.gpu, 1);
    EXPECT_EQ(gpu.bus, "00000000:02:00.0");
    EXPECT_EQ(gpu.model, "Fake H100 80GB");
    EXPECT_EQ(gpu.lost, "");
    EXPECT_EQ(gpu.ecc, 0);
    EXPECT_EQ(gpu.remap, 0);
    EXPECT_EQ(gpu.remap_failed, 0);
    EXPECT_EQ(gpu.pages, -1) << "it remaps rows";
    EXPECT_EQ(gpu.recovery, 0);
    EXPECT_EQ(gpu.slowdown, 0) << "idle is no slowdown";
    EXPECT_EQ(gpu.temperature, 40);
    EXPECT_EQ(gpu.memory_mb, 1024);
    EXPECT_THAT(gpu.others, IsEmpty());
    EXPECT_EQ(gpu.links, 18);
    EXPECT_THAT(gpu.links_down, IsEmpty());
    EXPECT_THAT(gpu.link_errors, IsEmpty());
}

TEST_F(GpuHealthTest, EverythingThatIsWrongIsRead) {
    std::filesystem::create_directories(root.path() / "proc/4711");
    std::ofstream{root.path() / "proc/4711/comm"} << "python3\n";
    std::filesystem::create_directories(root.path() / "proc/4712");
    std::ofstream{root.path() / "proc/4712/comm"} << "nvidia-cuda-mps\n";
    const GpuLook found = look(
        "gpus 1\ngpu 0 minor 5\ngpu 0 ecc 7\ngpu 0 remap 1 1\ngpu 0 field 230 int 2\n"
        "gpu 0 reasons 0x69\ngpu 0 temperature 91\n"
        "gpu 0 process 4711 2097152\ngpu 0 process 4712 1048576\ngpu 0 process 4713 3145728\n"
        "gpu 0 links 4\ngpu 0 link 2 down\ngpu 0 linkerrors 3 5 6 7\n");
    ASSERT_THAT(found.gpus, SizeIs(1));
    const GpuHealth& gpu = found.gpus[0];
    EXPECT_EQ(gpu.gpu, 5);
    EXPECT_EQ(gpu.ecc, 7);
    EXPECT_EQ(gpu.remap, 1);
    EXPECT_EQ(gpu.remap_failed, 1);
    EXPECT_EQ(gpu.recovery, 2);
    EXPECT_EQ(gpu.slowdown, kSlowdownHardware | kSlowdownSoftwareThermal | kSlowdownThermal);
    EXPECT_EQ(gpu.temperature, 91);
    EXPECT_EQ(gpu.memory_mb, -1) << "it is the processes'";
    EXPECT_THAT(gpu.others, ElementsAre(AllOf(Field(&GpuProcessFact::pid, 4711),
                                              Field(&GpuProcessFact::name, "python3"),
                                              Field(&GpuProcessFact::memory_mb, 2)),
                                        AllOf(Field(&GpuProcessFact::pid, 4713),
                                              Field(&GpuProcessFact::name, ""),
                                              Field(&GpuProcessFact::memory_mb, 3))));
    EXPECT_EQ(gpu.links, 3);
    EXPECT_THAT(gpu.links_down, ElementsAre(2));
    ASSERT_THAT(gpu.link_errors, SizeIs(1));
    EXPECT_EQ(gpu.link_errors[0].link, 3);
    EXPECT_EQ(gpu.link_errors[0].crc, 5);
    EXPECT_EQ(gpu.link_errors[0].replays, 6);
    EXPECT_EQ(gpu.link_errors[0].recoveries, 7);
}

TEST_F(GpuHealthTest, AGpuThatRetiresPagesIsAskedForThose) {
    const GpuLook found = look("gpus 2\ngpu * pages 0\ngpu 1 pages 1\n");
    ASSERT_THAT(found.gpus, SizeIs(2));
    EXPECT_EQ(found.gpus[0].pages, 0);
    EXPECT_EQ(found.gpus[1].pages, 1);
    EXPECT_EQ(found.gpus[1].remap, -1);
    EXPECT_THAT(found.unseen, IsEmpty());
}

TEST_F(GpuHealthTest, WhatIsNotSupportedIsNotLookedAtAndNoError) {
    const GpuLook found = look(
        "gpus 2\ngpu * no ecc\ngpu * no remap\ngpu * no reasons\ngpu * no processes\n"
        "gpu * nofield 230\n");
    ASSERT_THAT(found.gpus, SizeIs(2));
    const GpuHealth& gpu = found.gpus[0];
    EXPECT_EQ(gpu.lost, "");
    EXPECT_EQ(gpu.ecc, -1);
    EXPECT_EQ(gpu.remap, -1);
    EXPECT_EQ(gpu.pages, -1);
    EXPECT_EQ(gpu.recovery, -1);
    EXPECT_EQ(gpu.slowdown, -1);
    EXPECT_EQ(gpu.links, -1) << "it has none";
    EXPECT_THAT(found.unseen, SizeIs(5)) << "each once, not once per GPU";
    EXPECT_THAT(found.unseen, Contains(HasSubstr("uncorrected memory errors: ")));
    EXPECT_THAT(found.unseen, Not(Contains(HasSubstr("NVLink"))));
}

TEST_F(GpuHealthTest, AnOldDriverShowsLessAndNothingFails) {
    const GpuLook found =
        look("gpus 1\ndriver 470.57\ngpu 0 links 6\ngpu 0 ecc 2\n", nullptr, FAKE_NVML_OLD_LIBRARY);
    ASSERT_THAT(found.gpus, SizeIs(1));
    EXPECT_EQ(found.gpus[0].ecc, 2);
    EXPECT_EQ(found.gpus[0].links, 6);
    EXPECT_EQ(found.gpus[0].slowdown, 0) << "by the call's older name";
    EXPECT_EQ(found.gpus[0].recovery, -1);
    EXPECT_THAT(found.unseen, Contains(HasSubstr("recovery action")));
}

// The field's number was another quantity's, or nobody's.
TEST_F(GpuHealthTest, TheRecoveryActionOfADriverBefore570IsNotBelieved) {
    const std::string script = "gpus 1\ngpu 0 field 230 int 1\n";
    EXPECT_EQ(look(script + "driver 565.57.01\n").gpus.at(0).recovery, -1);
    EXPECT_EQ(look(script + "driver 570.86.10\n").gpus.at(0).recovery, 1);
}

TEST_F(GpuHealthTest, ALostGpuIsNamedAndTheOthersAreLookedAt) {
    const GpuLook found = look("gpus 3\ngpu 1 lost\ngpu 2 ecc 1\n");
    ASSERT_THAT(found.gpus, SizeIs(3));
    EXPECT_EQ(found.gpus[0].lost, "");
    EXPECT_NE(found.gpus[1].lost, "");
    EXPECT_EQ(found.gpus[1].gpu, 1);
    EXPECT_EQ(found.gpus[2].ecc, 1);
    EXPECT_THAT(found.unseen, IsEmpty());
}

// A lost GPU does not tell its UUID, and Slurm may name the job's GPUs by theirs: it was not looked
// at, and the ranks met it.
TEST_F(GpuHealthTest, ALostGpuIsFoundAlsoWhereTheJobsGpusAreNamedByUuid) {
    const GpuLook found = look("gpus 3\ngpu 1 fallen\n", "GPU-fake-2,GPU-fake-1,GPU-other");
    ASSERT_THAT(found.gpus, SizeIs(2)) << "it may be either of the two, and is one";
    EXPECT_EQ(found.gpus[0].gpu, 2);
    EXPECT_EQ(found.gpus[0].lost, "");
    EXPECT_EQ(found.gpus[1].gpu, 1);
    EXPECT_NE(found.gpus[1].lost, "");

    EXPECT_THAT(look("gpus 3\ngpu 1 fallen\n", "GPU-fake-0,GPU-fake-2").gpus, SizeIs(2))
        << "another job's";

    const GpuLook gone = look("gpus 3\n", "GPU-fake-0,GPU-fake-3");
    ASSERT_THAT(gone.gpus, SizeIs(2));
    EXPECT_EQ(gone.gpus[1].gpu, -1);
    EXPECT_EQ(gone.gpus[1].lost, "the driver does not show GPU-fake-3");
}

// Its plots were empty without a word.
TEST_F(GpuHealthTest, SlicesAreTold) {
    const GpuLook found = look("gpus 3\ngpu 1 mig\ngpu 2 no mig\n");
    ASSERT_THAT(found.gpus, SizeIs(3));
    EXPECT_EQ(found.gpus[0].mig, 0);
    EXPECT_EQ(found.gpus[1].mig, 1);
    EXPECT_EQ(found.gpus[2].mig, -1);
    EXPECT_THAT(found.unseen, IsEmpty()) << "it cannot be divided";
}

TEST_F(GpuHealthTest, OnlyTheGpusOfTheJobAreLookedAt) {
    const auto seen = [&](const char* visible, const std::string& more = "") {
        std::vector<std::int32_t> out;
        for (const GpuHealth& gpu : look("gpus 4\n" + more, visible).gpus) {
            out.push_back(gpu.gpu);
        }
        return out;
    };
    EXPECT_THAT(seen(nullptr), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(seen("2,3"), ElementsAre(2, 3));
    EXPECT_THAT(seen("GPU-fake-3, GPU-fake-1"), ElementsAre(3, 1));
    EXPECT_THAT(seen("MIG-1234"), ElementsAre(0, 1, 2, 3)) << "no slice is told from the others";
    EXPECT_THAT(seen("7"), IsEmpty());
    EXPECT_THAT(seen(""), IsEmpty());
    EXPECT_THAT(seen("0,1", "gpu 0 hidden\ngpu 1 hidden\n"), ElementsAre(2, 3))
        << "they are counted among those that the job may open";
}

}  // namespace
}  // namespace lockstep
