// launch and roles in a specification: what each framework has, and what is refused by name.
#include "job/model/spec/gpu_view.hpp"
#include "job/model/spec/spec.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// A job of nodes × ranks with `more` fields.
Result<JobSpec> parse_roles(const std::string& framework, const std::string& more = "",
                            int nodes = 1, int ranks = 4, int gpus = 0) {
    const auto json =
        parse_json(R"({"name":"a","framework":")" + framework + R"(","resources":{"nodes":)" +
                   std::to_string(nodes) + R"(,"ranks_per_node":)" + std::to_string(ranks) +
                   R"(,"gpus_per_node":)" + std::to_string(gpus) + "}" +
                   (framework == "native" ? "" : R"(,"command":["x"])") + more + "}");
    EXPECT_TRUE(json.has_value()) << more;
    return parse_spec(*json);
}

std::vector<std::string> errors_of(const Result<JobSpec>& spec) {
    std::vector<std::string> out;
    if (!spec) {
        for (const auto& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

using Errors = std::vector<std::string>;

const std::string kServers =
    R"(,"roles":[{"name":"ps","count":1,"gpus":0},{"name":"worker","count":3}])";

TEST(SpecLaunch, EachFrameworkHasItsWaysAndTheFirstIsTheDefault) {
    const std::map<std::string, std::vector<std::string>> ways{
        {"native", {"rank"}},
        {"pytorch", {"rank", "node", "task"}},
        {"lightning", {"rank", "node", "task"}},
        {"keras", {"rank", "node"}},
        {"tensorflow", {"rank", "node"}},
        {"paddle", {"rank", "node"}},
        {"jax", {"rank", "task"}},
        {"horovod", {"rank", "task"}},
        {"deepspeed", {"rank", "node", "task"}},
        {"accelerate", {"rank", "node", "task"}},
        {"ray", {"rank"}},
        {"mpi", {"task"}},
        {"command", {"rank", "node", "task"}}};
    for (const auto& [framework, good] : ways) {
        const int ranks = framework == "ray" ? 1 : 4;
        const auto plain = parse_roles(framework, "", 1, ranks);
        ASSERT_TRUE(plain) << framework << ": " << plain.error().message;
        EXPECT_EQ(to_string(plain->launch), good.front()) << framework;
        for (const std::string launch : {"rank", "node", "task"}) {
            const auto spec = parse_roles(framework, R"(,"launch":")" + launch + "\"", 1, ranks);
            const bool allowed = std::find(good.begin(), good.end(), launch) != good.end();
            EXPECT_EQ(spec.has_value(), allowed) << framework << " " << launch;
            if (spec) {
                EXPECT_EQ(to_string(spec->launch), launch);
                EXPECT_EQ(to_json(*parse_spec(to_json(*spec))), to_json(*spec)) << framework;
            } else {
                ASSERT_EQ(errors_of(spec).size(), 1U) << framework << " " << launch;
                EXPECT_TRUE(errors_of(spec)[0].starts_with("/launch: framework " + framework))
                    << errors_of(spec)[0];
            }
        }
    }
    EXPECT_EQ(
        errors_of(parse_roles("ray", "", 2, 2)),
        (Errors{"/resources/ranks_per_node: framework ray has one rank a node: Ray itself uses "
                "all of it"}));
    EXPECT_EQ(errors_of(parse_roles("mpi", R"(,"launch":"rank")")),
              (Errors{"/launch: framework mpi has only task: only srun can give a rank its PMI"}));
    EXPECT_EQ(errors_of(parse_roles("pytorch", R"(,"launch":"spawn")")),
              (Errors{"/launch: must be one of: rank, node, task"}));
    EXPECT_EQ(errors_of(parse_roles("tensorflow", R"(,"launch":"node")", 2)),
              (Errors{"/launch: with launch node tensorflow is one process on one node: use launch "
                      "rank"}));
}

TEST(SpecLaunch, WithNodeTheLaunchersRanksAreTheRanks) {
    const auto spec = parse_roles("pytorch", R"(,"launch":"node")", 3, 8);
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->ranks_per_node(), 8);
    EXPECT_EQ(spec->world_size(), 24);
    EXPECT_EQ(parse_roles("pytorch", "", 3, 8)->world_size(), 24);
}

TEST(SpecRoles, AWrongRoleIsRefusedByNameWithItsPointer) {
    for (const char* framework :
         {"native", "pytorch", "lightning", "jax", "deepspeed", "accelerate"}) {
        EXPECT_EQ(errors_of(parse_roles(framework, kServers)),
                  (Errors{std::string{"/roles/0/name: framework "} + framework +
                          " has no such role: only worker"}))
            << framework;
    }
    EXPECT_EQ(errors_of(parse_roles("paddle", R"(,"roles":[{"name":"worker","count":3},
                                                 {"name":"chief","count":1}])")),
              (Errors{"/roles/1/name: framework paddle has no such role: only worker or ps"}));
    EXPECT_EQ(errors_of(parse_roles("tensorflow", R"(,"roles":[{"name":"trainer","count":4}])")),
              (Errors{"/roles/0/name: framework tensorflow has no such role: only chief, worker, "
                      "ps or evaluator"}));
    EXPECT_EQ(
        errors_of(parse_roles("keras", kServers + R"(,"environment":{"KERAS_BACKEND":"torch"})")),
        (Errors{"/roles/0/name: framework keras on torch has no such role: only worker"}));
    EXPECT_EQ(errors_of(parse_roles("mpi", kServers)),
              (Errors{"/roles: have no effect with launch task: only launch rank gives each rank a "
                      "role"}));
    EXPECT_EQ(errors_of(parse_roles("command", R"(,"roles":[{"name":"A b","count":4}])")),
              (Errors{"/roles/0/name: must match ^[a-z][a-z0-9_-]{0,31}$"}));
}

TEST(SpecRoles, AClippedGradientOfSeveralServersIsRefusedBeforeAnyRankStarts) {
    const auto said = [](const char* update, int servers) {
        return errors_of(parse_roles(
            "native",
            R"(,"train":{"strategy":"parameter_server","gradient_clip":1.0,"update":")" +
                std::string{update} + R"("},"roles":[{"name":"ps","count":)" +
                std::to_string(servers) + R"(},{"name":"worker","count":2}])",
            1, servers + 2));
    };
    EXPECT_EQ(said("sync", 2),
              (Errors{"/train/gradient_clip: with update sync needs one server: none of several "
                      "knows the norm of the whole gradient"}));
    EXPECT_EQ(said("sync", 1), Errors{});
    EXPECT_EQ(said("async", 2), Errors{});
}

TEST(SpecRoles, TheNativeTrainerHasServersWithItsStrategyAlone) {
    const std::string train = R"(,"train":{"strategy":"parameter_server"})";
    const std::string needs =
        "/roles: strategy parameter_server needs a role ps and a role worker, the servers and "
        "those who train";
    EXPECT_EQ(errors_of(parse_roles("native", train, 1, 2)), Errors{needs});
    EXPECT_EQ(
        errors_of(parse_roles("native", train + R"(,"roles":[{"name":"ps","count":2}])", 1, 2)),
        Errors{needs});
    const auto spec = parse_roles(
        "native", train + R"(,"roles":[{"name":"ps","count":1},{"name":"worker","count":2}])", 1,
        3);
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->role_of(0).name, "ps");
    EXPECT_FALSE(spec->role_of(0).ends_job);
    EXPECT_TRUE(spec->role_of(2).ends_job);
}

TEST(SpecRoles, CountsMustFillTheNodes) {
    EXPECT_EQ(errors_of(parse_roles("command", kServers, 2, 4)),
              (Errors{"/roles: the counts make 4 ranks; /resources asks for 2 nodes × 4 ranks = "
                      "8"}));
    EXPECT_EQ(errors_of(parse_roles("command",
                                    R"(,"roles":[{"count":4},{"name":"b"},{"name":"c","count":0},
                                        {"name":"c","count":1,"x":1}, 7])")),
              (Errors{"/roles/0/name: is required",
                      "/roles/1/count: is required: how many ranks "
                      "have this role",
                      "/roles/2/count: must be 1..131072", "/roles/3/name: is there already",
                      "/roles/3/x: unknown field", "/roles/4: must be an object",
                      "/roles/4/name: is required",
                      "/roles/4/count: is required: how many ranks have this role"}));
    EXPECT_EQ(errors_of(parse_roles("command", R"(,"roles":{"name":"a"})")),
              (Errors{"/roles: must be an array of at most 16"}));
}

TEST(SpecRoles, TensorFlowsRolesBelongTogether) {
    EXPECT_EQ(errors_of(parse_roles("tensorflow", kServers)),
              (Errors{"/roles: parameter servers of TensorFlow need a chief and a worker"}));
    EXPECT_EQ(errors_of(parse_roles("tensorflow", R"(,"roles":[{"name":"chief","count":2},
                                           {"name":"evaluator","count":2}])")),
              (Errors{"/roles/0/count: TensorFlow has one chief",
                      "/roles/1/count: TensorFlow has one evaluator"}));
    EXPECT_EQ(errors_of(parse_roles("tensorflow", R"(,"roles":[{"name":"evaluator","count":1,
                                           "ends_job":true}])",
                                    1, 1)),
              (Errors{"/roles: TensorFlow needs a chief or a worker"}));
    EXPECT_EQ(
        errors_of(parse_roles("paddle", R"(,"roles":[{"name":"ps","count":4,"ends_job":true}])")),
        (Errors{"/roles: paddle needs at least one worker"}));
}

TEST(SpecRoles, WhoEndsTheJobFollowsFromTheFrameworkUnlessItIsSaid) {
    const auto ends = [](const Result<JobSpec>& spec) {
        std::string out;
        for (const auto& role : spec.value().roles) {
            out += role.name + (role.ends_job ? "+ " : "- ");
        }
        return out;
    };
    EXPECT_EQ(ends(parse_roles("command", kServers)), "ps- worker+ ");
    EXPECT_EQ(ends(parse_roles("paddle", kServers)), "ps- worker+ ");
    EXPECT_EQ(ends(parse_roles("tensorflow", R"(,"roles":[{"name":"chief","count":1},
                         {"name":"ps","count":1},{"name":"worker","count":2}])")),
              "chief+ ps- worker- ")
        << "workers of a ParameterServerStrategy never end";
    EXPECT_EQ(ends(parse_roles("tensorflow", R"(,"roles":[{"name":"chief","count":1},
                         {"name":"worker","count":2},{"name":"evaluator","count":1}])")),
              "chief+ worker+ evaluator- ");
    EXPECT_EQ(ends(parse_roles("command", R"(,"roles":[{"name":"ps","count":4,"ends_job":true}])")),
              "ps+ ");
    EXPECT_EQ(errors_of(parse_roles("command", R"(,"roles":[{"name":"ps","count":4}])")),
              (Errors{"/roles: no role ends the job: one needs ends_job true"}));
}

TEST(SpecRoles, CanonicalJsonGivesTheSameRoles) {
    const auto spec = parse_roles("command", kServers);
    ASSERT_TRUE(spec);
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->roles, spec->roles);
    EXPECT_EQ(to_json(*again), to_json(*spec));
    EXPECT_EQ(to_json(*spec)["roles"].dump(),
              R"([{"name":"ps","count":1,"gpus":0,"ends_job":false},)"
              R"({"name":"worker","count":3,"ends_job":true}])");
    EXPECT_FALSE(to_json(*parse_roles("command")).contains("roles"));
    EXPECT_FALSE(to_json(*parse_roles("command")).contains("launch"));
}

TEST(SpecRoles, RanksHaveTheirRolesInOrder) {
    const auto spec = parse_roles("command", kServers);
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->role_of(0).name, "ps");
    const RankRole last = spec->role_of(3);
    EXPECT_EQ(last.name, "worker");
    EXPECT_EQ(last.index, 2);
    EXPECT_EQ(last.count, 3);
    const RankRole only = parse_roles("pytorch")->role_of(3);
    EXPECT_EQ(only.name, "worker");
    EXPECT_EQ(only.index, 3);
    EXPECT_EQ(only.count, 4);
}

TEST(SpecEndpoints, OnlyForWhoeverIsToldThem) {
    EXPECT_FALSE(needs_endpoints(*parse_roles("pytorch")));
    EXPECT_FALSE(needs_endpoints(*parse_roles("command")));
    EXPECT_TRUE(needs_endpoints(*parse_roles("command", kServers)));
    EXPECT_TRUE(needs_endpoints(*parse_roles("paddle")));
    EXPECT_FALSE(needs_endpoints(*parse_roles("paddle", R"(,"launch":"node")")));
    EXPECT_TRUE(needs_endpoints(*parse_roles("tensorflow")));
    EXPECT_FALSE(needs_endpoints(*parse_roles("tensorflow", "", 1, 1))) << "MirroredStrategy";
    EXPECT_FALSE(
        needs_endpoints(*parse_roles("keras", R"(,"environment":{"KERAS_BACKEND":"torch"})")));
    EXPECT_EQ(errors_of(parse_roles("paddle", "", 8, 1024)),
              (Errors{"/resources: 8192 ranks: this framework's ranks are given the address of "
                      "every other, so at most 4096"}));
}

// What each rank sees of GPUs a,b,c,… ; "-" is all of them.
std::vector<std::string> views(const Result<JobSpec>& spec) {
    std::vector<std::string> out;
    for (std::int32_t rank = 0; rank < spec.value().world_size(); ++rank) {
        const auto slice = gpu_slice(*spec, rank);
        out.push_back(slice ? visible_devices(*slice, "a,b,c,d") : "-");
    }
    return out;
}
using Views = std::vector<std::string>;

TEST(GpuView, IsTheWholeNodeUnlessTheFrameworkTakesWhateverItSees) {
    EXPECT_EQ(views(parse_roles("pytorch", "", 1, 2, 4)), (Views{"-", "-"}));
    EXPECT_EQ(views(parse_roles("paddle", "", 1, 2, 4)), (Views{"-", "-"}));
    EXPECT_EQ(views(parse_roles("tensorflow", "", 1, 2, 4)), (Views{"a,b", "c,d"}));
    EXPECT_EQ(views(parse_roles("tensorflow", "", 2, 1, 4)), (Views{"-", "-"}));
    EXPECT_EQ(views(parse_roles("tensorflow", "", 1, 1, 4)), (Views{"-"}));
    EXPECT_EQ(views(parse_roles("tensorflow", "", 1, 2, 0)), (Views{"-", "-"}));
    EXPECT_EQ(views(parse_roles("tensorflow", R"(,"launch":"node")", 1, 2, 4)), (Views{"-", "-"}));
}

TEST(GpuView, ServersAndTheirChiefSeeNone) {
    const std::string roles = R"(,"roles":[{"name":"chief","count":1},{"name":"ps","count":1},
                                           {"name":"worker","count":2}])";
    EXPECT_EQ(views(parse_roles("tensorflow", roles, 1, 4, 4)), (Views{"", "", "a,b", "c,d"}));
    EXPECT_EQ(views(parse_roles("tensorflow", roles, 2, 2, 3)), (Views{"", "", "a", "b"}));
    EXPECT_EQ(views(parse_roles("paddle", kServers, 1, 4, 4)), (Views{"", "-", "-", "-"}));
    EXPECT_EQ(views(parse_roles("command", kServers, 1, 4, 4)), (Views{"", "-", "-", "-"}));
}

TEST(GpuView, ARoleMaySayHowManyIfThereAreSoMany) {
    const std::string roles =
        R"(,"roles":[{"name":"big","count":1,"gpus":2},{"name":"small","count":2,"gpus":1}])";
    EXPECT_EQ(views(parse_roles("command", roles, 1, 3, 4)), (Views{"a,b", "c", "d"}));
    EXPECT_EQ(errors_of(parse_roles("command", roles, 1, 3, 3)),
              (Errors{"/roles: the ranks of node 0 see 4 GPUs; /resources/gpus_per_node is 3"}));
    EXPECT_EQ(errors_of(parse_roles("pytorch", R"(,"roles":[{"name":"worker","count":4,"gpus":1}])",
                                    1, 4, 4)),
              (Errors{"/roles/0/gpus: framework pytorch shows every rank all GPUs of its node: use "
                      "/resources/gpus_per_node"}));
    EXPECT_EQ(errors_of(parse_roles("tensorflow", "", 1, 4, 2)),
              (Errors{"/resources/gpus_per_node: 2 GPUs: each of a node's workers needs some of "
                      "its own"}));
    EXPECT_EQ(visible_devices({1, 2}, ""), "1,2") << "numbers, where the node names none";
}

// Lockstep's own trainer: servers have their parameters in the host's memory.
TEST(GpuView, WorkersOfANativeParameterServerShareTheirNodesGpus) {
    const auto jobs = [](const std::string& train, int gpus) {
        return parse_roles("native",
                           R"(,"train":{)" + train +
                               R"("strategy":"parameter_server"},"roles":[{"name":"ps","count":1},)"
                               R"({"name":"worker","count":2}])",
                           1, 3, gpus);
    };
    EXPECT_EQ(views(jobs("", 4)), (Views{"", "a,b", "c,d"}));
    EXPECT_EQ(views(jobs(R"("precision":"fp16","devices":"gpu",)", 2)), (Views{"", "a", "b"}));
    EXPECT_EQ(
        errors_of(jobs("", 1)),
        (Errors{"/resources/gpus_per_node: 1 GPUs: each of a node's workers needs some of its "
                "own"}));
    EXPECT_TRUE(jobs("", 0).has_value());
    EXPECT_EQ(views(parse_roles("native", R"(,"train":{"strategy":"pipeline"})", 1, 2, 2)),
              (Views{"-", "-"}));
}

TEST(TrainGpus, WhatDevicesNamesMustBeThere) {
    const auto named = [](const std::string& train, int ranks, int gpus) {
        return errors_of(parse_roles("native", R"(,"train":{)" + train + "}", 1, ranks, gpus));
    };
    EXPECT_EQ(named(R"("devices":"gpu:1,3")", 2, 4), Errors{});
    EXPECT_EQ(
        named(R"("devices":"gpu:0","strategy":"pipeline")", 2, 4),
        (Errors{"/train/devices: 1 GPUs for 2 ranks of a node, each of which takes the one in "
                "the place of its LOCAL_RANK"}));
    EXPECT_EQ(
        named(R"("devices":"gpu:0,2","strategy":"replicated")", 1, 2),
        (Errors{"/train/devices: gpu 2 is not there: a node has 2 (/resources/gpus_per_node), "
                "and the first is 0"}));
    EXPECT_EQ(named(R"("devices":"gpu:0,2","strategy":"central_storage")", 1, 3), Errors{});
    EXPECT_EQ(named(R"("devices":"gpu:0")", 1, 0),
              (Errors{"/train/devices: gpu needs GPUs: /resources/gpus_per_node says how many, and "
                      "asks for none"}));
}

Errors sharing_errors(const std::string& framework, const std::string& resources,
                      const std::string& more = "") {
    const auto json =
        parse_json(R"({"name":"a","framework":")" + framework +
                   R"(","command":["x"],"resources":{)" + resources + "}" + more + "}");
    EXPECT_TRUE(json.has_value());
    return errors_of(parse_spec(*json));
}

TEST(GpuView, SeveralRanksMayShareAGpu) {
    const std::string four = R"("ranks_per_node":4,"gpus_per_node":2,"ranks_per_gpu":2)";
    for (const char* framework :
         {"pytorch", "accelerate", "deepspeed", "paddle", "jax", "horovod", "command"}) {
        EXPECT_EQ(sharing_errors(framework, four), Errors{}) << framework;
    }
    EXPECT_EQ(
        sharing_errors("pytorch", R"("ranks_per_node":5,"gpus_per_node":2,"ranks_per_gpu":2)"),
        (Errors{"/resources/ranks_per_gpu: 2 GPUs × 2 ranks are fewer than the 5 ranks of a "
                "node"}));
    EXPECT_EQ(sharing_errors("pytorch", R"("ranks_per_gpu":2)"),
              (Errors{"/resources/ranks_per_gpu: says how many ranks share a GPU: "
                      "/resources/gpus_per_node says how many GPUs there are, and asks for none"}));
    EXPECT_EQ(sharing_errors("pytorch", four, R"(,"launch":"node")"),
              (Errors{"/resources/ranks_per_gpu: needs launch rank: with others the ranks are "
                      "numbered by their launcher, and take the GPU of that number"}));
    EXPECT_EQ(sharing_errors("lightning", four),
              (Errors{"/resources/ranks_per_gpu: framework lightning gives each rank a GPU of its "
                      "own"}));
    EXPECT_EQ(sharing_errors("command", four, R"(,"roles":[{"name":"a","count":4,"gpus":0}])"),
              (Errors{"/resources/ranks_per_gpu: roles say which GPUs a rank sees: one of the "
                      "two"}));
}

}  // namespace
}  // namespace lockstep
