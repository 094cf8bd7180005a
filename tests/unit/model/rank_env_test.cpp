#include "tests/unit/model/rank_contract.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(RankEnvironment, IsCompleteForPytorchAndCommand) {
    EXPECT_EQ(rank_environment(spec(Framework::pytorch), place(), {}), torch_contract());
    EXPECT_EQ(rank_environment(spec(Framework::command), place(), {}), contract());
}

TEST(RankEnvironment, TheNativeTrainerAlsoFindsItsConfiguration) {
    Variables expected = contract();
    expected["LOCKSTEP_TRAIN_CONFIG"] = "/runs/train-00001.json";
    EXPECT_EQ(rank_environment(spec(Framework::native), place(), {}), expected);
}

TEST(RankEnvironment, KeepsTheAgentsOwnButWhatWouldMislead) {
    const Variables inherited{{"PATH", "/bin"},
                              {"HOME", "/home/me"},
                              {"CUDA_VISIBLE_DEVICES", "0,1"},
                              {"LOCKSTEP_TOKEN", "secret"},
                              {"LOCKSTEP_SOCKET", "/other"},
                              {"PMI_RANK", "0"},
                              {"PMIX_RANK", "0"},
                              {"PMIX_NAMESPACE", "x"},
                              {"OMPI_COMM_WORLD_RANK", "0"},
                              {"TORCHELASTIC_RUN_ID", "theirs"},
                              {"RANK", "77"}};
    Variables expected = torch_contract();
    expected["PATH"] = "/bin";
    expected["HOME"] = "/home/me";
    expected["CUDA_VISIBLE_DEVICES"] = "0,1";
    EXPECT_EQ(rank_environment(spec(Framework::pytorch), place(), inherited), expected);
}

TEST(RankEnvironment, AScriptThatHostsItsOwnStoreSaysSo) {
    JobSpec mine = spec(Framework::pytorch);
    mine.environment = {{"TORCHELASTIC_USE_AGENT_STORE", "False"}};
    EXPECT_EQ(rank_environment(mine, place(), {}), contract());
}

JobSpec with_gpus(Framework framework) {
    JobSpec out = spec(framework);
    out.resources.gpus_per_node = 4;
    return out;
}

RankPlace with_ras() {
    RankPlace out = place();
    out.ras_port = 4321;
    return out;
}

std::string magic_of(const RankPlace& of) {
    return rank_environment(with_gpus(Framework::pytorch), of, {}).at("NCCL_SOCKET_MAGIC");
}

TEST(RankEnvironment, NcclsSocketsOfOneGenerationKnowEachOther) {
    const RankPlace one = place();
    RankPlace neighbour = one;
    neighbour.rank = 1;
    neighbour.node_rank = 1;
    RankPlace later = one;
    ++later.generation;
    RankPlace other = one;
    other.job_id += "x";
    EXPECT_EQ(magic_of(one).size(), 18U);
    EXPECT_EQ(magic_of(one).substr(0, 2), "0x");
    EXPECT_EQ(magic_of(one).find_first_not_of("0123456789abcdefx"), std::string::npos);
    EXPECT_EQ(magic_of(one), magic_of(neighbour));
    EXPECT_NE(magic_of(one), magic_of(later));
    EXPECT_NE(magic_of(one), magic_of(other));
    JobSpec mine = with_gpus(Framework::pytorch);
    mine.environment = {{"NCCL_SOCKET_MAGIC", "7"}};
    EXPECT_EQ(rank_environment(mine, one, {}).at("NCCL_SOCKET_MAGIC"), "7");
    EXPECT_EQ(rank_environment(spec(Framework::pytorch), one, {}).count("NCCL_SOCKET_MAGIC"), 0U);
}

TEST(RankEnvironment, RanksThatShareAGpuTakeItByTheirLocalRank) {
    JobSpec shared = with_gpus(Framework::pytorch);
    shared.resources.gpus_per_node = 2;
    shared.resources.ranks_per_gpu = 2;
    RankPlace third = place();
    third.local_rank = 2;
    const auto environment = rank_environment(shared, third, {{"CUDA_VISIBLE_DEVICES", "4,5"}});
    EXPECT_EQ(environment.at("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
    EXPECT_EQ(environment.at("LOCAL_RANK"), "1") << "the second of the two GPUs";
    EXPECT_EQ(environment.at("LOCKSTEP_LOCAL_RANK"), "2");
    EXPECT_EQ(environment.at("LOCAL_WORLD_SIZE"), "4");
    EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), "4,5");
    shared.environment = {{"NCCL_MULTI_RANK_GPU_ENABLE", "0"}};
    EXPECT_EQ(rank_environment(shared, third, {}).at("NCCL_MULTI_RANK_GPU_ENABLE"), "0");
    shared.framework = Framework::jax;
    EXPECT_EQ(rank_environment(shared, third, {}).at("JAX_LOCAL_DEVICE_IDS"), "1");
    shared.framework = Framework::paddle;
    EXPECT_EQ(rank_environment(shared, third, {}).at("FLAGS_selected_gpus"), "1");
    EXPECT_EQ(rank_environment(with_gpus(Framework::pytorch), third, {})
                  .count("NCCL_MULTI_RANK_GPU_ENABLE"),
              0U);
}

std::string jax_devices(const JobSpec& job, const RankPlace& of, const Variables& inherited) {
    const auto out = rank_environment(job, of, inherited);
    const auto found = out.find("JAX_LOCAL_DEVICE_IDS");
    return found == out.end() ? "" : found->second;
}

// With a server on the node they took GPUs 1 and 2, of two.
TEST(RankEnvironment, PaddlesWorkersTakeGpusByTheirNumberAmongTheNodesWorkers) {
    JobSpec job = with_gpus(Framework::paddle);
    job.resources.nodes = 1;
    job.resources.ranks_per_node = 3;
    job.resources.gpus_per_node = 2;
    job.roles = {{"ps", 1, -1, true}, {"worker", 2, -1, true}};
    RankPlace of = place();
    of.nodes = 1;
    of.node_rank = 0;
    of.world_size = of.local_world_size = 3;
    of.endpoints = std::vector<std::string>(3, "10.0.0.1:5000");
    for (std::int32_t rank = 1; rank < 3; ++rank) {
        of.rank = of.local_rank = rank;
        EXPECT_EQ(rank_environment(job, of, {}).at("FLAGS_selected_gpus"),
                  std::to_string(rank - 1));
    }
}

// What a shell or the job's setup had exported was overwritten with Lockstep's defaults.
TEST(RankEnvironment, DefaultsDoNotReplaceWhatTheCallerHasChosen) {
    const auto expect_kept = [](const JobSpec& job, const Variables& chosen) {
        RankPlace of = place();
        of.endpoints = std::vector<std::string>(8, "10.0.0.1:5000");
        const auto out = rank_environment(job, of, chosen);
        for (const auto& [name, value] : chosen) {
            EXPECT_EQ(out.at(name), value) << name;
        }
    };
    expect_kept(spec(Framework::pytorch), {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}});
    expect_kept(spec(Framework::horovod), {{"HOROVOD_CPU_OPERATIONS", "ccl"},
                                           {"HOROVOD_GLOO_IFACE", "ib0"},
                                           {"GLOO_SOCKET_IFNAME", "eth0"}});
    expect_kept(spec(Framework::accelerate), {{"ACCELERATE_USE_CPU", "false"}});
    expect_kept(spec(Framework::paddle), {{"PADDLE_DISTRI_BACKEND", "xccl"}});
    JobSpec servers = spec(Framework::paddle);
    servers.roles = {{"ps", 2, -1, false}, {"worker", 6, -1, true}};
    expect_kept(servers, {{"PADDLE_WITH_GLOO", "1"}, {"PADDLE_GLOO_RENDEZVOUS", "2"}});
    JobSpec job = spec(Framework::horovod);
    job.environment = {{"GLOO_SOCKET_IFNAME", "ib1"}};
    EXPECT_EQ(
        rank_environment(job, place(), {{"GLOO_SOCKET_IFNAME", "eth0"}}).at("HOROVOD_GLOO_IFACE"),
        "ib1");
}

// One JAX process on each node of 8 GPUs computed on one of them; several of Keras on JAX without
// Slurm all had all.
TEST(RankEnvironment, JaxProcessesHaveTheirShareOfTheGpus) {
    JobSpec job = with_gpus(Framework::jax);
    job.resources.gpus_per_node = 8;
    RankPlace second = place();
    EXPECT_EQ(jax_devices(job, second, {}), "2,3");
    EXPECT_EQ(jax_devices(job, second, {{"CUDA_VISIBLE_DEVICES", "a,b,c,d,e,f,g,h"}}), "2,3");
    EXPECT_EQ(jax_devices(job, second, {{"CUDA_VISIBLE_DEVICES", "6,7"}}), "")
        << "they may be this rank's alone";
    RankPlace alone = second;
    alone.local_rank = 0;
    alone.local_world_size = 1;
    EXPECT_EQ(jax_devices(job, alone, {}), "0,1,2,3,4,5,6,7");
    EXPECT_EQ(jax_devices(job, alone, {{"CUDA_VISIBLE_DEVICES", "6,7"}}), "0,1")
        << "they count within what is visible";
    job.environment = {{"CUDA_VISIBLE_DEVICES", "3"}};
    EXPECT_EQ(jax_devices(job, alone, {{"CUDA_VISIBLE_DEVICES", "6,7"}}), "0");
    job.environment = {{"JAX_LOCAL_DEVICE_IDS", "5"}};
    EXPECT_EQ(jax_devices(job, alone, {}), "5");
    job.environment.clear();
    job.roles = {{"worker", 8, 2, true}};
    EXPECT_EQ(jax_devices(job, second, {}), "0,1") << "of the two that it sees";
    job.roles.clear();
    job.resources.gpus_per_node = 2;
    EXPECT_EQ(jax_devices(job, second, {}), "") << "fewer than ranks: left to JAX";
    job.resources.gpus_per_node = 0;
    EXPECT_EQ(jax_devices(job, alone, {}), "");
    JobSpec keras = with_gpus(Framework::keras);
    keras.resources.gpus_per_node = 8;
    keras.environment = {{"KERAS_BACKEND", "jax"}};
    second.endpoints = std::vector<std::string>(8, "10.0.0.1:5000");
    EXPECT_EQ(jax_devices(keras, second, {}), "2,3");
    keras.environment = {{"KERAS_BACKEND", "torch"}};
    EXPECT_EQ(jax_devices(keras, second, {}), "");
}

// Four of them hung: NCCL's blocks of all ranks did not fit on the GPU at once.
TEST(RankEnvironment, MoreThanTwoRanksOfAGpuTakeFewerBlocksEach) {
    JobSpec shared = with_gpus(Framework::pytorch);
    const auto blocks = [&](std::int32_t ranks) {
        shared.resources.ranks_per_gpu = ranks;
        const auto out = rank_environment(shared, place(), {});
        const auto found = out.find("NCCL_MAX_CTAS");
        return found == out.end() ? std::string{} : found->second;
    };
    EXPECT_EQ(blocks(1), "");
    EXPECT_EQ(blocks(2), "") << "NCCL has room for two";
    EXPECT_EQ(blocks(4), "4");
    EXPECT_EQ(blocks(64), "1");
    shared.environment = {{"NCCL_MAX_CTAS", "2"}};
    EXPECT_EQ(blocks(4), "2");
    shared.environment = {{"NCCL_MAX_NCHANNELS", "2"}};
    EXPECT_EQ(blocks(4), "") << "the older name of the same";
}

TEST(RankEnvironment, WithGpusEvidenceOfAHangCanBeHad) {
    Variables expected = with_flight_recorder(torch_contract());
    expected["NCCL_SOCKET_MAGIC"] = magic_of(with_ras());
    expected["NCCL_RAS_ADDR"] = "127.0.0.1:4321";
    EXPECT_EQ(rank_environment(with_gpus(Framework::pytorch), with_ras(), {}), expected);
    expected = contract();
    expected["LOCKSTEP_TRAIN_CONFIG"] = "/runs/train-00001.json";
    expected["NCCL_RAS_ADDR"] = "127.0.0.1:4321";
    expected["NCCL_SOCKET_MAGIC"] = magic_of(with_ras());
    EXPECT_EQ(rank_environment(with_gpus(Framework::native), with_ras(), {}), expected);
    EXPECT_EQ(rank_environment(with_gpus(Framework::pytorch), place(), {}).count("NCCL_RAS_ADDR"),
              0U)
        << "no port is held";
}

TEST(RankEnvironment, NcclsInspectorIsToldWhereToPostUnlessSomebodyUsesItOrOtlp) {
    RankPlace inspected = with_ras();
    inspected.socket_path = "/run/ls/rank-1.sock";
    inspected.inspector = {"/opt/inspector.so", "http://127.0.0.1:4242/v1/metrics", "s3cret"};
    const Variables out = rank_environment(with_gpus(Framework::command), inspected, {});
    EXPECT_EQ(out.at("NCCL_PROFILER_PLUGIN"), "/opt/inspector.so");
    EXPECT_EQ(out.at("NCCL_INSPECTOR_ENABLE"), "1");
    EXPECT_EQ(out.at("NCCL_INSPECTOR_OTEL_EXPORT"), "1");
    EXPECT_EQ(out.at("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"), "2000000");
    EXPECT_EQ(out.at("NCCL_INSPECTOR_DUMP_DIR"), "/run/ls/");
    EXPECT_EQ(out.at("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"), "http://127.0.0.1:4242/v1/metrics");
    EXPECT_EQ(out.at("OTEL_EXPORTER_OTLP_METRICS_HEADERS"), "Authorization=Bearer s3cret");
    for (const char* name :
         {"NCCL_PROFILER_PLUGIN", "NCCL_INSPECTOR_PROM_DUMP", "OTEL_EXPORTER_OTLP_ENDPOINT"}) {
        JobSpec mine = with_gpus(Framework::command);
        mine.environment[name] = "1";
        const Variables kept = rank_environment(mine, inspected, {});
        EXPECT_EQ(kept.at(name), "1");
        EXPECT_EQ(kept.count("NCCL_INSPECTOR_ENABLE"), 0U) << name;
        EXPECT_EQ(kept.count("OTEL_EXPORTER_OTLP_METRICS_HEADERS"), 0U) << name;
    }
    inspected.inspector = {};
    EXPECT_EQ(rank_environment(with_gpus(Framework::command), inspected, {})
                  .count("NCCL_INSPECTOR_ENABLE"),
              0U);
}

TEST(RankEnvironment, WhatTheJobOrItsSiteSaysOfEvidenceStays) {
    JobSpec mine = with_gpus(Framework::command);
    mine.launch = Launch::node;
    mine.environment = {{"TORCH_FR_BUFFER_SIZE", "0"}, {"NCCL_RAS_ADDR", "localhost:7"}};
    const Variables site{{"TORCH_FR_DUMP_TEMP_FILE", "/scratch/fr-"},
                         {"TORCH_FR_DEBUG_INFO_PIPE_FILE", "/run/p-"},
                         {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"}};
    const Variables out = rank_environment(mine, with_ras(), site);
    EXPECT_EQ(out.at("NCCL_RAS_ADDR"), "localhost:7");
    EXPECT_EQ(out.at("TORCH_NCCL_DUMP_ON_TIMEOUT"), "0");
    for (const char* name : {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                             "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}) {
        EXPECT_EQ(out.count(name), 0U) << name << ": under its newer name it is set";
    }
}

TEST(RankEnvironment, TheUsersOwnWinsButOverLockstep) {
    JobSpec mine = spec(Framework::command);
    mine.environment = {{"OMP_NUM_THREADS", "2"},  {"MASTER_PORT", "1"},
                        {"PYTHONPATH", "/mine"},   {"LD_PRELOAD", "/mine.so"},
                        {"LOCKSTEP_SOCKET", "/x"}, {"LOCKSTEP_FREE", "1"}};
    const auto out =
        rank_environment(mine, place(), {{"OMP_NUM_THREADS", "64"}, {"PYTHONPATH", "/inherited"}});
    EXPECT_EQ(out.at("OMP_NUM_THREADS"), "2");
    EXPECT_EQ(out.at("MASTER_PORT"), "1");
    EXPECT_EQ(out.at("PYTHONPATH"), "/opt/share/python/hooks:/mine:/opt/share/python")
        << "the package comes last; the hooks hide nothing";
    EXPECT_EQ(out.at("LD_PRELOAD"), "/mine.so");
    EXPECT_EQ(out.at("LOCKSTEP_SOCKET"), "/tmp/s/r00001.sock");
    EXPECT_EQ(out.count("LOCKSTEP_FREE"), 0U);
}

TEST(RankEnvironment, InsideAStepEverySlurmVariableAgreesWithTheRank) {
    // As an agent of srun --ntasks=2 --ntasks-per-node=1 has it.
    const Variables agent{{"SLURM_JOB_ID", "99"},
                          {"SLURM_NTASKS", "2"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_STEP_NODELIST", "n[1-2]"},
                          {"SLURM_GTIDS", "0"},
                          {"SLURM_TASK_PID", "5"},
                          {"SLURM_PMI2_STEP_NODES", "x"},
                          {"SLURM_CPUS_ON_NODE", "32"},
                          {"SLURM_CPUS_PER_TASK", "32"},
                          {"SLURM_TRES_PER_TASK", "cpu=32"}};
    const Variables out = rank_environment(spec(Framework::pytorch), place(), agent);
    Variables slurm;
    for (const auto& [name, value] : out) {
        if (name.starts_with("SLURM_")) {
            slurm[name] = value;
        }
    }
    const Variables expected{{"SLURM_CPUS_ON_NODE", "32"},
                             {"SLURM_CPUS_PER_TASK", "6"},
                             {"SLURM_JOB_ID", "99"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_NNODES", "2"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_NODELIST", "n1,n2"},
                             {"SLURM_NPROCS", "8"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_NTASKS_PER_NODE", "4"},
                             {"SLURM_PROCID", "5"},
                             {"SLURM_STEP_NODELIST", "n1,n2"},
                             {"SLURM_STEP_NUM_NODES", "2"},
                             {"SLURM_STEP_NUM_TASKS", "8"},
                             {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                             {"SLURM_TASKS_PER_NODE", "4(x2)"}};
    EXPECT_EQ(slurm, expected);
}

// An allocation of four nodes with a spare, one of which is lost: scripts counted three or four.
TEST(RankEnvironment, TheAllocationsNodesAreThoseOfTheWorld) {
    const Variables agent{{"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_JOB_NODELIST", "n[1-4]"}};
    for (const Launch launch : {Launch::rank, Launch::node}) {
        JobSpec mine = spec(Framework::pytorch);
        mine.launch = launch;
        const Variables out = rank_environment(mine, place(), agent);
        EXPECT_EQ(out.at("SLURM_JOB_NUM_NODES"), "2");
        EXPECT_EQ(out.at("SLURM_JOB_NODELIST"), "n1,n2");
    }
    JobSpec tasks = spec(Framework::mpi);
    tasks.launch = Launch::task;
    EXPECT_EQ(rank_environment(tasks, place(), agent).at("SLURM_JOB_NUM_NODES"), "4")
        << "srun has told it so";
}

TEST(RankEnvironment, WithoutSlurmNoneOfItsVariablesIsInvented) {
    for (const auto& [name, value] : rank_environment(spec(Framework::pytorch), place(), {})) {
        EXPECT_FALSE(name.starts_with("SLURM_")) << name;
    }
}

TEST(RankCommand, InApptainerSeesWhatLockstepGivesItAndTheMounts) {
    JobSpec mine = spec(Framework::command);
    mine.command = {"train", "{rank}"};
    mine.container = {ContainerRuntime::apptainer, "docker://torch:2", {"/data:/data:ro"}};
    mine.working_directory = "/srv/a";
    mine.resources.gpus_per_node = 2;
    RankPlace here = place();
    here.attempt_directory = "/runs/j/a1";
    here.checkpoint_directory = "/runs/j/checkpoints";
    here.socket_path = "/tmp/x/rank.sock";
    here.python_path = "/usr/share/lockstep/python";
    EXPECT_THAT(rank_command(mine, here, "/t"),
                ElementsAre("apptainer", "exec", "--nv", "--bind", "/runs/j/a1", "--bind", "/tmp/x",
                            "--bind", "/runs/j/checkpoints", "--bind", "/srv/a", "--bind",
                            "/usr/share/lockstep/python:/usr/share/lockstep/python:ro", "--bind",
                            "/data:/data:ro", "--pwd", "/srv/a", "docker://torch:2", "train", "5"));
}

TEST(RankCommand, ExpandsPlaceholdersInEveryArgument) {
    JobSpec mine = spec(Framework::command);
    mine.command = {"train", "--rank={rank}", "{local_rank}/{node_rank}/{world_size}",
                    "tcp://{master_addr}:{master_port}", "{other} {}"};
    EXPECT_THAT(rank_command(mine, place(), "/t"),
                ElementsAre("train", "--rank=5", "1/1/8", "tcp://10.0.0.1:4242", "{other} {}"));
}

TEST(RankCommand, RaysClusterIsStartedByThePythonThatHasIt) {
    JobSpec mine = spec(Framework::ray);
    mine.command = {"/opt/ray/bin/python3.11", "tune.py", "--rank={rank}"};
    EXPECT_THAT(rank_command(mine, place(), "/t"),
                ElementsAre("/opt/ray/bin/python3.11", "-m", "lockstep.ray", "--",
                            "/opt/ray/bin/python3.11", "tune.py", "--rank=5"));
    mine.command = {"tune"};
    EXPECT_THAT(rank_command(mine, place(), "/t"),
                ElementsAre("python3", "-m", "lockstep.ray", "--", "tune"));
}

TEST(RankCommand, NativeIsTheTrainer) {
    EXPECT_THAT(rank_command(spec(Framework::native), place(), "/opt/bin/lockstep-train"),
                ElementsAre("/opt/bin/lockstep-train"));
}

}  // namespace
}  // namespace lockstep::test
