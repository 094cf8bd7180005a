// size: one reader, whose tests share what they feed and how they look at it
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

TEST(OutputReader, ALineThatSaysAnotherWorldIsAWarningOnce) {
    const std::string line = "start data reader (trainers_num: 3, trainer_id: 0)\n";
    OutputReader wrong{Capture{"auto", ""}, 4};
    wrong.feed(line + line, 1);
    EXPECT_TRUE(wrong.take_warning().has_value());
    wrong.feed(line, 2);
    EXPECT_FALSE(wrong.take_warning().has_value());
    OutputReader right{Capture{"auto", ""}, 3};
    right.feed(line, 1);
    EXPECT_FALSE(right.take_warning().has_value());
    OutputReader servers{Capture{"auto", ""}, 4, false};
    servers.feed(line, 1);
    EXPECT_FALSE(servers.take_warning().has_value());
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

TEST(OutputReader, BatchesOfACountAreStepsOfTheWholeRun) {
    auto in = reader();  // PyTorch's ImageNet example prints each tenth
    EXPECT_THAT(steps(in.feed("Epoch: [0][  0/391]\tLoss 3\nEpoch: [0][ 10/391]\tLoss 2\n"
                              "Epoch: [1][  0/391]\tLoss 2\nEpoch: [1][ 10/391]\tLoss 1\n",
                              1)),
                ElementsAre(0, 10, 391, 401));
    auto resumed = reader();
    EXPECT_THAT(steps(resumed.feed("Epoch: [5][ 10/391]\tLoss 1\n", 1)), ElementsAre(1965))
        << "its epochs count from 0";
    auto keras = reader();  // the epoch stands in a line of its own
    EXPECT_THAT(steps(keras.feed("Epoch 1/2\n937/938 [=>] - 2s - loss: 0.5\r938/938 [==] - 2s - "
                                 "loss: 0.5\r938/938 [==] - 2s - loss: 0.4 - val_loss: 1\nEpoch "
                                 "2/2\n400/938 [=>] - 1s - loss: 0.4\n",
                                 1)),
                ElementsAre(937, 938, 1338));
    auto verbose_2 = reader();
    EXPECT_THAT(steps(verbose_2.feed("Epoch 1/3\n938/938 - 2s - loss: 0.5\nEpoch 2/3\n938/938 - "
                                     "2s - loss: 0.4\nEpoch 3/3\n938/938 - 2s - loss: 0.25\n",
                                     1)),
                ElementsAre(938, 1876, 2814))
        << "the second and third were taken for the first, drawn again";
    auto from_one = reader();  // OpenMMLab's; this one goes on from its third epoch
    EXPECT_THAT(steps(from_one.feed("Epoch(train)  [3][ 50/1000]  loss: 3\n"
                                    "Epoch(train)  [3][100/1000]  loss: 3\n"
                                    "Epoch(train)  [5][ 50/1000]  loss: 3\n",
                                    1)),
                ElementsAre(50, 100, 2050));
    auto bars = reader();  // an epoch's last draw, and the first of the next
    EXPECT_THAT(steps(bars.feed("\r100%|##| 10/10 [00:01<00:00, 9it/s, loss=3]"
                                "\r  0%|  | 0/10 [00:00<?, ?it/s, loss=3]"
                                "\r 10%|  | 1/10 [00:00<?, 9it/s, loss=2]\n",
                                1)),
                ElementsAre(10, 11));
}

TEST(OutputReader, BatchesAndOtherLossesOfOneOutputDoNotAddUp) {
    auto bar = reader();  // and the script's own print of each step
    EXPECT_THAT(steps(bar.feed("\r| 10/100 [00:01<00:09, 9it/s, loss=3]\nstep 10 loss 3.5\n"
                               "\r| 11/100 [00:01<00:09, 9it/s, loss=2]\nstep 11 loss 2.5\n"
                               "\r| 12/100 [00:01<00:09, 9it/s, loss=1]\nstep 12 loss 1.5\n",
                               1)),
                ElementsAre(10, 10, 11, 11, 12, 12));
    auto unnumbered = reader();
    EXPECT_THAT(steps(unnumbered.feed("Epoch(train)  [1][10/100]  loss: 3\nloss: 2.5\n"
                                      "Epoch(train)  [1][11/100]  loss: 2\nloss: 1.5\n"
                                      "Epoch(train)  [1][20/100]  loss: 1\n",
                                      1)),
                ElementsAre(10, 11, 12, 13, 20));
}

TEST(OutputReader, BatchesThatGoBackALittleAreNoNewEpoch) {
    auto two = reader();  // processes that a script has spawned
    EXPECT_THAT(steps(two.feed("\r| 10/100 [00:01<00:09, 9it/s, loss=3]\r| 9/100 [00:01<00:09, "
                               "9it/s, loss=4]\r| 11/100 [00:01<00:09, 9it/s, loss=2]\r| 10/100 "
                               "[00:01<00:09, 9it/s, loss=1]\n",
                               1)),
                ElementsAre(10, 11, 12, 13));
    auto nested = reader();  // a bar of the epochs below that of the batches
    EXPECT_THAT(steps(nested.feed("\r| 30/100 [00:01<00:09, 9it/s, loss=3]\r| 1/10 [00:01<00:09, "
                                  "9it/s, loss=4]\r| 31/100 [00:01<00:09, 9it/s, loss=2]\n",
                                  1)),
                ElementsAre(30, 31, 32));
    auto mixed = reader();
    EXPECT_THAT(steps(mixed.feed("Epoch: [0][10/391] Loss 3\nEpoch: [0][20/391] Loss 3\n"
                                 "Epoch: [0][10/391] Loss 2\nEpoch: [0][30/391] Loss 2\n"
                                 "Epoch: [0][10/50] Loss 9\nEpoch: [1][0/391] Loss 1\n",
                                 1)),
                ElementsAre(10, 20, 21, 30, 31, 391));
}

TEST(OutputReader, ABarOfTheWholeRunMayNameItsEpoch) {
    auto in = reader();
    EXPECT_THAT(steps(in.feed("\r| 100/1000 [00:01<00:09, 9it/s, epoch=0, loss=3]\r| 101/1000 "
                              "[00:01<00:09, 9it/s, epoch=1, loss=2]\n",
                              1)),
                ElementsAre(100, 101));
    auto trainer = reader();
    EXPECT_THAT(
        steps(trainer.feed("\r 30%|#  | 9/30 [00:01<00:09, 1it/s]{'loss': 3, 'epoch': 0.9}\n"
                           "\r 40%|## | 12/30 [00:01<00:9, 1it/s]{'loss': 2, 'epoch': 1.2}\n",
                           1)),
        ElementsAre(1, 2));
}

// DeepSpeed-Chat's and many others: the steps of the second epoch were those of the first again.
TEST(OutputReader, AnEpochsMeanBetweenDoesNotHideThatStepsBeginAgain) {
    OutputReader in = reader();
    EXPECT_THAT(steps(in.feed("Epoch: 0, Step: 8, Rank: 0, loss = 2.5\n"
                              "Epoch: 0, Step: 9, Rank: 0, loss = 2.25\n"
                              "Epoch 1/3 with loss 2.375\n"
                              "Epoch: 1, Step: 0, Rank: 0, loss = 2.0\n"
                              "Epoch: 1, Step: 1, Rank: 0, loss = 1.5\n",
                              1)),
                ElementsAre(8, 9, 10, 11, 12));
    OutputReader counted = reader();
    EXPECT_THAT(steps(counted.feed("step 99/100 | loss: 0.5\nstep 100/100 | loss: 0.4\n"
                                   "average loss: 0.45\nstep 1/100 | loss: 0.3\n",
                                   1)),
                ElementsAre(99, 100, 101, 102));
}

TEST(OutputReader, StepsOfACountBeginAgainOnceTheyWereThere) {
    auto in = reader();
    EXPECT_THAT(steps(in.feed("Epoch 1\nstep 100/938 | loss: 0.5\nstep 938/938 | loss: 0.4\n"
                              "Epoch 2\nstep 100/938 | loss: 0.3\nstep 50/938 | loss: 0.25\n",
                              1)),
                ElementsAre(100, 938, 1038, 988))
        << "and one that goes back does";
}

TEST(OutputReader, BatchesMayBeAnyNumber) {
    auto in = reader();
    EXPECT_THAT(
        steps(in.feed("Epoch(train)  [1][9223372036854775806/9223372036854775807]  loss: 3\n"
                      "Epoch(train)  [9223372036854775807][1/9223372036854775807]  loss: 3\n"
                      "Epoch: [9223372036854775807][2/9223372036854775807] Loss 3\n",
                      1)),
        SizeIs(3));
}

TEST(OutputReader, ATableIsReadAsItIsPrinted) {
    auto in = reader();  // Ultralytics' bar moves on before the losses of its batch are known
    std::vector<RankReport> reports;
    for (const char* piece :
         {"\n      Epoch    GPU_mem   box_loss   cls_loss   Instances       Size\n",
          "\r\x1b[K        1/2         0G      4.5       1.5          2         64: 50% ━─ 1/2 "
          "9it/s ",
          "\r\x1b[K        1/2         0G      4.5       1.5          2         64: 100% ━━ 2/2 "
          "9it/s ",
          "\r\x1b[K        1/2         0G      3.5       1.5          2         64: 100% ━━ 2/2 "
          "9it/s \n",
          "\r\x1b[K        2/2         0G      2.5       1.5          2         64: 50% ━─ 1/2 "
          "9it/s \n"}) {
        for (const auto& report : in.feed(piece, 1)) {
            reports.push_back(report);
        }
    }
    ASSERT_THAT(steps(reports), ElementsAre(1, 2, 3));
    EXPECT_EQ(metrics(reports[1])["loss"], 5);
    EXPECT_EQ(metrics(reports[1])["box_loss"], 3.5);
    EXPECT_EQ(metrics(reports[2])["epoch"], 2);
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
    EXPECT_THAT(steps(reports), ElementsAre(50, 100, 101)) << "each was the 11th batch of 29";
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
    EXPECT_THAT(steps(reports), ElementsAre(12, 13));
}

// As Trainer of transformers 5.23 prints with logging_steps=5, read in one piece and byte by byte.
TEST(OutputReader, TheStepOfHuggingFacesTrainerIsItsBars) {
    const std::string printed =
        "\r  0%|          | 0/25 [00:00<?, ?it/s][transformers] `loss_type=None` was set\n"
        "\r  4%|4         | 1/25 [00:00<00:07,  3.08it/s]\r 16%|#6        | 4/25 [00:01<00:04, "
        "4.45it/s]\n"
        "\rWriting model shards:   0%|          | 0/1 [00:00<?, ?it/s]\x1b[A"
        "\rWriting model shards: 100%|##########| 1/1 [00:00<00:00, 103.76it/s]\n"
        "\r                                              \r{'loss': '3.5', 'grad_norm': '1.473', "
        "'learning_rate': '0.0084', 'epoch': '0.1562'}\n"
        "\r 20%|##        | 5/25 [00:01<00:06,  2.93it/s]\r 24%|##4       | 6/25 [00:02<00:08, "
        "2.11it/s]\r                                              \r{'loss': '2.5', 'epoch': "
        "'0.3125'}\n"
        "\r 40%|####      | 10/25 [00:05<00:11,  1.27it/s]\r 60%|######    | 15/25 [00:08<00:05, "
        "1.88it/s]\r                                              \r{'loss': '1.5', 'epoch': "
        "'0.4688'}\n";
    auto in = reader();
    auto whole = in.feed(printed, 1);
    EXPECT_THAT(steps(whole), ElementsAre(5, 10)) << "the bar is drawn anew behind the third";
    const auto last = in.end(2);
    EXPECT_THAT(steps(last), ElementsAre(15)) << "else it is what it showed before";
    EXPECT_EQ(metrics(last[0])["loss"], 1.5);
    auto slow = reader();
    std::vector<std::int64_t> seen;
    for (const char byte : printed) {
        for (const auto step : steps(slow.feed({&byte, 1}, 1))) {
            seen.push_back(step);
        }
    }
    EXPECT_THAT(seen, ElementsAre(5, 10)) << "a draw needs no newline";
}

TEST(OutputReader, ABarThatIsNotDrawnBehindAPrintIsNotItsTrainers) {
    auto in = reader();
    const auto reports = in.feed(
        "\r100%|####| 40/40 [00:01<00:00, 4it/s]\n{'loss': 3, 'epoch': 0.1}\n"
        "{'loss': 2, 'epoch': 0.2}\n{'loss': 1, 'epoch': 0.3}\n",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(40, 41, 42));
    auto loop = reader();  // print() leaves the bar's line as it is
    EXPECT_THAT(steps(loop.feed("\r 10%|#   | 1/10 [00:01<00:09, 1it/s]{'loss': 3}\n"
                                "\r 50%|##  | 5/10 [00:05<00:05, 1it/s]{'loss': 2}\n"
                                "\r 10%|#   | 1/10 [00:01<00:09, 1it/s]{'loss': 1}\n",
                                1)),
                ElementsAre(1, 2, 3));
    auto again = reader();  // a second train() in the same program
    EXPECT_THAT(steps(again.feed("\r 50%|##  | 5/10 [00:05<0\r{'loss': 3}\n\r 50%|##  | 5/10 [00:05"
                                 "\r 20%|#   | 2/10 [00:05<0\r{'loss': 2}\n\r 20%|#   | 2/10 [00:05"
                                 "\r",
                                 1)),
                ElementsAre(5, 7));
}

// Lightning's bar moves on with the loss of before and is drawn again with its own: of 8 batches 1
// to 7 were told, each as the next one's, and the last one's never.
TEST(OutputReader, ABarThatMovesOnBeforeItsLossIsKnownHasTheLossOfEachBatch) {
    const auto draw = [](int epoch, int batch, const char* loss) {
        return "\rEpoch " + std::to_string(epoch) + ":  50%|##   | " + std::to_string(batch) +
               "/4 [00:00<00:00, 113.56it/s, v_num=0, train_loss=" + loss + "]";
    };
    const std::string printed =
        "\rEpoch 0:   0%|     | 0/4 [00:00<?, ?it/s]"
        "\rEpoch 0:  25%|#    | 1/4 [00:00<00:00, 113.56it/s, v_num=0]" +
        draw(0, 1, "4.00") + draw(0, 2, "4.00") + draw(0, 2, "3.50") + draw(0, 3, "3.50") +
        draw(0, 3, "3.00") + draw(0, 4, "3.00") + draw(0, 4, "2.50") + draw(0, 4, "2.50") +
        draw(0, 0, "2.50") + draw(1, 0, "2.50") + draw(1, 2, "2.50") + draw(1, 2, "2.00") +
        draw(1, 4, "2.00");
    auto in = reader();
    auto reports = in.feed(printed, 1);
    EXPECT_THAT(steps(reports), ElementsAre(1, 2, 3, 4, 6)) << "its epochs count from 0";
    for (const auto& report : in.end(2)) {
        reports.push_back(report);  // the last draw, whose loss has not changed
    }
    ASSERT_THAT(steps(reports), ElementsAre(1, 2, 3, 4, 6, 8));
    const std::vector<double> losses{4, 3.5, 3, 2.5, 2, 2};
    for (std::size_t i = 0; i < losses.size(); ++i) {
        EXPECT_EQ(metrics(reports[i])["loss"], losses[i]) << i;
    }
}

TEST(OutputReader, ABarWhoseLossComesWithItsBatchIsAsItWas) {
    auto in = reader();  // for batch in bar: … bar.set_postfix(loss=loss)
    auto reports = in.feed(
        "\r  0%|    | 0/3 [00:00<?, ?it/s]\r  0%|    | 0/3 [00:00<?, ?it/s, loss=5]"
        "\r 33%|#   | 1/3 [00:00<00:00, 6it/s, loss=5]\r 33%|#   | 1/3 [00:00<00:00, 6it/s, loss=4]"
        "\r 67%|##  | 2/3 [00:00<00:00, 6it/s, loss=4]\r 67%|##  | 2/3 [00:00<00:00, 6it/s, loss=3]"
        "\r100%|####| 3/3 [00:00<00:00, 6it/s, loss=3]",
        1);
    EXPECT_THAT(steps(reports), ElementsAre(1, 2));
    for (const auto& report : in.end(1)) {
        reports.push_back(report);
    }
    ASSERT_THAT(steps(reports), ElementsAre(1, 2, 3));
    EXPECT_EQ(metrics(reports[2])["loss"], 3) << "the last draw lacks its newline";
}

// torchtune's bar moves on with the words of before, then they change: each step was told twice,
// and without its time where both draws were read at once.
TEST(OutputReader, ABarThatNamesTheStepOfItsLossIsOneReportOfEachStep) {
    const auto draw = [](int step, int done, const char* loss) {
        return "\r1|" + std::to_string(step) + "|Loss: " + loss + ":   2%|2   | " +
               std::to_string(done) + "/1000 [00:10<06:30,  2.50it/s]";
    };
    for (const bool at_once : {true, false}) {
        auto in = reader();
        std::vector<RankReport> reports;
        const auto feed = [&](const std::string& printed, double now) {
            for (const auto& report : in.feed(printed, now)) {
                reports.push_back(report);
            }
        };
        feed("\r  0%|    | 1/1000 [00:00<?, ?it/s]" + draw(24, 1, "nan") + "\r", 10);
        for (int step = 25; step < 28; ++step) {
            const double now = 10 + 0.5 * (step - 24);
            const std::string moved = draw(step - 1, step - 23, step == 25 ? "nan" : "1.25");
            const std::string named = draw(step, step - 23, "1.25") + "\r";
            if (at_once) {
                feed(moved + named, now);
            } else {
                feed(moved + "\r", now);
                feed(named, now);
            }
        }
        ASSERT_THAT(steps(reports), ElementsAre(24, 25, 26, 27)) << at_once;
        for (std::size_t i = 1; i < reports.size(); ++i) {
            EXPECT_EQ(metrics(reports[i])["loss"], 1.25) << i;
            EXPECT_EQ(metrics(reports[i])["step_seconds"], 0.5) << i << at_once;
        }
        feed(draw(27, 1000, "1.25") + "\n", 13);
        feed("\r2|28|Loss: 1.25:   0%|    | 1/1000 [00:00<?, ?it/s]\n", 14);
        EXPECT_EQ(steps(reports).back(), 28) << "closed, and the next epoch's";
        EXPECT_THAT(reports, SizeIs(5));
    }
}

TEST(OutputReader, TheLossesOfAGanAreMetricsOfTheirOwn) {
    auto in = reader();
    const auto reports = in.feed("[0/5][0/1583]\tLoss_D: 1.5\tLoss_G: 6.25\tD(x): 0.4\n", 1);
    ASSERT_THAT(reports, SizeIs(1));
    EXPECT_EQ(metrics(reports[0])["loss"], 1.5);
    EXPECT_EQ(metrics(reports[0])["loss_d"], 1.5);
    EXPECT_EQ(metrics(reports[0])["loss_g"], 6.25);
}

TEST(OutputReader, SamplesThatWereSeenAreNoBatches) {
    auto in = reader();
    in.feed("Train: 1 [640/60000 (1%)]\tLoss: 2.3\n", 10);
    const auto next = in.feed("Train: 1 [1280/60000 (2%)]\tLoss: 2.2\n", 20);
    EXPECT_EQ(metrics(next[0]).count("step_seconds"), 0U) << "10 s / 640 was the time of a step";
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
