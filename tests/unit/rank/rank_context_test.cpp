#include "job/rank/rank_context.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

namespace lockstep {
namespace {

Environment environment(std::map<std::string, std::string> values) {
    return [values](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional{found->second};
    };
}

TEST(RankContext, IsReadFromWhatTheAgentSets) {
    const Result<RankContext> got =
        read_rank_context(environment({{"LOCKSTEP_SOCKET", "/s"},
                                       {"RANK", "5"},
                                       {"WORLD_SIZE", "8"},
                                       {"LOCAL_RANK", "1"},
                                       {"LOCAL_WORLD_SIZE", "4"},
                                       {"NODE_RANK", "1"},
                                       {"LOCKSTEP_ATTEMPT", "2"},
                                       {"LOCKSTEP_GENERATION", "3"},
                                       {"LOCKSTEP_JOB_ID", "ls-x"},
                                       {"LOCKSTEP_TRAIN_CONFIG", "/t"},
                                       {"LOCKSTEP_CHECKPOINT_DIR", "/c"},
                                       {"LOCKSTEP_ADDRESS", "10.0.0.1"}}));
    ASSERT_TRUE(got.has_value()) << got.error().text();
    EXPECT_TRUE(got->managed());
    EXPECT_EQ(got->rank, 5);
    EXPECT_EQ(got->world_size, 8);
    EXPECT_EQ(got->local_rank, 1);
    EXPECT_EQ(got->local_world_size, 4);
    EXPECT_EQ(got->node_rank, 1);
    EXPECT_EQ(got->attempt, 2);
    EXPECT_EQ(got->generation, 3);
    EXPECT_EQ(got->job_id, "ls-x");
    EXPECT_EQ(got->train_config, "/t");
    EXPECT_EQ(got->checkpoint_directory, "/c");
    EXPECT_EQ(got->address, "10.0.0.1");
}

TEST(RankContext, WithoutAnAgentItIsOneRankAlone) {
    const Result<RankContext> got =
        read_rank_context(environment({{"RANK", "3"}, {"WORLD_SIZE", "8"}}));
    ASSERT_TRUE(got.has_value());
    EXPECT_FALSE(got->managed());
    EXPECT_EQ(got->rank, 0);
    EXPECT_EQ(got->world_size, 1);
}

TEST(RankContext, TorchrunsVariablesAreEnoughWithoutAnAgent) {
    const Result<RankContext> got =
        read_rank_context(environment({{"RANK", "3"},
                                       {"WORLD_SIZE", "8"},
                                       {"GROUP_RANK", "1"},
                                       {"MASTER_ADDR", "n1"},
                                       {"MASTER_PORT", "29500"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                       {"TORCHELASTIC_RESTART_COUNT", "2"}}));
    ASSERT_TRUE(got.has_value()) << got.error().text();
    EXPECT_FALSE(got->managed());
    EXPECT_EQ(got->rank, 3);
    EXPECT_EQ(got->world_size, 8);
    EXPECT_EQ(got->node_rank, 1);
    EXPECT_EQ(got->master_address, "n1");
    EXPECT_EQ(got->master_port, 29'500);
    EXPECT_TRUE(got->store_elsewhere);
    EXPECT_EQ(got->generation, 3);
}

TEST(RankContext, NonsenseIsRefusedByName) {
    const auto message = [](std::map<std::string, std::string> values) {
        values["LOCKSTEP_SOCKET"] = "/s";
        return read_rank_context(environment(values)).error().message;
    };
    EXPECT_EQ(message({{"WORLD_SIZE", "two"}}), "WORLD_SIZE: must be a number in 1..131072");
    EXPECT_EQ(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK 2 is outside WORLD_SIZE 2");
}

}  // namespace
}  // namespace lockstep
