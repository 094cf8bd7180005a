#include "job/model/spec/spec_secrets.hpp"

#include "job/base/limits.hpp"
#include "tests/unit/model/rank_contract.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Whatever Lockstep tells a rank, no secret takes its place.
TEST(SpecSecrets, NoNameThatLockstepSetsCanBeOne) {
    std::size_t looked_at = 0;
    for (int framework = 0; framework <= static_cast<int>(Framework::command); ++framework) {
        for (const Launch launch : {Launch::rank, Launch::node, Launch::task}) {
            for (const std::int32_t gpus : {0, 4}) {
                JobSpec spec = test::spec(static_cast<Framework>(framework));
                spec.launch = launch;
                spec.resources.gpus_per_node = gpus;
                RankPlace place = test::place();
                place.ras_port = 7;
                place.endpoints.assign(8, "10.0.0.1:1");
                const test::Variables inherited{{"SLURM_JOB_ID", "1"}, {"https_proxy", "p"}};
                for (const auto& [name, value] : rank_environment(spec, place, inherited)) {
                    if (name != "https_proxy") {
                        EXPECT_FALSE(check_secret_name(name)) << name;
                        ++looked_at;
                    }
                }
            }
        }
    }
    EXPECT_GT(looked_at, 1000U);
    for (const char* good : {"WANDB_API_KEY", "HF_TOKEN", "_x", "https_proxy", "AWS_SECRET_1"}) {
        EXPECT_TRUE(check_secret_name(good)) << good;
    }
    for (const char* bad :
         {"", "1A", "A-B", "A/B", "..", "A.B", "PATH", "LD_PRELOAD", "PYTHONPATH"}) {
        EXPECT_FALSE(check_secret_name(bad)) << bad;
    }
    EXPECT_FALSE(check_secret_name(std::string(limits::kSecretNameBytes + 1, 'A')));
}

TEST(SpecSecrets, ASpecificationNamesThemAndTheRecordedValueGoes) {
    const auto parsed = parse_json(R"({"name":"a","framework":"command","command":["x"],
        "inherit_environment":true,"recorded_environment":{"KEY":"in the clear","B":"b"},
        "secrets":["KEY"]})");
    const auto spec = parse_spec(*parsed);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->secrets, std::vector<std::string>{"KEY"});
    EXPECT_EQ(spec->recorded_environment, (test::Variables{{"B", "b"}}));
    EXPECT_EQ(dump_json(to_json(*spec)).find("in the clear"), std::string::npos);
    EXPECT_EQ(parse_spec(to_json(*spec))->secrets, spec->secrets);
}

TEST(SpecSecrets, WhatIsWrongIsNamed) {
    const auto parsed = parse_json(R"({"name":"a","framework":"command","command":["x"],
        "environment":{"A":"1"},"secrets":["A","B","B","RANK"]})");
    const auto spec = parse_spec(*parsed);
    ASSERT_FALSE(spec);
    std::vector<std::string> at;
    for (const FieldError& error : spec.error().fields) {
        at.push_back(error.pointer);
    }
    EXPECT_EQ(at, (std::vector<std::string>{"/secrets/0", "/secrets/2", "/secrets/3"}));
    EXPECT_FALSE(check_secret_value(""));
    EXPECT_FALSE(check_secret_value(std::string{"a\0b", 3}));
    EXPECT_FALSE(check_secret_value(std::string(limits::kSecretBytes + 1, 'x')));
    EXPECT_EQ(removed_secrets({"A", "B"}),
              "the secrets A and B, which it needs, were removed before it started: lockstep "
              "secret set A, then submit it again");
}

}  // namespace
}  // namespace lockstep
