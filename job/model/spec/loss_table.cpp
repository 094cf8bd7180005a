#include "job/model/spec/loss_table.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/capture_words.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

constexpr std::size_t kDashes = 8;
constexpr std::size_t kPartsOfTable = 8;  // kept; YOLO's poses have five
constexpr int kBlockLines = 64;           // the most beneath a line with their step
constexpr std::size_t kMostColumns = 64;

constexpr std::string_view kBlanks = " \t";

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> out;
    std::size_t from = text.find_first_not_of(kBlanks);
    while (from != std::string_view::npos && out.size() <= kMostColumns) {
        const std::size_t end = std::min(text.find_first_of(kBlanks, from), text.size());
        out.push_back(text.substr(from, end - from));
        from = text.find_first_not_of(kBlanks, end);
    }
    return out;
}

std::string lower(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// val_loss, valid_loss, eval/loss; not value_loss.
bool of_validation(std::string_view name) {
    const std::size_t end =
        std::min(static_cast<std::size_t>(
                     std::find_if_not(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isalpha(c) != 0; }) -
                     name.begin()),
                 name.size());
    const std::string_view word = name.substr(0, end);
    return word == "val" || word == "valid" || word == "validation" || word == "test" ||
           word == "eval" || word == "evaluation" || word == "dev";
}

bool is_whole(std::string_view name) {
    return name == "loss" || name == "train_loss" || name == "total_loss";
}

bool is_column_name(std::string_view word) {
    return std::all_of(word.begin(), word.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '/' || c == '-' || c == '.' || c == '%';
    });
}

// "| name | value |" without its bars. `indented`: the row is one of the group above it.
bool cells(std::string_view text, std::string_view& name, std::string_view& value, bool& indented) {
    text = trim(text);
    if (text.size() < 5 || text.front() != '|' || text.back() != '|') {
        return false;
    }
    text = text.substr(1, text.size() - 2);
    const std::size_t bar = text.find('|');
    if (bar == std::string_view::npos || text.find('|', bar + 1) != std::string_view::npos) {
        return false;
    }
    name = trim(text.substr(0, bar));
    value = trim(text.substr(bar + 1));
    indented = text.starts_with("  ");
    // "| epoch 1 | loss 0.5 |" is a line like any other.
    return !name.empty() && lower(value).find("loss") == std::string::npos;
}

// "Iter  Train Loss  OOB Improve  Remaining Time": how many there are; 0: it is another line.
std::size_t columns_of_iterations(std::string_view text) {
    static const re2::RE2 kHeader{R"(^\s*Iter\s+Train Loss\s+(OOB Improve\s+)?Remaining Time\s*$)",
                                  capture_options(true)};
    re2::StringPiece improve;
    return !re2::RE2::PartialMatch(re2::StringPiece{text.data(), text.size()}, kHeader, &improve)
               ? 0
           : improve.empty() ? 3
                             : 4;
}

bool is_line_of_dashes(std::string_view text) {
    text = trim(text);
    return text.size() >= kDashes && text.find_first_not_of('-') == std::string_view::npos;
}

const re2::RE2& block_head() {
    static const re2::RE2 kHead{
        R"(\[(?:step|batch|iter|iteration)=(\d+)/\d+(?:,\s*epoch=(\d+)(?:/\d+)?)?\]:?\s*$)",
        capture_options(true)};
    return kHead;
}

// How much a name is a box's step: Stable-Baselines3 has iterations, of many steps, as well.
int step_rank(std::string_view name) {
    return name == "step" || name == "global_step" || name == "total_timesteps" ? 2
           : name == "steps" || name == "iteration" || name == "iterations"     ? 1
                                                                                : 0;
}

void take_row(LossBox& box, std::string_view name, std::string_view value, bool indented) {
    std::string key = lower(name);
    if (value.empty() || !indented) {
        box.other = value.empty() && of_validation(key);  // "eval/", the name of a group
    }
    if (box.other || of_validation(key)) {
        return;
    }
    key = key.substr(key.rfind('/') == std::string::npos ? 0 : key.rfind('/') + 1);
    if (const int rank = step_rank(key); rank > box.step_rank) {
        if (const auto step = to_int(value)) {
            box.step = step;
            box.step_rank = rank;
        }
        return;
    }
    const auto number = to_double(value);
    if (!number) {
        return;
    }
    if (key == "epoch") {
        box.epoch = to_int(value);
    } else if (is_whole(key)) {
        box.loss = box.loss ? box.loss : number;
    } else if (key.ends_with("_loss")) {
        if (key == "policy_loss" || key == "actor_loss") {
            box.policy = number;
        }
        if (box.parts.size() < kPartsOfTable) {
            box.parts.emplace_back(key, *number);
        }
    }
}

}  // namespace

bool LossTable::wants(std::string_view text) const {
    const std::size_t first = text.find_first_not_of(" \t\x1b");
    if (first == std::string_view::npos) {
        return false;
    }
    const char begin = text[first];
    if (begin == '|' || begin == '-') {
        return box_ || begin == '-';
    }
    if (width_ != 0 && ((begin >= '0' && begin <= '9') || begin == '[')) {
        return true;  // ESC was left out in front of '['
    }
    const char end = text.back();
    return (end == ']' || end == ':') && text.find('=') != std::string_view::npos;
}

std::optional<CapturedLoss> LossTable::row(std::string_view text, bool& mine) {
    mine = false;
    if (auto found = boxed(text, mine); found || mine) {
        return found;
    }
    auto found = width_ == 0 ? std::nullopt : of_columns(text);
    mine = found.has_value();
    return found;
}

void LossTable::interrupt() {
    box_.reset();
    if (block_step_ && ++block_lines_ > kBlockLines) {
        block_step_.reset();
    }
}

void LossTable::head(std::string_view text) {
    re2::StringPiece step;
    re2::StringPiece epoch;
    if (re2::RE2::PartialMatch(re2::StringPiece{text.data(), text.size()}, block_head(), &step,
                               &epoch)) {
        block_step_ = to_int({step.data(), step.size()});
        block_epoch_ = to_int({epoch.data(), epoch.size()});
        block_lines_ = 0;
    }
}

void LossTable::header(std::string_view text) {
    const auto words = words_of(text);
    if (const std::size_t width = columns_of_iterations(text); width > 0) {
        width_ = width;
        rows_ = Rows::left;
        columns_ = {{1, "train_loss"}};
        return;
    }
    if (words.size() < 3 || words.size() > kMostColumns || lower(words[0]) != "epoch" ||
        !std::all_of(words.begin(), words.end(), is_column_name)) {
        return;
    }
    // fastai's, which ends in a time, or YOLO's; else these are words.
    const bool timed = lower(words.back()) == "time";
    std::vector<Column> whole;
    std::vector<Column> parts;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string name = lower(words[i]);
        if (of_validation(name)) {
            continue;
        }
        if (is_whole(name)) {
            whole.push_back({i, name});
        } else if (name.ends_with("_loss")) {
            parts.push_back({i, name});
        }
    }
    // Ultralytics' classification has its loss alone.
    const bool one = timed || (parts.size() < 2 && lower(words[1]) == "gpu_mem");
    if (one ? whole.empty() : parts.size() < 2) {
        return;
    }
    width_ = words.size();
    rows_ = timed ? Rows::time : Rows::bar;
    columns_ = one ? std::vector<Column>{whole.front()} : std::move(parts);
}

std::optional<CapturedLoss> LossTable::of_columns(std::string_view text) const {
    static const re2::RE2 kEpoch{R"((\d+)(?:/\d+)?)", capture_options(true)};
    // tqdm's 12%|█▏   | 12/100 [00:12<01:28], Ultralytics' 12% ━━─── 12/100 1.0it/s
    static const re2::RE2 kDone{R"(^\s*\d+%\D*?(\d+)/(\d+)\s)", capture_options(true)};
    const auto words = words_of(text);
    re2::StringPiece epoch;
    if (words.size() < width_ ||
        !re2::RE2::FullMatch(re2::StringPiece{words[0].data(), words[0].size()}, kEpoch, &epoch)) {
        return std::nullopt;
    }
    CapturedLoss out;
    out.preset = "table";
    (rows_ == Rows::left ? out.step : out.epoch) = to_int({epoch.data(), epoch.size()});
    for (const Column& column : columns_) {
        const auto value = to_double(words[column.index]);
        if (!value) {
            return std::nullopt;
        }
        out.loss += *value;  // YOLO prints what it is the sum of, weighted
        if (columns_.size() > 1 && out.parts.size() < kPartsOfTable) {
            out.parts.emplace_back(column.name, *value);
        }
    }
    const std::string_view last = words[width_ - 1];
    if (rows_ == Rows::left) {
        const bool row = words.size() == width_ && words[0].find('/') == std::string_view::npos &&
                         (last.ends_with('s') || last.ends_with('m')) &&
                         to_double(last.substr(0, last.size() - 1));
        return row ? std::optional{out} : std::nullopt;
    }
    if (rows_ == Rows::time) {
        const bool row = words.size() == width_ && last.size() > 3 && !last.ends_with(':') &&
                         last.find(':') != std::string_view::npos;
        return row ? std::optional{out} : std::nullopt;
    }
    const auto rest =
        text.substr(static_cast<std::size_t>(last.data() + last.size() - text.data()));
    re2::StringPiece done;
    re2::StringPiece total;
    if (!last.ends_with(':') ||
        !re2::RE2::PartialMatch(re2::StringPiece{rest.data(), rest.size()}, kDone, &done, &total)) {
        return std::nullopt;
    }
    out.step = to_int({done.data(), done.size()});
    out.of = to_int({total.data(), total.size()});
    out.step_is_batch = out.bar = out.step.has_value();
    return out;
}

std::optional<CapturedLoss> LossTable::boxed(std::string_view text, bool& mine) {
    if (is_line_of_dashes(text)) {
        mine = true;
        const auto box = std::exchange(box_, std::nullopt);
        const bool empty = !box || (!box->loss && !box->policy && box->parts.empty() && !box->step);
        if (empty) {
            box_ = LossBox{};  // this line begins one
            return std::nullopt;
        }
        if (!box->loss && !box->policy) {
            return std::nullopt;
        }
        CapturedLoss out;
        out.preset = "table";
        out.loss = box->loss ? *box->loss : *box->policy;
        out.step = box->step;
        out.epoch = box->epoch;
        out.parts = box->parts;
        return out;
    }
    std::string_view name;
    std::string_view value;
    bool indented = false;
    if (!box_ || !cells(text, name, value, indented)) {
        box_.reset();
        return std::nullopt;
    }
    mine = true;
    take_row(*box_, name, value, indented);
    return std::nullopt;
}

void LossTable::place(CapturedLoss& found) {
    const auto step = std::exchange(block_step_, std::nullopt);
    if (found.step || !step) {
        return;
    }
    found.step = step;
    found.epoch = found.epoch ? found.epoch : block_epoch_;
}

}  // namespace lockstep
