// Which of the printed losses are the training's.
#include "job/model/spec/capture.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep {
namespace {

// A job on gpu-dev-01, or whose script is in a folder "test", had no loss at all.
TEST(CaptureOfValidations, AHostAFileOrAnotherMetricThatIsCalledTestHidesNoLoss) {
    for (const char* line : {
             "[gpu-dev-01] step 10 loss 0.5",
             "dev3: step 10 loss 0.5",
             "2026-11-30 10:00:00.000 | INFO | my_test.train:main:42 - step 10 loss 0.5",
             "I1130 10:00:00.000000 7 eval_train.py:42] step 10 loss 0.5",
             "/home/me/test/train.py:10 step 10 loss 0.5",
             "/dev/shm/run: step 10 loss 0.5",
             "step 10 | val_acc 0.91 | loss 0.5",
             "step 10, val/acc: 0.91, loss: 0.5",
             "step 10 val-acc=0.91 loss=0.5",
             "[test_bench.py] Loss at step 10: 0.5",
             "[test_gan.py] step 10 d_loss=0.5 g_loss=0.75",
         }) {
        const auto found = Capture{"auto", ""}.line(line);
        ASSERT_TRUE(found) << line;
        EXPECT_EQ(found->loss, 0.5) << line;
        EXPECT_EQ(found->step, 10) << line;
    }
    for (const char* line : {
             "Test set: Average loss 0.5",
             "[valid] step 10 loss 0.5",
             "[val_step 10] loss 0.5",
             "valid_0: step 10 loss 0.5",
             "Test: loss 0.5",
             "Test-set: loss 0.5",
             "val: loss 0.5",
             "*** eval *** loss 0.5",
             "Validation. Loss: 0.5",
             "Validation: step 10, acc 0.9, loss 0.5",
             "Epoch 3 | val | loss 0.5",
             "step 10 Val loss 0.5",
             "step 10 val-loss 0.5",
             "step 10 val/loss: 0.5",
             "step 10 my_val/loss: 0.5",
             "step 10 metrics/eval/rank0/loss: 0.5",
             "step 10 loss/val: 0.5",
             "cross-validation loss: 0.5",
             "my_val d_loss: 0.5",
             "epoch 3 dev-clean loss: 0.5",
             "step 10 test-other loss: 0.5",
             "step 10 test1 loss: 0.5",
         }) {
        EXPECT_FALSE((Capture{"auto", ""}.line(line))) << line;
    }
}

// The curve of the training rose and fell with that of the validation.
TEST(CaptureOfValidations, AValidationsLossInAFrameworksFormIsNotTheTrainings) {
    for (const char* line : {
             "Test: {'accuracy': 0.97, 'loss': 0.08}",
             "{\"split\": \"val\", \"step\": 100, \"loss\": 1.75}",
             "{\"step\": 100, \"loss\": 1.75, \"mode\": \"eval\"}",
             "{\"step\": 100, \"train_loss\": 1.75, \"split\": \"test_set\"}",
             "[eval] {\"step\": 100, \"loss\": 1.75}",
             "Val Epoch 3: 100%|##| 40/40 [00:01<00:00, 30it/s, loss=0.25]",
             "Validation Epoch: [3][ 10/79] Time 0.1 Loss 0.5",
             "Epoch: [3][ 10/79] Time 0.1 Val Loss 0.5",
             "Val Epoch: 1 [640/10000 (6%)] Loss: 2.3",
             "Eval epoch: 1, batch: 10, loss is: 0.4",
             "79/79 - 0s - val loss: 0.4",
         }) {
        EXPECT_FALSE((Capture{"auto", ""}.line(line))) << line;
    }
    struct LineOfAForm {
        const char* text;
        const char* preset;
        double loss;
        std::int64_t step = -1;  // -1: not compared
    };
    const LineOfAForm training[] = {
        {"{\"split\": \"train\", \"step\": 100, \"loss\": 1.75}", "huggingface", 1.75, 100},
        {"{'val_accuracy': 0.9, 'loss': 0.5, 'epoch': 1.0}", "huggingface", 0.5},
        {"[gpu-dev-01] Epoch: [3][ 10/79] Time 0.1 Loss 0.5", "pytorch", 0.5, 10},
        {"INFO:test:Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.5", "pytorch", 0.5},
        {"Epoch: [3][ 10/79] val loss 0.75 train loss 0.5", "generic", 0.5},
        {"12/938 [=>...] - ETA: 1s - val_acc: 0.9 - loss: 0.5", "keras", 0.5, 12},
    };
    for (const LineOfAForm& line : training) {
        const auto found = Capture{"auto", ""}.line(line.text);
        ASSERT_TRUE(found) << line.text;
        EXPECT_EQ(found->loss, line.loss) << line.text;
        EXPECT_EQ(found->preset, line.preset) << line.text;
        if (line.step >= 0) {
            EXPECT_EQ(found->step, line.step) << line.text;
        }
    }
    EXPECT_EQ((Capture{"pytorch", ""}.line("Val Epoch: 1 [640/10000 (6%)] Loss: 2.5")->loss), 2.5)
        << "who names a form wants all that has it";
}

}  // namespace
}  // namespace lockstep
