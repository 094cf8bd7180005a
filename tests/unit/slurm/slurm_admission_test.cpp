// What the Slurm scheduler refuses or warns of when a job is handed in.
#include "job/base/json.hpp"
#include "job/model/spec/spec.hpp"
#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST_F(SlurmSchedulerTest, AdmissionNamesTheFieldThatCanNeverFit) {
    start();
    const auto refused = [&](const char* text) {
        const auto spec = parse_spec(*parse_json(text));
        EXPECT_TRUE(spec.has_value()) << text;
        const auto admitted = scheduler_->admit(*spec);
        return admitted ? std::string{} : admitted.error().fields.at(0).pointer;
    };
    EXPECT_EQ(refused(R"({"name":"t","framework":"native"})"), "");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","slurm":{"partition":"x"}})"),
              "/slurm/partition");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","resources":{"nodes":5}})"),
              "/resources/nodes");
    EXPECT_EQ(refused(R"({"name":"t","framework":"native","resources":{"time_limit":"02:00:00"}})"),
              "/resources/time_limit");
}

// `lockstep nodes check` told people of a time limit that they could not have given.
TEST_F(SlurmSchedulerTest, AdmissionSaysWhatTimeLimitAJobGetsButNotACheckOfTheNodes) {
    start();
    const auto warnings = [&](const char* text) {
        const auto spec = parse_spec(*parse_json(text));
        EXPECT_TRUE(spec.has_value()) << text;
        return scheduler_->admit(*spec)->warnings;
    };
    EXPECT_THAT(warnings(R"({"name":"t","framework":"native"})"),
                testing::ElementsAre("no time limit was stated: it will be 01:00:00"));
    EXPECT_THAT(warnings(R"({"name":"nodes-check","framework":"command","command":["true"],
                             "preflight":{"mode":"only"}})"),
                testing::IsEmpty());
}

// As slurmrestd of Slurm 23.02 to 25.11: which of them is the default it does not tell.
TEST_F(SlurmSchedulerTest, WithoutAPartitionAJobGoesToTheDefaultOfASlurmThatDoesNotNameIt) {
    prepare_ = [](FakeSlurm& slurm) {
        SlurmPartition longer;
        longer.name = "long";
        longer.state = "DOWN";
        longer.total_nodes = 8;
        longer.max_time = 7'200;
        slurm.change_facts = [longer](SlurmFacts& facts) {
            facts.partitions.front().is_default = false;
            facts.partitions.push_back(longer);
            facts.default_untold = true;
        };
    };
    start();
    const auto admit = [&](const char* text) {
        return scheduler_->admit(*parse_spec(*parse_json(text)));
    };
    const auto taken = admit(R"({"name":"t","framework":"native","resources":{"nodes":8}})");
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_THAT(taken->warnings,
                testing::ElementsAre("no time limit was stated: it will be 02:00:00"));
    const auto larger = admit(
        R"({"name":"t","framework":"native","resources":{"nodes":9,"time_limit":"02:00:01"}})");
    ASSERT_FALSE(larger);
    ASSERT_EQ(larger.error().fields.size(), 2U);
    EXPECT_EQ(larger.error().fields[0].message,
              "longer than any partition allows: at most 02:00:00");
    EXPECT_EQ(larger.error().fields[1].message, "more than any partition has or allows: at most 8");
}

}  // namespace
}  // namespace lockstep
