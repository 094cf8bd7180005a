#include "job/agent/ranks/output_reader.hpp"

#include "job/base/limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

OutputReader reader(const std::string& pattern = "") {
    return OutputReader{Capture{"auto", pattern}};
}

std::map<std::string, double> metrics(const RankReport& report) {
    return {report.metrics.begin(), report.metrics.end()};
}

std::vector<std::int64_t> steps(const std::vector<RankReport>& reports) {
    std::vector<std::int64_t> out;
    for (const auto& report : reports) {
        out.push_back(report.step);
    }
    return out;
}

TEST(OutputReader, PrintedStepsAreTakenAsTheyAre) {
    auto in = reader();
    const auto reports = in.feed("step=10 loss=1\nstep=20 loss=2\n", 1);
    EXPECT_THAT(steps(reports), ElementsAre(10, 20));
    EXPECT_TRUE(reports[0].has_loss);
}

TEST(OutputReader, BatchesWithinEpochsAreCountedThrough) {
    auto in = reader();
    const auto reports = in.feed(
        "epoch: 0, batch: 0, loss is: [3]\nepoch: 0, batch: 200, loss is: [2]\n"
        "epoch: 1, batch: 0, loss is: [1]\n",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(1, 2, 3));
    EXPECT_EQ(metrics(reports[2])["epoch"], 1);
}

TEST(OutputReader, BatchesOfOneEpochHaveAStepTime) {
    auto in = reader();
    in.feed("Epoch: [0][ 10/391]\tLoss 1.0\n", 10);
    EXPECT_EQ(metrics(in.feed("Epoch: [0][ 20/391]\tLoss 1.0\n", 15)[0])["step_seconds"], 0.5);
    EXPECT_EQ(metrics(in.feed("Epoch: [1][ 10/391]\tLoss 1.0\n", 20)[0]).count("step_seconds"), 0U);
}

TEST(OutputReader, StepsThatBeginAgainInEachEpochRise) {
    auto in = reader();
    const auto reports = in.feed(
        "Epoch [1/5], Step [300/600], Loss: 3\nEpoch [1/5], Step [600/600], Loss: 2\n"
        "Epoch [2/5], Step [300/600], Loss: 1\nEpoch [2/5], Step [600/600], Loss: 1\n"
        "Epoch [3/5], Step [300/600], Loss: 1\n",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(300, 600, 900, 1200, 1500));
    auto first = reader();
    EXPECT_THAT(steps(first.feed("[RANK0] Epoch 1 | Iter 0 | Train Loss 4\n"
                                 "[RANK0] Epoch 2 | Iter 0 | Train Loss 3\n"
                                 "[RANK0] Epoch 3 | Iter 0 | Train Loss 2\n",
                                 1)),
                ElementsAre(0, 1, 2));
    auto global = reader();
    EXPECT_THAT(steps(global.feed("epoch 1 step 500 loss 4\nepoch 2 step 500 loss 3\n"
                                  "epoch 2 step 400 loss 3\n",
                                  1)),
                ElementsAre(500, 500, 400))
        << "a global step, and one that goes back";
}

TEST(OutputReader, StepsMayBeAnyNumber) {
    auto in = reader();
    EXPECT_THAT(steps(in.feed("epoch 1 step 9223372036854775807 loss 1\n"
                              "epoch 2 step 9223372036854775806 loss 1\nloss 1\n",
                              1)),
                ElementsAre(9223372036854775807, 9223372036854775806, 9223372036854775807));
}

TEST(OutputReader, ALogLineThatBeginsWithADateIsNoBarAtThatDay) {
    auto in = reader();
    const auto reports = in.feed(
        "11/29 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/1000]  lr: 0.1  loss: 3\n"
        "11/29 10:00:09 - mmengine - INFO - Epoch(train)  [1][100/1000]  lr: 0.1  loss: 2\n"
        "11/29 10:00:10 - root - INFO - lr: 0.1 loss: 2\n",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(1, 2, 3)) << "each of them was the 11th batch of 29";
}

TEST(OutputReader, LinesMayComeInPiecesAndEndWithCarriageReturns) {
    auto in = reader();
    EXPECT_THAT(in.feed("step=1 lo", 1), IsEmpty());
    EXPECT_THAT(steps(in.feed("ss=0.5\rstep=2 loss=0.25\r\n\r\n", 1)), ElementsAre(1, 2));
    EXPECT_THAT(in.feed("step=3 loss=0.125", 1), IsEmpty());
    EXPECT_THAT(steps(in.end(1)), ElementsAre(3));
}

TEST(OutputReader, ARedrawnProgressBarIsOneLoss) {
    auto in = reader();
    const auto reports = in.feed(
        "12/938 [=>...] - ETA: 1s - loss: 0.53\r"
        "12/938 [=>...] - ETA: 1s - loss: 0.53\r"
        "13/938 [=>...] - ETA: 1s - loss: 0.52\n",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(1, 2));
}

TEST(OutputReader, TimeBetweenFollowingStepsIsTheStepTime) {
    auto in = reader();
    EXPECT_EQ(metrics(in.feed("step=1 loss=1\n", 10)[0]).count("step_seconds"), 0U);
    EXPECT_EQ(metrics(in.feed("step=2 loss=1\n", 10.5)[0])["step_seconds"], 0.5);
    EXPECT_EQ(metrics(in.feed("step=6 loss=1\n", 12.5)[0])["step_seconds"], 0.5)
        << "of four steps one is printed";
    EXPECT_EQ(metrics(in.feed("step=4 loss=1\n", 13)[0]).count("step_seconds"), 0U)
        << "it went back";
    const auto burst = in.feed("step=5 loss=1\nstep=6 loss=1\n", 14);
    EXPECT_EQ(metrics(burst[0]).count("step_seconds"), 0U) << "two at once: unknown";
    EXPECT_EQ(metrics(burst[1]).count("step_seconds"), 0U);
}

TEST(OutputReader, OnlyTheBeginningOfALongLineIsLookedAt) {
    auto in = reader();
    const std::string noise(limits::kLineBytes, '#');
    for (int i = 0; i < 100; ++i) {
        EXPECT_THAT(in.feed(noise, 1), IsEmpty());
    }
    EXPECT_THAT(in.feed(" step=1 loss=1\n", 1), IsEmpty());
    EXPECT_THAT(in.feed("step=2 loss=1\n", 1), SizeIs(1));
}

TEST(OutputReader, AUsersPatternDecides) {
    auto in = reader(R"(\[(?P<step>\d+)\] cost (?P<loss>\S+))");
    const auto reports = in.feed("[7] cost 1e-3\nloss=5\n", 1);
    ASSERT_THAT(reports, SizeIs(1));
    EXPECT_EQ(reports[0].step, 7);
    EXPECT_EQ(metrics(reports[0])["loss"], 0.001);
}

}  // namespace
}  // namespace lockstep
