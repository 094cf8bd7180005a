// lockstep-train's answer to a profile, asked as an agent asks: by files and a signal.
#include "job/trainer/step_profile.hpp"

#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string text_of(const std::filesystem::path& path) {
    return read_file(path, 1U << 20U).value_or("");
}

class StepProfileTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "/step-profile-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        profile_ = StepProfile::offer(folder_ / "report.sock");
        ASSERT_NE(profile_, nullptr);
    }
    void TearDown() override {
        profile_.reset();
        stop_signal::reset();
        std::filesystem::remove_all(folder_);
    }

    std::filesystem::path path(const std::string& name) const {
        return folder_ / ("profile." + std::to_string(::getpid()) + "." + name);
    }
    void ask(const std::string& text) {
        std::ofstream{path("ask")} << text;
        stop_signal::ask_for_profile();
    }
    void ask(double seconds, double until) {
        ask(dump_json({{"id", "this"}, {"seconds", seconds}, {"until", until}}));
    }
    void step() {
        const at::Tensor x = at::ones({192, 192});
        {
            const ProfileSpan span{"forward"};
            at::mm(x, x);
        }
        StepResult result;
        result.step = ++steps_;
        result.forward_seconds = 1e-4;
        profile_->step_ended(result);
    }
    // Steps until the answer is there, or for as long as none would take.
    Json answer() {
        const double until = now_seconds() + 30.0;
        while (!std::filesystem::exists(path("done")) && now_seconds() < until) {
            step();
        }
        return parse_json(text_of(path("done"))).value_or(Json());
    }
    std::string unpacked() const {
        std::string out(4U << 20U, '\0');
        const gzFile file = ::gzopen(path("trace.json.gz").c_str(), "rb");
        const int size = file == nullptr ? 0 : ::gzread(file, out.data(), 4U << 20U);
        if (file != nullptr) {
            ::gzclose(file);
        }
        out.resize(static_cast<std::size_t>(std::max(size, 0)));
        return out;
    }

    std::filesystem::path folder_;
    std::unique_ptr<StepProfile> profile_;
    std::int64_t steps_ = 0;
};

TEST_F(StepProfileTest, RecordsWholeStepsWithTheirOperationsAndSpans) {
    step();
    ask(0.2, now_seconds() + 60);
    const Json done = answer();
    ASSERT_TRUE(done.is_object());
    EXPECT_EQ(done["id"], "this");
    EXPECT_EQ(done["files"], Json({"trace.json.gz", "operations.txt"}));
    EXPECT_THAT(done["missing"], IsEmpty());
    const auto steps = done["steps"].get<std::int64_t>();
    EXPECT_GE(steps, 2);
    const Json trace = Json::parse(unpacked(), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(trace.is_object());
    std::int64_t whole = 0;
    std::int64_t products = 0;
    double begun = 0.0;
    double ended = 0.0;
    for (const Json& event : trace["traceEvents"]) {
        if (event["cat"] == "step") {
            EXPECT_EQ(event["name"], "step " + std::to_string(3 + whole)) << "asked in the second";
            if (whole > 0) {
                EXPECT_NEAR(event["ts"].get<double>(), ended, 1.0) << "one after the other";
            }
            begun = whole == 0 ? event["ts"].get<double>() : begun;
            ended = event["ts"].get<double>() + event["dur"].get<double>();
            ++whole;
        } else if (event["name"] == "aten::mm") {
            ++products;
        }
    }
    EXPECT_EQ(whole, steps);
    EXPECT_EQ(products, steps);
    EXPECT_GE(ended - begun, 0.2e6);
    const std::string table = text_of(path("operations.txt"));
    EXPECT_THAT(table, HasSubstr(std::to_string(steps) + " steps"));
    EXPECT_THAT(table, HasSubstr("aten::mm"));
    EXPECT_THAT(table, HasSubstr("forward             0.100"));
}

TEST_F(StepProfileTest, OfNobodysQuestionNothingIsWritten) {
    for (int i = 0; i < 3; ++i) {
        step();
    }
    for (const char* text : {"", "{", "[]", R"({"id": 1, "seconds": 1, "until": 1e18})",
                             R"({"id": "x", "seconds": "1", "until": 1e18})", R"({"id": "x"})"}) {
        ask(text);
        step();
        step();
        EXPECT_FALSE(std::filesystem::exists(path("done"))) << text;
    }
    // Nobody waits any more for one that the step before the signal was handled in had overslept.
    ask(1.0, now_seconds() + 0.5);
    step();
    step();
    EXPECT_FALSE(std::filesystem::exists(path("done")));
}

TEST_F(StepProfileTest, AnotherQuestionIsAnsweredAfterTheFirst) {
    ask(0.1, now_seconds() + 60);
    ASSERT_TRUE(answer().is_object());
    std::filesystem::remove(path("done"));
    ask(0.1, now_seconds() + 60);
    EXPECT_EQ(answer()["files"], Json({"trace.json.gz", "operations.txt"}));
}

TEST_F(StepProfileTest, ATrainingThatEndsMeanwhileAnswersWithItsSteps) {
    ask(60.0, now_seconds() + 200);
    for (int i = 0; i < 4; ++i) {
        step();
    }
    const std::filesystem::path offered = folder_ / ("spans." + std::to_string(::getpid()));
    EXPECT_TRUE(std::filesystem::exists(offered));
    profile_.reset();
    EXPECT_FALSE(std::filesystem::exists(offered));
    const auto done = parse_json(text_of(path("done")));
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ((*done)["steps"], 3);
    EXPECT_THAT(unpacked(), HasSubstr("step 4"));
}

TEST_F(StepProfileTest, WithoutAStepItSaysSo) {
    ask(60.0, now_seconds() + 200);
    step();
    profile_.reset();
    EXPECT_THAT(text_of(path("done")), HasSubstr("the training ended before a step"));
    EXPECT_FALSE(std::filesystem::exists(path("trace.json.gz")));
}

TEST_F(StepProfileTest, AFileThatCannotBeWrittenIsMissingWithTheReason) {
    std::filesystem::create_directory(path("trace.json.gz"));
    std::filesystem::create_directory(path("trace.json.gz") / "full");
    ask(0.1, now_seconds() + 60);
    const Json done = answer();
    EXPECT_EQ(done["files"], Json({"operations.txt"}));
    EXPECT_EQ(done["missing"][0]["what"], "trace.json.gz");
    EXPECT_THAT(done["missing"][0]["why"].get<std::string>(), HasSubstr("could not be written"));
    EXPECT_FALSE(std::filesystem::exists(path("trace.json.gz.new")));
}

TEST_F(StepProfileTest, SpansOfOtherThreadsAreLeftOut) {
    ask(0.2, now_seconds() + 60);
    step();
    std::thread{[] {
        const ProfileSpan span{"elsewhere"};
        const at::Tensor x = at::ones({4, 4});
        at::addmm(x, x, x);
    }}.join();
    ASSERT_TRUE(answer().is_object());
    EXPECT_THAT(unpacked(), Not(HasSubstr("elsewhere")));
    EXPECT_THAT(unpacked(), Not(HasSubstr("aten::addmm")));
}

TEST(StepProfile, IsNotOfferedWhereItsFolderTakesNoFile) {
    EXPECT_EQ(StepProfile::offer("/proc/no/such/report.sock"), nullptr);
}

}  // namespace
}  // namespace lockstep
