#include "job/model/spec/spec_slurm.hpp"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace lockstep {
namespace {

// Mistakes in a `slurm` section, as "pointer: message".
std::vector<std::string> wrong_section(const std::string& section) {
    const auto json = parse_json(R"({"name":"a","framework":"native","slurm":)" + section + "}");
    EXPECT_TRUE(json.has_value()) << section;
    const auto spec = parse_spec(*json);
    std::vector<std::string> out;
    if (!spec) {
        for (const auto& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

std::vector<std::string> wrong_section(const char* field, const std::string& value) {
    Json section = Json::object();
    section[field] = value;
    return wrong_section(dump_json(section));
}

std::vector<std::string> wrong_directive(const std::string& option, const std::string& value) {
    Json section = Json::object();
    section["directives"][option] = value;
    return wrong_section(dump_json(section));
}

using Errors = std::vector<std::string>;

TEST(SlurmSpec, EveryFieldIsReadAndWrittenBack) {
    const auto json = parse_json(R"({"name":"a","framework":"native","slurm":{
        "partition":"gpu,gpu-long","account":"vision","qos":"high","constraint":"(a100|h100)&ib",
        "reservation":"maint_1","nodelist":"n[1-3,07],rack2-m[10-12]","exclude":"n2",
        "exclusive":true,"directives":{"switches":"1@00:30:00","contiguous":"","nice":"10"}}})");
    const auto spec = parse_spec(*json);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->slurm.partition, "gpu,gpu-long");
    EXPECT_EQ(spec->slurm.nodelist, "n[1-3,07],rack2-m[10-12]");
    EXPECT_TRUE(spec->slurm.exclusive);
    EXPECT_EQ(spec->slurm.directives.at("contiguous"), "");
    EXPECT_EQ(nlohmann::json(to_json(*spec)["slurm"]), nlohmann::json((*json)["slurm"]));
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->slurm, spec->slurm);
}

TEST(SlurmSpec, EmptyTextsStateNothing) {
    const auto spec = parse_spec(*parse_json(R"({"name":"a","framework":"native","slurm":{
        "partition":"","qos":"","nodelist":"","exclusive":false,"directives":{}}})"));
    ASSERT_TRUE(spec.has_value());
    EXPECT_TRUE(spec->slurm.empty());
    EXPECT_FALSE(to_json(*spec).contains("slurm"));
}

TEST(SlurmSpec, NoFieldTakesWhatCouldEndAnSbatchLineOrBeginAnOption) {
    for (const char* field :
         {"partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude"}) {
        for (const std::string value : {"a b",      "a\nb", "a\n#SBATCH --hold",
                                        "a\rb",     "a\tb", "a\"b",
                                        "a'b",      "a\\b", "a#b",
                                        "$(id)",    "`id`", "a;b",
                                        "a/b",      "a%j",  "a\x7F",
                                        "\xC3\xA4", "a=b",  "~a",
                                        "a{b}",     " a",   "a "}) {
            if (std::string_view{field} == "constraint" && value == "a=b") {
                continue;  // a feature may be called so
            }
            const auto errors = wrong_section(field, value);
            ASSERT_EQ(errors.size(), 1U) << field << " " << value;
            EXPECT_TRUE(errors[0].starts_with(std::string{"/slurm/"} + field + ": ")) << errors[0];
        }
        EXPECT_EQ(wrong_section(field, std::string("a\0b", 3)),
                  (Errors{std::string{"/slurm/"} + field + ": must not contain NUL"}));
        EXPECT_EQ(wrong_section(field, std::string(64U << 10U, 'a')).size(), 1U) << field;
    }
    for (const char* field : {"partition", "account", "qos", "reservation", "nodelist"}) {
        EXPECT_EQ(wrong_section(field, "--hold").size(), 1U) << field;
    }
}

TEST(SlurmSpec, HostListsPairTheirBrackets) {
    for (const char* hosts : {"n[1-3", "n1-3]", "n[[1]]", "n]1[", "n[1],m["}) {
        EXPECT_EQ(wrong_section("nodelist", hosts),
                  (Errors{"/slurm/nodelist: must be a host list such as n[1-3],m7"}))
            << hosts;
    }
    EXPECT_TRUE(wrong_section("exclude", "rack[0-1]-blade[00-03],b7").empty());
}

TEST(SlurmSpec, DirectivesThatLockstepManagesNameTheFieldToUse) {
    EXPECT_EQ(wrong_directive("nodes", "2"),
              (Errors{"/slurm/directives/nodes: is Lockstep's own: use /resources/nodes"}));
    EXPECT_EQ(wrong_directive("partition", "gpu"),
              (Errors{"/slurm/directives/partition: has its own field: use /slurm/partition"}));
    for (const char* option : {"job-name",
                               "ntasks",
                               "ntasks-per-node",
                               "cpus-per-task",
                               "gpus",
                               "gpus-per-node",
                               "mem",
                               "time",
                               "output",
                               "error",
                               "export",
                               "signal",
                               "requeue",
                               "no-requeue",
                               "open-mode",
                               "chdir",
                               "array",
                               "wrap",
                               "uid",
                               "gid",
                               "parsable",
                               "kill-on-invalid-dep",
                               "dependency",
                               "get-user-env",
                               "hold",
                               "exclusive",
                               "container",
                               "input",
                               "nodefile"}) {
        const auto errors = wrong_directive(option, "x");
        ASSERT_EQ(errors.size(), 1U) << option;
        EXPECT_TRUE(errors[0].find("own: ") != std::string::npos ||
                    errors[0].find("own field: ") != std::string::npos)
            << errors[0];
    }
}

TEST(SlurmSpec, UnknownDirectivesAreRefusedByName) {
    for (const char* option :
         {"job-nam", "Nice", "nice ", "", "switches=1\n#SBATCH --hold", "no-such-option"}) {
        const auto errors = wrong_directive(option, "1");
        ASSERT_EQ(errors.size(), 1U) << option;
        EXPECT_NE(errors[0].find(" is not an option that Lockstep passes on"), std::string::npos)
            << errors[0];
    }
    EXPECT_EQ(wrong_directive("--nice", "1"),
              (Errors{"/slurm/directives/--nice: must be a long option without its dashes"}));
}

TEST(SlurmSpec, DirectivesHaveAGrammarEach) {
    const std::vector<std::array<const char*, 3>> table{
        // option, good, bad
        {"acctg-freq", "task=30,energy=60", "task 30"},
        {"batch", "bigmem|login", "a;b"},
        {"bb", "capacity=100GB,access=striped", "#DW jobdw"},
        {"begin", "now+1hour", "now 1hour"},
        {"begin", "2026-11-21T04:00:00", "16:00;id"},
        {"cluster-constraint", "!fast,big", "a|b"},
        {"comment", "team=vision, run 7/8", " led"},
        {"comment", "x", "led "},
        {"consolidate-segments", "", "yes"},
        {"contiguous", "", "yes"},
        {"core-spec", "2", "-2"},
        {"cores-per-socket", "8", "many"},
        {"cpu-freq", "1000000-2000000:OnDemand", "high low"},
        {"deadline", "2026-11-21", "a/b"},
        {"delay-boot", "10", "ten"},
        {"distribution", "block:cyclic:fcyclic,NoPack", "arbitrary"},
        {"extra", "rack=7&(gen>2)", "a b"},
        {"extra-node-info", "2:*:1", "2:4:1:1"},
        {"gpu-freq", "high,memory=low", "high low"},
        {"gres", "lustre:1,craynetwork:hsn:2", "lustre"},
        {"gres-flags", "enforce-binding", "other"},
        {"hint", "nomultithread", "help"},
        {"licenses", "matlab:2,fluent@server:1", "a;b"},
        {"mail-type", "END,FAIL,TIME_LIMIT_90", "END FAIL"},
        {"mail-user", "ada@example.org", "-oProxy=x"},
        {"mem-update", "20@0-00:30:00", "20"},
        {"network", "devname=mlx5_0", "a b"},
        {"nice", "100", "1-"},
        {"nice", "-100", "--1"},
        {"oom-kill-step", "0", "2"},
        {"oversubscribe", "", "yes"},
        {"prefer", "a100&ib", "a$b"},
        {"priority", "0", "TOP"},
        {"profile", "task,energy", "task energy"},
        {"propagate", "NOFILE,STACK", "nofile stack"},
        {"reboot", "", "now"},
        {"resources", "flat:2,natural:1", "flat;natural"},
        {"segment", "4", "0"},
        {"sockets-per-node", "2", "-1"},
        {"spread-job", "", "1"},
        {"spread-segments", "", "1"},
        {"switches", "1@01:00:00", "1@"},
        {"thread-spec", "1", "x"},
        {"threads-per-core", "1", ""},
        {"tmp", "10G", "10 G"},
        {"use-min-nodes", "", "1"},
        {"wckey", "*prod", "a b"},
    };
    for (const auto& [option, good, bad] : table) {
        EXPECT_TRUE(wrong_directive(option, good).empty()) << option << " " << good;
        EXPECT_EQ(wrong_directive(option, bad).size(), 1U) << option << " " << bad;
    }
    for (const auto option : slurm_directives()) {
        for (const char* value : {"a\nb", "a b", "a\"b", "$(id)", "`id`", "a#b", "\\", "'"}) {
            if (option == "comment" && std::string_view{value} == "a b") {
                continue;
            }
            EXPECT_EQ(wrong_directive(std::string{option}, value).size(), 1U)
                << option << " " << value;
        }
    }
}

TEST(SlurmSpec, GpusAreAskedForInOnePlace) {
    for (const char* gres : {"gpu:4", "gpu:a100:4", "lustre:1,gpu:2", "GPU:1"}) {
        EXPECT_EQ(
            wrong_directive("gres", gres),
            (Errors{"/slurm/directives/gres: is Lockstep's own: use /resources/gpus_per_node"}))
            << gres;
    }
}

TEST(SlurmSpec, PartsOfGpusAreNotAskedForBesideWholeOnes) {
    const auto errors = [](const char* resources) {
        const auto json =
            parse_json(std::string{R"({"name":"a","framework":"native","resources":)"} + resources +
                       R"(,"slurm":{"directives":{"gres":"lustre:1,shard:2"}}})");
        const auto spec = parse_spec(*json);
        return spec ? std::string{} : spec.error().fields.front().pointer;
    };
    EXPECT_EQ(errors(R"({"gpus_per_node":2})"), "/slurm/directives/gres");
    EXPECT_EQ(errors(R"({"gpus_per_node":0})"), "");
}

TEST(SlurmSpec, EveryOptionOfEveryReleaseIsPassedOnOrHasItsReason) {
    std::ifstream file{LOCKSTEP_SOURCE_DIR "/tests/fixtures/slurm/sbatch_options.txt"};
    std::string option;
    std::string first;
    std::string last;
    int options = 0;
    while (file >> option >> first >> last) {
        ++options;
        for (const std::string& error : wrong_directive(option, "\n")) {
            EXPECT_EQ(error.find("not an option that Lockstep passes on"), std::string::npos)
                << error;
        }
    }
    EXPECT_GT(options, 100);
}

TEST(SlurmSpec, WhatContradictsTheResourcesIsRefused) {
    const auto errors = [](const std::string& resources, const std::string& slurm) {
        const auto spec =
            parse_spec(*parse_json(R"({"name":"a","framework":"native","resources":)" + resources +
                                   R"(,"slurm":)" + slurm + "}"));
        Errors out;
        for (const FieldError& error : spec ? std::vector<FieldError>{} : spec.error().fields) {
            out.push_back(error.pointer + ": " + error.message);
        }
        return out;
    };
    const std::string fours = R"({"directives":{"segment":"4"}})";
    EXPECT_EQ(errors(R"({"nodes":8})", fours), Errors{});
    EXPECT_EQ(errors(R"({"nodes":3})", fours), Errors{});  // all in one segment
    EXPECT_EQ(errors(R"({"nodes":6})", fours),
              (Errors{"/slurm/directives/segment: 6 nodes are not made of segments of 4"}));
    EXPECT_EQ(errors(R"({"nodes":8,"spares":1})", fours),
              (Errors{"/slurm/directives/segment: 9 nodes with the spares are not made of segments "
                      "of 4"}));
    EXPECT_EQ(
        errors("{}", R"({"exclusive":true,"directives":{"oversubscribe":""}})"),
        (Errors{"/slurm/directives/oversubscribe: shares the nodes, and /slurm/exclusive does "
                "not: one of them"}));
}

TEST(SlurmSpec, WhatIsNotPassedOnHasItsReason) {
    for (const char* option : {"cpu-bind", "mem-bind", "hetjob", "overcommit", "x11"}) {
        const auto errors = wrong_directive(option, "1");
        ASSERT_EQ(errors.size(), 1U) << option;
        EXPECT_EQ(errors[0].find("not an option that Lockstep passes on"), std::string::npos)
            << errors[0];
    }
}

TEST(SlurmSpec, GpusHaveAType) {
    const auto spec = parse_spec(*parse_json(
        R"({"name":"a","framework":"native","resources":{"gpus_per_node":4,"gpu_type":"h100"}})"));
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    EXPECT_EQ(spec->resources.gpu_type, "h100");
    EXPECT_EQ(to_json(*spec)["resources"]["gpu_type"], "h100");
    for (const char* resources :
         {R"({"gpu_type":"h100"})", R"({"gpus_per_node":1,"gpu_type":"h 100"})",
          R"({"gpus_per_node":1,"gpu_type":"h100:4"})", R"({"gpus_per_node":1,"gpu_type":"-x"})"}) {
        const auto bad = parse_spec(*parse_json(
            std::string{R"({"name":"a","framework":"native","resources":)"} + resources + "}"));
        ASSERT_FALSE(bad) << resources;
        EXPECT_EQ(bad.error().fields.front().pointer, "/resources/gpu_type");
    }
}

TEST(SlurmSpec, WrongTypesNameTheField) {
    EXPECT_EQ(
        wrong_section(R"({"partition":7,"exclusive":"yes","directives":[],"particion":"x"})"),
        (Errors{"/slurm/partition: must be a string", "/slurm/exclusive: must be true or false",
                "/slurm/directives: must be an object", "/slurm/particion: unknown field"}));
    EXPECT_EQ(wrong_section(R"({"directives":{"nice":10}})"),
              (Errors{"/slurm/directives/nice: must be a string"}));
}

}  // namespace
}  // namespace lockstep
