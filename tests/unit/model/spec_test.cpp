#include "job/model/spec/spec.hpp"

#include "tests/support/whole_spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

Result<JobSpec> parse(std::string_view text) {
    const auto json = parse_json(text);
    EXPECT_TRUE(json.has_value()) << text;
    return parse_spec(*json);
}

// The pointers of what is wrong, in order.
std::vector<std::string> wrong(std::string_view text) {
    const auto spec = parse(text);
    std::vector<std::string> out;
    if (!spec) {
        for (const auto& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

using Errors = std::vector<std::string>;

TEST(Spec, TwoFieldsAreEnough) {
    const auto spec = parse(R"({"name":"first","framework":"native"})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->resources.world_size(), 1);
    EXPECT_TRUE(spec->train.has_value());
    EXPECT_EQ(spec->capture.preset, "auto");
}

TEST(Spec, CanonicalJsonGivesTheSameSpec) {
    const auto spec = parse(test::kWholeSpec);
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    const Json canonical = to_json(*spec);
    const auto again = parse_spec(canonical);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(to_json(*again), canonical);
    EXPECT_EQ(again->resources.time_limit_seconds, 86'400 + 2 * 3600 + 3 * 60 + 4);
    EXPECT_EQ(again->environment.at("B_2"), "x\ny");
}

TEST(Spec, UnknownFieldsAreErrorsAtEveryLevel) {
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","nmae":1,"resources":{"node":1},
                        "train":{"lr":1},"capture":{"x":1},"checkpoint":{"y":1}})"),
              (Errors{"/resources/node: unknown field", "/train/lr: unknown field",
                      "/capture/x: unknown field", "/checkpoint/y: unknown field",
                      "/nmae: unknown field"}));
}

TEST(Spec, NamesThatCouldBecomeMoreThanANameAreRefused) {
    for (const char* name : {"", "a\\nb", "-a", "../x", "a b", "a/b", ".", "\\u00e4",
                             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
        const auto errors = wrong(std::string{R"({"framework":"native","name":")"} + name + "\"}");
        ASSERT_EQ(errors.size(), 1U) << name;
        EXPECT_TRUE(errors[0].starts_with("/name: ")) << errors[0];
    }
}

TEST(Spec, NumbersOutOfRangeNameTheRange) {
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","resources":{"nodes":-1}})"),
              (Errors{"/resources/nodes: must be 1..16384"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native",
                        "resources":{"nodes":1000000000,"ranks_per_node":1}})"),
              (Errors{"/resources/nodes: must be 1..16384"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native",
                        "resources":{"nodes":16384,"ranks_per_node":1024}})"),
              (Errors{"/resources: 16777216 ranks: at most 131072"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","resources":{"nodes":1.5}})"),
              (Errors{"/resources/nodes: must be an integer"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","resources":{"time_limit":"soon"}})"),
              (Errors{"/resources/time_limit: not a time limit: use minutes, HH:MM:SS, D-HH:MM:SS "
                      "or units as in 90s, 5m, 1h30m, 2d"}));
}

TEST(Spec, TimeLimitsMayHaveAnyOfSlurmsForms) {
    const auto seconds = [](const std::string& text) {
        return parse(R"({"name":"a","framework":"native","resources":{"time_limit":")" + text +
                     "\"}}")
            .value()
            .resources.time_limit_seconds;
    };
    EXPECT_EQ(seconds("90"), 90 * 60);
    EXPECT_EQ(seconds("90:30"), 90 * 60 + 30);
    EXPECT_EQ(seconds("04:00:00"), 4 * 3600);
    EXPECT_EQ(seconds("1-00"), 86'400);
    EXPECT_EQ(seconds("1-12:30"), 86'400 + 12 * 3600 + 30 * 60);
    EXPECT_EQ(seconds("1-00:00:00"), 86'400);
    for (const char* text : {"UNLIMITED", "0", "-1", "1:2:3:4", "1-", "04:00:00 --hold"}) {
        EXPECT_EQ(wrong(std::string{R"({"name":"a","framework":"native",
                        "resources":{"time_limit":")"} +
                        text + "\"}}")
                      .size(),
                  1U)
            << text;
    }
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","resources":{"time_limit":"9999999"}})"),
              (Errors{"/resources/time_limit: must be at most 3650-00:00:00"}));
}

TEST(Spec, TheWarningBeforeTheTimeLimitComesBeforeIt) {
    const auto spec = parse(R"({"name":"a","framework":"native",
        "checkpoint":{"signal":"USR1","seconds_before_timeout":120},"submission":"manual"})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->checkpoint.signal, "USR1");
    EXPECT_EQ(spec->checkpoint.seconds_before_timeout, 120);
    EXPECT_EQ(spec->submission, Submission::manual);
    EXPECT_EQ(to_json(*parse_spec(to_json(*spec))), to_json(*spec));
    EXPECT_EQ(
        wrong(R"({"name":"a","framework":"native","resources":{"time_limit":"2"},
                  "checkpoint":{"seconds_before_timeout":120}})"),
        (Errors{"/checkpoint/seconds_before_timeout: must be less than /resources/time_limit, "
                "00:02:00"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","submission":"later",
                        "checkpoint":{"signal":"KILL","seconds_before_timeout":65536}})"),
              (Errors{"/checkpoint/signal: must be one of: USR2, USR1, TERM, INT, HUP",
                      "/checkpoint/seconds_before_timeout: must be 0..65535",
                      "/submission: must be one of: automatic, manual"}));
}

TEST(Spec, WrongTypesNameTheField) {
    EXPECT_EQ(wrong(R"({"name":7,"framework":[],"resources":3,"environment":[],"labels":{"a":1}})"),
              (Errors{"/name: must be a string",
                      "/framework: must be one of: native, pytorch, lightning, keras, tensorflow, "
                      "paddle, jax, horovod, deepspeed, accelerate, ray, mpi, command",
                      "/resources: must be an object", "/environment: must be an object",
                      "/labels/a: must be a string"}));
    EXPECT_EQ(wrong("[]"), (Errors{": must be an object"}));
}

TEST(Spec, AFieldWithoutEffectIsRefusedNotIgnored) {
    EXPECT_EQ(
        wrong(R"({"name":"a","framework":"native","command":["x"]})"),
        (Errors{"/command: has no effect with framework native: Lockstep's own trainer runs"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"command","command":["x"],"train":{}})"),
              (Errors{"/train: has no effect with this framework: only native reads it"}));
}

TEST(Spec, WhatComesLaterIsRefusedByName) {
    const Errors errors = wrong(R"({"name":"a","framework":"jax","command":["x"],
        "container":{"runtime":"pyxis"},
        "recovery":{"max_restarts":3,"on":["hang"]},"watch":{"hang_seconds":5},
        "sweep":{"max_parallel":2},"after":["ls-1"]})");
    ASSERT_EQ(errors.size(), 3U);
    for (const std::string field : {"/container/image", "/sweep", "/after/0"}) {
        EXPECT_TRUE(std::any_of(errors.begin(), errors.end(), [&](const auto& error) {
            return error.starts_with(field);
        })) << field;
    }
}

TEST(Spec, AContainerIsReadAndWrittenBack) {
    const auto spec = parse(R"({"name":"a","framework":"command","command":["x"],
        "container":{"runtime":"pyxis","image":"nvcr.io#nvidia/pytorch:24.01-py3",
                     "mounts":["/data:/data:ro","/scratch:/s"]}})");
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->container.runtime, ContainerRuntime::pyxis);
    EXPECT_EQ(spec->container.mounts.size(), 2U);
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->container, spec->container);
}

TEST(Spec, AContainerOfOtherCharactersIsRefused) {
    const auto errors = [](const std::string& container, const std::string& more = "") {
        return wrong(R"({"name":"a","framework":"command","command":["x"],"container":)" +
                     container + more + "}");
    };
    EXPECT_EQ(errors(R"({"image":"a"})"),
              (Errors{"/container/runtime: is required: pyxis or apptainer"}));
    for (const char* image : {"", "a b", "$(id)", "a;b", "-x", "a\\nb", "a\\u0000b", "a,b", "ä"}) {
        EXPECT_GE(errors(std::string{R"({"runtime":"pyxis","image":")"} + image + "\"}").size(), 1U)
            << image;
    }
    for (const char* mount : {"", "/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:ro", "/a,/c:/b",
                              "/a:/b\\n", "/a b:/c", "/:/b"}) {
        EXPECT_EQ(errors(std::string{R"({"runtime":"apptainer","image":"a","mounts":[")"} + mount +
                         "\"]}")
                      .size(),
                  1U)
            << mount;
    }
    EXPECT_EQ(errors(R"({"runtime":"apptainer","image":"a"})", R"(,"working_directory":"/a b")"),
              (Errors{"/working_directory: with a container: letters, digits and / _ . + @ - "
                      "only"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native",
                        "container":{"runtime":"apptainer","image":"a"}})")
                  .size(),
              1U);
}

TEST(Spec, CommandsMustNameAProgram) {
    EXPECT_EQ(
        wrong(R"({"name":"a","framework":"command"})"),
        (Errors{"/command: is required: the program each rank runs, as an array of strings"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"command","command":[""]})"),
              (Errors{"/command: must start with the name of a program"}));
    // It is there: that it is missing, too, would be wrong.
    EXPECT_EQ(wrong(R"({"name":"a","framework":"command","command":"python x.py"})"),
              (Errors{"/command: must be an array of strings"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"command","command":[7]})"),
              (Errors{"/command/0: must be a string"}));
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","command":"python x.py"})"),
              (Errors{"/command: has no effect with framework native: Lockstep's own trainer "
                      "runs"}));
}

TEST(Spec, EnvironmentNamesAreChecked) {
    EXPECT_EQ(
        wrong(
            R"({"name":"a","framework":"native","environment":{"A=B":"x","LOCKSTEP_X":"y","1A":""}})"),
        (Errors{"/environment/A=B: is not a name of an environment variable",
                "/environment/LOCKSTEP_X: names that start with LOCKSTEP_ are Lockstep's own",
                "/environment/1A: is not a name of an environment variable"}));
}

TEST(Spec, CapturePatternsAreCompiled) {
    EXPECT_EQ(wrong(R"x({"name":"a","framework":"native","capture":{"loss":"(?P<loss>"}})x").size(),
              1U);
    EXPECT_EQ(wrong(R"x({"name":"a","framework":"native","capture":{"loss":"loss=(.*)"}})x").size(),
              1U);
    EXPECT_TRUE(
        wrong(R"x({"name":"a","framework":"native","capture":{"loss":"loss=(?P<loss>.*)"}})x")
            .empty());
}

TEST(Spec, SingleStrategyIsOneProcess) {
    EXPECT_EQ(wrong(R"({"name":"a","framework":"native","train":{"strategy":"single"},
                        "resources":{"ranks_per_node":2}})"),
              (Errors{"/train/strategy: single is one process: ask for 1 node × 1 rank, or use "
                      "data_parallel"}));
}

TEST(Spec, BindingIsForRanksThatTheAgentStarts) {
    const auto spec = parse(R"({"name":"a","framework":"native","resources":{"binding":"numa"}})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->resources.binding, Binding::numa);
    EXPECT_EQ(to_json(*spec)["resources"]["binding"], "numa");
    EXPECT_EQ(wrong(R"({"name":"a","framework":"command","command":["torchrun"],"launch":"node",
                        "resources":{"binding":"cores"}})"),
              (Errors{"/resources/binding: has no effect with launch node: the agent does not "
                      "start the ranks"}));
}

TEST(Placeholders, ExpandInArgumentsAndLeaveOtherBraces) {
    Placeholders values;
    values.rank = 3;
    values.local_rank = 1;
    values.node_rank = 1;
    values.num_nodes = 2;
    values.world_size = 4;
    values.master_addr = "10.0.0.1";
    values.master_port = 29500;
    EXPECT_EQ(
        expand_placeholders("--r={rank}/{world_size} {local_rank}{node_rank} {num_nodes}", values),
        "--r=3/4 11 2");
    EXPECT_EQ(expand_placeholders("tcp://{master_addr}:{master_port}", values),
              "tcp://10.0.0.1:29500");
    EXPECT_EQ(expand_placeholders(R"({"a":{rank}} {ranks} {)", values), R"({"a":3} {ranks} {)");
}

}  // namespace
}  // namespace lockstep
