#include "job/agent/ranks/standby_orders.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

std::string why_not(const Words& argv) {
    const auto first = script_arguments(argv);
    return first ? "it can, from word " + std::to_string(*first) : first.error().message;
}

TEST(StandbyOrders, TheScriptsOwnWordsAreFoundBehindPythonsFlags) {
    EXPECT_EQ(script_arguments({"python", "train.py", "--lr", "1"}), 2U);
    EXPECT_EQ(script_arguments({"/opt/x/bin/python3.11", "-u", "train.py"}), 3U);
    EXPECT_EQ(script_arguments({"python3", "-W", "ignore", "-Xdev", "-uB", "-m", "pkg", "a"}), 7U);
    EXPECT_EQ(script_arguments({"python3", "-umpkg", "a"}), 2U);
    EXPECT_EQ(script_arguments({"python3", "-uWignore", "train.py"}), 3U);
}

TEST(StandbyOrders, ACommandThatWouldNotWaitIsRefused) {
    EXPECT_EQ(why_not({"bash", "train.sh"}), "its program is not python");
    EXPECT_EQ(why_not({"python-config", "x"}), "its program is not python");
    EXPECT_EQ(why_not({}), "its program is not python");
    for (const char* flag : {"-E", "-I", "-S", "-c", "-i", "-h", "-V"}) {
        EXPECT_EQ(why_not({"python3", std::string{"-u"} + flag[1], "train.py"}),
                  std::string{"not with python "} + flag);
    }
    EXPECT_EQ(why_not({"python3", "-"}), "not with python -");
    EXPECT_EQ(why_not({"python3", "--version"}), "not with python --version");
    EXPECT_EQ(why_not({"python3", "-u"}), "python has no script");
}

SpawnRequest request() {
    SpawnRequest out;
    out.program = "/usr/bin/python3";
    out.argv = {"python3", "train.py", "--port", "4000"};
    out.environment = {{"RANK", "1"}, {"MASTER_PORT", "4000"}, {"GONE", "x"}};
    out.directory = "/work";
    return out;
}

std::string orders(const SpawnRequest& is) {
    const auto out = standby_orders(request(), is);
    return out ? *out : "refused: " + out.error().message;
}

TEST(StandbyOrders, TellWhatIsAnotherInTheNewGeneration) {
    EXPECT_EQ(orders(request()), "");
    SpawnRequest is = request();
    is.environment = {{"RANK", "1"}, {"MASTER_PORT", "5000"}, {"NEW", "a=b"}};
    EXPECT_EQ(orders(is), std::string("-GONE\0+MASTER_PORT=5000\0+NEW=a=b\0", 33));
    is = request();
    is.argv.back() = "5000";
    EXPECT_EQ(orders(is), std::string("!\0>--port\0>5000\0", 16));
    is.argv.resize(2);
    EXPECT_EQ(orders(is), std::string("!\0", 2)) << "no words are words, too";
}

TEST(StandbyOrders, WhatWasReadBeforeTheScriptMustBeTheSame) {
    for (const char* name :
         {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS",
          "SLURM_NPROCS", "NNODES", "NCCL_RAS_ADDR", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
          "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "OMP_NUM_THREADS", "LD_PRELOAD", "PYTHONPATH",
          "MKL_NUM_THREADS"}) {
        SpawnRequest is = request();
        is.environment[name] = "another";
        EXPECT_EQ(orders(is), std::string{"refused: "} + name + " is another now");
    }
    SpawnRequest is = request();
    is.environment.erase("RANK");
    EXPECT_EQ(orders(is), "refused: RANK is not set any more");
    is = request();
    is.argv[1] = "other.py";
    EXPECT_EQ(orders(is), "refused: its command is another now");
    is = request();
    is.program = "/opt/python3";
    EXPECT_EQ(orders(is), "refused: its command is another now");
    is = request();
    is.directory = "/other";
    EXPECT_EQ(orders(is), "refused: its folder or its CPUs are others now");
    is = request();
    is.binding.cpus = {1};
    EXPECT_EQ(orders(is), "refused: its folder or its CPUs are others now");
}

}  // namespace
}  // namespace lockstep
