#include "job/model/spec/capture_generic.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/capture_words.hpp"

#include <strings.h>

#include <algorithm>

namespace lockstep {
namespace {

using re2::RE2;
using re2::StringPiece;

constexpr std::size_t kParts = 2;
constexpr int kLosses = 8;  // of a line are compared; a line of more is a report of everything

// A count behind its word; one with decimals is a time, and one with % of a bar how much of it is
// done. JSON may have it as a string.
#define LOCKSTEP_COUNT R"(['"]?[\s:=#\[(]*['"]?()" LOCKSTEP_WHOLE R"()(?:[^\d.%]|\.\D|\.?$))"
// step 12 loss 0.5   step=12 loss=0.5   iter 10: train loss 3.9, val loss 4.1   loss=0.5 step=12
// current loss: 0.5   loss: 0.5
constexpr const char* kStepWord =
    R"((?i)\b(?:(?:global[_ ]?)?(?:step|iter(?:ation)?|itr|it)s?|num_updates)\b)" LOCKSTEP_COUNT;
// llama2.c's: 10 | loss 7.1234 | lr 5.0e-04. With a colon it may be the number of a rank.
constexpr const char* kLeadingStep =
    R"((?i)^\s*()" LOCKSTEP_WHOLE R"()\s*\|\s*(?:train(?:ing)?[_ ])?loss\b)";
constexpr const char* kBatchWord = R"((?i)\bbatch(?:_id|_idx)?\b)" LOCKSTEP_COUNT;
// Of epoch 0.25 it is the epoch 0, and of Epoch [3,128] the epoch 3.
constexpr const char* kEpochWord = R"((?i)\bepoch\b['"]?[\s:=#\[(]*(\d+)(?:[^\d%]|$))";
// Before such a word: it is a unit, ms/batch 12, seconds per step 3.
constexpr const char* kRate =
    R"((?i)(?:\b(?:m?s|secs?|seconds?|min|it|samples?|tokens?|toks?|images?|imgs?|examples?)\s*/\s*|\bper\s+)$)";
// tqdm's bar: 10%|█ | 10/100 [00:01<00:09, 9.8it/s, loss=2.31]     | 200/ 2983 batches |
// DINO's: Training  [  20/12500]  eta: 1:02:03
constexpr const char* kOfBatches =
    R"((?i)(?:\|\s*(\d+)/(\d+)\s*\[\d+:\d\d|\b(\d+)\s*/\s*(\d+)\s+batches\b|\[\s*(\d+)\s*/\s*(\d+)\s*\]\s+eta:))";
constexpr const char* kBar = R"(\|\s*\d+/\d+\s*\[\d+:\d\d)";
// The first group tells what kind of loss it says that it is.
constexpr const char* kLossWord =
    R"((?i)(?:^|[^a-z0-9_])((?:train|training|total|running|current|avg|average|mean|batch)[_ /])?)"
    R"(loss(?:_step|(?:/(?:train|training|total|avg|mean|batch))+(?:_step)?)?['"]?\s*(?:is|was)?\s*[:=]?\s*)" LOCKSTEP_VALUE;
// Where nothing is called the loss, one of these is all that is trained on: GPT-NeoX's lm_loss,
// NeMo's reduced_train_loss, OLMo's train/CrossEntropyLoss, the step_loss of diffusers' examples.
constexpr const char* kNamedLoss =
    R"((?i)(?:^|[^a-z0-9_])(?:lm|mlm|nll|ce|bce|mse|step|cross[_ ]?entropy|reduced[_ ]train)[_ ]?loss)"
    R"(['"]?\s*[:=]\s*)" LOCKSTEP_VALUE;
// Keras' guide: Training loss (for one batch) at step 100: 0.5     Loss at step 10: 0.5
constexpr const char* kLossAt =
    R"((?i)(?:^|[^a-z0-9_])loss(?:\s*\([^()]{0,40}\))?,?\s+(?:at|after|in|for)\s+)"
    R"((?:global[_ ]?)?(step|iter(?:ation)?|epoch|batch)\s*#?\s*()" LOCKSTEP_WHOLE
    R"()(?:/[\d,]+)?\s*(?:\([^()]{0,40}\)\s*)?(?:\s(?:is|was)\s|[:=,])\s*)" LOCKSTEP_VALUE;
// Loss after 100 steps: 0.5
constexpr const char* kLossAfter =
    R"((?i)(?:^|[^a-z0-9_])loss,?\s+after\s+()" LOCKSTEP_WHOLE
    R"()\s+(step|iter(?:ation)?|epoch|batch|batche)s?\s*(?:\s(?:is|was)\s|[:=,])\s*)" LOCKSTEP_VALUE;
// Loss_D: 1.46 Loss_G: 6.94   [D loss: 0.69] [G loss: 0.70]   d_loss=0.69 g_loss=0.70
constexpr const char* kPartWord =
    R"((?i)(?:^|[^a-z0-9_])(?:loss[_ /]?(d|g|disc|discriminator|gen|generator)|(d|g|disc|discriminator|gen|generator|critic)[_ /]?loss))"
    R"(['"]?\s*[:=\s]\s*)" LOCKSTEP_VALUE;
// PyTorch's DCGAN: [0/5][12/1583]
constexpr const char* kEpochsAndBatches = R"(\[\s*(\d+)/\d+\]\s*\[\s*(\d+)/(\d+)\])";
// A loss of a validation or a test is not the training's. Such a word counts where it stands by
// itself in front of the loss ("Test set: Average loss", "[val] epoch 1, loss"), and in the name of
// the loss (val/loss, my_eval/rank0/loss). In other names it says nothing: of a host (gpu-dev-01),
// a file (/home/me/test/train.py), a logger (my_test.train) or another value (val_acc).
#define LOCKSTEP_VALIDATION "(?:val|valid|validation|validate|test|testing|eval|evaluation|dev)"
#define LOCKSTEP_OF_VALIDATION \
    R"((?:[-_](?:set|split|data|dataset|step|epoch|batch|loop|phase|mode|metrics?|results?|stats?)|_\d+)?)"
constexpr const char* kNotTraining =
    R"((?i)(?:^|[^a-z0-9_./-])-*)" LOCKSTEP_VALIDATION LOCKSTEP_OF_VALIDATION
    R"([-_./]*(?:[^a-z0-9_./-]|$)|(?:^|[^a-z]))" LOCKSTEP_VALIDATION
    R"((?:\s|[-_./][a-z0-9_./-]*)?$|(?:^|[^a-z0-9_./-]))" LOCKSTEP_VALIDATION
    R"((?:\d+|[-_][a-z0-9]+)\s$)";  // dev-clean loss, test1 loss
// Behind it such a word counts anew: INFO:test:Train Epoch: 1, of a logger that is called test.
constexpr const char* kTrainingWord =
    R"((?i)^.*(?:^|[^a-z0-9_./-])train(?:ing)?(?:[^a-z0-9_./-]|$))";
// {"loss": 0.5, "split": "val"}: JSON may say it behind the loss.
constexpr const char* kOtherSplit =
    R"((?i)['"](?:split|subset|phase|mode|stage)['"]\s*:\s*['"])" LOCKSTEP_VALIDATION LOCKSTEP_OF_VALIDATION
    R"(['"])";
// Hugging Face's last line has the mean of the whole run, PaddleClas' [Train][Epoch 1/20][Avg] that
// of an epoch.
constexpr const char* kSummary = R"(\btrain_runtime\b|\]\[Avg\])";
// Before "loss": it is added to the loss that is trained on, or a part of it: "aux loss: 0.1".
constexpr const char* kAddedWord =
    R"((?i)(?:^|[^a-z0-9])(?:aux(?:iliary)?|mtp[_ ]?\d*|kl|moe|router|z|\w*balanc\w*|reg\w*|commit\w*|distill\w*)[ \t]$)";
// step 12/100: of the whole run, or of an epoch whose number is in another line.
constexpr const char* kStepOf =
    R"((?i)\bstep\b['"]?[\s:=#\[(]*()" LOCKSTEP_WHOLE R"()\s*/\s*()" LOCKSTEP_WHOLE R"()\b)";

#undef LOCKSTEP_OF_VALIDATION
#undef LOCKSTEP_VALIDATION
#undef LOCKSTEP_COUNT

std::string_view view(const StringPiece& piece) {
    return {piece.data(), piece.size()};
}

std::size_t offset(const StringPiece& of, const StringPiece& in) {
    return static_cast<std::size_t>(of.data() - in.data());
}

// Of `found` in the text; with the sign that an expression takes in front of its word.
StringPiece lead_of(const StringPiece& found, const StringPiece& text) {
    const std::size_t start = offset(found, text);
    return text.substr(0, start + (found.empty() || start == 0 ? 0 : 1));
}

// With a comma and a digit behind it it is a list, 1,200,3: its first number.
std::optional<std::int64_t> first_count(const StringPiece& digits, const StringPiece& text) {
    const std::string_view whole = view(digits);
    const std::size_t end = offset(digits, text) + digits.size();
    const bool list =
        end + 1 < text.size() && text[end] == ',' && text[end + 1] >= '0' && text[end + 1] <= '9';
    return list ? to_int(whole.substr(0, whole.find(','))) : to_count(whole);
}

bool is_train(const StringPiece& kind) {
    return kind.size() >= 5 && ::strncasecmp(kind.data(), "train", 5) == 0;
}

}  // namespace

RE2::Options capture_options(bool latin1) {
    RE2::Options out{latin1 ? RE2::Latin1 : RE2::DefaultOptions};
    out.set_case_sensitive(!latin1);
    out.set_log_errors(false);
    out.set_max_mem(1 << 20);
    return out;
}

GenericCapture::GenericCapture()
    : loss_{kLossWord, capture_options(true)},
      named_loss_{kNamedLoss, capture_options(true)},
      at_{kLossAt, capture_options(true)},
      after_{kLossAfter, capture_options(true)},
      step_{kStepWord, capture_options(true)},
      leading_step_{kLeadingStep, capture_options(true)},
      batch_{kBatchWord, capture_options(true)},
      epoch_{kEpochWord, capture_options(true)},
      rate_{kRate, capture_options(true)},
      of_batches_{kOfBatches, capture_options(true)},
      bar_{kBar, capture_options(true)},
      part_{kPartWord, capture_options(true)},
      epochs_and_batches_{kEpochsAndBatches, capture_options(true)},
      not_training_{kNotTraining, capture_options(true)},
      training_word_{kTrainingWord, capture_options(true)},
      other_split_{kOtherSplit, capture_options(true)},
      summary_{kSummary, capture_options(true)},
      added_word_{kAddedWord, capture_options(true)},
      step_of_{kStepOf, capture_options(true)} {}

std::optional<CapturedLoss> GenericCapture::match(std::string_view text) const {
    const StringPiece piece{text.data(), text.size()};
    if (RE2::PartialMatch(piece, summary_)) {
        return std::nullopt;
    }
    CapturedLoss out;
    out.preset = "generic";
    out.parts = parts(text);
    if (const auto whole = loss(piece)) {
        out.loss = *whole;
    } else if (auto counted = at_a_count(piece)) {
        return counted;
    } else if (!out.parts.empty()) {
        out.loss = out.parts.front().second;
    } else {
        return std::nullopt;
    }
    find_counts(piece, out);
    return out;
}

bool GenericCapture::is_of_validation(std::string_view lead) const {
    constexpr std::string_view kBackwards = "ssol";
    const auto same = [](char one, char letter) {
        return (static_cast<unsigned char>(one) | 32U) == static_cast<unsigned char>(letter);
    };
    const auto word =
        std::search(lead.rbegin(), lead.rend(), kBackwards.begin(), kBackwards.end(), same);
    if (word != lead.rend()) {
        lead.remove_suffix(static_cast<std::size_t>(word - lead.rbegin()) + kBackwards.size());
    }
    StringPiece words{lead.data(), lead.size()};
    if (!RE2::PartialMatch(words, not_training_)) {
        return false;
    }
    return !RE2::Consume(&words, training_word_) || RE2::PartialMatch(words, not_training_);
}

bool GenericCapture::is_of_other_split(std::string_view text) const {
    return text.find('{') != std::string_view::npos &&
           RE2::PartialMatch(StringPiece{text.data(), text.size()}, other_split_);
}

void GenericCapture::find_counts(StringPiece text, CapturedLoss& out) const {
    out.step = number(step_, text);
    if (StringPiece step, of; out.step && RE2::PartialMatch(text, step_of_, &step, &of) &&
                              to_count(view(step)) == out.step) {
        out.of = to_count(view(of));
    }
    if (StringPiece leading; !out.step && RE2::PartialMatch(text, leading_step_, &leading)) {
        out.step = to_count(view(leading));
    }
    if (!out.step) {
        out.step = number(batch_, text);
        if (!out.step) {
            find_batches(text, out);
        }
        out.step_is_batch = out.step.has_value();
    }
    out.epoch = number(epoch_, text);
    out.bar = out.step_is_batch && RE2::PartialMatch(text, bar_);
    if (StringPiece epoch, batch, of;
        !out.step && !out.epoch &&
        RE2::PartialMatch(text, epochs_and_batches_, &epoch, &batch, &of)) {
        out.epoch = to_int(view(epoch));
        out.step = to_int(view(batch));
        out.of = to_int(view(of));
        out.step_is_batch = out.step.has_value();
    }
}

// Of several losses the first that is not added to another: of "mtp_1 loss: 12 | lm loss: 10.7" the
// second.
std::optional<double> GenericCapture::loss(StringPiece text) const {
    std::optional<Found> best;
    for (const auto& [expression, kind] : {std::pair{&loss_, 1}, std::pair{&named_loss_, 0}}) {
        StringPiece groups[3];
        std::size_t from = 0;
        for (int i = 0; i < kLosses && from < text.size() &&
                        expression->Match(text, from, text.size(), RE2::UNANCHORED, groups, 3);
             ++i) {
            const StringPiece kinds[] = {groups[0], kind == 1 ? groups[1] : StringPiece{},
                                         groups[kind == 1 ? 2 : 1]};
            if (const auto found = ranked(text, kinds);
                found && (!best || found->rank < best->rank)) {
                best = found;
            }
            from = offset(groups[0], text) + groups[0].size();
        }
        if (best) {
            return best->loss;
        }
    }
    return std::nullopt;
}

// `groups`: the whole, the word before "loss", the number.
std::optional<GenericCapture::Found> GenericCapture::ranked(StringPiece text,
                                                            const StringPiece* groups) const {
    const auto value = to_loss(view(groups[2]));
    const StringPiece lead = lead_of(groups[0], text);
    if (!value || (!is_train(groups[1]) && RE2::PartialMatch(lead, not_training_))) {
        return std::nullopt;
    }
    return Found{*value, RE2::PartialMatch(lead, added_word_) ? 1 : 0};
}

std::optional<CapturedLoss> GenericCapture::at_a_count(StringPiece text) const {
    StringPiece whole[4];
    const bool at = at_.Match(text, 0, text.size(), RE2::UNANCHORED, whole, 4);
    if (!at && !after_.Match(text, 0, text.size(), RE2::UNANCHORED, whole, 4)) {
        return std::nullopt;
    }
    const StringPiece& word = whole[at ? 1 : 2];
    const StringPiece& count = whole[at ? 2 : 1];
    const auto loss = to_loss(view(whole[3]));
    if (!loss || RE2::PartialMatch(lead_of(whole[0], text), not_training_)) {
        return std::nullopt;
    }
    CapturedLoss out;
    out.preset = "generic";
    out.loss = *loss;
    const char letter = static_cast<char>(static_cast<unsigned char>(word[0]) | 32U);
    (letter == 'e' ? out.epoch : out.step) = to_count(view(count));
    out.step_is_batch = letter == 'b' && out.step;
    return out;
}

std::optional<std::int64_t> GenericCapture::step(std::string_view text) const {
    return number(step_, {text.data(), text.size()});
}

std::optional<std::int64_t> GenericCapture::epoch(std::string_view text) const {
    return number(epoch_, {text.data(), text.size()});
}

std::vector<std::pair<std::string, double>> GenericCapture::parts(std::string_view line) const {
    const StringPiece text{line.data(), line.size()};
    std::vector<std::pair<std::string, double>> out;
    StringPiece groups[4];
    std::size_t from = 0;
    while (from < text.size() && out.size() < kParts &&
           part_.Match(text, from, text.size(), RE2::UNANCHORED, groups, 4)) {
        const auto& word = groups[1].empty() ? groups[2] : groups[1];
        const char letter = static_cast<char>(static_cast<unsigned char>(word[0]) | 32U);
        const std::string name = letter == 'g' ? "loss_g" : "loss_d";
        const auto loss = to_loss(view(groups[3]));
        const bool again =
            std::any_of(out.begin(), out.end(), [&](const auto& one) { return one.first == name; });
        if (loss && !again && !RE2::PartialMatch(lead_of(groups[0], text), not_training_)) {
            out.emplace_back(name, *loss);
        }
        from = offset(groups[0], text) + groups[0].size();
    }
    return out;
}

// The first count behind the word that is not a rate.
std::optional<std::int64_t> GenericCapture::number(const RE2& expression, StringPiece text) const {
    StringPiece groups[2];
    std::size_t from = 0;
    while (from < text.size() &&
           expression.Match(text, from, text.size(), RE2::UNANCHORED, groups, 2)) {
        const std::size_t start = offset(groups[0], text);
        if (!RE2::PartialMatch(text.substr(0, start), rate_)) {
            return first_count(groups[1], text);
        }
        from = start + groups[0].size();
    }
    return std::nullopt;
}

void GenericCapture::find_batches(StringPiece text, CapturedLoss& out) const {
    StringPiece groups[7];
    if (!of_batches_.Match(text, 0, text.size(), RE2::UNANCHORED, groups, 7)) {
        return;
    }
    const int first = !groups[1].empty() ? 1 : !groups[3].empty() ? 3 : 5;
    out.step = to_int(view(groups[first]));
    out.of = to_int(view(groups[first + 1]));
}

}  // namespace lockstep
