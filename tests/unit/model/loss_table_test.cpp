// Losses that are printed in tables, through Capture as a rank's output is read: as Ultralytics
// 8.4, Stable-Baselines3 2 and fastai 2.8 printed them here, and OLMo, Composer and YOLOv5 by their
// sources.
#include "job/model/spec/capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<CapturedLoss> read(const std::vector<std::string>& lines) {
    Capture capture{"auto", ""};
    std::vector<CapturedLoss> out;
    for (const std::string& line : lines) {
        if (auto found = capture.line(line)) {
            out.push_back(std::move(*found));
        }
    }
    return out;
}

TEST(LossTable, YolosColumnsHaveTheirSumAndEachOfThem) {
    const auto found = read({
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
        "\x1b[K        1/2         0G       4.25       2.25        2.5          2         64: 25% "
        "\xe2\x94\x81\xe2\x94\x81\xe2\x94\x80\xe2\x94\x80 1/4 2.4it/s 0.1s<1.3s",
        "\x1b[K                 Class     Images  Instances      Box(P          R      mAP50  "
        "mAP50-95): 100% \xe2\x94\x81\xe2\x94\x81 2/2 38.7it/s 0.1s",
        "                   all          8          8          0          0          0          0",
        "      0/299      3.45G        0.5       0.25       0.25        123        640:  12%|"
        "\xe2\x96\x88\xe2\x96\x8f        | 12/100 [00:12<01:28,  1.0it/s]",
    });
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].preset, "table");
    EXPECT_EQ(found[0].loss, 9);
    EXPECT_EQ(found[0].epoch, 1);
    EXPECT_EQ(found[0].step, 1);
    EXPECT_TRUE(found[0].step_is_batch && found[0].bar);
    EXPECT_THAT(found[0].parts,
                ElementsAre(Pair("box_loss", 4.25), Pair("cls_loss", 2.25), Pair("dfl_loss", 2.5)));
    EXPECT_EQ(found[1].loss, 1) << "YOLOv5's bar is tqdm's";
    EXPECT_EQ(found[1].step, 12);
    EXPECT_EQ(found[1].epoch, 0);
}

TEST(LossTable, OfMoreColumnsThanAreKeptTheLossIsTheSumOfAll) {
    std::string header = "Epoch GPU_mem";
    std::string row = "1/2 0G";
    for (char name = 'a'; name <= 'j'; ++name) {
        header += std::string{" "} + name + "_loss";
        row += " 0.5";
    }
    const auto found = read({header + " Size", row + " 64: 25% 1/4 2.4it/s"});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].loss, 5);
    EXPECT_EQ(found[0].parts.size(), 8U);
}

// Ultralytics' yolo classify, by its source: no loss was found.
TEST(LossTable, AClassifiersColumnIsItsLoss) {
    const auto found = read({
        "      Epoch    GPU_mem       loss  Instances       Size",
        "        1/3      1.18G       1.25         16        224: 100%|#| 4/4 [00:05<00:00, "
        "3.0it/s]",
        "               classes   top1_acc   top5_acc: 100%|#| 2/2 [00:00<00:00, 5.0it/s]",
        "                   all        0.5        0.9",
    });
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].loss, 1.25);
    EXPECT_EQ(found[0].epoch, 1);
    EXPECT_EQ(found[0].step, 4);
    EXPECT_TRUE(found[0].step_is_batch);
}

// GradientBoostingClassifier(verbose=1) of scikit-learn 1.9, and with subsample.
TEST(LossTable, ScikitLearnsRowsAreIterations) {
    for (const bool improve : {false, true}) {
        const auto found = read({
            improve ? "      Iter       Train Loss      OOB Improve   Remaining Time "
                    : "      Iter       Train Loss   Remaining Time ",
            improve ? "         1           1.2478           0.1242            0.17s"
                    : "         1           1.2478            0.17s",
            improve ? "        20           0.5                 0.1            1.25m"
                    : "        20           0.5            1.25m",
            "         3           1.0392",
            "         4           1.0392            0.5",
        });
        ASSERT_EQ(found.size(), 2U) << improve;
        EXPECT_EQ(found[0].loss, 1.2478);
        EXPECT_EQ(found[0].step, 1);
        EXPECT_FALSE(found[0].epoch || found[0].step_is_batch);
        EXPECT_EQ(found[1].loss, 0.5);
        EXPECT_EQ(found[1].step, 20);
    }
}

TEST(LossTable, FastaisRowsAreEpochs) {
    const auto found = read({
        "epoch     train_loss  valid_loss  mae       time    ",
        "0         2.75        2.630165    1.550671  00:00     ",
        "1         2.5         2.435331    1.506564  00:00     ",
        "2 images were skipped",
        "2 2 2",
    });
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].loss, 2.75);
    EXPECT_EQ(found[1].loss, 2.5);
    EXPECT_EQ(found[1].epoch, 1);
    EXPECT_EQ(found[1].step, std::nullopt);
    EXPECT_THAT(found[1].parts, IsEmpty());
}

TEST(LossTable, NumbersWithoutNamesOfColumnsAreNoLosses) {
    EXPECT_THAT(read({"0         2.75        2.630165    1.550671  00:00"}), IsEmpty());
    EXPECT_THAT(read({"epoch valid_loss val_loss time", "0 2.75 2.5 00:00"}), IsEmpty())
        << "of a validation alone";
    EXPECT_THAT(read({"epoch 1: the loss is printed below", "0 2.75 2.5 1.5 00:00 1 2 3"}),
                IsEmpty());
    EXPECT_THAT(read({"Epoch finished with loss", "5 images 12 3.0"}), IsEmpty()) << "prose";
    EXPECT_THAT(read({"epoch train_loss valid_loss time", "0  0.5  0.6  0.7"}), IsEmpty())
        << "a row of another table, without a time";
}

TEST(LossTable, ABoxIsOneLossWithItsStep) {
    const std::vector<std::string> box{
        "-----------------------------------------", "| rollout/                |             |",
        "|    ep_len_mean          | 33.9        |", "| time/                   |             |",
        "|    iterations           | 3           |", "|    total_timesteps      | 6144        |",
        "| train/                  |             |", "|    approx_kl            | 0.008247582 |",
        "|    entropy_loss         | -0.5        |", "|    loss                 | 18          |",
        "|    policy_gradient_loss | -0.25       |", "|    value_loss           | 36.5        |",
        "-----------------------------------------",
    };
    auto twice = box;
    twice.insert(twice.end(), box.begin(), box.end());
    const auto found = read(twice);
    ASSERT_EQ(found.size(), 2U) << "its last line is not the next one's first";
    EXPECT_EQ(found[1].preset, "table");
    EXPECT_EQ(found[1].loss, 18);
    EXPECT_EQ(found[1].step, 6144);
    EXPECT_FALSE(found[1].step_is_batch);
    EXPECT_THAT(found[1].parts,
                ElementsAre(Pair("entropy_loss", -0.5), Pair("policy_gradient_loss", -0.25),
                            Pair("value_loss", 36.5)));
}

TEST(LossTable, ABoxOfAPolicyAndItsCriticHasThePolicysLoss) {
    const auto found =
        read({"--------------------", "| actor_loss | -1.5 |", "| critic_loss | 2 |",
              "| val/loss | 9 |", "| step | 7 |", "| epoch | 2 |", "--------------------"});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].loss, -1.5);
    EXPECT_EQ(found[0].step, 7);
    EXPECT_EQ(found[0].epoch, 2);
}

// Stable-Baselines3 sorts its groups: an evaluation's comes before the training's.
TEST(LossTable, TheLossOfABoxIsItsTrainingGroups) {
    const auto found = read({"--------------------", "| eval/ |  |", "|    loss | 9 |",
                             "|    total_timesteps | 3 |", "| train/ |  |", "|    loss | 1.5 |",
                             "|    total_timesteps | 7 |", "--------------------"});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].loss, 1.5);
    EXPECT_EQ(found[0].step, 7);
}

TEST(LossTable, ALogWithBarsBelowARuleIsNoBox) {
    const auto found =
        read({"--------------------", "| epoch 1 | loss 0.5 |", "| epoch 2 | loss 0.25 |"});
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[1].epoch, 2);
}

TEST(LossTable, RulesBetweenOtherLinesAreNoBoxes) {
    const auto found =
        read({"--------------------", "a summary", "| loss | 1 |", "--------------------", "loss 5",
              "--------------------", "| name | value |", "--------------------",
              "--------------------", "| loss | 2 |", "it goes on", "--------------------"});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].loss, 5);
}

TEST(LossTable, TheFirstLossOfABlockHasItsStep) {
    const auto found = read({
        "2026-11-30 05:00:00.000\thost:0\tolmo.train:1241\tINFO\t[step=10/1000,epoch=0]",
        "    optim/total_grad_norm=1.2",
        "    train/CrossEntropyLoss=10.25",
        "    train/Perplexity=27,723",
        "[batch=20/1000]:",
        "\t Train time/epoch: 0",
        "\t Train loss/train/total: 7.125",
        "loss 5",
        "[eval_step=3/10]",
        "loss 6",
        "[step=30/1000]",
        "step 7 loss 4",
    });
    ASSERT_EQ(found.size(), 5U);
    EXPECT_EQ(found[0].loss, 10.25);
    EXPECT_EQ(found[0].step, 10);
    EXPECT_EQ(found[0].epoch, 0);
    EXPECT_EQ(found[1].step, 20);
    EXPECT_FALSE(found[1].step_is_batch);
    EXPECT_EQ(found[2].step, std::nullopt) << "the second one beneath it";
    EXPECT_EQ(found[3].step, std::nullopt) << "of an evaluation";
    EXPECT_EQ(found[4].step, 7) << "one of its own";
}

TEST(LossTable, ABlockEndsSomewhere) {
    std::vector<std::string> lines{"[step=10/1000]"};
    lines.insert(lines.end(), 100, "    a line");
    lines.emplace_back("loss 5");
    const auto found = read(lines);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].step, std::nullopt);
}

TEST(LossTable, OnlyAutoReadsTables) {
    const std::string header = "epoch train_loss valid_loss time";
    const std::string row = "0 2.75 2.5 00:00";
    for (const auto preset : capture_presets()) {
        Capture capture{preset, ""};
        capture.line(header);
        EXPECT_EQ(capture.line(row).has_value(), preset == "auto") << preset;
    }
    Capture own{"auto", R"(L=(?P<loss>\S+))"};
    own.line(header);
    EXPECT_FALSE(own.line(row)) << "a pattern of the user's replaces all of it";
}

}  // namespace
}  // namespace lockstep
