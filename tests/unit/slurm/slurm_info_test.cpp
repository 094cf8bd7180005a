#include "scheduler-integration/slurm/slurm_info.hpp"

#include "tests/unit/slurm/fixtures.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ShowConfig, ReadsWhatARealSlurmPrinted) {
    const std::string text = slurm_fixture("22.05/config.txt");
    const auto config = parse_show_config(said(text));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->cluster, "test1");
    EXPECT_THAT(config->controllers, ElementsAre("ctl"));
    EXPECT_EQ(config->version, (SlurmVersion{22, 5, 8}));
    EXPECT_EQ(config->min_job_age, 300);
    EXPECT_EQ(config->max_array_size, 1001);
    EXPECT_EQ(config->max_job_count, 10'000);
    EXPECT_EQ(config->message_timeout, 3);
    EXPECT_EQ(config->kill_wait, 2);
    EXPECT_EQ(config->auth_type, "auth/munge");
    EXPECT_EQ(config->credential_ttl, std::nullopt);
    EXPECT_EQ(config->credential_expire, 30);
    EXPECT_EQ(config->credential_lifetime(), 300);
    EXPECT_TRUE(config->has_accounting());
    EXPECT_FALSE(config->hides_other_jobs());
    EXPECT_TRUE(config->job_requeue);
    EXPECT_EQ(config->preempt_mode, "OFF");
    EXPECT_EQ(config->select_type, "select/cons_tres");
    EXPECT_EQ(config->max_script_bytes, 4 << 20);
    EXPECT_EQ(config->scheduler_parameters.at("sched_interval"), "1");
    EXPECT_EQ(config->all.at("JobSubmitPlugins"), "") << "(null)";
    EXPECT_EQ(config->all.at("SlurmdParameters"), "config_overrides");
}

TEST(ShowConfig, FollowsWhatASiteChanged) {
    const auto config = parse_show_config(said(
        "Configuration data as of 2026-11-21T05:10:09\nClusterName = alps\nSLURM_VERSION = "
        "24.11.5\nAuthType = auth/slurm\nAuthInfo = cred_expire=120,ttl=90,use_client_ids\n"
        "AccountingStorageType = (null)\nPrivateData = accounts,jobs\nJobRequeue = 0\nMinJobAge = "
        "2 sec\nSlurmctldHost[1] = b(10.0.0.2)\nSlurmctldHost[0] = a\nSchedulerParameters = "
        "max_script_size=65536,bf_continue,defer\nPreemptMode = REQUEUE\n\nCgroup Support "
        "Configuration:\nConstrainDevices = yes\n\nSlurmctld(primary) at a is UP\n"));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->credential_ttl, 90);
    EXPECT_EQ(config->credential_lifetime(), 90);
    EXPECT_FALSE(config->has_accounting());
    EXPECT_TRUE(config->hides_other_jobs());
    EXPECT_FALSE(config->job_requeue);
    EXPECT_EQ(config->min_job_age, 2);
    EXPECT_THAT(config->controllers, ElementsAre("a", "b"));
    EXPECT_EQ(config->max_script_bytes, 65'536);
    EXPECT_TRUE(config->scheduler_parameters.contains("defer"));
    EXPECT_EQ(config->kill_wait, 30) << "not printed: slurm.conf's default";
}

TEST(ShowConfig, ACredentialLivesAsLongAsItsPluginSays) {
    SlurmConfig config;
    config.auth_type = "auth/slurm";
    EXPECT_EQ(config.credential_lifetime(), 60);
    config.auth_type = "auth/jwt";
    EXPECT_EQ(config.credential_lifetime(), 1800);
    config.auth_type = "auth/munge";
    EXPECT_EQ(config.credential_lifetime(), 300);
}

TEST(ShowConfig, NoConfigurationIsNoAnswer) {
    // Seen on 22.05.8 with slurmctld killed.
    const auto down = parse_show_config(said(
        "", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n",
        1));
    ASSERT_FALSE(down);
    EXPECT_EQ(down.error().code, Errc::unavailable);
    EXPECT_FALSE(parse_show_config(said("")));
    EXPECT_FALSE(parse_show_config(said("a = b\nc = d\n")));
}

TEST(ShowPartition, ReadsWhatARealSlurmPrinted) {
    const std::string text = slurm_fixture("22.05/partitions.txt");
    const auto partitions = parse_show_partitions(said(text));
    ASSERT_TRUE(partitions);
    ASSERT_EQ(partitions->size(), 2U);
    const SlurmPartition& main = partitions->front();
    EXPECT_EQ(main.name, "main");
    EXPECT_EQ(main.state, "UP");
    EXPECT_TRUE(main.is_default);
    EXPECT_FALSE(main.hidden);
    EXPECT_EQ(main.max_time, 3600);
    EXPECT_EQ(main.default_time, 300);
    EXPECT_EQ(main.max_nodes, std::nullopt);
    EXPECT_EQ(main.total_nodes, 3);
    EXPECT_EQ(main.total_cpus, 24);
    EXPECT_EQ(main.max_memory_mb_per_node, std::nullopt);
    EXPECT_EQ(main.nodes, "n[1-3]");
    EXPECT_THAT(main.allow_accounts, IsEmpty());
    EXPECT_EQ(main.qos, "");
    EXPECT_FALSE(partitions->back().is_default);
}

TEST(ShowPartition, ReadsItsLimits) {
    const auto partitions = parse_show_partitions(said(
        "No partitions here\nPartitionName=gpu AllowGroups=ml,hpc AllowAccounts=a,b "
        "DenyQos=scavenge AllowQos=ALL Default=NO QoS=gpuqos DefaultTime=NONE MaxTime=7-00:00:00 "
        "Hidden=YES MaxNodes=16 MinNodes=2 RootOnly=NO Nodes=(null) State=DRAIN TotalCPUs=0 "
        "TotalNodes=0 MaxMemPerNode=512000 PreemptMode=REQUEUE\nPartitionName=long "
        "MaxTime=UNLIMITED\n"));
    ASSERT_TRUE(partitions);
    ASSERT_EQ(partitions->size(), 2U);
    const SlurmPartition& gpu = partitions->front();
    EXPECT_THAT(gpu.allow_groups, ElementsAre("ml", "hpc"));
    EXPECT_THAT(gpu.allow_accounts, ElementsAre("a", "b"));
    EXPECT_THAT(gpu.deny_qos, ElementsAre("scavenge"));
    EXPECT_EQ(gpu.qos, "gpuqos");
    EXPECT_EQ(gpu.default_time, std::nullopt);
    EXPECT_EQ(gpu.max_time, 7 * 86'400);
    EXPECT_EQ(gpu.max_nodes, 16);
    EXPECT_EQ(gpu.min_nodes, 2);
    EXPECT_TRUE(gpu.hidden);
    EXPECT_EQ(gpu.nodes, "");
    EXPECT_EQ(gpu.max_memory_mb_per_node, 512'000);
    EXPECT_EQ(partitions->back().max_time, std::nullopt);
}

TEST(SinfoNodes, ReadsWhatARealSlurmPrinted) {
    const std::string text = slurm_fixture("22.05/nodes.txt");
    const auto table = parse_sinfo_nodes(said(text));
    ASSERT_TRUE(table);
    EXPECT_EQ(table->malformed, 0U);
    ASSERT_EQ(table->nodes.size(), 3U);
    const SlurmNode& busy = table->nodes.front();
    EXPECT_EQ(busy.name, "n1");
    EXPECT_EQ(busy.state, "mixed");
    EXPECT_TRUE(busy.usable());
    EXPECT_EQ(busy.cpus, 8);
    EXPECT_EQ(busy.cpus_allocated, 1);
    EXPECT_EQ(busy.cpus_idle, 7);
    EXPECT_EQ(busy.memory_mb, 16'000);
    EXPECT_EQ(busy.gpus(), 2);
    EXPECT_EQ(busy.gpus_used(), 2);
    EXPECT_EQ(busy.reason, "");
    EXPECT_THAT(busy.partitions, testing::UnorderedElementsAre("main", "low"));
    const SlurmNode& drained = table->nodes.back();
    EXPECT_EQ(drained.state, "drained");
    EXPECT_FALSE(drained.usable());
    EXPECT_EQ(drained.gpus_used(), 0);
    EXPECT_EQ(drained.reason, "bad | disk, \"x\" ünï\nnewline") << "as the administrator wrote it";
}

std::string node_row(std::string_view name, std::string_view state) {
    std::string row;
    for (const std::string_view field :
         {name, state, std::string_view{"0/8/0/8"}, std::string_view{"1000"},
          std::string_view{"(null)"}, std::string_view{"(null)"}, std::string_view{"main"},
          std::string_view{"none"}}) {
        row.append(field).append("  \x1f");
    }
    return row + "\n";
}

TEST(SinfoNodes, AStatesSuffixSaysWhetherTheNodeTakesJobs) {
    const std::vector<std::tuple<std::string_view, std::string_view, std::string_view, bool>> table{
        {"idle", "idle", "", true},
        {"idle*", "idle", "*", false},
        {"idle~", "idle", "~", true},
        {"mixed-", "mixed", "-", true},
        {"allocated", "allocated", "", true},
        {"completing", "completing", "", true},
        {"idle$", "idle", "$", false},
        {"down*", "down", "*", false},
        {"draining@", "draining", "@", false},
        {"something_new", "something_new", "", false}};
    for (const auto& [word, state, flags, usable] : table) {
        const std::string row = node_row("n1", word);
        const auto nodes = parse_sinfo_nodes(said(row));
        ASSERT_TRUE(nodes);
        ASSERT_EQ(nodes->nodes.size(), 1U) << word;
        EXPECT_EQ(nodes->nodes.front().state, state);
        EXPECT_EQ(nodes->nodes.front().flags, flags);
        EXPECT_EQ(nodes->nodes.front().usable(), usable) << word;
        EXPECT_EQ(nodes->nodes.front().gres, "");
    }
}

TEST(SinfoNodes, WhatIsNoRowIsCounted) {
    const std::string text =
        "banner\n" + node_row("n 1", "idle") + node_row("n2", "idle") + "n3 \x1f";
    const auto nodes = parse_sinfo_nodes(said(text));
    ASSERT_TRUE(nodes);
    ASSERT_EQ(nodes->nodes.size(), 1U);
    EXPECT_EQ(nodes->nodes.front().name, "n2");
    EXPECT_EQ(nodes->malformed, 2U);
    EXPECT_FALSE(parse_sinfo_nodes(said(
        "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n", 1)));
}

TEST(Gres, GpusAreAddedUp) {
    EXPECT_EQ(gpus_of(""), 0);
    EXPECT_EQ(gpus_of("(null)"), 0);
    EXPECT_EQ(gpus_of("gpu"), 1);
    EXPECT_EQ(gpus_of("gpu:2"), 2);
    EXPECT_EQ(gpus_of("gpu:h200"), 1);
    EXPECT_EQ(gpus_of("gpu:h200:8(S:0-1)"), 8);
    EXPECT_EQ(gpus_of("gpu:h200:2(IDX:0,3),mps:h200:100,gpu:a100:4(IDX:0-3)"), 6);
    EXPECT_EQ(gpus_of("nic:4,gpumem:80"), 0);
    EXPECT_EQ(gpus_of("gpu:99999999999999999999"), 1);
    EXPECT_EQ(gpus_of("gpu:9999999"), 0);
    EXPECT_EQ(gpus_of(")))gpu:2,((("), 0);
}

}  // namespace
}  // namespace lockstep
