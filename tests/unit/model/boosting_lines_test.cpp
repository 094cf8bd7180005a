// What is read of the lines of gradient boosting: as XGBoost 3.2, LightGBM 4.7, CatBoost 1.2 and
// scikit-learn 1.9 printed them here.
#include "job/model/spec/boosting_lines.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep {
namespace {

struct BoostingLine {
    const char* text;
    double loss;
    std::int64_t step;
};

// Jobs with these had no loss at all, and with it no steps and no hang that could be told.
TEST(BoostingLines, HaveTheTrainingsLossAndTheIteration) {
    const BoostingLine lines[] = {
        {"[10]\ttrain-logloss:0.48378\ttrain-error:0.03333\teval-logloss:0.52169", 0.48378, 10},
        {"[0]\teval-rmse:0.39703\ttrain-rmse:0.36612", 0.36612, 0},
        {"[1]\ttrain-auc:0.9\ttrain-logloss:0.5", 0.5, 1},
        {"[3]\ttrain-logloss:0.48+0.01\ttest-logloss:0.5+0.02", 0.48, 3},
        {"[12:00:00] [3]\ttrain-tweedie-nloglik@1.5:0.75", 0.75, 3},
        {"[2]\ttraining's binary_logloss: 0.576037\ttraining's auc: 0.95\tvalid_0's l2: 0.1",
         0.576037, 2},
        {"[2]\tvalid_0's l2: 0.24288\ttraining's l2: 0.2", 0.2, 2},
        {"[1000]\ttrain's rmse: 1e-05", 1e-5, 1000},
        {"3:\tlearn: 0.4325285\ttest: 0.4540415\tbest: 0.4540415 (3)\ttotal: 388ms\tremaining: 0us",
         0.4325285, 3},
        {"0:\tlearn: 0.5122493\ttotal: 30.2ms\tremaining: 60.4ms", 0.5122493, 0},
        {"[2/3] 1 tree, 12 leaves, max depth = 5, train loss: 0.57034, val loss: 0.6, in 5.3s",
         0.57034, 2},
    };
    for (const BoostingLine& line : lines) {
        const auto found = Capture{"auto", ""}.line(line.text);
        ASSERT_TRUE(found) << line.text;
        EXPECT_EQ(found->loss, line.loss) << line.text;
        EXPECT_EQ(found->step, line.step) << line.text;
        EXPECT_FALSE(found->step_is_batch) << line.text;
        EXPECT_TRUE(may_be_boosting(line.text)) << line.text;
    }
}

TEST(BoostingLines, OfAnotherSetOrAnotherMetricAreNoLosses) {
    for (const char* line : {
             "[0]\tvalidation_0-logloss:0.48378\tvalidation_1-logloss:0.52169",
             "[0]\teval-rmse:0.4",
             "[0]\tpretrain-rmse:0.4",
             "[0]\tvalid_train-rmse:0.4",
             "[0]\ttrain-auc:0.9\teval-logloss:0.8",
             "[0]\ttrain-merror:0.4",
             "[1]\tvalid_0's l2: 0.219461",
             "[1]\tvalid's binary_logloss: 0.635606 + 0.00363039",
             "[1]\tcv_agg's binary_logloss: 0.6 + 0.003",
             "[LightGBM] [Info] Start training from score -0.026668",
             "[LightGBM] [Warning] No further splits with positive gain, best gain: -inf",
             "0:\ttest: 0.5\tbest: 0.5 (0)\ttotal: 12ms\tremaining: 1s",
             "0:\tlearn: 0.5",
             "bestTest = 0.4540415425",
             "[rank0]\ttrain-rmse:0.4",
             "[1/3] 1 tree, 12 leaves, max depth = 5, val loss: 0.6, in 5.3s",
         }) {
        const auto found = Capture{"auto", ""}.line(line);
        EXPECT_FALSE(found) << line;
    }
    EXPECT_FALSE((Capture{"keras", ""}.line("[0]\ttrain-rmse:0.4"))) << "it is not Keras'";
    EXPECT_FALSE((Capture{"none", ""}.line("[0]\ttrain-rmse:0.4")));
}

}  // namespace
}  // namespace lockstep
