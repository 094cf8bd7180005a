#include "job/model/spec/capture.hpp"

#include "job/base/limits.hpp"
#include "job/model/spec/progress_bar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Line {
    const char* text;
    const char* preset;
    double loss;
    std::int64_t step = -1;  // -1: none
    std::int64_t epoch = -1;
    bool batch = false;
};

// What the frameworks print, from their sources and guides.
const Line kLines[] = {
    {"epoch: 0, batch: 10, loss is: [0.475]", "paddle", 0.475, 10, 0, true},
    {"epoch: 0, batch_id: 10, loss is: [0.475]", "paddle", 0.475, 10, 0, true},
    {"epoch: 4, batch: 200, loss is: 3.3544707", "paddle", 3.3544707, 200, 4, true},
    {"epoch: 0, batch: 10, loss is: [[1e-05]]", "paddle", 1e-5, 10, 0, true},
    {"[1,0]<stdout>:epoch: 0, batch: 1, loss is: [nan]", "paddle", kNan, 1, 0, true},
    {"Epoch 1/2, Loss: 0.5123", "keras", 0.5123, -1, 1},
    {"Epoch 2/2, Loss: inf", "keras", kInf, -1, 2},
    {"12/938 [>.............................] - ETA: 1s - loss: 0.53 - acc: 0.1", "keras", 0.53, 12,
     -1, true},
    {"938/938 [==============================] - 3s 3ms/step - loss: 0.2 - val_loss: 0.3", "keras",
     0.2, 938, -1, true},
    {"938/938 - 2s - loss: 0.25 - accuracy: 0.9", "keras", 0.25, 938, -1, true},
    {"\x1b[1m 12/938\x1b[0m \x1b[32m\xe2\x94\x81\x1b[0m\x1b[37m\xe2\x94\x81\xe2\x94\x81\x1b[0m "
     "\x1b[1m1s\x1b[0m 2ms/step - accuracy: 0.84 - loss: 0.53",
     "keras", 0.53, 12, -1, true},
    {"\b\b\b\b 13/938 [>....] - ETA: 1s - loss: 2.5e-01", "keras", 0.25, 13, -1, true},
    {"step 10/938 - loss: 0.4127 - acc: 0.8 - 12ms/step", "keras", 0.4127, 10, -1, true},
    {"step 10/938 [=>....] - loss: [0.4127] - 12ms/step", "keras", 0.4127, 10, -1, true},
    {"{'loss': 0.53, 'learning_rate': 4.9e-05, 'epoch': 0.1}", "huggingface", 0.53, -1, 0},
    {"{'loss': '2.125', 'grad_norm': '1.5', 'epoch': '3.0'}", "huggingface", 2.125, -1, 3},
    {"{\"loss\": 1.5, \"step\": 3}", "huggingface", 1.5, 3},
    {"{\"step\": 10, \"train_loss\": 2.5, \"lr\": 0.001}", "generic", 2.5, 10},
    {"Epoch 0:  12%|\xe2\x96\x88\xe2\x96\x8f   | 5/40 [00:01<00:08,  4.2it/s, v_num=0, "
     "train_loss=0.53]",
     "lightning", 0.53, 5, 0, true},
    {"Epoch 3: 100%|##########| 40/40 [00:01<00:00, 4.2it/s, loss=0.125, v_num=2]", "lightning",
     0.125, 40, 3, true},
    {"Epoch 1:  50%|#####     | 20/40 [00:01<00:08, 4.2it/s, v_num=0, train_loss_step=0.75, "
     "val_loss=9]",
     "lightning", 0.75, 20, 1, true},
    {"Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000", "pytorch", 2.3, -1, 1},
    {"Epoch: [2][ 10/391]\tTime  0.1 ( 0.2)\tLoss 6.9e+00 (7.0e+00)\tAcc@1 0.1", "pytorch", 6.9, 10,
     2, true},
    {"Train: 3 [  50/1251 (  4%)]  Loss: 6.930 (6.95)  Time: 0.200s,  512.10/s  LR: 1.000e-05",
     "pytorch", 6.93, 50, 3, true},
    {"Train: 1 [640/60000 (1%)]\tLoss: 2.300000", "pytorch", 2.3, -1, 1},
    {"[1,  2000] loss: 2.173", "pytorch", 2.173, 2000, 1, true},
    // torchtune, llama-recipes, diffusers' examples, by their sources
    {"1|25|Loss: 1.25:   2%|2         | 5/1000 [00:10<06:30,  2.50it/s]", "pytorch", 1.25, 25, 1},
    {"Training Epoch: 1/3, step 24/388 completed (loss: 1.25):   6%|6 | 25/388 [01:00<14:00]",
     "generic", 1.25, 24, 1},
    {"Steps:   1%|1         | 10/1000 [00:10<16:30,  1.00s/it, lr=1e-5, step_loss=0.125]",
     "generic", 0.125, 10, -1, true},
    {"11/29 10:00:00 - mmengine - INFO - Epoch(train)  [2][ 100/1000]  lr: 1.0e-02  eta: 0:10:00  "
     "time: 0.2  data_time: 0.01  memory: 1000  loss: 2.5  loss_cls: 1.25",
     "pytorch", 2.5, 100, 2, true},
    {"11/29 10:00:00 - mmengine - INFO - Iter(train) [  100/40000]  lr: 1.0e-02  loss: 2.5",
     "pytorch", 2.5, 100},
    {"2026-11-29 10:00:00,000 - mmdet - INFO - Epoch [1][50/7330]\tlr: 2.0e-02, loss_cls: 0.5, "
     "loss: 1.25",
     "pytorch", 1.25, 50, 1, true},
    {"| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.00 | loss  7.63 | ppl  2050.00",
     "generic", 7.63, 200, 1, true},
    {" 10%|#         | 10/100 [00:01<00:09,  9.8it/s, loss=2.25]", "generic", 2.25, 10, -1, true},
    {"Epoch 1/3:  10%|#         | 10/100 [00:01<00:09,  9.8it/s, loss=2.25]", "generic", 2.25, 10,
     1, true},
    {"epoch 001:    100 / 1000 loss=12.5, ppl=5051.2, wps=1000, num_updates=100, lr=1e-05",
     "generic", 12.5, 100, 1},
    {"loss: 2.5, learning_rate: 1e-05, global_step: 10, interval_runtime: 1.2, epoch: 1.5",
     "generic", 2.5, 10, 1},
    {"step 12 loss 0.5", "generic", 0.5, 12},
    {"step=12 loss=0.5", "generic", 0.5, 12},
    {"step: 12, loss: 0.5", "generic", 0.5, 12},
    {"[global_step 7] epoch 2 training loss: -0.5", "generic", -0.5, 7, 2},
    {"iter 10: loss 3.9876, time 200.11ms, mfu 1.0%", "generic", 3.9876, 10},
    {"step 250: train loss 1.5, val loss 1.75", "generic", 1.5, 250},
    {"loss=0.5 step=12", "generic", 0.5, 12},
    {"current loss: 0.25", "generic", 0.25},
    {"loss: 0.5", "generic", 0.5},
    {"LOSS: .5", "generic", 0.5},
    {"loss = NaN", "generic", kNan},
    {"batch 3 loss -inf", "generic", -kInf, 3, -1, true},
    {"INFO:root:rank 0 loss 1.", "generic", 1},
    {"total_loss: 4.5", "generic", 4.5},
    {"train/loss=0.125", "generic", 0.125},
    {"step 5 train/loss: 2.25", "generic", 2.25, 5},
    {"loss/train=0.5", "generic", 0.5},
    {"step 7 loss/train: 0.5 loss/val: 0.75", "generic", 0.5, 7},
    {"[0/5][12/1583]\tLoss_D: 1.4640\tLoss_G: 6.9356\tD(x): 0.4893\tD(G(z)): 0.4886 / 0.0076",
     "generic", 1.464, 12, 0, true},
    {"[Epoch 3/200] [Batch 4/938] [D loss: 0.5] [G loss: 0.75]", "generic", 0.5, 4, 3, true},
    // GPT-NeoX, Megatron-LM (with predictions of more tokens), NeMo, OLMo, Composer
    {" samples/sec: 12.3 | iteration       10/     100 | lm_loss: 1.0625E+01 | loss scale: 1.0 |",
     "generic", 10.625, 10},
    {" iteration       10/     100 | mtp_1 loss: 1.2E+01 | lm loss: 1.0625E+01 | loss scale: 1.0 |",
     "generic", 10.625, 10},
    {"Training epoch 0, iteration 10/100 | lr: 1e-05 | global_step: 10 | reduced_train_loss: 10.5",
     "generic", 10.5, 10, 0},
    {"    train/CrossEntropyLoss=10.25", "generic", 10.25},
    {"\t Train loss/train/total: 7.125", "generic", 7.125},
    {"aux loss: 0.25 | loss: 2.5", "generic", 2.5},
    {"aux loss: 0.25", "generic", 0.25},
    {"Minibatch loss 2.25, average loss 2.5", "generic", 2.25},
    {"step loss 2.25 avg loss 2.5", "generic", 2.25},
    {"INFO loss=0.5 lr=1e-4 [step=10/1000]", "generic", 0.5, 10},
    {"| epoch 1 | loss 0.5 |", "generic", 0.5, -1, 1},
    // llama2.c, nanochat, modded-nanogpt, minGPT
    {"10 | loss 7.125 | lr 5.0e-04 | 123.45ms | mfu 12.34%", "generic", 7.125, 10},
    {"step 00012/00100 (12.00%) | loss: 7.125 | dt: 123.45ms | epoch: 1 | total time: 1.2m",
     "generic", 7.125, 12, 1},
    {"step:12/1750 train_loss:4.125 train_time:1234ms step_avg:102.84ms", "generic", 4.125, 12},
    {"iter_dt 12.34ms; iter 100: train loss 2.125", "generic", 2.125, 100},
    {"\x1b[31mstep: 10  \x1b[32mloss:  7.125  \x1b[38;2;180;60;0mgrad_norm:  1.25", "generic",
     7.125, 10},
    {"I20261130 05:00:00 1 dinov2 helpers.py:102] Training  [   20/12500]  eta: 1 day, 1:02:03  "
     "total_loss: 13.25 (13.5)",
     "generic", 13.25, 20, -1, true},
    {"(epoch: 1, iters: 100, time: 0.5, data: 0.1) , G_GAN: 0.75 G_L1: 5.5 D_real: 0.5", "pytorch",
     0.75, -1, 1},
    // What holds a number, as print() shows it
    {"loss: tensor(0.75, device='cuda:0', grad_fn=<NllLossBackward0>)", "generic", 0.75},
    {"12: loss=tensor([2.5])", "generic", 2.5},
    {"step 3 loss=Array(0.5, dtype=float32)", "generic", 0.5, 3},
    {"{'loss': tensor(0.25), 'step': 10}", "huggingface", 0.25, 10},
    {"{'loss': np.float32(0.25)}", "huggingface", 0.25},
    {"loss: tf.Tensor(0.5, shape=(), dtype=float32)", "generic", 0.5},
    {"train_inner | {\"epoch\": 1, \"loss\": \"12.5\", \"num_updates\": \"100\"}", "huggingface",
     12.5, 100, 1},
    // Keras' guide to loops of one's own, and others that say the step in words
    {"Training loss (for one batch) at step 100: 0.5", "generic", 0.5, 100},
    {"Loss at step 10: 0.5", "generic", 0.5, 10},
    {"Loss at step 10/100: 0.5", "generic", 0.5, 10},
    {"Average loss for epoch 10 (train): 0.5", "generic", 0.5, -1, 10},
    {"Loss after 100 steps: 0.5", "generic", 0.5, 100},
    {"loss after epoch 3: 0.5", "generic", 0.5, -1, 3},
    {"Loss for batch 7 is 0.5", "generic", 0.5, 7, -1, true},
    {"ep 1 it 100 train_loss 0.5 val_loss 0.75", "generic", 0.5, 100},
    {"Epoch 2 | Val loss: 0.75, train loss: 0.5", "generic", 0.5, -1, 2},
};

TEST(Capture, ReadsWhatTheFrameworksPrint) {
    for (const Line& line : kLines) {
        Capture capture{"auto", ""};
        const auto found = capture.line(line.text);
        ASSERT_TRUE(found) << line.text;
        EXPECT_EQ(found->preset, line.preset) << line.text;
        if (std::isnan(line.loss)) {
            EXPECT_TRUE(std::isnan(found->loss)) << line.text;
        } else {
            EXPECT_EQ(found->loss, line.loss) << line.text;
        }
        EXPECT_EQ(found->step.value_or(-1), line.step) << line.text;
        EXPECT_EQ(found->epoch.value_or(-1), line.epoch) << line.text;
        EXPECT_EQ(found->step_is_batch, line.batch) << line.text;
    }
}

TEST(Capture, TheLossesOfAGanAreTwoAndTheFirstIsTheLoss) {
    using testing::ElementsAre;
    using testing::Pair;
    for (const char* line :
         {"[0/5][0/1583]\tLoss_D: 1.5\tLoss_G: 6.25\tD(x): 0.4893\tD(G(z)): 0.4886 / 0.0076",
          "[Epoch 0/200] [Batch 0/938] [D loss: 1.5] [G loss: 6.25]", "d_loss=1.5, g_loss=6.25",
          "{'loss_d': 1.5, 'loss_g': 6.25}", "Discriminator loss: 1.5, Generator loss: 6.25",
          "lossD 1.5 lossG 6.25 loss_D: 9"}) {
        const auto found = Capture{"auto", ""}.line(line);
        ASSERT_TRUE(found) << line;
        EXPECT_EQ(found->loss, 1.5) << line;
        EXPECT_THAT(found->parts, ElementsAre(Pair("loss_d", 1.5), Pair("loss_g", 6.25))) << line;
    }
    for (const char* line : {"val d_loss: 1.5", "loss_giou: 0.5", "loss_d4: 0.5", "Loss_D(x)"}) {
        EXPECT_FALSE((Capture{"auto", ""}.line(line))) << line;
    }
}

TEST(Capture, ABarWithoutALossHasItsCounts) {
    const auto bar =
        parse_progress_bar(" 20%|\xe2\x96\x88\xe2\x96\x88        | 5/25 [00:01<00:06,");
    ASSERT_TRUE(bar);
    EXPECT_EQ(bar->done, 5);
    EXPECT_EQ(bar->total, 25);
    for (const char* line :
         {"", "  ", "20%", "20%|", "20%|##| 5/25", "Map: 100%|##| 5/25 [00:01<00:06,",
          "1000%|##| 5/25 [00:01<00:06,", "5/25 [00:01<00:06,", "0it [00:00, ?it/s]",
          "20%|##| 5/99999999999999999999 [00:01"}) {
        EXPECT_FALSE(parse_progress_bar(line)) << line;
    }
}

TEST(Capture, NeitherADateNorARateIsAStep) {
    const char* lines[] = {
        "11/29 10:00:00 - root - INFO - train - loss: 0.5",
        "11/29 9:00:00 AM lr: 0.1 loss: 0.5",
        "ms/batch 12.00 | loss 0.5",
        "sec/step 12 loss 0.5",
        "time per step: 3, loss: 0.5",
        "step 0.25 s, loss: 0.5",
    };
    for (const char* line : lines) {
        Capture capture{"auto", ""};
        const auto found = capture.line(line);
        ASSERT_TRUE(found) << line;
        EXPECT_EQ(found->loss, 0.5) << line;
        EXPECT_FALSE(found->step) << line << " → " << *found->step;
    }
    Capture capture{"auto", ""};
    EXPECT_EQ(capture.line("12 ms/step, step 7, loss 0.5")->step, 7);
}

// tqdm(desc="Steps"), as diffusers' examples have it: all steps of one percent were one step, and
// the job's step was never more than 100.
TEST(Capture, HowMuchOfABarIsDoneIsNoCount) {
    for (const char* word : {"Steps", "Step", "Iteration", "Batch", "Epoch", "Training Epoch"}) {
        const auto found = Capture{"auto", ""}.line(
            std::string{word} + ":  12%|#  | 120/1000 [00:10<16:30,  1.00s/it, loss=0.5]");
        ASSERT_TRUE(found) << word;
        EXPECT_EQ(found->step, 120) << word;
        EXPECT_EQ(found->of, 1000) << word;
        EXPECT_TRUE(found->step_is_batch && found->bar) << word;
        EXPECT_FALSE(found->epoch) << word;
    }
    const auto end = Capture{"auto", ""}.line("epoch: 100%|#| 10/10 [00:10<00:00, loss=0.5]");
    ASSERT_TRUE(end);
    EXPECT_FALSE(end->epoch);
    EXPECT_EQ((Capture{"auto", ""}.line("loss 0.5 epoch 3")->epoch), 3);
}

// f"Step {step:,}": every step from 1,000 to 1,999 was step 1, and a job that went on was a hang.
TEST(Capture, CommasBetweenThousandsArePartOfTheNumber) {
    const Line lines[] = {
        {"Step 1,000 | loss 0.500", "generic", 0.5, 1000},
        {"step=12,345,678 loss=0.5", "generic", 0.5, 12345678},
        {"step: 1,990, loss: 0.5", "generic", 0.5, 1990},
        {"step 2,000 loss: 1,234.5", "generic", 1234.5, 2000},
        {"loss 12,345", "generic", 12345},
        {"batch 1,000 loss 0.5", "generic", 0.5, 1000, -1, true},
        {"1,000 | loss 0.5", "generic", 0.5, 1000},
        {"Loss at step 1,000/10,000: 0.5", "generic", 0.5, 1000},
        {"Loss after 1,000 steps: 1,000.5", "generic", 1000.5, 1000},
        {"{'loss': 1,234.5}", "huggingface", 1234.5},
        {"Train Epoch: 1 [640/60000 (1%)]\tLoss: -1,234.5", "pytorch", -1234.5, -1, 1},
        // Commas between numbers
        {"step 10, 200 tokens, loss 0.5", "generic", 0.5, 10},
        {"step 1,200,3 loss 0.5", "generic", 0.5, 1},
        {"step 1,2000 loss 0.5", "generic", 0.5, 1},
        {"step 1234,567 loss 0.5", "generic", 0.5, 1234},
        {"step 12,loss 0,123", "generic", 0, 12},
        {"loss 2, 100 tokens", "generic", 2},
        {"[1,200] loss: 0.5", "pytorch", 0.5, 200, 1, true},
        {"Epoch [3,128] loss 0.5", "generic", 0.5, -1, 3},
    };
    for (const Line& line : lines) {
        const auto found = Capture{"auto", ""}.line(line.text);
        ASSERT_TRUE(found) << line.text;
        EXPECT_EQ(found->preset, line.preset) << line.text;
        EXPECT_EQ(found->loss, line.loss) << line.text;
        EXPECT_EQ(found->step.value_or(-1), line.step) << line.text;
        EXPECT_EQ(found->epoch.value_or(-1), line.epoch) << line.text;
        EXPECT_EQ(found->step_is_batch, line.batch) << line.text;
    }
    EXPECT_EQ((Capture{"auto", ""}.line("step 1,000/10,000 loss 0.5")->of), 10000);
    EXPECT_FALSE((Capture{"auto", "L=(?P<loss>[0-9,.]+)"}.line("L=1,234")))
        << "the user's pattern may have found a list";
}

TEST(Capture, APresetReadsOnlyItsOwnForm) {
    for (const Line& line : kLines) {
        for (const auto preset : capture_presets()) {
            if (preset == "auto") {
                continue;
            }
            Capture capture{preset, ""};
            const auto found = capture.line(line.text);
            if (preset == line.preset) {
                EXPECT_TRUE(found) << preset << ": " << line.text;
            } else if (preset == "none") {
                EXPECT_FALSE(found) << preset << ": " << line.text;
            } else if (found) {
                EXPECT_EQ(found->preset, preset);
            }
        }
    }
}

TEST(Capture, LeavesOtherLinesAlone) {
    const char* lines[] = {
        "",
        "loss",
        "loss:",
        "loss function: CrossEntropyLoss",
        "lossless compression 5",
        "a glossary: 3",
        "val_loss: 0.5",
        "eval loss: 0.5",
        "Validation loss: 0.5",
        "Test set: Average loss: 0.0331, Accuracy: 9891/10000 (99%)",
        "{'eval_loss': 0.5, 'epoch': 1.0}",
        "{'train_runtime': 12.5, 'train_loss': 0.7, 'epoch': 3.0}",
        "ppcls INFO: [Train][Epoch 1/20][Avg]top1: 0.1, CELoss: 4.2, loss: 4.2",
        "val_step_loss=0.5",
        "loss: information follows",
        "loss: nanometres",
        "loss: not a number",
        "x_train shape: (60000, 28, 28, 1)",
        "epoch: 0, batch: 10, accuracy is: [0.475]",
        "Val loss at step 10: 0.5",
        "Saving best loss at step 1500",
        "New lowest loss in epoch 12!",
        "loss after 100 steps",
        "Validation loss after 3 epochs: 0.5",
        "epoch 1 - val_loss: 0.5 - val lm_loss: 0.25",
        "loss function: CrossEntropyLoss 5",
        "  1 | loss | CrossEntropyLoss | 0",
        "(epoch: 1, iters: 100, time: 0.5, data: 0.1)",
        "loss: 0x",
    };
    for (const char* line : lines) {
        Capture capture{"auto", ""};
        const auto found = capture.line(line);
        if (std::string_view{line} != "loss: 0x") {
            EXPECT_FALSE(found) << line << " → " << (found ? found->loss : 0);
        }
    }
}

TEST(Capture, HostileLinesNeitherHangNorBreakIt) {
    Capture capture{"auto", ""};
    std::string many(limits::kLineBytes, '9');
    EXPECT_FALSE(capture.line("epoch: " + many + ", loss"));
    std::string bytes;
    for (int i = 0; i < 256; ++i) {
        bytes += static_cast<char>(i);
    }
    EXPECT_FALSE(capture.line(bytes + "loss"));
    EXPECT_FALSE(capture.line(std::string(100'000, ' ') + "loss: 1")) << "beyond the cap";
    EXPECT_TRUE(capture.line("loss: 1" + std::string(100'000, ' ')));
    EXPECT_TRUE(capture.line("\xff\xfe loss: 1"));
    const auto huge = capture.line("step 99999999999999999999999 loss 1");
    ASSERT_TRUE(huge);
    EXPECT_FALSE(huge->step) << "a number that no step can be";
    std::string nested = "loss: ";
    nested.append(2000, '[');
    EXPECT_FALSE(capture.line(nested));
    EXPECT_FALSE(capture.line("\x1b["));
    EXPECT_TRUE(capture.line("\x1b[loss: 1\x1b[0m loss: 2"));
}

TEST(Capture, APatternOfTheUserReplacesThePresets) {
    Capture capture{"auto", R"(it (?P<step>\d+)/\d+ ep (?P<epoch>\d+) L=(?P<loss>[-\w.+]+))"};
    const auto found = capture.line("it 5/10 ep 2 L=1e-2");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->loss, 0.01);
    EXPECT_EQ(found->step, 5);
    EXPECT_EQ(found->epoch, 2);
    EXPECT_FALSE(found->step_is_batch);
    EXPECT_EQ(found->preset, "custom");
    EXPECT_FALSE(capture.line("loss: 0.5"));
    EXPECT_FALSE(capture.line("it 5/10 ep 2 L=word")) << "not a number";
    EXPECT_TRUE(std::isnan(capture.line("it 5/10 ep 2 L=nan")->loss));
}

TEST(Capture, ChecksAPattern) {
    EXPECT_TRUE(check_capture_pattern("(?P<loss>[0-9.]+)"));
    EXPECT_EQ(check_capture_pattern("loss").error().message,
              "lacks the named group loss: (?P<loss>…)");
    EXPECT_THAT(check_capture_pattern("(?P<loss>").error().message,
                HasSubstr("not a valid RE2 pattern: "));
    EXPECT_FALSE(check_capture_pattern(R"((?P<loss>\d)\1)")) << "no backreferences: linear time";
    EXPECT_FALSE(check_capture_pattern("(?P<loss>x{1000}{1000})"));
    EXPECT_EQ(check_capture_pattern(std::string(2000, 'a')).error().message,
              "longer than 1024 bytes");
}

}  // namespace
}  // namespace lockstep
