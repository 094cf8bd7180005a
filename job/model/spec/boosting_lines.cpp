#include "job/model/spec/boosting_lines.hpp"

#include "job/model/spec/capture_words.hpp"

#include <re2/re2.h>

namespace lockstep {
namespace {

using re2::RE2;
using re2::StringPiece;

constexpr std::string_view kCatBoost = ":\tlearn: ";

// The metrics that are losses, by the names that XGBoost and LightGBM have for them. Of others, as
// error or ndcg, nobody can tell what the training follows.
constexpr const char* kTrainings =
    R"((?i)\td?train(?:ing)?(?:_set|_data)?(?:-|'s )(?:[\w-]*(?:loss|nloglik|deviance)|m?rmsle|rmse|mae|mape|)"
    R"(mphe|l1|l2|quantile|huber|fair|poisson|gamma|tweedie|cross_entropy(?:_lambda)?|kullback_leibler))"
    R"((?:@[\d.-]+)?: ?)" LOCKSTEP_NUM;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<CapturedLoss> found_at(const StringPiece& step, const StringPiece& loss) {
    const auto value = to_loss({loss.data(), loss.size()});
    if (!value) {
        return std::nullopt;
    }
    CapturedLoss out;
    out.preset = "generic";
    out.step = to_int({step.data(), step.size()});
    out.loss = *value;
    return out;
}

}  // namespace

bool may_be_boosting(std::string_view text) {
    if (text.empty()) {
        return false;
    }
    if (text.front() == '[') {
        return text.find("]\t") != std::string_view::npos ||
               text.find(" tree") != std::string_view::npos;
    }
    return is_digit(text.front()) && text.find(kCatBoost) != std::string_view::npos;
}

std::optional<CapturedLoss> boosting_loss(std::string_view text) {
    // [10]\ttrain-rmse:0.12\teval-rmse:0.23           XGBoost; cross-validation: 0.12+0.01
    // [10]\tvalid_0's l2: 0.24\ttraining's l2: 0.2    LightGBM
    static const RE2 kIteration{R"(^(?:\[[\d:.]+\] )?\[(\d+)\]\t)", capture_options(true)};
    static const RE2 kOfTraining{kTrainings, capture_options(true)};
    // 10:\tlearn: 0.5\ttest: 0.6\tbest: 0.6 (9)\ttotal: 12ms\tremaining: 1s
    static const RE2 kLearn{R"(^(\d+):\tlearn: )" LOCKSTEP_NUM R"(\t.*\btotal: )",
                            capture_options(true)};
    // [1/100] 1 tree, 31 leaves, max depth = 9, train loss: 0.5, val loss: 0.6, in 0.1s
    static const RE2 kTrees{R"(^\[(\d+)/\d+\] \d+ trees?, .*\btrain loss: )" LOCKSTEP_NUM
                            R"((?:,|\s*$))",
                            capture_options(true)};
    const StringPiece piece{text.data(), text.size()};
    StringPiece step;
    StringPiece loss;
    const bool found = is_digit(text.front()) ? RE2::PartialMatch(piece, kLearn, &step, &loss)
                                              : (RE2::PartialMatch(piece, kIteration, &step) &&
                                                 RE2::PartialMatch(piece, kOfTraining, &loss)) ||
                                                    RE2::PartialMatch(piece, kTrees, &step, &loss);
    return found ? found_at(step, loss) : std::nullopt;
}

}  // namespace lockstep
