// GPUs and network ports: what is read of them, what is made of it.
#include "job/agent/preflight/preflight_facts.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/preflight_devices.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

GpuHealth good_gpu(std::int32_t number = 3) {
    GpuHealth out;
    out.gpu = number;
    out.bus = "3B:00.0";
    out.model = "H100";
    out.ecc = out.remap = out.remap_failed = out.recovery = 0;
    out.slowdown = 0;
    out.memory_mb = 600;
    out.links = 18;
    return out;
}

JobSpec gpu_spec(std::int32_t nodes = 1, std::int32_t gpus = 8) {
    JobSpec out = spec_of(nodes);
    out.resources.gpus_per_node = gpus;
    return out;
}

std::vector<std::string> of_gpu(const GpuHealth& gpu, const JobSpec& spec = gpu_spec()) {
    PreflightNode node{1, "n1", good_facts(1)};
    node.facts.gpu.driver = true;
    node.facts.gpu.count = 8;
    node.facts.gpu.health = {gpu};
    return lines(check_node(node, spec));
}

struct Row {
    std::function<void(GpuHealth&)> spoil;
    std::string line;  // "" = nothing is found
};

TEST(PreflightGpus, EachFaultHasItsCheckItsWordsAndItsSeverity) {
    const std::vector<Row> rows{
        {[](GpuHealth&) {}, ""},
        {[](GpuHealth& g) { g.lost = "GPU is lost"; },
         "n1 gpu fail: GPU 3 (3B:00.0) does not answer its driver: GPU is lost"},
        {[](GpuHealth& g) {
             g = {};
             g.lost = "the driver does not show GPU-1";
         },
         "n1 gpu fail: a GPU does not answer its driver: the driver does not show GPU-1"},
        {[](GpuHealth& g) { g.ecc = 1; },
         "n1 gpu_memory fail: GPU 3 (3B:00.0) has had 1 uncorrected memory error since its driver "
         "was loaded"},
        {[](GpuHealth& g) { g.ecc = -1; }, ""},
        {[](GpuHealth& g) { g.remap = 1; },
         "n1 gpu_memory fail: GPU 3 (3B:00.0) has faulty rows of memory yet to be remapped"},
        {[](GpuHealth& g) { g.remap_failed = 1; },
         "n1 gpu_memory fail: GPU 3 (3B:00.0) could not remap a faulty row of its memory"},
        {[](GpuHealth& g) { g.pages = 1; },
         "n1 gpu_memory fail: GPU 3 (3B:00.0) has faulty pages of memory yet to be retired"},
        {[](GpuHealth& g) { g.recovery = 1; },
         "n1 gpu_recovery fail: GPU 3 (3B:00.0): its driver asks for a reset of the GPU"},
        {[](GpuHealth& g) { g.recovery = 2; },
         "n1 gpu_recovery fail: GPU 3 (3B:00.0): its driver asks for a reboot of the node"},
        {[](GpuHealth& g) { g.recovery = 7; },
         "n1 gpu_recovery fail: GPU 3 (3B:00.0): its driver asks for recovery action 7"},
        {[](GpuHealth& g) {
             g.slowdown = kSlowdownHardware | kSlowdownThermal;
             g.temperature = 91;
         },
         "n1 gpu_clocks warn: GPU 3 (3B:00.0) is slowed down by heat, at 91 °C"},
        {[](GpuHealth& g) { g.slowdown = kSlowdownHardware; },
         "n1 gpu_clocks warn: GPU 3 (3B:00.0) is slowed down by its hardware"},
        {[](GpuHealth& g) { g.slowdown = kSlowdownPowerBrake | kSlowdownSoftwareThermal; },
         "n1 gpu_clocks warn: GPU 3 (3B:00.0) is slowed down by heat, the power brake"},
        {[](GpuHealth& g) { g.slowdown = 0x107; }, ""},  // idle, a limit or clocks somebody set
        {[](GpuHealth& g) { g.others = {{4711, "python3", 40'000}}; },
         "n1 gpu_in_use warn: GPU 3 (3B:00.0) is used by process 4711 python3 with 40000 MiB"},
        {[](GpuHealth& g) { g.others = {{1, "", -1}, {2, "x", -1}}; },
         "n1 gpu_in_use warn: GPU 3 (3B:00.0) is used by processes 1, 2 x"},
        {[](GpuHealth& g) { g.memory_mb = 1025; },
         "n1 gpu_in_use warn: GPU 3 (3B:00.0) has 1025 MiB in use and no process shows that holds "
         "them"},
        {[](GpuHealth& g) { g.memory_mb = 1024; }, ""},
        {[](GpuHealth& g) { g.link_errors = {{2, 1, 0, 0}, {5, 0, 2, 1}}; },
         "n1 nvlink warn: GPU 3 (3B:00.0) has counted errors of its NVLinks (link 2: 1 CRC error, "
         "link 5: 2 replays, 1 recovery)"},
    };
    for (const Row& row : rows) {
        GpuHealth gpu = good_gpu();
        row.spoil(gpu);
        EXPECT_EQ(of_gpu(gpu),
                  row.line.empty() ? std::vector<std::string>{} : std::vector{row.line});
    }
}

TEST(PreflightGpus, AJobWithoutGpusIsOnlyWarned) {
    GpuHealth gpu = good_gpu();
    gpu.ecc = gpu.remap = gpu.recovery = 1;
    for (const std::string& line : of_gpu(gpu, gpu_spec(1, 0))) {
        EXPECT_THAT(line, HasSubstr(" warn: "));
    }
    EXPECT_THAT(of_gpu(gpu), SizeIs(3));
}

TEST(PreflightGpus, ABadGpuIsTheGpusFault) {
    for (const char* check : {"gpu", "gpu_memory", "gpu_recovery", "nvlink"}) {
        PreflightFinding finding;
        finding.check = check;
        EXPECT_EQ(preflight_cause(finding, false), CauseClass::gpu_fault) << check;
    }
    PreflightFinding finding;
    finding.check = "nic";
    EXPECT_EQ(preflight_cause(finding, true), CauseClass::node_lost);
}

TEST(PreflightGpus, WhatIsNotLookedAtIsSaidToWhoAsksAboutTheNodes) {
    PreflightNode node{1, "n1", good_facts(1)};
    node.facts.gpu.unseen = {"XIDs in the kernel's log: Permission denied",
                             "the recovery action: x"};
    EXPECT_THAT(check_node(node, spec_of(1)), IsEmpty()) << "not with every job";
    JobSpec only = spec_of(1);
    only.preflight.mode = PreflightMode::only;
    EXPECT_THAT(lines(check_node(node, only)),
                ElementsAre("n1 gpu_unseen warn: not checked: XIDs in the kernel's log: Permission "
                            "denied, the recovery action: x"));
}

TEST(PreflightGpus, ABrokenNvlinkFailsAndACardWithoutABridgeDoesNot) {
    auto nodes = good_nodes(2);
    for (PreflightNode& node : nodes) {
        node.facts.gpu.health = {good_gpu(0), good_gpu(1)};
    }
    EXPECT_THAT(compare_nodes(nodes, gpu_spec(2)), IsEmpty());
    GpuHealth& bad = nodes[1].facts.gpu.health[1];
    bad.links = 16;
    bad.links_down = {4, 9};
    const auto found = compare_nodes(nodes, gpu_spec(2));
    EXPECT_THAT(
        lines(found),
        ElementsAre("n1 nvlink fail: GPU 1 (3B:00.0) has 16 active NVLinks; inactive: 4, 9"));
    EXPECT_EQ(found[0].expected, "18, as most GPUs of its model here have");
    bad.links = 0;
    EXPECT_THAT(lines(compare_nodes(nodes, gpu_spec(2))), ElementsAre(HasSubstr("nvlink warn")));
    bad.model = "L40";
    EXPECT_THAT(lines(compare_nodes(nodes, gpu_spec(2))), ElementsAre(HasSubstr("gpu_model warn")))
        << "of its model it is the usual one";
    bad.model = "H100";
    bad.links = -1;
    EXPECT_THAT(compare_nodes(nodes, gpu_spec(2)), IsEmpty()) << "it was not told";
}

TEST(PreflightGpus, OfTwoGpusTheOneWithFewerNvlinksIsNamed) {
    auto nodes = good_nodes(1);
    nodes[0].facts.gpu.health = {good_gpu(0), good_gpu(1)};
    nodes[0].facts.gpu.health[0].links = 17;
    EXPECT_THAT(lines(compare_nodes(nodes, gpu_spec(1))),
                ElementsAre("n0 nvlink fail: GPU 0 (3B:00.0) has 17 active NVLinks"));
}

TEST(PreflightGpus, HealthTravelsWhole) {
    NodeFacts facts = good_facts(1);
    GpuHealth gpu = good_gpu();
    gpu.lost = "x";
    gpu.pages = 1;
    gpu.temperature = 50;
    gpu.others = {{7, "p", 8}};
    gpu.links_down = {1, 2};
    gpu.link_errors = {{3, 4, 5, 6}};
    facts.gpu.health = {gpu};
    facts.gpu.unseen = {"y"};
    facts.nics = {{"eth0", "bond0", false, false, "up"}, {"mlx5_0:1", "", true, true, "DOWN"}};
    const auto back = parse_node_facts(to_json(facts));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(to_json(*back), to_json(facts));
    const auto whole = to_json(facts)["gpu"]["health"][0];
    EXPECT_EQ(whole["link_errors"][0]["recoveries"], 6);
}

TEST(PreflightGpus, HealthOfAStrangerIsBounded) {
    const Json good = to_json(std::vector{good_gpu()});
    ASSERT_TRUE(parse_gpu_health(good));
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, Json>>{{"gpu", "3"},
                                                   {"ecc", -2},
                                                   {"links", 1000},
                                                   {"links_down", Json::array({"a"})},
                                                   {"links_down", Json::array({64})},
                                                   {"link_errors", Json::array({3})},
                                                   {"others", Json(std::vector<int>(17, 1))}}) {
        Json bad = good;
        bad[0][key] = value;
        EXPECT_FALSE(parse_gpu_health(bad)) << key;
    }
    EXPECT_FALSE(parse_gpu_health(Json(std::vector<Json>(65, good[0]))));
    Json escaped = good;
    escaped[0]["model"] = "a\x1b[2J";
    EXPECT_EQ(parse_gpu_health(escaped)->at(0).model.find('\x1b'), std::string::npos);
}

// An agent that is older says nothing of it.
TEST(PreflightGpus, FactsWithoutHealthAreGoodFacts) {
    Json json = to_json(good_facts(1));
    json["gpu"].erase("health");
    json["gpu"].erase("unseen");
    json.erase("nics");
    EXPECT_TRUE(parse_node_facts(json));
}

TEST(PreflightNics, WhatNcclTakes) {
    struct Port {
        const char* setting;
        const char* device;
        std::int32_t port;
        bool taken;
    };
    for (const Port& row : std::vector<Port>{{"", "mlx5_0", 1, true},
                                             {"mlx5", "mlx5_7", 2, true},
                                             {"mlx5_1", "mlx5_10", 1, true},  // a prefix
                                             {"=mlx5_1", "mlx5_10", 1, false},
                                             {"=mlx5_1,mlx5_2:2", "mlx5_2", 2, true},
                                             {"=mlx5_1,mlx5_2:2", "mlx5_2", 1, false},
                                             {"^mlx5_0", "mlx5_0", 1, false},
                                             {"^mlx5_0", "mlx5_1", 1, true},
                                             {"^=mlx5_1", "mlx5_10", 1, true},
                                             {"bnxt", "mlx5_0", 1, false},
                                             {",", "mlx5_0", 1, true}}) {
        EXPECT_EQ(nccl_takes_port(row.setting, row.device, row.port), row.taken)
            << row.setting << " " << row.device << ":" << row.port;
    }
}

class NicsTest : public testing::Test {
  protected:
    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories((folder.path() / path).parent_path());
        std::ofstream{folder.path() / path} << text;
    }
    // "bond0/eth1 down", "mlx5_0:1 ACTIVE"
    std::vector<std::string> look(const std::vector<std::string>& interfaces,
                                  const std::string& setting = "") const {
        std::vector<NicFact> nics;
        take_nics(look_at_nics(folder.path(), interfaces, setting), nics);
        std::vector<std::string> out;
        for (const NicFact& nic : nics) {
            out.push_back((nic.under.empty() ? "" : nic.under + "/") + nic.name + " " + nic.state +
                          (nic.named ? " named" : ""));
        }
        return out;
    }
    TemporaryFolder folder;
};

TEST_F(NicsTest, InterfacesWithWhatTheyAreMadeOf) {
    write("sys/class/net/bond0/operstate", "up\n");
    write("sys/class/net/bond0/lower_eth0/x", "");
    write("sys/class/net/bond0/lower_eth1/x", "");
    write("sys/class/net/eth0/operstate", "up\n");
    write("sys/class/net/eth1/operstate", "lowerlayerdown\n");
    write("sys/class/net/eth2/operstate", "down\n");
    EXPECT_THAT(look({"bond0", "", "gone", "bond0"}),
                ElementsAre("bond0 up", "bond0/eth0 up", "bond0/eth1 lowerlayerdown"))
        << "eth2 is not used";
}

TEST_F(NicsTest, PortsOfRdmaDevices) {
    write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_0/ports/2/state", "2: INIT\n");
    EXPECT_THAT(look({}), ElementsAre("mlx5_0:1 ACTIVE", "mlx5_0:2 INIT", "mlx5_1:1 DOWN"));
    EXPECT_THAT(look({}, "=mlx5_0:2"), ElementsAre("mlx5_0:2 INIT named"));
    EXPECT_THAT(look({}, "^mlx5_0"), ElementsAre("mlx5_1:1 DOWN named"));
}

TEST(PreflightNics, AnInterfaceThatIsDownIsWarnedOf) {
    auto nodes = good_nodes(2);
    nodes[1].facts.nics = {{"eth0", "", false, false, "up"},
                           {"tun0", "", false, false, "unknown"},
                           {"eth1", "bond0", false, false, "down"}};
    EXPECT_THAT(lines(check_node(nodes[1], gpu_spec(2))),
                ElementsAre("n1 gpu warn: no NVIDIA driver",
                            "n1 nic warn: interface eth1, a part of bond0, is down"));
}

TEST(PreflightNics, APortThatMostNodesHaveActiveFailsWhereItIsNot) {
    auto nodes = good_nodes(3);
    for (PreflightNode& node : nodes) {
        node.facts.nics = {{"mlx5_0:1", "", true, false, "ACTIVE"},
                           {"mlx5_9:1", "", true, false, "DOWN"}};  // plugged in nowhere
    }
    EXPECT_THAT(compare_nodes(nodes, gpu_spec(3)), IsEmpty());
    nodes[2].facts.nics[0].state = "INIT";
    const auto found = compare_nodes(nodes, gpu_spec(3));
    EXPECT_THAT(lines(found), ElementsAre("n2 nic fail: port mlx5_0:1 is INIT"));
    EXPECT_EQ(found[0].expected, "ACTIVE, as on 2 of 3 nodes that have it");
    EXPECT_THAT(lines(compare_nodes(nodes, spec_of(3))), ElementsAre(HasSubstr("n2 nic warn")))
        << "without GPUs nobody may use it";
    nodes[1].facts.nics[0].state = "DOWN";
    EXPECT_THAT(lines(compare_nodes(nodes, gpu_spec(3))),
                ElementsAre(HasSubstr("n1 nic warn"), HasSubstr("n2 nic warn")));
}

TEST(PreflightNics, APortThatNcclIsToTakeFailsByItself) {
    auto nodes = good_nodes(2);
    nodes[0].facts.gpu = {};
    nodes[0].facts.nics = {{"mlx5_0:1", "", true, true, "DOWN"}};
    const auto found = check_node(nodes[0], gpu_spec(2));
    EXPECT_THAT(lines(found),
                ElementsAre("n0 gpu warn: no NVIDIA driver", "n0 nic fail: port mlx5_0:1 is DOWN"));
    EXPECT_EQ(found[1].expected, "ACTIVE, as NCCL_IB_HCA takes it");
    nodes[1].facts.nics = {{"mlx5_0:1", "", true, true, "ACTIVE"}};
    EXPECT_THAT(compare_nodes(nodes, gpu_spec(2)), IsEmpty()) << "not told twice";
}

TEST(PreflightGpus, SlicesAreWarnedOf) {
    GpuHealth divided = good_gpu();
    divided.mig = 1;
    EXPECT_THAT(of_gpu(divided),
                ElementsAre("n1 gpu_mig warn: GPU 3 (3B:00.0) is divided into slices (MIG)"));
    divided.mig = 0;
    EXPECT_THAT(of_gpu(divided), IsEmpty());
}

TEST(PreflightGpus, NodesWithAnotherModelThanMostAreNamed) {
    auto nodes = good_nodes(4);
    for (PreflightNode& node : nodes) {
        node.facts.gpu.health = {good_gpu(0), good_gpu(1)};
    }
    JobSpec spec = gpu_spec(4, 2);
    EXPECT_THAT(compare_nodes(nodes, spec), IsEmpty());
    nodes[2].facts.gpu.health[0].model = nodes[2].facts.gpu.health[1].model = "A100";
    nodes[3].facts.gpu.health[1].model = "A100";
    const auto found = compare_nodes(nodes, spec);
    EXPECT_THAT(lines(found), ElementsAre("n2 gpu_model warn: its GPUs are A100",
                                          "n3 gpu_model warn: its GPUs are A100, H100"));
    EXPECT_EQ(found[0].expected, "H100, as 2 of 4 nodes have");
    spec.slurm.constraint = "a100|h100";
    EXPECT_THAT(compare_nodes(nodes, spec), IsEmpty()) << "it was asked for";
    spec.slurm.constraint = "";
    nodes[3].facts.gpu.health.clear();
    EXPECT_THAT(lines(compare_nodes(nodes, spec)), ElementsAre(HasSubstr("n2 gpu_model")))
        << "of another one it is not known";
    EXPECT_THAT(compare_nodes(nodes, spec_of(4)), IsEmpty()) << "it uses none";
}

// A job's ranks must not each choose ports of which another node's are down.
TEST(PreflightNics, PortsForNcclAreThoseThatAreActiveOnEveryNode) {
    const auto of = [](const std::vector<std::vector<NicFact>>& nics) {
        std::vector<NodeFacts> facts(nics.size());
        std::map<std::int32_t, const NodeFacts*> nodes;
        for (std::size_t i = 0; i < nics.size(); ++i) {
            facts[i].nics = nics[i];
            nodes[static_cast<std::int32_t>(i)] = &facts[i];
        }
        std::vector<std::string> out;
        for (const auto& [slot, ports] : active_ports(nodes)) {
            out.push_back(std::to_string(slot) + " " + comma_joined(ports));
        }
        return out;
    };
    const NicFact ethernet{"eth0", "", false, false, "up"};
    const NicFact a{"mlx5_0:1", "", true, false, "ACTIVE"};
    const NicFact b{"mlx5_1:1", "", true, false, "ACTIVE"};
    const NicFact down{"mlx5_1:1", "", true, false, "DOWN"};
    EXPECT_THAT(of({{ethernet, a, b}, {ethernet, a, b}}),
                ElementsAre("0 mlx5_0:1,mlx5_1:1", "1 mlx5_0:1,mlx5_1:1"));
    EXPECT_THAT(of({{a, b}, {a, down}}), ElementsAre("0 mlx5_0:1", "1 mlx5_0:1"));
    EXPECT_THAT(of({{a, down}, {b}}), ElementsAre("0 mlx5_0:1", "1 mlx5_1:1"))
        << "named differently";
    EXPECT_THAT(of({{a, b}, {down}}), IsEmpty()) << "one meets nobody over RDMA";
    EXPECT_THAT(of({{ethernet}, {ethernet}}), IsEmpty());
    EXPECT_THAT(of({{a}, std::vector<NicFact>(limits::kNics, a)}), IsEmpty()) << "cut off";
    NodeFacts one;
    one.nics = {a};
    EXPECT_THAT(active_ports({{0, &one}, {1, nullptr}}), IsEmpty()) << "it has not said";
}

}  // namespace
}  // namespace lockstep::test
