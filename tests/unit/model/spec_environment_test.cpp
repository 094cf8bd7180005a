#include "job/model/spec/spec_environment.hpp"

#include "job/base/limits.hpp"
#include "job/model/launch/rank_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Variables = std::map<std::string, std::string>;

Result<JobSpec> environment_spec(const std::string& more) {
    const auto json =
        parse_json(R"({"name":"a","framework":"command","command":["x"],)" + more + "}");
    EXPECT_TRUE(json.has_value()) << more;
    return parse_spec(*json);
}

std::vector<std::string> environment_mistakes(const std::string& more) {
    const auto spec = environment_spec(more);
    std::vector<std::string> out;
    if (!spec) {
        for (const FieldError& field : spec.error().fields) {
            out.push_back(field.pointer + ": " + field.message);
        }
    }
    return out;
}

TEST(SpecEnvironment, WhatWasRecordedAndTheSetupComeBackFromTheCanonicalDocument) {
    const auto spec = environment_spec(
        R"("inherit_environment":true,"setup":"module load cuda/12",
           "recorded_environment":{"PATH":"/venv/bin:/bin","BASH_FUNC_module%%":"() { :; }"})");
    ASSERT_TRUE(spec.has_value()) << spec.error().message;
    const auto again = parse_spec(to_json(*spec));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->recorded_environment, spec->recorded_environment);
    EXPECT_EQ(again->recorded_environment.at("BASH_FUNC_module%%"), "() { :; }");
    EXPECT_EQ(again->setup, "module load cuda/12");
    EXPECT_TRUE(again->inherit_environment);
    EXPECT_FALSE(to_json(*environment_spec(R"("labels":{})")).contains("recorded_environment"));
}

TEST(SpecEnvironment, MistakesAreNamed) {
    EXPECT_THAT(environment_mistakes(R"("inherit_environment":true)"),
                ElementsAre(HasSubstr("/inherit_environment: needs recorded_environment")));
    EXPECT_THAT(environment_mistakes(R"("recorded_environment":{"A":"1"})"),
                ElementsAre("/recorded_environment: has no effect without inherit_environment"));
    EXPECT_THAT(environment_mistakes(
                    R"("inherit_environment":true,"recorded_environment":{"A B":"1","C":1,
                       "LOCKSTEP_TOKEN":"x"})"),
                ElementsAre("/recorded_environment/A B: is not a name of an environment variable",
                            "/recorded_environment/C: must be a string",
                            "/recorded_environment/LOCKSTEP_TOKEN: names that start with LOCKSTEP_ "
                            "are Lockstep's own"));
    EXPECT_THAT(environment_mistakes(R"("setup":["a"])"), ElementsAre("/setup: must be a string"));
}

// It was taken and had no effect.
TEST(SpecEnvironment, LockstepsOwnVariablesInTheRecordAreRefusedWhenSentAndReadWhenStored) {
    const char* text =
        R"("inherit_environment":true,"recorded_environment":{"A":"1","LOCKSTEP_PYTHON_HOOKS":"off",
           "LOCKSTEP_NCCL_INSPECTOR":"off"})";
    std::vector<FieldError> errors;
    refuse_own_recorded(parse_json(std::string{"{"} + text + "}").value(), errors);
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].pointer, "/recorded_environment/LOCKSTEP_PYTHON_HOOKS");
    EXPECT_EQ(errors[1].pointer, "/recorded_environment/LOCKSTEP_NCCL_INSPECTOR");
    EXPECT_THAT(environment_mistakes(text), ElementsAre());
    errors.clear();
    for (const char* other : {R"({"recorded_environment":{"A":"1"}})",
                              R"({"environment":{"LOCKSTEP_PYTHON_HOOKS":"off"}})",
                              R"({"recorded_environment":3})", "[]", "{}"}) {
        refuse_own_recorded(parse_json(other).value(), errors);
        EXPECT_TRUE(errors.empty()) << other;
    }
}

TEST(SpecEnvironment, ARecordThatNoProgramCouldBeStartedWithIsRefused) {
    std::string many = R"("inherit_environment":true,"recorded_environment":{)";
    for (int i = 0; i < 5; ++i) {
        many += (i == 0 ? "\"V" : ",\"V") + std::to_string(i) + "\":\"" +
                std::string(limits::kEnvironmentBytes, 'x') + "\"";
    }
    EXPECT_THAT(environment_mistakes(many + "}"),
                ElementsAre("/recorded_environment: has more than 256 KiB"));
}

TEST(SpecEnvironment, WhatBelongsToTheSessionOrToALauncherIsNotCarried) {
    for (const char* name :
         {"SLURM_JOB_ID", "SBATCH_ACCOUNT", "LOCKSTEP_TOKEN", "SSH_AUTH_SOCK", "DISPLAY",
          "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "PWD", "HOSTNAME", "TERM", "RANK",
          "MASTER_ADDR", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PMIX_RANK", "TF_CONFIG", "TMUX"}) {
        EXPECT_FALSE(is_carried(name)) << name;
    }
    for (const char* name :
         {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME",
          "WANDB_API_KEY", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "MODULEPATH", "LOADEDMODULES",
          "OMPI_MCA_btl", "CUDA_HOME", "HF_HOME", "TMPDIR", "BASH_FUNC_module%%"}) {
        EXPECT_TRUE(is_carried(name)) << name;
    }
}

TEST(SpecEnvironment, NamesOfSecretsAreKnown) {
    for (const char* name : {"WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD",
                             "pgpassword", "MY_PASS", "GITHUB_AUTH", "SLACK_WEBHOOK_URL"}) {
        EXPECT_TRUE(is_secret_name(name)) << name;
    }
    for (const char* name : {"PATH", "KEYBOARD", "MONKEY_PATCH", "COMPASS", "NCCL_DEBUG"}) {
        EXPECT_FALSE(is_secret_name(name)) << name;
    }
}

TEST(SpecEnvironment, MaskingLeavesNamesAndNothingElse) {
    auto spec = environment_spec(R"("environment":{"A":"one"},"inherit_environment":true,
                                    "recorded_environment":{"B":"two"})");
    ASSERT_TRUE(spec.has_value());
    Json json = to_json(*spec);
    mask_environment(json);
    EXPECT_THAT(dump_json(json), Not(HasSubstr("one")));
    EXPECT_THAT(dump_json(json), Not(HasSubstr("two")));
    EXPECT_EQ(json["environment"]["A"], "***");
    EXPECT_EQ(json["recorded_environment"]["B"], "***");
}

TEST(SpecEnvironment, TheRanksBeginWithWhatWasRecordedOverWhatTheNodeHas) {
    JobSpec spec;
    spec.inherit_environment = true;
    spec.recorded_environment = {{"PATH", "/venv/bin"},  {"RANK", "7"},
                                 {"SLURM_JOB_ID", "99"}, {"CUDA_VISIBLE_DEVICES", "3"},
                                 {"HF_HOME", "/hf"},     {"OMP_NUM_THREADS", "6"}};
    const Variables node{{"PATH", "/bin"},
                         {"SLURM_JOB_ID", "5"},
                         {"SCRATCH", "/local"},
                         {"CUDA_VISIBLE_DEVICES", "0,1"},
                         {"OMP_NUM_THREADS", "1"}};
    EXPECT_THAT(
        base_environment(spec, node),
        UnorderedElementsAre(Pair("PATH", "/venv/bin"), Pair("SLURM_JOB_ID", "5"),
                             Pair("SCRATCH", "/local"), Pair("HF_HOME", "/hf"),
                             Pair("CUDA_VISIBLE_DEVICES", "0,1"), Pair("OMP_NUM_THREADS", "6")));
    spec.inherit_environment = false;
    EXPECT_EQ(base_environment(spec, node), node);
}

// lockstepd may have been started in a shell with another virtual environment.
TEST(SpecEnvironment, OnOneMachineTheDaemonsOwnShellIsNotTheRanks) {
    JobSpec spec;
    spec.inherit_environment = true;
    spec.recorded_environment = {{"PATH", "/mine"}, {"CUDA_VISIBLE_DEVICES", "1"}};
    const Variables daemons{{"PATH", "/bin"},
                            {"PYTHONPATH", "/other"},
                            {"HOME", "/home/me"},
                            {"VIRTUAL_ENV", "/other/venv"}};
    EXPECT_THAT(base_environment(spec, daemons),
                UnorderedElementsAre(Pair("PATH", "/mine"), Pair("HOME", "/home/me"),
                                     Pair("CUDA_VISIBLE_DEVICES", "1")));
    spec.resources.gpus_per_node = 2;  // then the scheduler says which
    EXPECT_THAT(base_environment(spec, daemons),
                UnorderedElementsAre(Pair("PATH", "/mine"), Pair("HOME", "/home/me")));
}

TEST(SpecEnvironment, LockstepsVariablesWinAndTheCallersThreadsCount) {
    JobSpec spec;
    spec.framework = Framework::pytorch;
    spec.command = {"python"};
    spec.inherit_environment = true;
    spec.recorded_environment = {
        {"MASTER_ADDR", "elsewhere"}, {"NCCL_DEBUG", "INFO"}, {"OMP_NUM_THREADS", "6"}};
    RankPlace place;
    place.master_addr = "10.0.0.1";
    const auto environment = rank_environment(spec, place, base_environment(spec, {}));
    EXPECT_EQ(environment.at("MASTER_ADDR"), "10.0.0.1");
    EXPECT_EQ(environment.at("NCCL_DEBUG"), "INFO");
    EXPECT_EQ(environment.at("OMP_NUM_THREADS"), "6");
    spec.recorded_environment.erase("OMP_NUM_THREADS");
    EXPECT_EQ(rank_environment(spec, place, base_environment(spec, {})).at("OMP_NUM_THREADS"), "1");
}

// A job with a setup computed with the one thread that lockstepd had been given for itself.
TEST(SpecEnvironment, TheThreadsOfTheDaemonAreNotThoseOfAJobWithASetup) {
    JobSpec spec;
    spec.command = {"python"};
    spec.resources.cpus_per_rank = 6;
    spec.setup = "module load cuda/12";
    const Variables daemons{{"PATH", "/bin"}, {"OMP_NUM_THREADS", "1"}};
    auto base = base_environment(spec, daemons);
    EXPECT_THAT(base, UnorderedElementsAre(Pair("PATH", "/bin")));
    EXPECT_EQ(rank_environment(spec, RankPlace{}, base).at("OMP_NUM_THREADS"), "6");
    base["OMP_NUM_THREADS"] = "2";
    EXPECT_EQ(rank_environment(spec, RankPlace{}, base).at("OMP_NUM_THREADS"), "2")
        << "what the setup exports counts";
}

TEST(SpecEnvironment, DollarsAreRefusedWhereNobodyWouldExpandThem) {
    Json document = parse_json(R"({"environment":{"A":"/x:$PATH","B":"${HOME}/y","C":"cost $5",
        "D":"$$HOME","E":"100%$"},"sweep":{"parameters":{"environment.F":["a","$USER"]}}})")
                        .value();
    std::vector<FieldError> errors;
    read_dollars(document, errors);
    ASSERT_EQ(errors.size(), 3U);
    EXPECT_EQ(errors[0].pointer, "/environment/A");
    EXPECT_THAT(errors[0].message, HasSubstr("$PATH would not be expanded"));
    EXPECT_EQ(errors[1].pointer, "/environment/B");
    EXPECT_EQ(errors[2].pointer, "/sweep/parameters/environment.F/1");
    EXPECT_EQ(document["environment"]["C"], "cost $5");
    EXPECT_EQ(document["environment"]["D"], "$HOME");
    EXPECT_EQ(document["environment"]["E"], "100%$");
    EXPECT_EQ(dollars_doubled("a$b$$"), "a$$b$$$$");
}

// An administrator who submitted again what GET /spec had answered ran it with the mask.
TEST(SpecEnvironment, WhatStandsForAHiddenValueIsNoValue) {
    JobSpec spec;
    spec.name = "theirs";
    spec.environment = {{"API_KEY", "abc"}, {"DEPTH", "3"}};
    spec.inherit_environment = true;
    spec.recorded_environment = {{"WANDB/x", "y"}};
    Json shown = to_json(spec);
    std::vector<FieldError> errors;
    refuse_masked(shown, errors);
    EXPECT_TRUE(errors.empty());
    mask_environment(shown);
    shown["environment"]["DEPTH"] = "**";
    refuse_masked(shown, errors);
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0].pointer, "/environment/API_KEY");
    EXPECT_THAT(errors[0].message, HasSubstr("give API_KEY its value, or leave it out"));
    EXPECT_EQ(errors[1].pointer, "/recorded_environment/WANDB~1x");
    for (int i = 0; i < 40; ++i) {
        shown["environment"]["V" + std::to_string(i)] = kMaskedValue;
    }
    errors.clear();
    refuse_masked(shown, errors);
    EXPECT_EQ(errors.size(), kMaskedNamed);
}

// It was followed by "/command: has no effect with framework native".
TEST(SpecEnvironment, AFrameworkThatIsNoneIsTheOnlyMistake) {
    const auto json =
        parse_json(R"({"name":"a","framework":"torch","command":["x"],"train":{"epochs":1}})");
    const auto spec = parse_spec(*json);
    ASSERT_FALSE(spec.has_value());
    ASSERT_EQ(spec.error().fields.size(), 1U) << spec.error().message;
    EXPECT_EQ(spec.error().fields[0].pointer, "/framework");
}

}  // namespace
}  // namespace lockstep
