// What is made of the facts: of one node, and of many.
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <limits>
#include <tuple>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> of_one(const NodeFacts& facts, const JobSpec& spec) {
    return lines(check_node({1, "n1", facts}, spec));
}

TEST(PreflightJudgement, FindsNothingAboutGoodNodes) {
    const auto nodes = good_nodes(3);
    for (const auto& node : nodes) {
        EXPECT_THAT(check_node(node, spec_of(3)), IsEmpty());
    }
    EXPECT_THAT(compare_nodes(nodes, spec_of(3)), IsEmpty());
}

TEST(PreflightJudgement, NamesTheMinorityOfAVersion) {
    auto nodes = good_nodes(3);
    nodes[1].facts.versions["nccl"] = "2.18.1";
    nodes[2].facts.versions["driver"] = "525.60.13";
    const auto found = compare_nodes(nodes, spec_of(3));
    EXPECT_THAT(lines(found), ElementsAre("n2 versions warn: its NVIDIA driver is 525.60.13",
                                          "n1 versions fail: its NCCL is 2.18.1"));
    EXPECT_EQ(found[1].expected, "2.19.3, as 2 of 3 nodes have");
    EXPECT_EQ(words_of(found[1]), "n1: its NCCL is 2.18.1; expected 2.19.3, as 2 of 3 nodes have");
}

TEST(PreflightJudgement, RanksThatShareAGpuNeedANewNccl) {
    auto node = good_nodes(1)[0];
    auto spec = spec_of(1);
    spec.resources.ranks_per_gpu = 2;
    spec.framework = Framework::pytorch;
    for (const char* old : {"2.19.3", "2.3.7", "1.40.0", "2", "x"}) {
        node.facts.versions["nccl"] = old;
        EXPECT_THAT(lines(check_node(node, spec)),
                    ElementsAre("n0 versions fail: its NCCL is " + std::string{old}));
    }
    for (const char* good : {"2.30.3", "2.32", "3.0.1"}) {
        node.facts.versions["nccl"] = good;
        EXPECT_THAT(check_node(node, spec), IsEmpty());
    }
    // Which one another program loads is not known.
    spec.framework = Framework::command;
    node.facts.versions["nccl"] = "2.28.3";
    EXPECT_THAT(lines(check_node(node, spec)), ElementsAre("n0 versions warn: its NCCL is 2.28.3"));
    node.facts.versions.erase("nccl");
    EXPECT_THAT(check_node(node, spec), IsEmpty()) << "it may come with a module";
    node.facts.versions["nccl"] = "2.19.3";
    EXPECT_THAT(check_node(node, spec_of(1)), IsEmpty());
}

TEST(PreflightJudgement, OnlyWarnsOfVersionsIfTheJobSaysSo) {
    auto nodes = good_nodes(3);
    nodes[1].facts.versions["nccl"] = "2.18.1";
    auto spec = spec_of(3);
    spec.preflight.require_same_versions = false;
    EXPECT_THAT(lines(compare_nodes(nodes, spec)),
                ElementsAre("n1 versions warn: its NCCL is 2.18.1"));
}

TEST(PreflightJudgement, TheJobsOwnFrameworkMustBeTheSameAndAnothersIsWarnedOf) {
    auto nodes = good_nodes(3);
    for (auto& node : nodes) {
        node.facts.versions["tensorflow"] = "2.21.0";
        node.facts.versions["jaxlib"] = "0.10.2";
    }
    nodes[1].facts.versions["tensorflow"] = "2.20.0";
    nodes[2].facts.versions["jaxlib"] = "0.9.0";
    auto spec = spec_of(3);
    for (const auto& [framework, tensorflow, jax] :
         {std::tuple{Framework::tensorflow, "fail", "warn"},
          std::tuple{Framework::jax, "warn", "fail"}, std::tuple{Framework::keras, "fail", "warn"},
          std::tuple{Framework::pytorch, "warn", "warn"}}) {
        spec.framework = framework;
        EXPECT_THAT(lines(compare_nodes(nodes, spec)),
                    testing::UnorderedElementsAre(
                        std::string{"n1 versions "} + tensorflow + ": its tensorflow is 2.20.0",
                        std::string{"n2 versions "} + jax + ": its jaxlib is 0.9.0"));
    }
    spec.framework = Framework::keras;
    spec.environment["KERAS_BACKEND"] = "jax";
    EXPECT_THAT(lines(compare_nodes(nodes, spec)),
                testing::UnorderedElementsAre("n1 versions warn: its tensorflow is 2.20.0",
                                              "n2 versions fail: its jaxlib is 0.9.0"));
}

TEST(PreflightJudgement, OnlyWarnsOfAVersionThatIsNotThere) {
    auto nodes = good_nodes(3);
    nodes[2].facts.versions.erase("torch");
    EXPECT_THAT(lines(compare_nodes(nodes, spec_of(3))),
                ElementsAre("n2 versions warn: its torch is none"));
}

TEST(PreflightJudgement, ChecksTheClockLessTheErrorOfItsMeasurement) {
    auto facts = good_facts(1);
    facts.clock_offset_ms = 60;
    facts.clock_error_ms = 10;
    EXPECT_THAT(of_one(facts, spec_of(2)), IsEmpty());
    facts.clock_error_ms = 9;
    EXPECT_THAT(of_one(facts, spec_of(2)), ElementsAre("n1 clock warn: its clock is 60 ms ahead"));
    facts.clock_offset_ms = -5'010;
    EXPECT_THAT(of_one(facts, spec_of(2)),
                ElementsAre("n1 clock fail: its clock is 5010 ms behind"));
}

TEST(PreflightJudgement, RejectsAHostNameThatResolvesToTheMachineItself) {
    auto facts = good_facts(1);
    facts.hostname = "debian";
    facts.hostname_addresses = {"127.0.1.1"};
    const auto found = check_node({1, "n1", facts}, spec_of(2));
    EXPECT_THAT(lines(found),
                ElementsAre("n1 hostname warn: host name debian resolves to 127.0.1.1"));
    EXPECT_THAT(found[0].expected, HasSubstr("10.0.0.1"));
    EXPECT_THAT(of_one(facts, spec_of(1)), IsEmpty()) << "alone it harms nobody";
    facts.hostname_addresses = {"127.0.1.1", "10.0.0.1"};
    EXPECT_THAT(of_one(facts, spec_of(2)), IsEmpty());
    facts.hostname_addresses = {"::1", "fe80::1", "169.254.3.4"};
    EXPECT_EQ(of_one(facts, spec_of(2)).size(), 1U);
    facts.hostname_answered = false;
    EXPECT_THAT(of_one(facts, spec_of(2)),
                ElementsAre("n1 hostname warn: host name debian: the resolver did not answer in "
                            "time"));
}

TEST(PreflightJudgement, ChecksLimitsAndPorts) {
    auto facts = good_facts(1);
    facts.open_files = 1024;
    facts.somaxconn = 1;
    facts.rdma = true;
    facts.ports_problem = "hold a port: Address already in use";
    facts.ports_needed = 3;
    const auto found = check_node({1, "n1", facts}, spec_of(2));
    EXPECT_THAT(lines(found),
                ElementsAre("n1 open_files warn: at most 1024 open files",
                            "n1 memlock warn: at most 64 KiB locked memory",
                            "n1 somaxconn warn: net.core.somaxconn is 1",
                            "n1 ports fail: no ports for its ranks: hold a port: Address already "
                            "in use"));
    EXPECT_EQ(found[3].expected, "3 free TCP ports");
    facts = good_facts(1);
    facts.rdma = true;
    facts.memlock_kb = std::numeric_limits<std::int64_t>::max();
    EXPECT_THAT(of_one(facts, spec_of(2)), IsEmpty());
}

TEST(PreflightJudgement, ChecksFolders) {
    auto facts = good_facts(1);
    const auto one = [&](std::string_view use, auto change) {
        PathFact path{std::string{use}, "/data/x"};
        path.free_mb = 10'000;
        change(path);
        facts.paths = {path};
        return of_one(facts, spec_of(1));
    };
    EXPECT_THAT(one(kPathWorking, [](PathFact&) {}), IsEmpty());
    EXPECT_THAT(one(kPathWorking, [](PathFact& p) { p.error = ENOENT; }),
                ElementsAre("n1 working_directory fail: working directory does not exist: "
                            "/data/x"));
    EXPECT_THAT(one(kPathWorking, [](PathFact& p) { p.directory = false; }),
                ElementsAre("n1 working_directory fail: working directory cannot be entered: "
                            "/data/x"));
    EXPECT_THAT(one(kPathWorking, [](PathFact& p) { p.answered = false; }),
                ElementsAre("n1 working_directory fail: working directory does not answer: "
                            "/data/x"));
    EXPECT_THAT(one(kPathMount, [](PathFact& p) { p.answered = false; }),
                ElementsAre("n1 mount warn: mount does not answer: /data/x"));
    EXPECT_THAT(one(kPathCheckpoint, [](PathFact& p) { p.write = false; }),
                ElementsAre("n1 checkpoint_directory fail: checkpoint directory cannot be written "
                            "to: /data/x"));
    EXPECT_THAT(one(kPathCheckpoint, [](PathFact& p) { p.free_mb = 100; }),
                ElementsAre("n1 disk warn: 100 MiB free in /data/x"));
    EXPECT_THAT(one(kPathAttempt, [](PathFact& p) { p.free_mb = 0; }),
                ElementsAre("n1 disk fail: 0 MiB free in /data/x"));
}

TEST(PreflightJudgement, WantsSharedMemoryForSeveralRanks) {
    auto facts = good_facts(1);
    PathFact shm{std::string{kPathShm}, "/dev/shm"};
    shm.free_mb = 64;
    facts.paths = {shm};
    auto spec = spec_of(1);
    EXPECT_THAT(of_one(facts, spec), IsEmpty());
    spec.resources.ranks_per_node = 8;
    EXPECT_THAT(of_one(facts, spec), ElementsAre("n1 shm warn: 64 MiB free in /dev/shm"));
}

TEST(PreflightJudgement, WantsTheGpusThatWereAskedFor) {
    auto facts = good_facts(1);
    facts.gpu.driver = true;
    facts.gpu.count = 7;
    facts.gpu.faults = {"XID 79 of PCI:0000:3b:00 in the last hour"};
    auto spec = spec_of(1);
    EXPECT_THAT(of_one(facts, spec),
                ElementsAre("n1 gpu warn: XID 79 of PCI:0000:3b:00 in the last hour"));
    spec.resources.gpus_per_node = 8;
    EXPECT_THAT(of_one(facts, spec),
                ElementsAre("n1 gpu fail: XID 79 of PCI:0000:3b:00 in the last hour",
                            "n1 gpu fail: 7 GPUs"));
    facts.gpu = {};
    EXPECT_THAT(of_one(facts, spec), ElementsAre("n1 gpu warn: no NVIDIA driver"));
}

// On a node that jobs share, one GPU that had fallen off its bus kept all jobs away for an hour.
TEST(PreflightJudgement, AnXidOfAGpuThatTheJobDoesNotHaveIsOnlyWarnedOf) {
    auto facts = good_facts(1);
    facts.gpu.driver = true;
    facts.gpu.count = 8;
    facts.gpu.faults = {"XID 79 of PCI:0000:3b:00 in the last hour"};
    const std::string said = facts.gpu.faults.front();
    std::vector<GpuHealth>& own = facts.gpu.health;
    own.resize(2);
    own[0].bus = "00000000:1A:00.0";
    own[1].bus = "00010000:3B:00.0";  // of another domain
    const auto found = [&](std::int32_t gpus) {
        JobSpec spec = spec_of(1);
        spec.resources.gpus_per_node = gpus;
        return of_one(facts, spec);
    };
    EXPECT_THAT(found(2), ElementsAre("n1 gpu warn: " + said));
    EXPECT_THAT(found(3), ElementsAre("n1 gpu fail: " + said)) << "NVML does not show all three";
    own[1].bus = "00000000:3B:00.0";
    EXPECT_THAT(found(2), ElementsAre("n1 gpu fail: " + said)) << "its own";
    own[1].bus = "";
    EXPECT_THAT(found(2), ElementsAre("n1 gpu fail: " + said)) << "it may be this one";
    own.clear();
    EXPECT_THAT(found(2), ElementsAre("n1 gpu fail: " + said)) << "NVML has not answered";
}

TEST(PreflightJudgement, NamesANodeThatIsSlowInTheTest) {
    auto nodes = good_nodes(3);
    nodes[0].facts.cpu_test_ms = 1'000;
    nodes[1].facts.cpu_test_ms = 2'000;
    nodes[2].facts.cpu_test_ms = 1'100;
    EXPECT_THAT(compare_nodes(nodes, spec_of(3)), IsEmpty());
    nodes[1].facts.cpu_test_ms = 2'300;
    EXPECT_THAT(lines(compare_nodes(nodes, spec_of(3))),
                ElementsAre("n1 cpu_test fail: the test with the native trainer took 2300 ms"));
}

TEST(PreflightJudgement, BlamesTheUserOnlyForWhatEveryNodeHas) {
    PreflightFinding finding;
    finding.check = kPathWorking;
    EXPECT_EQ(preflight_cause(finding, true), CauseClass::user_error);
    EXPECT_EQ(preflight_cause(finding, false), CauseClass::node_lost);
    finding.check = "gpu";
    EXPECT_EQ(preflight_cause(finding, true), CauseClass::gpu_fault);
    finding.check = "ports";
    EXPECT_EQ(preflight_cause(finding, true), CauseClass::node_lost);
}

// A file server that is away for a minute ended the job for good.
TEST(PreflightJudgement, AFolderThatDoesNotAnswerIsNobodysMistake) {
    auto facts = good_facts(1);
    PathFact path{std::string{kPathWorking}, "/data/x"};
    path.answered = false;
    facts.paths = {path};
    const auto silent = check_node({1, "n1", facts}, spec_of(1));
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_TRUE(silent[0].fails);
    EXPECT_EQ(preflight_cause(silent[0], true), CauseClass::node_lost);
    path.answered = true;
    path.error = ENOENT;
    facts.paths = {path};
    const auto absent = check_node({1, "n1", facts}, spec_of(1));
    ASSERT_EQ(absent.size(), 1U);
    EXPECT_EQ(preflight_cause(absent[0], true), CauseClass::user_error);
}

TEST(PreflightJudgement, FactsTravelWhole) {
    auto facts = good_facts(3);
    facts.paths = {{std::string{kPathWorking}, "/a", false, 2, false, false, false, 7}};
    facts.gpu = {true, 4, {"bad"}, {"odd"}, {}, {}};
    facts.clock_offset_ms = -7;
    facts.cpu_test_ms = 12;
    const auto back = parse_node_facts(to_json(facts));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(to_json(*back), to_json(facts));
}

TEST(PreflightJudgement, FactsOfAStrangerAreBoundedAndPrintable) {
    auto json = to_json(good_facts(1));
    json["hostname"] = "a\x1b[2Jb";
    EXPECT_EQ(parse_node_facts(json)->hostname.find('\x1b'), std::string::npos);
    json["paths"] = Json::array();
    for (int i = 0; i < 100; ++i) {
        json["paths"].push_back(Json::object());
    }
    EXPECT_FALSE(parse_node_facts(json));
    EXPECT_FALSE(parse_node_facts(Json::array()));
    EXPECT_FALSE(parse_node_facts({{"versions", 3}}));
}

}  // namespace
}  // namespace lockstep::test
