#include "job/rank/process_place.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

ProcessPlace place_of(Variables more) {
    // As the agent sets them for rank 3 of 4 on one node.
    Variables all{{"LOCKSTEP_JOB_ID", "ls-x"},
                  {"LOCKSTEP_SOCKET", "/s"},
                  {"LOCKSTEP_RANK", "3"},
                  {"LOCKSTEP_LOCAL_RANK", "3"},
                  {"LOCKSTEP_WORLD_SIZE", "4"},
                  {"LOCKSTEP_LOCAL_WORLD_SIZE", "4"},
                  {"LOCKSTEP_NODE_RANK", "0"},
                  {"LOCKSTEP_NODES", "1"},
                  {"LOCKSTEP_ATTEMPT", "2"},
                  {"LOCKSTEP_GENERATION", "5"},
                  {"LOCKSTEP_ROLE", "worker"},
                  {"LOCKSTEP_ADDRESS", "10.0.0.1"},
                  {"RANK", "3"},
                  {"LOCAL_RANK", "3"},
                  {"WORLD_SIZE", "4"},
                  {"LOCAL_WORLD_SIZE", "4"},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", "1234"},
                  {"LOCKSTEP_CHECKPOINT_DIR", "/c"}};
    for (auto& [name, value] : more) {
        if (value == "unset") {
            all.erase(name);
        } else {
            all[name] = value;
        }
    }
    return read_process_place([&](const std::string& name) -> std::optional<std::string> {
        const auto found = all.find(name);
        return found == all.end() ? std::nullopt : std::optional{found->second};
    });
}

void expect_rank_3_of_4(const ProcessPlace& place, const std::string& why) {
    EXPECT_TRUE(place.managed) << why;
    EXPECT_EQ(place.context.rank, 3) << why;
    EXPECT_EQ(place.context.local_rank, 3) << why;
    EXPECT_EQ(place.context.world_size, 4) << why;
    EXPECT_EQ(place.context.local_world_size, 4) << why;
    EXPECT_EQ(place.context.attempt, 2) << why;
    EXPECT_EQ(place.context.generation, 5) << why;
    EXPECT_EQ(place.context.job_id, "ls-x") << why;
    EXPECT_EQ(place.context.role, "worker") << why;
    EXPECT_EQ(place.context.address, "10.0.0.1") << why;
    EXPECT_EQ(place.context.checkpoint_directory, "/c") << why;
}

// Each of them made every rank of a C program rank 0 of 1, without a job or a folder for
// checkpoints.
TEST(ProcessPlace, ANumberThatIsNoneCostsNoneOfTheOthers) {
    expect_rank_3_of_4(place_of({}), "nothing is wrong");
    expect_rank_3_of_4(place_of({{"MASTER_PORT", "70000"}}), "no port");
    expect_rank_3_of_4(place_of({{"WORLD_SIZE", "1"}}), "a rank outside its world");
    expect_rank_3_of_4(place_of({{"LOCAL_WORLD_SIZE", "many"}}), "no number");
    expect_rank_3_of_4(place_of({{"GROUP_RANK", "-1"}}), "negative");
    expect_rank_3_of_4(place_of({{"RANK", "x"}, {"WORLD_SIZE", ""}}), "Lockstep's own are left");
    const ProcessPlace wrong = place_of({{"LOCKSTEP_ATTEMPT", "0"}, {"LOCKSTEP_NODES", "two"}});
    EXPECT_EQ(wrong.context.attempt, 1);
    EXPECT_EQ(wrong.nodes, 1);
    EXPECT_EQ(wrong.context.rank, 3);
}

Variables of_launch_node(Variables more) {
    for (const char* name : {"LOCKSTEP_RANK", "LOCKSTEP_LOCAL_RANK", "RANK", "LOCAL_RANK",
                             "WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
        more.try_emplace(name, "unset");
    }
    return more;
}

// Such a one was rank -1 of 1, though it said hello to the agent as rank 2.
TEST(ProcessPlace, ARankThatMpirunOrPaddleHasStartedIsKnown) {
    const ProcessPlace mpi = place_of(of_launch_node({{"OMPI_COMM_WORLD_RANK", "2"},
                                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                      {"OMPI_COMM_WORLD_SIZE", "8"},
                                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
    EXPECT_EQ(mpi.context.rank, 2);
    EXPECT_EQ(mpi.context.local_rank, 1);
    EXPECT_EQ(mpi.context.world_size, 8);
    EXPECT_EQ(mpi.context.local_world_size, 2);
    const ProcessPlace paddle = place_of(of_launch_node(
        {{"PADDLE_TRAINER_ID", "2"}, {"PADDLE_RANK_IN_NODE", "0"}, {"PADDLE_TRAINERS_NUM", "6"}}));
    EXPECT_EQ(paddle.context.rank, 2);
    EXPECT_EQ(paddle.context.local_rank, 0);
    EXPECT_EQ(paddle.context.world_size, 6);
    const ProcessPlace launcher = place_of(of_launch_node({}));
    EXPECT_EQ(launcher.context.rank, -1);
    EXPECT_EQ(launcher.context.local_rank, -1);
    EXPECT_EQ(launcher.context.world_size, 4) << "of the ranks that it starts";
}

TEST(ProcessPlace, WhatTorchrunHasStartedWithinARankGoesByTorchrunsNumbers) {
    const ProcessPlace place = place_of(
        {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_EQ(place.context.rank, 1);
    EXPECT_EQ(place.context.local_rank, 1);
    EXPECT_EQ(place.context.world_size, 2);
    EXPECT_EQ(place_of({{"LOCAL_RANK", "0"}}).context.local_rank, 3) << "0 is the GPU's number";
    // One of its ranks has the number of ours.
    const auto same = place_of(
        {{"RANK", "3"}, {"LOCAL_RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}});
    EXPECT_EQ(same.context.rank, 3);
    EXPECT_EQ(same.context.world_size, 8);
    EXPECT_EQ(same.context.local_world_size, 8);
}

TEST(ProcessPlace, ByHandItIsOneRankUnlessTorchrunStartsIt) {
    const Variables plain{{"RANK", "3"}, {"WORLD_SIZE", "4"}};
    const auto read = [](Variables all) {
        return read_process_place([all](const std::string& name) -> std::optional<std::string> {
            const auto found = all.find(name);
            return found == all.end() ? std::nullopt : std::optional{found->second};
        });
    };
    EXPECT_EQ(read(plain).context.rank, 0);
    EXPECT_EQ(read(plain).context.world_size, 1);
    Variables torchrun = plain;
    torchrun["MASTER_ADDR"] = "127.0.0.1";
    torchrun["MASTER_PORT"] = "1";
    torchrun["TORCHELASTIC_RESTART_COUNT"] = "2";
    const ProcessPlace place = read(torchrun);
    EXPECT_FALSE(place.managed);
    EXPECT_EQ(place.context.rank, 3);
    EXPECT_EQ(place.context.world_size, 4);
    EXPECT_EQ(place.context.generation, 3);
}

}  // namespace
}  // namespace lockstep
