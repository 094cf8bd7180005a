// The complete environment of a rank, per framework: each map is compared whole, so that nothing
// comes or goes unnoticed.
#include "job/model/launch/framework_env.hpp"

#include "tests/unit/model/rank_contract.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

const std::string kAllVariables =
    "10.0.0.1:5000,10.0.0.1:5001,10.0.0.1:5002,10.0.0.1:5003,"
    "10.0.0.2:5004,10.0.0.2:5005,10.0.0.2:5006,10.0.0.2:5007";

// printf <job id>/<attempt>/<generation> | sha256sum, its first 64 bits.
const std::pair<const std::string, std::string> kSocketMagic{"NCCL_SOCKET_MAGIC",
                                                             "0x0741d50961bd8a2c"};

RankPlace with_endpoints() {
    RankPlace out = place();
    for (std::int32_t rank = 0; rank < 8; ++rank) {
        out.endpoints.push_back(host_and_port(rank < 4 ? "10.0.0.1" : "10.0.0.2", 5000 + rank));
    }
    return out;
}

RankPlace at(std::int32_t rank) {
    RankPlace out = with_endpoints();
    out.rank = rank;
    out.node_rank = rank / 4;
    out.local_rank = rank % 4;
    out.address = rank < 4 ? "10.0.0.1" : "10.0.0.2";
    return out;
}

Variables merged(Variables base, const Variables& more) {
    for (const auto& [name, value] : more) {
        base[name] = value;
    }
    return base;
}

// What `place()` gets beside its endpoints.
Variables endpoint_contract() {
    return merged(contract(),
                  {{"LOCKSTEP_ENDPOINT", "10.0.0.2:5005"}, {"LOCKSTEP_ENDPOINTS", kAllVariables}});
}

// Rank 5 as rank `index` of `count` in a role.
Variables as_role(const std::string& role, const std::string& index, const std::string& count) {
    return {{"ROLE_NAME", role},     {"ROLE_RANK", index},          {"ROLE_WORLD_SIZE", count},
            {"LOCKSTEP_ROLE", role}, {"LOCKSTEP_ROLE_RANK", index}, {"LOCKSTEP_ROLE_SIZE", count}};
}

JobSpec with_roles(Framework framework, std::vector<RoleSpec> roles) {
    JobSpec out = spec(framework);
    out.roles = std::move(roles);
    return out;
}

const std::vector<RoleSpec> kServerRoles{{"ps", 2, -1, false}, {"worker", 6, -1, true}};
const std::vector<RoleSpec> kCluster{{"chief", 1, -1, true},
                                     {"worker", 4, -1, false},
                                     {"ps", 2, -1, false},
                                     {"evaluator", 1, -1, false}};

TEST(FrameworkEnvironment, Lightning) {
    EXPECT_EQ(rank_environment(spec(Framework::lightning), place(), {}), torch_contract());
}

TEST(FrameworkEnvironment, MpiKeepsWhatItsTaskWasGiven) {
    JobSpec mpi = spec(Framework::mpi);
    mpi.launch = Launch::task;
    const Variables task{{"PMI_FD", "9"},
                         {"PMI_RANK", "5"},
                         {"PMIX_RANK", "5"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_GTIDS", "4,5"},
                         {"SLURM_PMI2_STEP_NODES", "x"}};
    EXPECT_EQ(
        rank_environment(mpi, place(), merged(task, {{"LOCKSTEP_TOKEN", "x"}, {"RANK", "9"}})),
        merged(contract(), task));
}

TEST(FrameworkEnvironment, Deepspeed) {
    EXPECT_EQ(
        rank_environment(spec(Framework::deepspeed), place(), {}),
        merged(torch_contract(), {{"LOCAL_SIZE", "4"}, {"CROSS_RANK", "1"}, {"CROSS_SIZE", "2"}}));
}

TEST(FrameworkEnvironment, AccelerateOnTheCpuAndOnGpus) {
    EXPECT_EQ(rank_environment(spec(Framework::accelerate), place(), {}),
              merged(torch_contract(), {{"ACCELERATE_USE_CPU", "true"}}));
    JobSpec gpus = spec(Framework::accelerate);
    gpus.resources.gpus_per_node = 4;
    EXPECT_EQ(rank_environment(gpus, place(), {}),
              merged(with_flight_recorder(torch_contract()), {kSocketMagic}));
}

TEST(FrameworkEnvironment, Horovod) {
    const Variables horovod{{"HOROVOD_RANK", "5"},       {"HOROVOD_SIZE", "8"},
                            {"HOROVOD_LOCAL_RANK", "1"}, {"HOROVOD_LOCAL_SIZE", "4"},
                            {"HOROVOD_CROSS_RANK", "1"}, {"HOROVOD_CROSS_SIZE", "2"},
                            {"HOROVOD_HOSTNAME", "n2"}};
    const Variables gloo{{"HOROVOD_CONTROLLER", "gloo"},
                         {"HOROVOD_CPU_OPERATIONS", "gloo"},
                         {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                         {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4242"},
                         {"HOROVOD_GLOO_IFACE", "eth0"},
                         {"GLOO_SOCKET_IFNAME", "eth0"}};
    EXPECT_EQ(rank_environment(spec(Framework::horovod), place(), {{"GLOO_SOCKET_IFNAME", "eth0"}}),
              merged(merged(contract(), horovod), gloo));
    JobSpec mpi = spec(Framework::horovod);
    mpi.launch = Launch::task;
    EXPECT_EQ(rank_environment(mpi, place(), {}), merged(contract(), horovod));
}

TEST(FrameworkEnvironment, JaxOutsideSlurmAndInside) {
    const Variables jax{{"JAX_COORDINATOR_ADDRESS", "10.0.0.1:4242"},
                        {"JAX_COORDINATOR_PORT", "4242"}};
    const Variables made{{"SLURM_JOB_ID", "1"},
                         {"SLURM_STEP_NODELIST", "n1,n2"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_LOCALID", "1"}};
    EXPECT_EQ(rank_environment(spec(Framework::jax), place(), {}),
              merged(merged(contract(), jax), made));
    const auto inside = rank_environment(spec(Framework::jax), place(),
                                         {{"SLURM_JOB_ID", "99"}, {"SLURM_PROCID", "1"}});
    EXPECT_EQ(inside.at("SLURM_JOB_ID"), "99");
    EXPECT_EQ(inside.at("SLURM_PROCID"), "5");
    RankPlace six = place();
    six.master_addr = "fd00::1";
    EXPECT_EQ(rank_environment(spec(Framework::jax), six, {}).at("JAX_COORDINATOR_ADDRESS"),
              "[fd00::1]:4242");
}

TEST(FrameworkEnvironment, TensorFlowWorkers) {
    EXPECT_EQ(
        rank_environment(spec(Framework::tensorflow), with_endpoints(), {}),
        merged(endpoint_contract(),
               {{"TF_CONFIG",
                 R"({"cluster":{"worker":["10.0.0.1:5000","10.0.0.1:5001","10.0.0.1:5002",)"
                 R"("10.0.0.1:5003","10.0.0.2:5004","10.0.0.2:5005","10.0.0.2:5006",)"
                 R"("10.0.0.2:5007"]},"task":{"type":"worker","index":5},"rpc_layer":"grpc"})"}}));
}

TEST(FrameworkEnvironment, TensorFlowWithServers) {
    const std::string cluster =
        R"({"cluster":{"chief":["10.0.0.1:5000"],"worker":["10.0.0.1:5001","10.0.0.1:5002",)"
        R"("10.0.0.1:5003","10.0.0.2:5004"],"ps":["10.0.0.2:5005","10.0.0.2:5006"],)"
        R"("evaluator":["10.0.0.2:5007"]},"task":)";
    const JobSpec job = with_roles(Framework::tensorflow, kCluster);
    EXPECT_EQ(rank_environment(job, with_endpoints(), {{"CUDA_VISIBLE_DEVICES", "0,1"}}),
              merged(merged(endpoint_contract(), as_role("ps", "0", "2")),
                     {{"TF_CONFIG", cluster + R"({"type":"ps","index":0},"rpc_layer":"grpc"})"},
                      {"CUDA_VISIBLE_DEVICES", ""}}));
    const auto chief = rank_environment(job, at(0), {});
    EXPECT_EQ(chief.at("TF_CONFIG"), cluster + R"({"type":"chief","index":0},"rpc_layer":"grpc"})");
    EXPECT_EQ(chief.at("GRPC_FAIL_FAST"), "use_caller");
    const auto worker = rank_environment(job, at(4), {});
    EXPECT_EQ(worker.at("TF_CONFIG"),
              cluster + R"({"type":"worker","index":3},"rpc_layer":"grpc"})");
    EXPECT_EQ(worker.count("GRPC_FAIL_FAST"), 0U);
}

TEST(FrameworkEnvironment, OneTensorFlowProcessHasNoCluster) {
    JobSpec one = spec(Framework::tensorflow);
    one.resources.nodes = one.resources.ranks_per_node = 1;
    EXPECT_EQ(
        rank_environment(one, place(), {{"TF_CONFIG", "of somebody else"}}).count("TF_CONFIG"), 0U);
}

TEST(FrameworkEnvironment, TensorFlowWorkersOnOneNodeShareItsGpus) {
    JobSpec gpus = spec(Framework::tensorflow);
    gpus.resources.gpus_per_node = 8;
    EXPECT_EQ(rank_environment(gpus, with_endpoints(), {}).at("CUDA_VISIBLE_DEVICES"), "2,3");
    EXPECT_EQ(rank_environment(gpus, with_endpoints(),
                               {{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d"}})
                  .at("CUDA_VISIBLE_DEVICES"),
              "GPU-c,GPU-d");
}

TEST(FrameworkEnvironment, KerasByItsBackend) {
    JobSpec keras = spec(Framework::keras);
    const Variables on_tensorflow =
        rank_environment(spec(Framework::tensorflow), with_endpoints(), {});
    keras.environment["KERAS_BACKEND"] = "tensorflow";
    EXPECT_EQ(rank_environment(keras, with_endpoints(), {}),
              merged(on_tensorflow, {{"KERAS_BACKEND", "tensorflow"}}));
    keras.environment["KERAS_BACKEND"] = "jax";
    EXPECT_EQ(rank_environment(keras, with_endpoints(), {}),
              merged(endpoint_contract(), {{"KERAS_BACKEND", "jax"},
                                           {"KERAS_DISTRIBUTION_JOB_ADDRESSES", kAllVariables},
                                           {"KERAS_DISTRIBUTION_NUM_PROCESSES", "8"},
                                           {"KERAS_DISTRIBUTION_PROCESS_ID", "5"}}));
    keras.environment["KERAS_BACKEND"] = "torch";
    EXPECT_EQ(rank_environment(keras, place(), {}),
              merged(contract(), {{"KERAS_BACKEND", "torch"}}));
}

// A script on JAX that set KERAS_BACKEND itself found no coordinator.
TEST(FrameworkEnvironment, KerasWhoseScriptChoosesTheBackendIsToldBoth) {
    const auto told = rank_environment(spec(Framework::keras), with_endpoints(), {});
    EXPECT_EQ(told.count("TF_CONFIG"), 1U);
    EXPECT_EQ(told.at("KERAS_DISTRIBUTION_JOB_ADDRESSES"), kAllVariables);
    EXPECT_EQ(told.at("KERAS_DISTRIBUTION_PROCESS_ID"), "5");
}

TEST(FrameworkEnvironment, TheBackendThatTheCallersShellNamesCounts) {
    JobSpec keras = spec(Framework::keras);
    keras.inherit_environment = true;
    keras.recorded_environment["KERAS_BACKEND"] = "jax";
    const auto told = rank_environment(keras, with_endpoints(), {});
    EXPECT_EQ(told.count("TF_CONFIG"), 0U);
    EXPECT_EQ(told.count("KERAS_DISTRIBUTION_PROCESS_ID"), 1U);
}

TEST(FrameworkEnvironment, PaddleCollectiveOnTheCpuAndOnGpus) {
    const Variables paddle{{"PADDLE_TRAINER_ID", "5"},
                           {"PADDLE_TRAINERS_NUM", "8"},
                           {"PADDLE_TRAINER_ENDPOINTS", kAllVariables},
                           {"PADDLE_CURRENT_ENDPOINT", "10.0.0.2:5005"},
                           {"PADDLE_MASTER", "10.0.0.1:4242"},
                           {"PADDLE_GLOBAL_RANK", "5"},
                           {"PADDLE_GLOBAL_SIZE", "8"},
                           {"PADDLE_LOCAL_RANK", "1"},
                           {"PADDLE_LOCAL_SIZE", "4"},
                           {"PADDLE_RANK_IN_NODE", "1"},
                           {"PADDLE_NNODES", "2"}};
    const Variables inherited{{"PADDLE_TRAINER_ID", "77"}, {"TRAINING_ROLE", "PSERVER"}};
    EXPECT_EQ(rank_environment(spec(Framework::paddle), with_endpoints(), inherited),
              merged(merged(endpoint_contract(), paddle), {{"PADDLE_DISTRI_BACKEND", "gloo"}}));
    JobSpec gpus = spec(Framework::paddle);
    gpus.resources.gpus_per_node = 4;
    EXPECT_EQ(
        rank_environment(gpus, with_endpoints(), {}),
        merged(merged(endpoint_contract(), paddle), {{"FLAGS_selected_gpus", "1"}, kSocketMagic}));
    gpus.roles = {{"worker", 8, 1, true}};
    const auto masked = rank_environment(gpus, with_endpoints(), {});
    EXPECT_EQ(masked.at("CUDA_VISIBLE_DEVICES"), "1");
    EXPECT_EQ(masked.at("FLAGS_selected_gpus"), "0") << "counts within what is visible";
}

TEST(FrameworkEnvironment, PaddleServersAndTrainers) {
    const JobSpec job = with_roles(Framework::paddle, kServerRoles);
    const Variables both{
        {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:5000,10.0.0.1:5001"},
        {"PADDLE_TRAINER_ENDPOINTS",
         "10.0.0.1:5002,10.0.0.1:5003,10.0.0.2:5004,10.0.0.2:5005,10.0.0.2:5006,10.0.0.2:5007"},
        {"PADDLE_TRAINERS_NUM", "6"},
        {"PADDLE_NNODES", "2"},
        {"PADDLE_WITH_GLOO", "0"},
        {"PADDLE_GLOO_RENDEZVOUS", "3"},
        {"PADDLE_GLOO_HTTP_ENDPOINT", "10.0.0.1:4242"}};
    EXPECT_EQ(rank_environment(job, with_endpoints(), {}),
              merged(merged(endpoint_contract(), as_role("worker", "3", "6")),
                     merged(both, {{"PADDLE_ROLE", "TRAINER"},
                                   {"TRAINING_ROLE", "TRAINER"},
                                   {"PADDLE_TRAINER_ID", "3"},
                                   {"POD_IP", "10.0.0.2"},
                                   {"PADDLE_PORT", "5005"}})));
    const auto server = rank_environment(job, at(1), {});
    for (const auto& [name, value] : both) {
        EXPECT_EQ(server.at(name), value);
    }
    EXPECT_EQ(server.at("TRAINING_ROLE"), "PSERVER");
    EXPECT_EQ(server.at("POD_IP") + ":" + server.at("PADDLE_PORT"), "10.0.0.1:5001");
    EXPECT_EQ(server.count("PADDLE_TRAINER_ID"), 0U);
    EXPECT_EQ(server.at("CUDA_VISIBLE_DEVICES"), "");
}

TEST(FrameworkEnvironment, ACommandWithRolesKnowsItsRoleAndEveryAddress) {
    EXPECT_EQ(rank_environment(with_roles(Framework::command, kServerRoles), with_endpoints(), {}),
              merged(endpoint_contract(), as_role("worker", "3", "6")));
}

// One process on node 1 of 2, of which each is to start 4 ranks.
RankPlace node_place() {
    RankPlace out = place();
    out.rank = 4;
    out.node_rank = 1;
    out.local_rank = 0;
    out.world_size = 8;
    out.local_world_size = 4;
    return out;
}

TEST(NodeEnvironment, HasWhatLaunchersTakeAndNothingOfARank) {
    const Variables expected{{"LOCKSTEP_ADDRESS", "10.0.0.2"},
                             {"LOCKSTEP_AGENT", "/opt/bin/lockstep-agent"},
                             {"LOCKSTEP_ATTEMPT", "2"},
                             {"LOCKSTEP_CHECKPOINT_DIR", "/ckpt"},
                             {"LOCKSTEP_CHECKPOINT_SIGNAL", "USR2"},
                             {"LOCKSTEP_GENERATION", "3"},
                             {"LOCKSTEP_HOSTS", "n1,n2"},
                             {"LOCKSTEP_JOB_ID", "ls-01J0000000000000000000000A"},
                             {"LOCKSTEP_JOB_NAME", "mnist"},
                             {"LOCKSTEP_LOCAL_WORLD_SIZE", "4"},
                             {"LOCKSTEP_NODES", "2"},
                             {"LOCKSTEP_NODE_RANK", "1"},
                             {"LOCKSTEP_RANKS_PER_NODE", "4"},
                             {"LOCKSTEP_ROLE", "worker"},
                             {"LOCKSTEP_ROLE_SIZE", "8"},
                             {"LOCKSTEP_SOCKET", "/tmp/s/r00001.sock"},
                             {"LOCKSTEP_WORLD_SIZE", "8"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "4242"},
                             {"NNODES", "2"},
                             {"NODE_RANK", "1"},
                             {"OMP_NUM_THREADS", "6"},
                             {"PADDLE_JOB_ID", "ls-01J0000000000000000000000A"},
                             {"PADDLE_LOG_DIR", "/runs/paddle-node-1"},
                             {"PADDLE_MASTER", "10.0.0.1:4242"},
                             {"PADDLE_NNODES", "2"},
                             {"PADDLE_NPROC_PER_NODE", "4"},
                             {"PADDLE_RANK", "1"},
                             {"PET_MASTER_ADDR", "10.0.0.1"},
                             {"PET_MASTER_PORT", "4242"},
                             {"PET_NNODES", "2"},
                             {"PET_NODE_RANK", "1"},
                             {"PET_NPROC_PER_NODE", "4"},
                             {"POD_IP", "10.0.0.2"},
                             {"PYTHONPATH", "/opt/share/python/hooks:/opt/share/python"},
                             {"PYTHONUNBUFFERED", "1"},
                             {"SLURM_CPUS_ON_NODE", "32"},
                             {"SLURM_JOB_ID", "99"},
                             {"TORCHELASTIC_ERROR_FILE", "/runs/rank-00005.error.json"}};
    // As an agent in a step has it, and as a shell in which somebody ran a launcher before.
    const Variables agent{{"SLURM_JOB_ID", "99"},
                          {"SLURM_CPUS_ON_NODE", "32"},
                          {"SLURM_NTASKS", "2"},
                          {"SLURM_NPROCS", "2"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_TASKS_PER_NODE", "1(x2)"},
                          {"SLURM_NTASKS_PER_NODE", "1"},
                          {"SLURM_STEP_NODELIST", "n[1-2]"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"PMI_RANK", "1"},
                          {"RANK", "7"},
                          {"LOCAL_RANK", "7"},
                          {"WORLD_SIZE", "9"},
                          {"PADDLE_TRAINER_ID", "7"},
                          {"TORCHELASTIC_RUN_ID", "x"},
                          {"TF_CONFIG", "{}"}};
    for (const auto framework : {Framework::pytorch, Framework::lightning, Framework::paddle,
                                 Framework::deepspeed, Framework::keras, Framework::command}) {
        JobSpec job = spec(framework);
        job.launch = Launch::node;
        EXPECT_EQ(rank_environment(job, node_place(), agent), expected) << to_string(framework);
    }
    JobSpec accelerate = spec(Framework::accelerate);
    accelerate.launch = Launch::node;
    EXPECT_EQ(rank_environment(accelerate, node_place(), agent),
              merged(expected, {{"ACCELERATE_USE_CPU", "true"}}));
}

TEST(NodeEnvironment, ThePlaceholdersCountTheWorldThatIsToBecome) {
    JobSpec job = spec(Framework::accelerate);
    job.launch = Launch::node;
    job.command = {"accelerate", "launch", "--num_processes={world_size}",
                   "--machine_rank={node_rank}"};
    const auto words = rank_command(job, node_place(), "");
    EXPECT_EQ(words.at(2), "--num_processes=8");
    EXPECT_EQ(words.at(3), "--machine_rank=1");
}

}  // namespace
}  // namespace lockstep::test
