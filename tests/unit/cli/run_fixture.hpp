// `lockstep run` in a folder of its own, up to the specification.
#pragma once

#include "job/base/files.hpp"
#include "job/cli/run.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::cli {

using Words = std::vector<std::string>;

// A folder with programs and a script, as a caller has it.
class CliRun : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* name : {"python", "torchrun", "accelerate", "srun", "tool", "deepspeed",
                                 "colossalai", "composer", "ray"}) {
            ASSERT_TRUE(write_file_atomic(folder_ / name, "", 0755));
        }
        caller_.directory = folder_.path().string();
        caller_.environment = {{"PATH", folder_.path().string()}};
        script("train.py", "import os\nimport torch, numpy as np\n");
    }
    void script(const std::string& name, const std::string& text) const {
        ASSERT_TRUE(write_file_atomic(folder_ / name, text));
    }
    Json plan(const Words& command) {
        options_.command = command;
        auto plan = plan_run(options_, caller_);
        EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
        if (!plan) {
            return Json::object();
        }
        Json whole = plan->spec;
        if (whole.contains("inherit_environment")) {
            whole["recorded_environment"] = Json::object();
        }
        const auto parsed = has_sweep(whole) ? parse_sweep(whole).map([](const Sweep& sweep) {
            return sweep.points.front().spec;
        })
                                             : parse_spec(whole);
        EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().text());
        return plan->spec;
    }
    std::vector<std::string> warnings(const Words& command) {
        plan(command);
        const auto whole = plan_run(options_, caller_);
        return whole ? whole->warnings : std::vector<std::string>{};
    }
    std::string refused(const Words& command) {
        options_.command = command;
        const auto plan = plan_run(options_, caller_);
        EXPECT_FALSE(plan.has_value());
        return plan ? "" : plan.error().message;
    }
    std::string framework_of(const std::string& text) {
        script("x.py", text);
        return plan({"python", "x.py"})["framework"].get<std::string>();
    }

    test::TemporaryFolder folder_;
    Caller caller_;
    RunOptions options_;
};

}  // namespace lockstep::cli
