#include "daemon/control/base/cluster_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

Cluster machines() {
    Cluster out;
    out.name = "c";
    out.seen_at = 1'700'000'000'000;
    out.partitions = {{"main", "UP", true, 3, 3600, {}, 2}, {"low", "DOWN", false, 1, {}, {}, {}}};
    for (const char* name : {"n2", "n1", "n3"}) {
        ClusterNode node;
        node.name = name;
        node.state = "idle";
        node.idle = true;
        node.cpus = 8;
        node.gpus = 2;
        node.partitions = {"main"};
        out.nodes.push_back(node);
    }
    out.nodes[0].state = "mixed";
    out.nodes[0].idle = false;
    out.nodes[0].cpus_used = 3;
    out.nodes[0].gpus_used = 1;
    out.nodes[2].state = "down*";
    out.nodes[2].idle = out.nodes[2].usable = false;
    out.nodes[2].partitions = {"main", "low"};
    return out;
}

std::vector<std::string> names(const Json& page) {
    std::vector<std::string> out;
    for (const Json& node : page["items"]) {
        out.push_back(node["name"].get<std::string>());
    }
    return out;
}

TEST(ClusterView, CountsWhatCanBeHad) {
    const Json json = cluster_json(machines(), "slurm");
    EXPECT_EQ(json["scheduler"], "slurm");
    EXPECT_EQ(json["nodes"], Json({{"total", 3}, {"usable", 2}, {"idle", 1}}));
    EXPECT_EQ(json["cpus"], Json({{"usable", 16}, {"used", 3}}));
    EXPECT_EQ(json["gpus"], Json({{"usable", 4}, {"used", 1}}));
    EXPECT_EQ(json["partitions"][0]["max_time"], "01:00:00");
    EXPECT_EQ(json["partitions"][0]["max_nodes_per_job"], 2);
    EXPECT_FALSE(json["partitions"][1].contains("max_time"));
    EXPECT_EQ(json["partitions"][1]["nodes"], Json({{"total", 1}, {"usable", 0}, {"idle", 0}}));
}

TEST(ClusterView, BeforeTheFirstAnswerThereIsNoCountOfNodes) {
    Cluster none = machines();
    none.nodes.clear();
    none.seen_at = 0;
    none.reachable = false;
    none.problem = "no controller";
    const Json json = cluster_json(none, "slurm");
    EXPECT_FALSE(json.contains("nodes"));
    EXPECT_FALSE(json.contains("seen_at"));
    EXPECT_EQ(json["problem"], "no controller");
    EXPECT_EQ(json["partitions"][0]["nodes"], Json({{"total", 3}}));
}

TEST(ClusterView, NodesComeByNameInPages) {
    NodeQuery query;
    query.limit = 2;
    const auto first = nodes_json(machines(), query, {{"n1", {"ls-a", "ls-b"}}});
    ASSERT_TRUE(first);
    EXPECT_THAT(names(*first), ElementsAre("n1", "n2"));
    EXPECT_EQ((*first)["items"][0]["jobs"].size(), 2U);
    query.cursor = (*first)["next_cursor"].get<std::string>();
    const auto second = nodes_json(machines(), query, {});
    ASSERT_TRUE(second);
    EXPECT_THAT(names(*second), ElementsAre("n3"));
    EXPECT_FALSE(second->contains("next_cursor"));
    query.cursor = "?";
    EXPECT_FALSE(nodes_json(machines(), query, {}).has_value());
}

TEST(ClusterView, NodesAreFilteredByPartitionAndState) {
    NodeQuery query;
    query.partition = "low";
    EXPECT_THAT(names(*nodes_json(machines(), query, {})), ElementsAre("n3"));
    query = {};
    query.state = "usable";
    EXPECT_THAT(names(*nodes_json(machines(), query, {})), ElementsAre("n1", "n2"));
    query.state = "unusable";
    EXPECT_THAT(names(*nodes_json(machines(), query, {})), ElementsAre("n3"));
    query.state = "mixed";
    EXPECT_THAT(names(*nodes_json(machines(), query, {})), ElementsAre("n2"));
}

}  // namespace
}  // namespace lockstep
