#include "job/model/spec/capture.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/progress_bar.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

using re2::RE2;

// A number as Python, C and numpy print it, also nan and inf.
#define LOCKSTEP_NUM \
    R"(([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)))"

// Every pattern has the groups loss and, where the print has them, step and epoch. Tried in this
// order by "auto": from the most particular form to the most general.
struct Form {
    std::string_view preset;
    bool step_is_batch;
    const char* pattern;
};
constexpr Form kForms[] = {
    // epoch: 0, batch: 10, loss is: [0.475]      epoch: 0, batch_id: 10, loss is: 0.475
    {"paddle", true,
     R"(\bepoch\s*[:=]?\s*(?P<epoch>\d+)\s*,\s*batch(?:_id)?\s*[:=]?\s*(?P<step>\d+)\s*,\s*)"
     R"((?:avg_|mean_)?loss(?:\s+is)?\s*[:=]?\s*\[*\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // {'loss': 0.53, 'learning_rate': 5e-05, 'epoch': 0.1}
    {"huggingface", false,
     R"(\{.*?['"]loss['"]\s*:\s*['"]?(?P<loss>)" LOCKSTEP_NUM
     R"()(?:.*?['"]epoch['"]\s*:\s*['"]?(?P<epoch>\d+))?)"},
    // Epoch 0:  12%|█▏  | 5/40 [00:01<00:08, 4.2it/s, v_num=0, train_loss=0.53]
    {"lightning", true,
     R"(\bEpoch\s+(?P<epoch>\d+)\s*:.*?\b(?P<step>\d+)/\d+\s*\[.*?)"
     R"((?:[\s,\[]|train/)(?:train_)?loss(?:_step)?\s*=\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.30  (the bracket counts samples, not steps)
    {"pytorch", false,
     R"(\bEpoch:\s*(?P<epoch>\d+)\s*\[\s*\d+/\d+[^\]]*\].*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // Epoch: [0][ 10/391]\tTime 0.1 ( 0.2)\tLoss 6.9e+00 (7.0e+00)
    // OpenMMLab's: 11/29 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 10/391]  lr: 1.0e-02
    // loss: 6.9
    {"pytorch", true,
     R"(\bEpoch(?:\(train\))?:?\s*\[(?P<epoch>\d+)\]\s*\[\s*(?P<step>\d+)/\d+\].*?)"
     R"(\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // 11/29 10:00:00 - mmengine - INFO - Iter(train) [ 10/40000]  lr: 1.0e-02  loss: 6.9
    {"pytorch", false,
     R"(\bIter\(train\)\s*\[\s*(?P<step>\d+)/\d+\].*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // timm's: Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.95)  Time: 0.2s, 512.10/s
    {"pytorch", true,
     R"(\bTrain:\s*(?P<epoch>\d+)\s*\[\s*(?P<step>\d+)/\d+\b.*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     R"().*?\bTime\s*:)"},
    // Train: 1 [640/60000 (1%)]\tLoss: 2.30: samples, too, as with "Epoch"
    {"pytorch", false,
     R"(\bTrain:\s*(?P<epoch>\d+)\s*\[\s*\d+/\d+\b.*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // PyTorch's first tutorial: [1,  2000] loss: 2.173
    {"pytorch", true,
     R"(^\s*\[\s*(?P<epoch>\d+)\s*,\s*(?P<step>\d+)\s*\]\s*loss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // Epoch 1/2, Loss: 0.5
    {"keras", false,
     R"(^\W*Epoch\s*:?\s*(?P<epoch>\d+)\s*/\s*\d+\s*[,:-]?\s*loss\s*[:=]\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // 12/938 [====>…] - ETA: 1s - loss: 0.53     938/938 - 2s - loss: 0.2     step 10/938 - loss: 1
    // What a clock follows is the date of a log line: 11/29 10:00:00 loss: 0.5
    {"keras", true,
     R"(^\W*(?:step\s+)?(?P<step>\d+)/(?:\d+\s+(?:[^\s\d]|\d+[^\s\d:])|Unknown\s).*?[\s-])"
     R"(loss:\s*\[?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
};
// A count behind its word; one with decimals is a time.
#define LOCKSTEP_COUNT R"(['"]?[\s:=#\[(]*(\d+)(?:[^\d.]|\.\D|\.?$))"
// step 12 loss 0.5   step=12 loss=0.5   iter 10: train loss 3.9, val loss 4.1   loss=0.5 step=12
// current loss: 0.5   loss: 0.5
constexpr const char* kStepWord =
    R"((?i)\b(?:(?:global[_ ]?)?(?:step|iter(?:ation)?)s?|num_updates)\b)" LOCKSTEP_COUNT;
constexpr const char* kBatchWord = R"((?i)\bbatch(?:_id|_idx)?\b)" LOCKSTEP_COUNT;
// Of epoch 0.25 it is the epoch 0.
constexpr const char* kEpochWord = R"((?i)\bepoch\b['"]?[\s:=#\[(]*(\d+))";
// Before such a word: it is a unit, ms/batch 12, seconds per step 3.
constexpr const char* kRate =
    R"((?i)(?:\b(?:m?s|secs?|seconds?|min|it|samples?|tokens?|toks?|images?|imgs?|examples?)\s*/\s*|\bper\s+)$)";
// tqdm's bar: 10%|█ | 10/100 [00:01<00:09, 9.8it/s, loss=2.31]     | 200/ 2983 batches |
constexpr const char* kOfBatches =
    R"((?i)(?:\|\s*(\d+)/\d+\s*\[\d+:\d\d|\b(\d+)\s*/\s*\d+\s+batches\b))";
constexpr const char* kBar = R"(\|\s*\d+/\d+\s*\[\d+:\d\d)";
constexpr std::size_t kParts = 2;
constexpr const char* kLossWord =
    R"((?i)(?:^|[^a-z0-9_])(?:(?:train|training|total|running|current|avg|average|mean|batch)[_ /])?)"
    R"(loss(?:_step|/(?:train|training|total|avg|mean|batch)(?:_step)?)?['"]?\s*(?:is|was)?\s*[:=]?\s*\[*\s*)" LOCKSTEP_NUM;
// Loss_D: 1.46 Loss_G: 6.94   [D loss: 0.69] [G loss: 0.70]   d_loss=0.69 g_loss=0.70
constexpr const char* kPartWord =
    R"((?i)(?:^|[^a-z0-9_])(?:loss[_ /]?(d|g|disc|discriminator|gen|generator)|(d|g|disc|discriminator|gen|generator|critic)[_ /]?loss))"
    R"(['"]?\s*[:=\s]\s*\[*\s*)" LOCKSTEP_NUM;
// PyTorch's DCGAN: [0/5][12/1583]
constexpr const char* kEpochsAndBatches = R"(\[\s*(\d+)/\d+\]\s*\[\s*(\d+)/\d+\])";
// A loss of a validation or a test is not the training's.
constexpr const char* kNotTraining =
    R"((?i)(?:^|[^a-z])(?:val|valid|validation|validate|test|testing|eval|evaluation|dev|train_runtime)(?:[^a-z]|$))";

#undef LOCKSTEP_COUNT
#undef LOCKSTEP_NUM

RE2::Options options(bool latin1) {
    RE2::Options out{latin1 ? RE2::Latin1 : RE2::DefaultOptions};
    out.set_case_sensitive(!latin1);
    out.set_log_errors(false);
    out.set_max_mem(1 << 20);
    return out;
}

// Whether "loss" occurs, in any case: what is asked of every line before a pattern is tried.
bool mentions_loss(std::string_view text) {
    const auto lower = [](char c) {
        return static_cast<char>(static_cast<unsigned char>(c) | 32U);
    };
    for (std::size_t i = 0; i + 3 < text.size(); ++i) {
        if (lower(text[i]) == 'l' && lower(text[i + 1]) == 'o' && lower(text[i + 2]) == 's' &&
            lower(text[i + 3]) == 's') {
            return true;
        }
    }
    return false;
}

// Without terminal control sequences (ECMA-48 CSI: ESC [ … final byte 0x40-0x7E) and backspaces.
std::string without_controls(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte == 0x1B && i + 1 < text.size() && text[i + 1] == '[') {
            i += 2;
            while (i < text.size() && (text[i] < 0x40 || text[i] > 0x7E)) {
                ++i;
            }
        } else if (byte >= 0x20 || byte == '\t') {
            out += text[i];
        }
    }
    return out;
}

bool has_controls(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 && byte != '\t';
    });
}

// A pattern with its groups found by name.
class Matcher {
  public:
    Matcher(std::string_view preset, bool step_is_batch, const std::string& pattern, bool latin1)
        : preset_(preset),
          step_is_batch_(step_is_batch),
          expression_(std::make_unique<RE2>(pattern, options(latin1))) {
        const auto& names = expression_->NamedCapturingGroups();
        const auto index = [&](const char* name) {
            const auto found = names.find(name);
            return found == names.end() ? 0 : found->second;
        };
        loss_ = index("loss");
        step_ = index("step");
        epoch_ = index("epoch");
    }

    std::optional<CapturedLoss> match(std::string_view text) const {
        if (!expression_->ok() || loss_ == 0) {
            return std::nullopt;
        }
        const int highest = std::max({loss_, step_, epoch_});
        std::vector<re2::StringPiece> groups(static_cast<std::size_t>(highest) + 1);
        const re2::StringPiece piece{text.data(), text.size()};
        if (!expression_->Match(piece, 0, piece.size(), RE2::UNANCHORED, groups.data(),
                                static_cast<int>(groups.size()))) {
            return std::nullopt;
        }
        const auto group = [&](int index) {
            const auto& found = groups[static_cast<std::size_t>(index)];
            return index == 0 ? std::string_view{} : std::string_view{found.data(), found.size()};
        };
        const auto loss = to_double(trim(group(loss_)));
        if (!loss) {
            return std::nullopt;
        }
        CapturedLoss out;
        out.loss = *loss;
        out.preset = preset_;
        out.step = to_int(trim(group(step_)));
        out.step_is_batch = step_is_batch_ && out.step.has_value();
        out.epoch = to_int(trim(group(epoch_)));
        return out;
    }

  private:
    std::string_view preset_;
    bool step_is_batch_;
    std::unique_ptr<RE2> expression_;
    int loss_ = 0;
    int step_ = 0;
    int epoch_ = 0;
};

// What no framework's form fits: the word loss with a number, and step, batch and epoch anywhere.
class Generic {
  public:
    std::optional<CapturedLoss> match(std::string_view text) const {
        const re2::StringPiece piece{text.data(), text.size()};
        CapturedLoss out;
        out.preset = "generic";
        out.parts = parts(piece);
        re2::StringPiece groups[2];
        const bool whole = loss_.Match(piece, 0, piece.size(), RE2::UNANCHORED, groups, 2);
        if (!whole && (out.parts.empty() || RE2::PartialMatch(piece, not_training_))) {
            return std::nullopt;
        }
        if (whole) {
            const auto start = static_cast<std::size_t>(groups[0].data() - piece.data());
            const auto loss = to_double({groups[1].data(), groups[1].size()});
            if (!loss || RE2::PartialMatch(piece.substr(0, start), not_training_)) {
                return std::nullopt;
            }
            out.loss = *loss;
        } else {
            out.loss = out.parts.front().second;
        }
        out.step = number(step_, piece);
        if (!out.step) {
            out.step = number(batch_, piece);
            out.step = out.step ? out.step : of_batches(piece);
            out.step_is_batch = out.step.has_value();
        }
        out.epoch = number(epoch_, piece);
        out.bar = out.step_is_batch && RE2::PartialMatch(piece, bar_);
        if (re2::StringPiece epoch, batch;
            !out.step && !out.epoch &&
            RE2::PartialMatch(piece, epochs_and_batches_, &epoch, &batch)) {
            out.epoch = to_int({epoch.data(), epoch.size()});
            out.step = to_int({batch.data(), batch.size()});
            out.step_is_batch = out.step.has_value();
        }
        return out;
    }
    std::optional<std::int64_t> step(std::string_view text) const {
        return number(step_, {text.data(), text.size()});
    }

    // Each once: a line may have means behind them.
    std::vector<std::pair<std::string, double>> parts(re2::StringPiece text) const {
        std::vector<std::pair<std::string, double>> out;
        re2::StringPiece groups[4];
        std::size_t from = 0;
        while (from < text.size() && out.size() < kParts &&
               part_.Match(text, from, text.size(), RE2::UNANCHORED, groups, 4)) {
            const auto& word = groups[1].empty() ? groups[2] : groups[1];
            const char letter = static_cast<char>(static_cast<unsigned char>(word[0]) | 32U);
            const std::string name = letter == 'g' ? "loss_g" : "loss_d";
            const auto loss = to_double({groups[3].data(), groups[3].size()});
            if (loss && std::none_of(out.begin(), out.end(),
                                     [&](const auto& one) { return one.first == name; })) {
                out.emplace_back(name, *loss);
            }
            from = static_cast<std::size_t>(groups[0].data() - text.data()) + groups[0].size();
        }
        return out;
    }

  private:
    // The first count behind the word that is not a rate.
    std::optional<std::int64_t> number(const RE2& expression, re2::StringPiece text) const {
        re2::StringPiece groups[2];
        std::size_t from = 0;
        while (from < text.size() &&
               expression.Match(text, from, text.size(), RE2::UNANCHORED, groups, 2)) {
            const auto start = static_cast<std::size_t>(groups[0].data() - text.data());
            if (!RE2::PartialMatch(text.substr(0, start), rate_)) {
                return to_int({groups[1].data(), groups[1].size()});
            }
            from = start + groups[0].size();
        }
        return std::nullopt;
    }
    std::optional<std::int64_t> of_batches(re2::StringPiece text) const {
        re2::StringPiece bar;
        re2::StringPiece words;
        if (!RE2::PartialMatch(text, of_batches_, &bar, &words)) {
            return std::nullopt;
        }
        const auto& digits = bar.empty() ? words : bar;
        return to_int({digits.data(), digits.size()});
    }

    RE2 loss_{kLossWord, options(true)};
    RE2 step_{kStepWord, options(true)};
    RE2 batch_{kBatchWord, options(true)};
    RE2 epoch_{kEpochWord, options(true)};
    RE2 rate_{kRate, options(true)};
    RE2 of_batches_{kOfBatches, options(true)};
    RE2 bar_{kBar, options(true)};
    RE2 part_{kPartWord, options(true)};
    RE2 epochs_and_batches_{kEpochsAndBatches, options(true)};
    RE2 not_training_{kNotTraining, options(true)};
};

}  // namespace

struct Capture::Impl {
    std::vector<Matcher> matchers;
    std::unique_ptr<Generic> generic;
    bool custom = false;
    bool off = false;
};

const std::vector<std::string_view>& capture_presets() {
    static const std::vector<std::string_view> kPresets{
        "auto", "none", "paddle", "keras", "huggingface", "lightning", "pytorch"};
    return kPresets;
}

Status check_capture_pattern(const std::string& pattern) {
    if (pattern.size() > limits::kPatternBytes) {
        return fail(Errc::invalid,
                    "longer than " + std::to_string(limits::kPatternBytes) + " bytes");
    }
    const RE2 expression{pattern, options(false)};
    if (!expression.ok()) {
        return fail(Errc::invalid, "not a valid RE2 pattern: " + printable(expression.error()));
    }
    if (expression.NamedCapturingGroups().count("loss") == 0) {
        return fail(Errc::invalid, "lacks the named group loss: (?P<loss>…)");
    }
    return {};
}

Capture::Capture(std::string_view preset, const std::string& pattern)
    : impl_(std::make_unique<Impl>()) {
    if (!pattern.empty()) {
        impl_->custom = true;
        impl_->matchers.emplace_back("custom", false, pattern, false);
        return;
    }
    impl_->off = preset == "none";
    if (impl_->off) {
        return;
    }
    for (const Form& form : kForms) {
        if (preset == "auto" || preset == form.preset) {
            impl_->matchers.emplace_back(form.preset, form.step_is_batch, form.pattern, true);
        }
    }
    if (preset == "auto") {
        impl_->generic = std::make_unique<Generic>();
    }
}

Capture::~Capture() = default;
Capture::Capture(Capture&&) noexcept = default;
Capture& Capture::operator=(Capture&&) noexcept = default;

std::optional<CapturedLoss> Capture::line(std::string_view text) {
    text = text.substr(0, limits::kLineBytes);
    // A user's pattern may look for anything; ours all contain the word.
    if (impl_->off || (!impl_->custom && !mentions_loss(text))) {
        return std::nullopt;
    }
    std::string clean;
    if (has_controls(text)) {
        clean = without_controls(text);
        text = clean;
    }
    for (const Matcher& matcher : impl_->matchers) {
        if (auto found = matcher.match(text)) {
            // {"loss": 0.5, "step": 3}: a line of JSON of the script's own looks like Hugging
            // Face's.
            if (impl_->generic && !found->step && found->preset == "huggingface") {
                found->step = impl_->generic->step(text);
            }
            if (impl_->generic) {
                found->parts = impl_->generic->parts({text.data(), text.size()});
            }
            if (found->preset == "lightning") {
                found->bar = true;
                found->batches = batches_of_lightning(text);
            }
            return found;
        }
    }
    return impl_->generic ? impl_->generic->match(text) : std::nullopt;
}

}  // namespace lockstep
