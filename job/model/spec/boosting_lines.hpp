// What XGBoost, LightGBM, CatBoost and scikit-learn's gradient boosting print of an iteration: the
// training's metric by its own name, beside those of other sets. Used by capture.hpp only; any
// thread.
#pragma once

#include "job/model/spec/capture.hpp"

#include <optional>
#include <string_view>

namespace lockstep {

// Whether boosting_loss() should see the line. Asked of every line of the output: cheap.
bool may_be_boosting(std::string_view text);
// The loss of the training set. Nothing where only other sets have one, or where what is printed of
// it is to grow, as auc. CatBoost does not say what it prints; usually it is the loss.
std::optional<CapturedLoss> boosting_loss(std::string_view text);

}  // namespace lockstep
