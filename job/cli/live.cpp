#include "job/cli/live.hpp"

#include "job/cli/fields.hpp"
#include "job/cli/manual.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::cli {
namespace {

constexpr double kPaceSeconds = 30;
constexpr std::size_t kWorst = 5;

std::string optional_value(const std::optional<double>& value) {
    return value ? format_value(*value) : "-";
}
std::string optional_time(const std::optional<double>& value) {
    return value ? format_seconds(*value) : "-";
}

struct Spread {
    double low = 0, middle = 0, high = 0;
};

// Of the finite values; nothing when there is none.
template <class Pick>
std::optional<Spread> spread(const std::vector<RankView>& ranks, Pick pick) {
    std::vector<double> values;
    for (const RankView& rank : ranks) {
        const std::optional<double> value = pick(rank);
        if (value && std::isfinite(*value)) {
            values.push_back(*value);
        }
    }
    if (values.empty()) {
        return std::nullopt;
    }
    std::sort(values.begin(), values.end());
    const double median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    return Spread{values.front(), median, values.back()};
}

std::string spread_text(const std::optional<Spread>& values, std::string (*format)(double)) {
    if (!values) {
        return "-";
    }
    return format(values->low) + " / " + format(values->middle) + " / " + format(values->high);
}

std::optional<double> loss_of(const RankView& rank) {
    return rank.loss;
}
std::optional<double> step_time_of(const RankView& rank) {
    return rank.step_seconds;
}

// Worst first: ended badly, loss not a number, then the slowest.
bool worse(const RankView& a, const RankView& b) {
    const auto badness = [](const RankView& rank) {
        if (!rank.end.empty() && rank.end != "exit 0") {
            return 2;
        }
        return rank.loss && !std::isfinite(*rank.loss) ? 1 : 0;
    };
    if (badness(a) != badness(b)) {
        return badness(a) > badness(b);
    }
    return a.step_seconds.value_or(0) > b.step_seconds.value_or(0);
}

}  // namespace

void FollowView::take_job(const Json& job, double seconds) {
    id_ = text_at(job, "id");
    name_ = text_at(job, "name");
    state_ = text_at(job, "state");
    pending_ = text_at(job, "pending_reason");
    hang_ = text_at(at(job, "hang"), "message");
    desync_ = text_at(at(job, "desync"), "message");
    smaller_ = smaller_text(job);
    now_ = seconds;
    const Json& attempts = items_at(job, "attempts");
    if (!attempts.empty()) {
        attempt_ = integer_at(attempts.back(), "number").value_or(0);
        const Json& generations = items_at(attempts.back(), "generations");
        generation_ =
            generations.empty() ? 0 : integer_at(generations.back(), "number").value_or(0);
    }
    if (const auto total = integer_at(job, "total_steps")) {
        total_steps_ = total;
    }
}

void FollowView::take_ranks(const Json& ranks) {
    ranks_.clear();
    for (const Json& item : items_at(ranks, "items")) {
        RankView rank;
        rank.rank = static_cast<std::int32_t>(integer_at(item, "rank").value_or(-1));
        rank.node = text_at(item, "node");
        rank.state = text_at(item, "state");
        rank.end = rank_end(item);
        rank.step = integer_at(item, "step");
        rank.loss = number_at(item, "loss");
        rank.step_seconds = number_at(item, "step_seconds");
        if (const auto total = number_at(item, "total_steps"); total && *total > 0) {
            total_steps_ = static_cast<std::int64_t>(*total);
        }
        ranks_.push_back(std::move(rank));
    }
    if (const auto reached = step()) {
        if (!pace_.empty() && pace_.back().second > *reached) {
            pace_.clear();  // a new generation went back to its checkpoint
        }
        if (pace_.empty() || pace_.back().second != *reached) {
            pace_.emplace_back(now_, *reached);
        }
        while (pace_.size() > 2 && now_ - pace_.front().first > kPaceSeconds) {
            pace_.pop_front();
        }
    }
}

void FollowView::take_history(const Json& series) {
    history_.clear();
    for (const PlotLine& line : plot_lines(series)) {
        std::vector<double>& values = history_[line.rank];
        for (const PlotPoint& point : line.points) {
            values.push_back(point.last);
        }
    }
}

std::optional<std::int64_t> FollowView::step() const {
    std::optional<std::int64_t> reached;
    for (const RankView& rank : ranks_) {
        if (rank.step && (!reached || *rank.step < *reached)) {
            reached = rank.step;
        }
    }
    return reached;
}

std::optional<double> FollowView::seconds_left() const {
    const auto reached = step();
    if (!total_steps_ || !reached || *reached >= *total_steps_ || pace_.size() < 2) {
        return std::nullopt;
    }
    const auto& [begin, first] = pace_.front();
    const auto& [end, last] = pace_.back();
    if (end <= begin || last <= first) {
        return std::nullopt;
    }
    const double per_second = static_cast<double>(last - first) / (end - begin);
    return std::max(0.0, static_cast<double>(*total_steps_ - *reached) / per_second);
}

std::string FollowView::progress_line(const Terminal& terminal) const {
    const auto reached = step();
    if (!reached) {
        return pending_.empty() ? "  waiting for the first report" : "  pending: " + pending_;
    }
    std::string text = "step " + std::to_string(*reached);
    double share = 0;
    if (total_steps_ && *total_steps_ > 0) {
        share = std::clamp(static_cast<double>(*reached) / static_cast<double>(*total_steps_), 0.0,
                           1.0);
        text += "/" + std::to_string(*total_steps_);
    } else {
        return "  " + text;
    }
    const auto left = seconds_left();
    const std::string eta =
        is_final_state(state_) || !left ? "" : "  " + format_clock(*left) + " left";
    const std::string percent = std::to_string(static_cast<int>(share * 100)) + " %";
    const std::size_t used = visible_width(text) + visible_width(eta) + percent.size() + 8;
    const std::size_t room = terminal.width > used ? terminal.width - used : 0;
    const std::size_t bar = std::clamp<std::size_t>(room, 8, 48);
    return "  " + paint(terminal, Style::green, progress_bar(terminal, share, bar)) + "  " +
           percent + "  " + text + eta;
}

void FollowView::list_ranks(const Terminal& terminal, std::vector<std::string>& out) const {
    // 2 + 4 + 2 + node + 2 + 8 + 2 + 10 + 2 + 10 + 2 + spark
    std::size_t node_width = 4;
    for (const RankView& rank : ranks_) {
        node_width = std::max(node_width, std::min<std::size_t>(visible_width(rank.node), 16));
    }
    const std::size_t fixed = 44 + node_width;
    const std::size_t spark =
        terminal.width > fixed ? std::min<std::size_t>(terminal.width - fixed, 40) : 0;
    const auto row = [&](const std::string& rank, const std::string& node, const std::string& step_,
                         const std::string& loss, const std::string& time) {
        return "  " + fit(terminal, rank, 4, true) + "  " + fit(terminal, node, node_width, false) +
               "  " + fit(terminal, step_, 8, true) + "  " + fit(terminal, loss, 10, true) + "  " +
               fit(terminal, time, 10, true) + "  ";
    };
    out.push_back(paint(terminal, Style::dim,
                        row("rank", "node", "step", "loss", "step time") + "loss so far"));
    for (const RankView& rank : ranks_) {
        std::string line =
            row(std::to_string(rank.rank), rank.node, rank.step ? std::to_string(*rank.step) : "-",
                optional_value(rank.loss), optional_time(rank.step_seconds));
        const bool bad = !rank.end.empty() && rank.end != "exit 0";
        if (bad) {
            line += paint(terminal, Style::red, rank.end);
        } else if (const auto values = history_.find(rank.rank);
                   values != history_.end() && spark > 0) {
            line += paint(terminal, Style::cyan, sparkline(terminal, values->second, spark));
        }
        out.push_back(std::move(line));
    }
}

void FollowView::summarise_ranks(const Terminal& terminal, std::vector<std::string>& out) const {
    std::size_t reporting = 0;
    for (const RankView& rank : ranks_) {
        reporting += rank.step ? 1U : 0U;
    }
    out.push_back("  " + std::to_string(ranks_.size()) + " ranks, " + std::to_string(reporting) +
                  " reporting                min / median / max");
    out.push_back("    loss       " + spread_text(spread(ranks_, loss_of), format_value));
    out.push_back("    step time  " + spread_text(spread(ranks_, step_time_of), format_seconds));
    std::vector<RankView> order = ranks_;
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(kWorst, order.size()));
    std::partial_sort(order.begin(), middle, order.end(), worse);
    out.push_back(paint(terminal, Style::dim, "  slowest or failed"));
    for (auto rank = order.begin(); rank != middle; ++rank) {
        out.push_back("  " + fit(terminal, std::to_string(rank->rank), 6, true) + "  " +
                      fit(terminal, rank->node, 16, false) + "  " +
                      fit(terminal, optional_value(rank->loss), 10, true) + "  " +
                      fit(terminal, optional_time(rank->step_seconds), 10, true) + "  " +
                      rank->end);
    }
}

std::vector<std::string> FollowView::lines(const Terminal& terminal, double run_seconds) const {
    std::vector<std::string> out;
    std::string head = paint(terminal, Style::bold, name_) + "  " +
                       paint(terminal, state_style(state_), state_) +
                       (pending_.empty() ? "  " : " for ") + format_clock(run_seconds);
    if (attempt_ > 1 || generation_ > 1) {
        head +=
            "  attempt " + std::to_string(attempt_) + "  generation " + std::to_string(generation_);
    }
    if (!smaller_.empty()) {
        head += "  " + paint(terminal, Style::yellow, smaller_);
    }
    out.push_back(head + "  " + paint(terminal, Style::dim, id_));
    if (lacks_loss_ && !step() && pending_.empty()) {
        for (const std::string& line :
             wrapped(kLossHint, std::max<std::size_t>(terminal.width, 22) - 2)) {
            out.push_back("  " + paint(terminal, Style::yellow, line));
        }
    } else {
        out.push_back(progress_line(terminal));
    }
    if (ranks_.size() > kListed) {
        summarise_ranks(terminal, out);
    } else if (!ranks_.empty()) {
        list_ranks(terminal, out);
    }
    if (!hang_.empty()) {
        out.push_back("  " + paint(terminal, Style::yellow, "HANGS  " + hang_));
    }
    if (!desync_.empty()) {
        out.push_back("  " + paint(terminal, Style::yellow, "WAITED FOR  " + desync_));
    }
    if (!note_.empty()) {
        out.push_back("  " + paint(terminal, Style::yellow, note_));
    }
    for (std::string& line : out) {
        line = cut(terminal, line, terminal.width);
    }
    return out;
}

std::string FollowView::plain() const {
    const auto reached = step();
    if (!reached) {
        return pending_.empty() ? state_ : state_ + ", pending: " + pending_;
    }
    std::string out = "step " + std::to_string(*reached);
    if (total_steps_ && *total_steps_ > 0) {
        out += "/" + std::to_string(*total_steps_) + " (" +
               std::to_string(*reached * 100 / *total_steps_) + " %)";
    }
    out += "  loss";
    if (ranks_.size() > 8) {
        out += " min/median/max " + spread_text(spread(ranks_, loss_of), format_value);
    } else {
        for (const RankView& rank : ranks_) {
            out += " " + optional_value(rank.loss);
        }
    }
    const auto times = spread(ranks_, step_time_of);
    out += times ? "  step time " + format_seconds(times->middle) : "";
    const auto left = seconds_left();
    return left ? out + "  " + format_clock(*left) + " left" : out;
}

}  // namespace lockstep::cli
