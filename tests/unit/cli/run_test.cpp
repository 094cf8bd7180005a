#include "job/cli/run.hpp"

#include "job/cli/arguments.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"
#include "tests/unit/cli/run_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST_F(CliRun, WhoIsToldStandsInTheSpecification) {
    options_.notify = {"mail", "webhook:https://hooks.example.org/a?b"};
    EXPECT_EQ(dump_json(plan({"tool"})["notify"]),
              R"(["mail","webhook:https://hooks.example.org/a?b"])");
    options_.notify.clear();
    EXPECT_FALSE(plan({"tool"}).contains("notify"));
}

TEST_F(CliRun, LabelsStandInTheSpecification) {
    options_.labels = {"team=vision", "note=a=b", "empty="};
    EXPECT_EQ(dump_json(plan({"tool"})["labels"]), R"({"team":"vision","note":"a=b","empty":""})");
    options_.sweep = {"lr=1,2"};
    options_.labels = {"lr={lr}"};
    EXPECT_EQ(dump_json(plan({"tool", "{lr}"})["labels"]), R"({"lr":"{lr}"})");
    options_.sweep.clear();
    for (const char* wrong : {"team", "=vision", "team:vision"}) {
        options_.labels = {wrong};
        EXPECT_EQ(refused({"tool"}),
                  std::string("--label ") + wrong + ": must be NAME=VALUE, as in team=vision");
    }
    options_.labels = {"a=1", "a=2"};
    EXPECT_EQ(refused({"tool"}), "--label a: is given twice; a label has one value");
}

TEST_F(CliRun, ACommandAloneIsAJobHere) {
    EXPECT_EQ(dump_json(plan({"python", "train.py", "--lr", "0.1"})),
              R"({"name":"train","framework":"pytorch",)"
              R"("command":["python","train.py","--lr","0.1"],)"
              R"("resources":{"nodes":1,"ranks_per_node":1},"working_directory":")" +
                  folder_.path().string() + R"(","inherit_environment":true})");
}

TEST_F(CliRun, OptionsBecomeFields) {
    options_.nodes = 2;
    options_.gpus_per_node = 8;
    options_.time_limit = "4:00:00";
    options_.partition = "gpu";
    options_.placement.constraint = "a100";
    options_.exclusive = true;
    options_.sbatch = {"licenses=matlab"};
    options_.gpu_type = "a100";
    options_.memory = "64G";
    options_.setup = "module load cuda/12";
    options_.environment = {"NCCL_DEBUG=INFO", "PATH"};
    options_.max_restarts = 3;
    const Json spec = plan({"python", "train.py"});
    EXPECT_EQ(dump_json(spec["resources"]), R"({"nodes":2,"ranks_per_node":8,"gpus_per_node":8,)"
                                            R"("gpu_type":"a100","memory_mb_per_node":65536,)"
                                            R"("time_limit":"4:00:00"})");
    EXPECT_EQ(dump_json(spec["slurm"]),
              R"({"partition":"gpu","constraint":"a100","exclusive":true,)"
              R"("directives":{"licenses":"matlab"}})");
    EXPECT_EQ(spec["setup"], "module load cuda/12");
    EXPECT_EQ(spec["environment"]["NCCL_DEBUG"], "INFO");
    EXPECT_EQ(spec["environment"]["PATH"], folder_.path().string());
    EXPECT_EQ(spec["recovery"]["max_restarts"], 3);
    caller_.environment["LOCKSTEP_PYTHON_HOOKS"] = "off";
    EXPECT_EQ(plan({"python", "train.py"})["environment"]["LOCKSTEP_PYTHON_HOOKS"], "off");
    caller_.environment["LOCKSTEP_NCCL_INSPECTOR"] = "off";
    EXPECT_EQ(plan({"python", "train.py"})["environment"]["LOCKSTEP_NCCL_INSPECTOR"], "off");
    options_.bare = true;
    EXPECT_FALSE(plan({"python", "train.py"}).contains("inherit_environment"));
    EXPECT_FALSE(plan({"python", "train.py"})["environment"].contains("LOCKSTEP_PYTHON_HOOKS"));
}

TEST_F(CliRun, ASweepFillsInTheCommandOrNamesAField) {
    options_.sweep = {"lr=0.1,1e-3", "seed=1..3"};
    options_.max_parallel = 2;
    const Words command{"python", "train.py", "--lr", "{lr}", "--seed={seed}"};
    EXPECT_EQ(dump_json(plan(command)["sweep"]),
              R"({"parameters":{"lr":[0.1,"1e-3"],"seed":[1,2,3]},"max_parallel":2})");
    options_.command = command;
    options_.bare = true;  // nothing recorded
    const auto whole = parse_sweep(plan_run(options_, caller_)->spec);
    ASSERT_TRUE(whole.has_value()) << whole.error().text();
    ASSERT_EQ(whole->points.size(), 6U);
    EXPECT_THAT(whole->points[4].spec.command,
                ElementsAre("python", "train.py", "--lr", "1e-3", "--seed=2"));

    options_.max_parallel = 0;
    options_.sweep = {"resources.nodes=1,2", "environment.SEED=7,$x", R"(o=["a,b","c"])"};
    EXPECT_EQ(dump_json(plan({"tool", "{o}"})["sweep"]),
              R"({"parameters":{"resources.nodes":[1,2],"environment.SEED":["7","$$x"],)"
              R"("o":["a,b","c"]}})");
    options_.sweep = {"down=3..1", "file=../a,b..c", "on=true,007", "n=-1..1"};
    options_.name = "try-{n}";
    EXPECT_EQ(dump_json(plan({"tool", "{down}{file}{on}{n}"})["sweep"]["parameters"]),
              R"({"down":[3,2,1],"file":["../a","b..c"],"on":[true,"007"],"n":[-1,0,1]})");
}

TEST_F(CliRun, ASweepThatCannotBeMeantIsRefused) {
    const Words command{"python", "train.py", "--lr", "{lr}"};
    const auto refused_sweep = [&](const Words& sweep) {
        options_.sweep = sweep;
        return refused(command);
    };
    EXPECT_THAT(refused_sweep({"lr"}), HasSubstr("--sweep lr: must be NAME=VALUE,VALUE"));
    EXPECT_THAT(refused_sweep({"=1"}), HasSubstr("must be NAME=VALUE,VALUE"));
    EXPECT_THAT(refused_sweep({"lr="}), HasSubstr("a value is empty"));
    EXPECT_THAT(refused_sweep({"lr=1,,2"}), HasSubstr("a value is empty"));
    EXPECT_THAT(refused_sweep({"lr=[1"}), HasSubstr("must be a JSON array"));
    EXPECT_THAT(refused_sweep({"lr=1", "lr=2"}), HasSubstr("given twice"));
    EXPECT_THAT(refused_sweep({"seed=1,2"}),
                HasSubstr("{seed} stands nowhere in the command, as in --seed {seed}"));
    // Far too long a range: a text like any other.
    options_.sweep = {"lr=-9223372036854775808..9223372036854775807"};
    EXPECT_EQ(plan(command)["sweep"]["parameters"]["lr"].size(), 1U);
}

TEST_F(CliRun, TheFrameworkIsWhatTheScriptImports) {
    EXPECT_EQ(framework_of("import torch\nimport pytorch_lightning as pl\n"), "lightning");
    EXPECT_EQ(framework_of("from lightning.pytorch import Trainer\n"), "lightning");
    EXPECT_EQ(framework_of("from accelerate import Accelerator\nimport torch\n"), "accelerate");
    EXPECT_EQ(framework_of("import tensorflow as tf\n"), "tensorflow");
    EXPECT_EQ(framework_of("import torch.distributed as dist\nimport tensorflow\n"), "pytorch");
    EXPECT_EQ(framework_of("import paddle.distributed as dist\n"), "paddle");
    EXPECT_EQ(framework_of("  import jax\n"), "jax");
    EXPECT_EQ(framework_of("import horovod.torch as hvd\nimport torch\n"), "horovod");
    EXPECT_EQ(framework_of("import torch\nimport ray\n"), "ray") << "its workers use torch";
    EXPECT_EQ(framework_of("from mymodel import main\n"), "pytorch");
    EXPECT_EQ(plan({"tool", "x"})["framework"], "command");
    options_.framework = "jax";
    EXPECT_EQ(plan({"python", "train.py"})["framework"], "jax");
}

TEST_F(CliRun, LaunchersStartTheRanksOfTheirNode) {
    options_.nodes = 2;
    Json spec = plan({"torchrun", "--nproc_per_node=4", "train.py", "--nnodes", "9"});
    EXPECT_EQ(spec["launch"], "node");
    EXPECT_EQ(spec["framework"], "pytorch");
    EXPECT_EQ(spec["name"], "train");
    EXPECT_EQ(spec["resources"]["nodes"], 2);
    EXPECT_EQ(spec["resources"]["ranks_per_node"], 4);
    options_.nodes = 0;
    options_.nodes = 2;
    spec = plan({"accelerate", "launch", "--mixed_precision", "fp16", "train.py", "--x"});
    EXPECT_EQ(
        dump_json(spec["command"]),
        R"(["accelerate","launch","--num_machines","{num_nodes}","--num_processes","{world_size}",)"
        R"("--machine_rank","{node_rank}","--main_process_ip","{master_addr}",)"
        R"("--main_process_port","{master_port}","--mixed_precision","fp16","train.py",)"
        R"("--x"])");
    EXPECT_THAT(refused({"srun", "-N2", "x"}), HasSubstr("--framework mpi"));
    options_.command = {"torchrun", "--standalone", "train.py"};
    EXPECT_THAT(plan_run(options_, caller_)->warnings, ElementsAre(HasSubstr("--standalone")));
}

TEST_F(CliRun, FewerNodesAreEnoughWhereThatIsSaid) {
    options_.nodes = 4;
    options_.min_nodes = 2;
    Json spec = plan({"python", "train.py"});
    EXPECT_EQ(spec["resources"]["min_nodes"], 2);
    EXPECT_EQ(dump_json(spec["recovery"]), "{}") << "it means nothing without";
    EXPECT_THAT(plan_run(options_, caller_)->decided,
                Contains(Pair("elastic", HasSubstr("goes on with 2 of 4 nodes"))));
    options_.max_restarts = 9;
    EXPECT_EQ(plan({"python", "train.py"})["recovery"]["max_restarts"], 9);
    options_.max_restarts = 0;
    EXPECT_EQ(dump_json(plan({"python", "train.py"})["recovery"]), R"({"max_restarts":0})")
        << "lockstepd filled in 3";
    spec = plan({"accelerate", "launch", "train.py"});
    EXPECT_EQ(spec["resources"]["min_nodes"], 2) << "{num_nodes} follows";
}

TEST_F(CliRun, TorchrunsRangeOfNodesIsTheJobsAndNotTorchruns) {
    Json spec = plan({"python", "-m", "torch.distributed.run", "--nnodes", "1:3", "train.py"});
    EXPECT_EQ(spec["launch"], "node");
    EXPECT_EQ(spec["resources"]["nodes"], 3);
    EXPECT_EQ(spec["resources"]["min_nodes"], 1);
    EXPECT_EQ(spec["command"], (Json{"python", "-m", "torch.distributed.run", "train.py"}));
    EXPECT_TRUE(spec.contains("recovery"));
    spec = plan({"torchrun", "--nnodes=2:2", "--nproc-per-node", "4", "train.py", "--nnodes=x"});
    EXPECT_EQ(spec["command"],
              (Json{"torchrun", "--nproc-per-node", "4", "train.py", "--nnodes=x"}));
    EXPECT_EQ(spec["name"], "train");
    EXPECT_FALSE(spec["resources"].contains("min_nodes"));
    EXPECT_FALSE(spec.contains("recovery"));
    options_.nodes = 3;
    options_.min_nodes = 2;
    EXPECT_EQ(plan({"torchrun", "--nnodes=1:8", "train.py"})["resources"]["min_nodes"], 2);
    options_.min_nodes = 0;
    spec = plan({"torchrun", "--nnodes=4:8", "train.py"});
    EXPECT_FALSE(spec["resources"].contains("min_nodes")) << "of three, four are not the least";
}

TEST_F(CliRun, RanksThatShareAGpuAreAsManyAsFit) {
    options_.gpus_per_node = 2;
    options_.ranks_per_gpu = 4;
    const Json resources = plan({"python", "train.py"})["resources"];
    EXPECT_EQ(resources["ranks_per_node"], 8);
    EXPECT_EQ(resources["ranks_per_gpu"], 4);
}

TEST_F(CliRun, ARayClusterIsACommandWithOneRankANode) {
    options_.gpus_per_node = 8;
    const Json spec = plan({"python", "-m", "lockstep.ray", "--num-cpus=2", "tune.py", "x.py"});
    EXPECT_EQ(spec["framework"], "command") << "torch's store would listen at the head's port";
    EXPECT_EQ(spec["resources"]["ranks_per_node"], 1);
    EXPECT_EQ(spec["name"], "tune");
    options_.framework = "pytorch";
    EXPECT_EQ(plan({"python", "-m", "lockstep.ray", "tune.py"})["framework"], "pytorch");
    options_.framework = "";
    script("tune.py", "import ray\n");
    EXPECT_EQ(plan({"python", "tune.py"})["resources"]["ranks_per_node"], 1);
}

TEST_F(CliRun, WhatCannotRunIsRefusedWithWhatToDo) {
    EXPECT_THAT(refused({}), HasSubstr("no command"));
    EXPECT_THAT(refused({"pyhton", "train.py"}), HasSubstr("command not found: pyhton"));
    EXPECT_THAT(refused({"train.py"}), HasSubstr("lockstep run -- python3 train.py"));
    EXPECT_THAT(refused({"python train.py"}), HasSubstr("as separate arguments"));
    options_.name = "my run";
    EXPECT_THAT(refused({"python", "train.py"}), HasSubstr("for instance my-run"));
    options_.name = "";
    options_.environment = {"A B=1"};
    EXPECT_THAT(refused({"python", "train.py"}), HasSubstr("--env A B=1: must be NAME=VALUE"));
    options_.environment = {"NOT_SET_HERE"};
    EXPECT_THAT(refused({"python", "train.py"}), HasSubstr("it is not set here"));
    options_.environment.clear();
    options_.setup = "module load python";  // it may come from there
    EXPECT_EQ(plan({"python3.12", "train.py"})["name"], "train");
}

TEST(CliArguments, WhatFollowsRunIsACommand) {
    Options options;
    CLI::App app;
    declare(app, options);
    const auto prepared = [&](const Words& words) { return prepared_arguments(app, words); };
    EXPECT_THAT(prepared({"run", "-N", "2", "python", "t.py", "-N", "9"}),
                ElementsAre("run", "-N", "2", "--", "python", "t.py", "-N", "9"));
    EXPECT_THAT(
        prepared({"--json", "--url", "run", "run", "-fN4", "--time=1", "x", "--", "y"}),
        ElementsAre("--json", "--url", "run", "run", "-fN4", "--time=1", "--", "x", "--", "y"));
    EXPECT_THAT(prepared({"run", "-N", "2", "--", "x", "-f"}),
                ElementsAre("run", "-N", "2", "--", "x", "-f"));
    // Its own "--resume=" is not two words; the options of run before it are.
    EXPECT_THAT(prepared({"run", "--setup=", "python", "t.py", "--resume=", "--x"}),
                ElementsAre("run", "--setup", "", "--", "python", "t.py", "--resume=", "--x"));
    EXPECT_THAT(prepared({"submit", "a.json", "-f"}), ElementsAre("submit", "a.json", "-f"));
    EXPECT_THAT(prepared({"help", "run"}), ElementsAre("run", "--help"));
    EXPECT_THAT(prepared({"version"}), ElementsAre("--version"));

    Words words = prepared({"run", "-N4", "-p", "gpu", "python", "train.py", "--lr", "0.1", ""});
    app.parse(Words(words.rbegin(), words.rend()));
    EXPECT_EQ(options.run.nodes, 4);
    EXPECT_EQ(options.run.partition, "gpu");
    EXPECT_THAT(options.run.command, ElementsAre("python", "train.py", "--lr", "0.1", ""));

    Options more;
    CLI::App other;
    declare(other, more);
    words = prepared_arguments(other, {"run", "--env", "A=1", "--env", "B=2", "sh", "-c", "x"});
    other.parse(Words(words.rbegin(), words.rend()));
    EXPECT_THAT(more.run.environment, ElementsAre("A=1", "B=2"));
    EXPECT_THAT(more.run.command, ElementsAre("sh", "-c", "x"));
}

TEST(CliArguments, AVerbThatIsNoneIsNamedWithItsNeighbour) {
    Options options;
    CLI::App app;
    declare(app, options);
    EXPECT_EQ(unknown_verb(app, {"sumbit", "x.json"}),
              "unknown command sumbit; did you mean submit?");
    EXPECT_EQ(unknown_verb(app, {"--url", "submit", "cancle"}),
              "unknown command cancle; did you mean cancel?");
    EXPECT_EQ(unknown_verb(app, {"frobnicate"}), "unknown command frobnicate");
    EXPECT_EQ(unknown_verb(app, {"jobs", "--all"}), "");
    EXPECT_EQ(unknown_verb(app, {"--json"}), "");
}

TEST(CliSuggest, TheNearestWordIsMeantAndNoFarOne) {
    const Words fields{"nodes", "spares", "ranks_per_node", "gpus_per_node", "time_limit"};
    EXPECT_EQ(nearest("node", fields), "nodes");
    EXPECT_EQ(nearest("nodse", fields), "nodes");
    EXPECT_EQ(nearest("Time_Limit", fields), "time_limit");
    EXPECT_EQ(nearest("gpus", fields), "gpus_per_node");
    EXPECT_EQ(nearest("xyz", fields), "");
    EXPECT_EQ(nearest("torch", {"native", "pytorch", "command"}), "pytorch");
    EXPECT_EQ(nearest("", fields), "");
}

TEST(CliSuggest, FieldsAndWordsOfTheSpecificationAreSuggested) {
    const Json torch = "torch";
    EXPECT_EQ(suggestion({"/framework", "must be one of: native, pytorch, command"}, &torch),
              "; did you mean pytorch?");
    EXPECT_EQ(suggestion({"/resources/node", "unknown field"}, nullptr), "; did you mean nodes?");
    EXPECT_EQ(suggestion({"/nmae", "unknown field"}, nullptr), "; did you mean name?");
    EXPECT_THAT(suggestion({"/watch/x", "unknown field"}, nullptr),
                HasSubstr("there are hang_seconds, straggler_score"));
    EXPECT_EQ(suggestion({"/name", "is required"}, nullptr), "");
    EXPECT_EQ(suggestion({"", "must be an object"}, nullptr), "") << "the document itself";
    // By the specification, not by how a mistake is worded.
    EXPECT_EQ(suggestion({"/framework", "not that"}, &torch), "; did you mean pytorch?");
    EXPECT_EQ(suggestion({"/resources/node", "odd"}, nullptr), "; did you mean nodes?");
    const Json pytorch = "pytorch";
    EXPECT_EQ(suggestion({"/framework", "must be one of: native"}, &pytorch), "");
    EXPECT_FALSE(is_unknown_field("/environment/HOME"));
    EXPECT_FALSE(is_unknown_field("/roles/0"));
    EXPECT_TRUE(is_unknown_field("/roles/0/cuont"));
}

}  // namespace
}  // namespace lockstep::cli
