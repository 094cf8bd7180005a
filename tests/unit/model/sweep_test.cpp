#include "job/model/spec/sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

Json document(const char* sweep) {
    Json out = *parse_json(R"({"name":"s","framework":"native","train":{"epochs":1},
                              "labels":{"team":"v"}})");
    out["sweep"] = *parse_json(sweep);
    return out;
}

std::string pointer_of(const Result<Sweep>& result) {
    EXPECT_FALSE(result.has_value());
    return result.has_value() || result.error().fields.empty() ? ""
                                                               : result.error().fields[0].pointer;
}

TEST(Sweep, ItsJobsAreMadeOneByOneAndAreTheSame) {
    const Json json = document(
        R"({"parameters":{"train.learning_rate":[0.1,0.01],"train.seed":[1,2]},"max_parallel":2})");
    auto maker = SweepMaker::begin(json);
    ASSERT_TRUE(maker) << maker.error().text();
    std::size_t made = 0;
    for (; !maker->whole(); ++made) {
        ASSERT_TRUE(maker->next());
    }
    EXPECT_EQ(made, 4U);
    const Sweep sweep = maker->take();
    const Sweep at_once = parse_sweep(json).value();
    ASSERT_EQ(sweep.points.size(), at_once.points.size());
    EXPECT_EQ(sweep.max_parallel, at_once.max_parallel);
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
        EXPECT_EQ(dump_json(to_json(sweep.points[i].spec)),
                  dump_json(to_json(at_once.points[i].spec)));
    }
}

TEST(Sweep, IsTheProductWithTheLastParameterFastest) {
    const auto sweep = parse_sweep(document(
        R"({"parameters":{"train.learning_rate":[0.1,0.01],"train.seed":[1,2,3]},
            "max_parallel":2})"));
    ASSERT_TRUE(sweep) << sweep.error().text();
    EXPECT_EQ(sweep->max_parallel, 2);
    ASSERT_EQ(sweep->points.size(), 6U);
    EXPECT_EQ(dump_json(sweep->points[0].parameters),
              R"({"train.learning_rate":0.1,"train.seed":1})");
    EXPECT_EQ(dump_json(sweep->points[5].parameters),
              R"({"train.learning_rate":0.01,"train.seed":3})");
    EXPECT_DOUBLE_EQ(sweep->points[4].spec.train->learning_rate, 0.01);
    EXPECT_EQ(sweep->points[4].spec.train->seed, 2);
    EXPECT_EQ(sweep->points[4].spec.train->epochs, 1);
    EXPECT_EQ(sweep->points[4].spec.labels.at("team"), "v");
}

TEST(Sweep, ReachesArgumentsAndMakesObjectsThatAreNotThere) {
    Json json = *parse_json(R"({"name":"s","framework":"command","command":["a","--lr","0"],
        "sweep":{"parameters":{"command.2":["1","2"],"environment.SEED":["7"]}}})");
    const auto sweep = parse_sweep(json);
    ASSERT_TRUE(sweep) << sweep.error().text();
    ASSERT_EQ(sweep->points.size(), 2U);
    EXPECT_EQ(sweep->points[1].spec.command[2], "2");
    EXPECT_EQ(sweep->points[1].spec.environment.at("SEED"), "7");
}

TEST(Sweep, FillsInWhatStandsInBraces) {
    Json json = *parse_json(R"({"name":"s-{lr}","framework":"command",
        "command":["train","--lr={lr}","{rank}","{ln}"],"environment":{"OPT":"{opt}/{opt}"},
        "sweep":{"parameters":{"lr":[0.1,1e-3],"opt":["sgd","{lr}"]}}})");
    const auto sweep = parse_sweep(json);
    ASSERT_TRUE(sweep) << sweep.error().text();
    ASSERT_EQ(sweep->points.size(), 4U);
    EXPECT_EQ(sweep->points[0].spec.name, "s-0.1");
    EXPECT_EQ(sweep->points[2].spec.command,
              (std::vector<std::string>{"train", "--lr=0.001", "{rank}", "{ln}"}));
    EXPECT_EQ(sweep->points[2].spec.environment.at("OPT"), "sgd/sgd");
    // What is filled in is not looked at again.
    EXPECT_EQ(sweep->points[3].spec.environment.at("OPT"), "{lr}/{lr}");
    EXPECT_EQ(dump_json(sweep->points[2].parameters), R"({"lr":0.001,"opt":"sgd"})");
}

TEST(Sweep, WhatTheSubmittersShellHadIsNotFilledIn) {
    Json json = *parse_json(R"({"name":"s","framework":"command","command":["train","{lr}"],
        "inherit_environment":true,"recorded_environment":{"PROMPT":"{lr}>"},
        "sweep":{"parameters":{"lr":[1]}}})");
    const auto sweep = parse_sweep(json);
    ASSERT_TRUE(sweep) << sweep.error().text();
    EXPECT_EQ(sweep->points[0].spec.recorded_environment.at("PROMPT"), "{lr}>");
    EXPECT_EQ(sweep->points[0].spec.command.back(), "1");
}

// They stood in the job's view and its events, for everybody who may see the job.
TEST(Sweep, ValuesOfEnvironmentAndNotifyAreShownToNobody) {
    Json json = *parse_json(R"({"name":"s","framework":"command","command":["train","{lr}"],
        "environment":{"API_KEY":"{tok}"},"notify":["webhook:https://h/{hook}","mail"],
        "sweep":{"parameters":{"lr":[0.1],"tok":["t0psecret-{part}"],"hook":["T0/B1"],"part":["p"],
                 "environment.HF_TOKEN":["hf_1"],"notify.1":["webhook:https://h/x"],
                 "labels.environment":["seen"]}}})");
    json["command"].push_back("{part}");
    const auto sweep = parse_sweep(json);
    ASSERT_TRUE(sweep) << sweep.error().text();
    const SweepPoint& point = sweep->points.front();
    EXPECT_EQ(dump_json(point.shown),
              R"({"lr":0.1,"tok":"***","hook":"***","part":"***","environment.HF_TOKEN":"***",)"
              R"("notify.1":"***","labels.environment":"seen"})");
    EXPECT_EQ(point.parameters["tok"], "t0psecret-{part}");
    EXPECT_EQ(point.spec.environment.at("HF_TOKEN"), "hf_1");
    EXPECT_EQ(point.spec.notify.front(), "webhook:https://h/T0/B1");
}

TEST(Sweep, AViewThatAnOlderVersionStoredIsMaskedByPath) {
    EXPECT_EQ(masked_view(R"({"id":"ls-1","sweep":{"id":"ls-1","parameters":)"
                          R"({"environment.KEY":"k","notify.0":"mail","train.seed":1}}})"),
              R"({"id":"ls-1","sweep":{"id":"ls-1","parameters":)"
              R"({"environment.KEY":"***","notify.0":"***","train.seed":1}}})");
    for (const char* as_it_is :
         {R"({"id":"ls-1"})", R"({"name":"environment"})", R"({"environment":"no job's)",
          R"({"sweep":{"parameters":{"train.seed": 1}}})"}) {
        EXPECT_EQ(masked_view(as_it_is), as_it_is);
    }
}

TEST(Sweep, APlaceholderThatStandsNowhereOrIsARanksOwnIsRefused) {
    const auto nowhere = parse_sweep(*parse_json(R"({"name":"s","framework":"command",
        "command":["train"],"sweep":{"parameters":{"lr":[0.1]}}})"));
    EXPECT_EQ(pointer_of(nowhere), "/lr");
    EXPECT_THAT(nowhere.error().fields[0].message, HasSubstr("{lr} stands nowhere"));
    EXPECT_EQ(pointer_of(parse_sweep(*parse_json(R"({"name":"s","framework":"command",
                  "command":["train","{rank}"],"sweep":{"parameters":{"rank":[1]}}})"))),
              "/sweep/parameters/rank");
    EXPECT_EQ(pointer_of(parse_sweep(*parse_json(R"({"name":"s","framework":"command",
                  "command":["train","{lr}"],"sweep":{"parameters":{"lr":[[1]]}}})"))),
              "/sweep/parameters/lr");
}

TEST(Sweep, APointThatIsNoJobIsNamedWithItsValues) {
    const auto sweep = parse_sweep(document(R"({"parameters":{"train.learning_rate":[0.1,-1]}})"));
    EXPECT_EQ(pointer_of(sweep), "/train/learning_rate");
    EXPECT_THAT(sweep.error().fields[0].message, HasSubstr("train.learning_rate = -1"));
}

TEST(Sweep, WhatCannotBeSweptIsRefusedAtItsPointer) {
    const std::vector<std::pair<const char*, std::string>> bad{
        {R"([])", "/sweep"},
        {R"({})", "/sweep/parameters"},
        {R"({"parameters":{}})", "/sweep/parameters"},
        {R"({"parameters":[1]})", "/sweep/parameters"},
        {R"({"parameters":{"train.seed":[]}})", "/sweep/parameters/train.seed"},
        {R"({"parameters":{"train.seed":3}})", "/sweep/parameters/train.seed"},
        {R"({"parameters":{"train..seed":[1]}})", "/sweep/parameters/train..seed"},
        {R"({"parameters":{"":[1]}})", "/sweep/parameters/"},
        {R"({"parameters":{"sweep.max_parallel":[1]}})", "/sweep/parameters/sweep.max_parallel"},
        {R"({"parameters":{"after":[["ls-1"]]}})", "/sweep/parameters/after"},
        {R"({"parameters":{"name.x":[1]}})", "/sweep/parameters/name.x"},
        {R"({"parameters":{"train.seed":[1]},"max_parallel":0})", "/sweep/max_parallel"},
        {R"({"parameters":{"train.seed":[1]},"grid":true})", "/sweep/grid"},
        {R"({"parameters":{"command.9":["x"]}})", "/command"},
        {R"({"parameters":{"train.nothing":[1]}})", "/train/nothing"}};
    for (const auto& [sweep, pointer] : bad) {
        EXPECT_EQ(pointer_of(parse_sweep(document(sweep))), pointer) << sweep;
    }
}

TEST(Sweep, OfTooManyJobsOrTooLargeOnesIsRefusedBeforeItIsMade) {
    Json json = document(R"({"parameters":{}})");
    Json many = Json::array();
    for (int i = 0; i < 100; ++i) {
        many.push_back(i);
    }
    for (const char* path : {"train.seed", "train.epochs", "train.batch_size"}) {
        json["sweep"]["parameters"][path] = many;
    }
    auto refused = parse_sweep(json);
    EXPECT_EQ(pointer_of(refused), "/sweep/parameters");
    EXPECT_THAT(refused.error().message, HasSubstr("more than 1000 jobs"));
    json = document(R"({"parameters":{}})");
    json["environment"]["BIG"] = std::string(900'000, 'x');
    json["sweep"]["parameters"]["train.seed"] = many;
    refused = parse_sweep(json);
    EXPECT_THAT(refused.error().message, HasSubstr("64 MiB"));
}

TEST(Sweep, AnEmptyOneAsksForNothing) {
    EXPECT_FALSE(has_sweep(document("{}")));
    EXPECT_TRUE(has_sweep(document(R"({"parameters":{}})")));
    EXPECT_TRUE(has_sweep(document("[1]")));
    EXPECT_FALSE(has_sweep(Json::array()));
}

}  // namespace
}  // namespace lockstep
