#include "job/model/spec/capture.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/boosting_lines.hpp"
#include "job/model/spec/capture_generic.hpp"
#include "job/model/spec/capture_words.hpp"
#include "job/model/spec/loss_table.hpp"
#include "job/model/spec/progress_bar.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep {
namespace {

using re2::RE2;

enum class StepIs : std::uint8_t {
    of_run,
    of_epoch,
    redrawn,  // of the run, in a bar that has the loss of the step before at first
};
// Every pattern has the groups loss and, where the print has them, step and epoch. Tried in this
// order by "auto": from the most particular form to the most general.
struct Form {
    std::string_view preset;
    StepIs step;
    const char* pattern;
};
constexpr Form kForms[] = {
    // epoch: 0, batch: 10, loss is: [0.475]      epoch: 0, batch_id: 10, loss is: 0.475
    {"paddle", StepIs::of_epoch,
     R"(\bepoch\s*[:=]?\s*(?P<epoch>\d+)\s*,\s*batch(?:_id)?\s*[:=]?\s*(?P<step>\d+)\s*,\s*)"
     R"((?:avg_|mean_)?loss(?:\s+is)?\s*[:=]?\s*\[*\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // {'loss': 0.53, 'learning_rate': 5e-05, 'epoch': 0.1}
    {"huggingface", StepIs::of_run,
     R"(\{.*?['"]loss['"]\s*:\s*['"]?(?:[a-z_.]{0,20}(?:tensor|array|float(?:16|32|64)?)\(\[*)?(?P<loss>)" LOCKSTEP_NUM
     R"()(?:.*?['"]epoch['"]\s*:\s*['"]?(?P<epoch>\d+))?)"},
    // Epoch 0:  12%|█▏  | 5/40 [00:01<00:08, 4.2it/s, v_num=0, train_loss=0.53]
    {"lightning", StepIs::of_epoch,
     R"(\bEpoch\s+(?P<epoch>\d+)\s*:.*?\b(?P<step>\d+)/(?P<of>\d+)\s*\[.*?)"
     R"((?:[\s,\[]|train/)(?:train_)?loss(?:_step)?\s*=\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.30  (the bracket counts samples, not steps)
    {"pytorch", StepIs::of_run,
     R"(\bEpoch:\s*(?P<epoch>\d+)\s*\[\s*\d+/\d+[^\]]*\].*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // Epoch: [0][ 10/391]\tTime 0.1 ( 0.2)\tLoss 6.9e+00 (7.0e+00)
    // OpenMMLab's: 11/29 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 10/391]  lr: 1.0e-02
    // loss: 6.9
    {"pytorch", StepIs::of_epoch,
     R"(\bEpoch(?:\(train\))?:?\s*\[(?P<epoch>\d+)\]\s*\[\s*(?P<step>\d+)/(?P<of>\d+)\].*?)"
     R"(\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // 11/29 10:00:00 - mmengine - INFO - Iter(train) [ 10/40000]  lr: 1.0e-02  loss: 6.9
    {"pytorch", StepIs::of_run,
     R"(\bIter\(train\)\s*\[\s*(?P<step>\d+)/\d+\].*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // timm's: Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.95)  Time: 0.2s, 512.10/s
    {"pytorch", StepIs::of_epoch,
     R"(\bTrain:\s*(?P<epoch>\d+)\s*\[\s*(?P<step>\d+)/(?P<of>\d+)\b.*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     R"().*?\bTime\s*:)"},
    // Train: 1 [640/60000 (1%)]\tLoss: 2.30: samples, too, as with "Epoch"
    {"pytorch", StepIs::of_run,
     R"(\bTrain:\s*(?P<epoch>\d+)\s*\[\s*\d+/\d+\b.*?\bloss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // torchtune's: 1|25|Loss: 1.25:   2%|2   | 25/1000 [00:10<06:30,  2.50it/s], the epoch and the
    // step of the whole run, which the bar's count is not. The bar moves on with the words of
    // before
    {"pytorch", StepIs::redrawn,
     R"(^\W*(?P<epoch>\d+)\|(?P<step>\d+)\|Loss:\s*(?P<loss>)" LOCKSTEP_NUM R"():\s)"},
    // pix2pix and CycleGAN: (epoch: 1, iters: 100, time: 0.5, data: 0.1) G_GAN: 0.9 G_L1: 5.3
    // D_real: 0.6
    // (samples, too)
    {"pytorch", StepIs::of_run,
     R"(\(epoch: (?P<epoch>\d+), iters: \d+, time: [^)]*\).*?\bG_\w+: (?P<loss>)" LOCKSTEP_NUM ")"},
    // PyTorch's first tutorial: [1,  2000] loss: 2.173
    {"pytorch", StepIs::of_epoch,
     R"(^\s*\[\s*(?P<epoch>\d+)\s*,\s*(?P<step>\d+)\s*\]\s*loss\s*:?\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // Epoch 1/2, Loss: 0.5
    {"keras", StepIs::of_run,
     R"(^\W*Epoch\s*:?\s*(?P<epoch>\d+)\s*/\s*\d+\s*[,:-]?\s*loss\s*[:=]\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
    // 12/938 [====>…] - ETA: 1s - loss: 0.53     938/938 - 2s - loss: 0.2
    // What a clock follows is the date of a log line: 11/29 10:00:00 loss: 0.5
    {"keras", StepIs::of_epoch,
     R"(^\W*(?P<step>\d+)/(?:(?P<of>\d+)\s+(?:[^\s\d]|\d+[^\s\d:])|Unknown\s).*?[\s-])"
     R"(loss:\s*\[?\s*(?P<loss>)" LOCKSTEP_NUM ")"},
    // Paddle's: step 10/938 - loss: 0.5     step 10/938 [=>..] - loss: [0.5]
    // With anything else behind the count it is a step of the whole run: step 12/100 (12 %) | loss
    {"keras", StepIs::of_epoch,
     R"(^\W*step\s+(?P<step>\d+)/(?P<of>\d+)\s+[-\[].*?[\s-]loss:\s*\[?\s*(?P<loss>)" LOCKSTEP_NUM
     ")"},
};
constexpr std::string_view kPix2Pix = "(epoch: ";  // the only form without the word

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

// "Epoch: [0][ 10/391]" of PyTorch's ImageNet example and what was made of it, timm's "Train: 0 [";
// OpenMMLab's "Epoch [1][ 50/7330]" and "Epoch(train)  [1]" do not.
bool counts_epochs_from_zero(std::string_view text) {
    return text.find("Epoch: [") != std::string_view::npos ||
           text.find("Train: ") != std::string_view::npos;
}

// A pattern with its groups found by name.
class Matcher {
  public:
    Matcher(std::string_view preset, bool step_is_batch, bool redrawn, const std::string& pattern,
            bool latin1)
        : preset_(preset),
          step_is_batch_(step_is_batch),
          redrawn_(redrawn),
          expression_(std::make_unique<RE2>(pattern, capture_options(latin1))) {
        const auto& names = expression_->NamedCapturingGroups();
        const auto index = [&](const char* name) {
            const auto found = names.find(name);
            return found == names.end() ? 0 : found->second;
        };
        loss_ = index("loss");
        step_ = index("step");
        epoch_ = index("epoch");
        of_ = index("of");
    }

    // `at`: where the loss's number begins.
    std::optional<CapturedLoss> match(std::string_view text, std::size_t& at) const {
        if (!expression_->ok() || loss_ == 0) {
            return std::nullopt;
        }
        const int highest = std::max({loss_, step_, epoch_, of_});
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
        // A pattern of the user's may take a list for a number.
        const bool ours = preset_ != "custom";
        const auto loss = ours ? to_loss(group(loss_)) : to_double(trim(group(loss_)));
        if (!loss) {
            return std::nullopt;
        }
        at = static_cast<std::size_t>(group(loss_).data() - text.data());
        CapturedLoss out;
        out.loss = *loss;
        out.preset = preset_;
        out.step = to_int(trim(group(step_)));
        out.step_is_batch = step_is_batch_ && out.step.has_value();
        out.redrawn = redrawn_;
        out.epoch = to_int(trim(group(epoch_)));
        out.of = out.step_is_batch ? to_int(trim(group(of_))) : std::nullopt;
        return out;
    }

  private:
    std::string_view preset_;
    bool step_is_batch_;
    bool redrawn_;
    std::unique_ptr<RE2> expression_;
    int loss_ = 0;
    int step_ = 0;
    int epoch_ = 0;
    int of_ = 0;
};

}  // namespace

struct Capture::Impl {
    std::vector<Matcher> matchers;
    std::unique_ptr<GenericCapture> generic;
    LossTable tables;  // of auto
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
    const RE2 expression{pattern, capture_options(false)};
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
        impl_->matchers.emplace_back("custom", false, false, pattern, false);
        return;
    }
    impl_->off = preset == "none";
    if (impl_->off) {
        return;
    }
    for (const Form& form : kForms) {
        if (preset == "auto" || preset == form.preset) {
            impl_->matchers.emplace_back(form.preset, form.step == StepIs::of_epoch,
                                         form.step == StepIs::redrawn, form.pattern, true);
        }
    }
    if (preset == "auto") {
        impl_->generic = std::make_unique<GenericCapture>();
    }
}

Capture::~Capture() = default;
Capture::Capture(Capture&&) noexcept = default;
Capture& Capture::operator=(Capture&&) noexcept = default;

std::optional<CapturedLoss> Capture::line(std::string_view text) {
    text = text.substr(0, limits::kLineBytes);
    // A user's pattern may look for anything; ours contain the word, but for one, and tables.
    const bool boosts = impl_->generic && may_be_boosting(text);
    const bool mentions =
        boosts || mentions_loss(text) || text.find(kPix2Pix) != std::string_view::npos;
    const bool in_table = impl_->generic && impl_->tables.wants(text);
    if (!in_table) {
        impl_->tables.interrupt();
    }
    if (impl_->off || (!impl_->custom && !mentions && !in_table)) {
        return std::nullopt;
    }
    std::string clean;
    if (has_controls(text)) {
        clean = without_controls(text);
        text = clean;
    }
    if (bool mine = false; in_table) {
        if (auto found = impl_->tables.row(text, mine); found || mine) {
            return found;
        }
    }
    auto found = mentions || impl_->custom ? match(text) : std::nullopt;
    if (impl_->generic && found) {
        impl_->tables.place(*found);
    } else if (impl_->generic) {
        if (in_table) {
            impl_->tables.head(text);
        }
        if (mentions) {
            impl_->tables.header(text);
        }
    }
    return found;
}

std::optional<CapturedLoss> Capture::match(std::string_view text) const {
    if (impl_->generic && impl_->generic->is_of_other_split(text)) {
        return std::nullopt;
    }
    if (impl_->generic && may_be_boosting(text)) {
        if (auto found = boosting_loss(text)) {
            return found;
        }
    }
    for (const Matcher& matcher : impl_->matchers) {
        std::size_t at = 0;
        auto found = matcher.match(text, at);
        if (!found) {
            continue;
        }
        if (impl_->generic && impl_->generic->is_of_validation(text.substr(0, at))) {
            break;  // the training's may stand behind it
        }
        // {"loss": 0.5, "step": 3}: a line of JSON of the script's own looks like Hugging Face's.
        if (impl_->generic && found->preset == "huggingface") {
            found->step = found->step ? found->step : impl_->generic->step(text);
            found->epoch = found->epoch ? found->epoch : impl_->generic->epoch(text);
        }
        if (impl_->generic) {
            found->parts = impl_->generic->parts(text);
        }
        if (found->preset == "lightning") {
            found->bar = true;
            found->from_zero = is_lightnings_own_bar(text);
        } else if (found->preset == "pytorch") {
            found->from_zero = counts_epochs_from_zero(text);
        }
        return found;
    }
    return impl_->generic ? impl_->generic->match(text) : std::nullopt;
}

}  // namespace lockstep
