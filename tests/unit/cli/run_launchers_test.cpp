// What `lockstep run` makes of commands as people have them from other launchers, and of what a
// script says itself.
#include "tests/unit/cli/run_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::int64_t ranks_of(const Json& spec) {
    return spec["resources"]["ranks_per_node"].get<std::int64_t>();
}

// Its fixed port 29500 was that of every other job on the host.
TEST_F(CliRun, DeepspeedsLauncherIsToldThePortThatIsHeld) {
    Json spec = plan({"deepspeed", "--num_gpus", "4", "train.py", "--deepspeed"});
    EXPECT_EQ(spec["command"], (Json{"deepspeed", "--master_port", "{master_port}", "--num_gpus",
                                     "4", "train.py", "--deepspeed"}));
    EXPECT_EQ(spec["launch"], "node");
    EXPECT_EQ(spec["name"], "train");
    EXPECT_EQ(ranks_of(spec), 4);
    spec = plan({"deepspeed", "--master_port=29501", "train.py", "--num_gpus=4"});
    EXPECT_EQ(spec["command"][1], "--master_port=29501") << "the caller's own stays";
    EXPECT_EQ(ranks_of(spec), 1) << "that is the script's option";
    for (const Words& several : {Words{"deepspeed", "--hostfile", "hosts", "train.py"},
                                 Words{"deepspeed", "-H", "hosts", "train.py"},
                                 Words{"deepspeed", "--num_nodes=2", "train.py"}}) {
        EXPECT_THAT(refused(several), HasSubstr("-n RANKS_PER_NODE --framework deepspeed"));
    }
    options_.nodes = 2;
    EXPECT_THAT(refused({"deepspeed", "train.py"}), HasSubstr("--framework deepspeed"));
}

TEST_F(CliRun, ColossalaiAndComposerStartTheRanksOfOneNode) {
    Json spec = plan({"colossalai", "run", "--nproc_per_node", "4", "train.py"});
    EXPECT_EQ(spec["command"], (Json{"colossalai", "run", "--master_port", "{master_port}",
                                     "--nproc_per_node", "4", "train.py"}));
    EXPECT_EQ(spec["launch"], "node");
    EXPECT_EQ(ranks_of(spec), 4);
    spec = plan({"composer", "-n", "8", "train.py"});
    EXPECT_EQ(spec["command"], (Json{"composer", "-n", "8", "train.py"})) << "it reads MASTER_PORT";
    EXPECT_EQ(spec["framework"], "pytorch");
    EXPECT_EQ(ranks_of(spec), 8);
    EXPECT_THAT(refused({"composer", "-n", "8", "--world_size", "16", "train.py"}),
                HasSubstr("-- python SCRIPT"));
    EXPECT_EQ(plan({"composer", "install"})["framework"], "command") << "PHP's";
    options_.gpus_per_node = 8;
    EXPECT_EQ(ranks_of(plan({"composer", "--world_size=8", "train.py"})), 8);
    options_.nodes = 2;
    EXPECT_THAT(refused({"composer", "-n", "8", "train.py"}), HasSubstr("-- python SCRIPT"));
    EXPECT_EQ(plan({"composer", "-n", "8", "--world_size", "16", "--node_rank", "{node_rank}",
                    "train.py"})["launch"],
              "node")
        << "each node's own is filled in";
    EXPECT_THAT(refused({"colossalai", "run", "train.py"}), HasSubstr("--framework pytorch"));
}

TEST_F(CliRun, LaunchersAcrossNodesAreRefusedWithWhatToWrite) {
    for (const char* name : {"srun", "mpirun", "mpiexec", "orterun"}) {
        EXPECT_THAT(refused({name, "-n", "4", "python", "train.py"}),
                    AllOf(HasSubstr("RANKS_PER_NODE -- PROGRAM"), HasSubstr("--framework mpi")))
            << name;
    }
    EXPECT_THAT(refused({"horovodrun", "-np", "4", "python", "train.py"}),
                HasSubstr("--framework horovod -- python SCRIPT"));
    EXPECT_THAT(refused({"ray", "job", "submit", "--", "python", "x.py"}),
                AllOf(HasSubstr("ray job"), HasSubstr("--framework ray -- python SCRIPT")));
    EXPECT_THAT(refused({"ray", "start", "--head"}), HasSubstr("--framework ray"));
    EXPECT_EQ(plan({"ray", "status"})["framework"], "command");
}

TEST_F(CliRun, TorchrunsOwnMeetingPlaceIsAWarning) {
    const Words places{"--rdzv-id=100", "--rdzv-backend=c10d", "--rdzv-endpoint=login1:29400"};
    Words command{"torchrun", "--nnodes=2", "--nproc-per-node=4"};
    command.insert(command.end(), places.begin(), places.end());
    command.emplace_back("train.py");
    EXPECT_THAT(warnings(command),
                ElementsAre(AllOf(HasSubstr("--rdzv-endpoint login1:29400"),
                                  HasSubstr("must be on a node of the job")),
                            AllOf(HasSubstr("--rdzv-backend c10d"), HasSubstr("is not needed"))));
    EXPECT_THAT(warnings({"torchrun", "--master_addr={master_addr}", "train.py"}), IsEmpty());
    EXPECT_THAT(
        warnings({"torchrun", "--rdzv-id=", "train.py", "--resume="}),
        ElementsAre(AllOf(HasSubstr("--rdzv-id= has no value"), HasSubstr("LOCKSTEP_JOB_ID"))));
    EXPECT_THAT(warnings({"torchrun", "--standalone", "--nproc-per-node=gpu", "train.py"}),
                ElementsAre(HasSubstr("say how many with -G")));
    options_.gpus_per_node = 4;
    const Words whole{"torchrun", "--standalone", "--nproc-per-node=gpu", "train.py"};
    EXPECT_THAT(warnings(whole), IsEmpty());
    EXPECT_EQ(ranks_of(plan(whole)), 4);
    const Json spec = plan({"python", "-m", "torch.distributed.launch", "--use-env",
                            "--nproc_per_node=2", "train.py"});
    EXPECT_EQ(spec["launch"], "node");
    EXPECT_EQ(ranks_of(spec), 2);
}

TEST_F(CliRun, AcceleratesProcessesAreOfAllMachines) {
    const Words command{"accelerate", "launch", "--num_processes", "8", "--multi_gpu", "train.py"};
    EXPECT_EQ(ranks_of(plan(command)), 8);
    options_.nodes = 2;
    EXPECT_EQ(ranks_of(plan(command)), 4);
    EXPECT_THAT(warnings({"accelerate", "launch", "--machine_rank=0", "--main_process_ip",
                          "{master_addr}", "train.py"}),
                ElementsAre(HasSubstr("--machine-rank 0 is the same on every node")));
}

// One rank was expected of a launcher that starts two.
TEST_F(CliRun, PaddlesDevicesAreItsRanks) {
    const auto launch = [](const Words& own) {
        Words out{"python", "-m", "paddle.distributed.launch"};
        out.insert(out.end(), own.begin(), own.end());
        out.emplace_back("train.py");
        return out;
    };
    for (const char* option : {"--devices", "--xpus", "--npus"}) {
        EXPECT_EQ(ranks_of(plan(launch({option, "0,1"}))), 2) << option;
        EXPECT_THAT(warnings(launch({option, "0,1"})), IsEmpty()) << option;
    }
    EXPECT_EQ(ranks_of(plan(launch({"--gpus=0,1,2", "--nproc_per_node=1"}))), 1);
    EXPECT_THAT(warnings(launch({"--gpus", "0,1"})),
                ElementsAre(HasSubstr("GPUs 0,1, and the job asks for none")));
    options_.gpus_per_node = 4;
    EXPECT_THAT(warnings(launch({"--gpus", "0,1"})), IsEmpty());
    EXPECT_EQ(ranks_of(plan(launch({"--gpus", "0,1"}))), 2);
    EXPECT_THAT(warnings(launch({"--master=10.0.0.1:8090", "--rank", "0", "--log_dir", "./mylog"})),
                ElementsAre(HasSubstr("--master 10.0.0.1:8090 has no effect"),
                            HasSubstr("--rank 0 has no effect"),
                            HasSubstr("--log-dir ./mylog has no effect")));
    EXPECT_EQ(plan(launch({"--nnodes=2"}))["resources"]["nodes"], 2);
    EXPECT_THAT(warnings(launch({"--nnodes=2"})), IsEmpty());
    options_.nodes = 4;
    EXPECT_THAT(warnings(launch({"--nnodes=2"})),
                ElementsAre(HasSubstr("--nnodes 2 has no effect")));
}

// Ranks on torch saw one GPU each, as TensorFlow's workers do, and took that of their number.
TEST_F(CliRun, TheBackendThatAKerasScriptSetsStandsInTheSpecification) {
    const auto backend = [&](const std::string& line) {
        script("k.py", "import os\n" + line + "\nimport keras\n");
        const Json spec = plan({"python", "k.py"});
        EXPECT_EQ(spec["framework"], "keras");
        return spec.value("environment", Json::object()).value("KERAS_BACKEND", "");
    };
    EXPECT_EQ(backend("os.environ[\"KERAS_BACKEND\"] = \"torch\""), "torch");
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND']='jax'  # or torch"), "jax");
    EXPECT_EQ(backend("os.environ.setdefault(\"KERAS_BACKEND\", \"torch\")"), "torch");
    EXPECT_EQ(backend("os.environ.update({\"KERAS_BACKEND\": \"torch\"})"), "torch");
    EXPECT_EQ(backend("environ.update(KERAS_BACKEND='tensorflow')"), "tensorflow");
    EXPECT_EQ(backend("# os.environ['KERAS_BACKEND'] = 'jax'"), "");
    EXPECT_EQ(backend("if os.environ['KERAS_BACKEND'] == 'jax': pass"), "");
    EXPECT_EQ(backend("os.environ.get('KERAS_BACKEND', 'jax')"), "");
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND'] = sys.argv[1]"), "");
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND'] ="), "");
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND'] = 'jax'\nos.environ['KERAS_BACKEND'] = 'torch'"),
              "")
        << "it depends";
    caller_.environment["KERAS_BACKEND"] = "jax";
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND'] = 'torch'"), "torch") << "the script wins";
    EXPECT_EQ(backend("os.environ.setdefault('KERAS_BACKEND', 'torch')"), "");
    options_.environment = {"KERAS_BACKEND=tensorflow"};
    EXPECT_EQ(backend("os.environ['KERAS_BACKEND'] = 'torch'"), "tensorflow");
}

// It counted one GPU for the two workers of a node.
TEST_F(CliRun, AScriptWithSlurmClusterResolverSeesAllGpusOfItsNode) {
    const std::string text =
        "import tensorflow as tf\n"
        "resolver = tf.distribute.cluster_resolver.SlurmClusterResolver()\n";
    EXPECT_EQ(framework_of(text), "command");
    options_.framework = "tensorflow";
    EXPECT_EQ(framework_of(text), "tensorflow");
}

}  // namespace
}  // namespace lockstep::cli
