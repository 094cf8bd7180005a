#include "job/base/limits.hpp"
#include "job/model/spec/spec.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// A job on two nodes with more fields.
Result<JobSpec> parse_recovery(const std::string& more) {
    const auto json =
        parse_json(R"({"name":"a","framework":"command","command":["x"],)" + more + "}");
    EXPECT_TRUE(json.has_value()) << more;
    return parse_spec(*json);
}

std::vector<std::string> wrong_recovery(const std::string& more) {
    const auto spec = parse_recovery(more);
    std::vector<std::string> out;
    if (!spec) {
        for (const auto& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

using Errors = std::vector<std::string>;

constexpr std::array kAllTriggers{RecoveryTrigger::rank_failure, RecoveryTrigger::node_failure,
                                  RecoveryTrigger::hang, RecoveryTrigger::preemption,
                                  RecoveryTrigger::time_limit};

TEST(SpecRecovery, IsOffUnlessAskedFor) {
    const auto spec = parse_recovery(R"("resources":{"nodes":2})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_FALSE(spec->recovery.wanted);
    for (const RecoveryTrigger trigger : kAllTriggers) {
        EXPECT_FALSE(spec->recovery.has(trigger)) << to_string(trigger);
    }
    EXPECT_FALSE(to_json(*spec).contains("recovery"));
    EXPECT_FALSE(to_json(*spec).contains("watch"));
}

TEST(SpecRecovery, AnEmptyOneAsksForAllOfIt) {
    const auto spec = parse_recovery(R"("recovery":{})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_TRUE(spec->recovery.wanted);
    EXPECT_EQ(spec->recovery.max_restarts, 3);
    EXPECT_EQ(spec->recovery.max_attempts, 2);
    EXPECT_TRUE(spec->recovery.exclude_failed_nodes);
    for (const RecoveryTrigger trigger : kAllTriggers) {
        EXPECT_TRUE(spec->recovery.has(trigger)) << to_string(trigger);
    }
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(again->recovery.wanted) << "what is stored still asks for it";
}

TEST(SpecRecovery, EveryFieldReadsBack) {
    const auto spec = parse_recovery(R"("resources":{"nodes":2,"spares":1},
        "recovery":{"max_restarts":0,"max_attempts":100,"on":["hang","time_limit"],
                    "on_nonfinite_loss":"warn","exclude_failed_nodes":false},
        "watch":{"hang_seconds":30,"straggler_score":0.5})");
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    const Json canonical = to_json(*spec);
    const auto again = parse_spec(canonical);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(to_json(*again), canonical);
    EXPECT_EQ(again->recovery.max_restarts, 0);
    EXPECT_EQ(again->recovery.max_attempts, 100);
    EXPECT_TRUE(again->recovery.has(RecoveryTrigger::hang));
    EXPECT_TRUE(again->recovery.has(RecoveryTrigger::time_limit));
    EXPECT_FALSE(again->recovery.has(RecoveryTrigger::rank_failure));
    EXPECT_FALSE(again->recovery.exclude_failed_nodes);
    EXPECT_EQ(again->watch.hang_seconds, 30);
    EXPECT_EQ(again->watch.straggler_score, 0.5);
    EXPECT_EQ(again->resources.spares, 1);
    EXPECT_EQ(again->resources.allocated_nodes(), 3);
    EXPECT_EQ(again->resources.world_size(), 2) << "a spare has no ranks";
}

TEST(SpecRecovery, OnNothingRecoversFromNothing) {
    const auto spec = parse_recovery(R"("recovery":{"on":[]})");
    ASSERT_TRUE(spec.has_value());
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again.has_value());
    for (const RecoveryTrigger trigger : kAllTriggers) {
        EXPECT_FALSE(again->recovery.has(trigger)) << to_string(trigger);
    }
}

TEST(SpecRecovery, WhatIsOutOfRangeIsNamed) {
    EXPECT_EQ(wrong_recovery(R"("recovery":{"max_restarts":-1,"max_attempts":0})"),
              (Errors{"/recovery/max_restarts: must be 0..1000",
                      "/recovery/max_attempts: must be 1..100"}));
    EXPECT_EQ(wrong_recovery(R"("recovery":{"max_restarts":1001,"max_attempts":101})").size(), 2U);
    EXPECT_EQ(
        wrong_recovery(R"("recovery":{"on":["oom"]})"),
        (Errors{"/recovery/on: unknown: \"oom\"; must be one of: rank_failure, node_failure, hang, "
                "preemption, time_limit"}));
    EXPECT_EQ(wrong_recovery(R"("recovery":{"on":"hang"})"),
              (Errors{"/recovery/on: must be an array of strings"}));
    EXPECT_EQ(wrong_recovery(R"("recovery":{"on_nonfinite_loss":"abort"})"),
              (Errors{"/recovery/on_nonfinite_loss: must be one of: warn, stop, restart"}));
    EXPECT_EQ(wrong_recovery(R"("recovery":{"later":1},"watch":{"later":1})"),
              (Errors{"/recovery/later: unknown field", "/watch/later: unknown field"}));
    EXPECT_EQ(wrong_recovery(R"("recovery":[])"), (Errors{"/recovery: must be an object"}));
    EXPECT_EQ(wrong_recovery(R"("watch":{"hang_seconds":0})"),
              (Errors{"/watch/hang_seconds: must be 1..86400"}));
    EXPECT_EQ(wrong_recovery(R"("watch":{"straggler_score":1.5})").size(), 1U);
}

TEST(SpecRecovery, SparesAreNodesLikeTheOthers) {
    EXPECT_EQ(wrong_recovery(R"("resources":{"nodes":16384,"ranks_per_node":1,"spares":1})"),
              (Errors{"/resources/spares: with them more than 16384 nodes"}));
    EXPECT_EQ(wrong_recovery(R"("resources":{"spares":1025})"),
              (Errors{"/resources/spares: must be 0..1024"}));
    EXPECT_EQ(wrong_recovery(R"("resources":{"nodes":2,"spares":1},"launch":"task")").size(), 1U);
}

TEST(SpecRecovery, WarmStandbysAreModulesOfRanksThatLockstepStarts) {
    const auto spec = parse_recovery(R"("recovery":{"warm_standby":["torch","my_app.model2"]})");
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->recovery.warm_standby, (Errors{"torch", "my_app.model2"}));
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->recovery.warm_standby, spec->recovery.warm_standby);
    EXPECT_FALSE(to_json(*parse_recovery(R"("recovery":{})"))["recovery"].contains("warm_standby"));
    for (const std::string name : {"a-b", "", "2x", "a..b", ".a", "a.", "torch as t", "os,sys"}) {
        EXPECT_EQ(wrong_recovery(R"("recovery":{"warm_standby":[")" + name + R"("]})"),
                  Errors{"/recovery/warm_standby: is a list of Python modules, and \"" + name +
                         "\" is the name of none"});
    }
    EXPECT_EQ(wrong_recovery(R"("launch":"node","recovery":{"warm_standby":["torch"]})"),
              Errors{"/recovery/warm_standby: needs launch rank: of other ranks Lockstep does not "
                     "start the Python"});
    EXPECT_EQ(wrong_recovery(R"("container":{"runtime":"apptainer","image":"a.sif"},
                                "recovery":{"warm_standby":["torch"]})"),
              Errors{"/recovery/warm_standby: cannot wait in a container: leave it out"});
}

}  // namespace
}  // namespace lockstep
