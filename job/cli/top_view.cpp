// TopView: what it takes from the answers. top_frame.cpp draws it.
#include "job/cli/top_view.hpp"

#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace lockstep::cli {
namespace {

// Of a rank's GPUs. Nothing if no GPU says it.
std::optional<double> of_gpus(const Json& rank, std::string_view key, bool mean) {
    double sum = 0;
    int count = 0;
    for (const Json& gpu : items_at(rank, "gpus")) {
        if (const auto value = number_at(gpu, key); value && std::isfinite(*value)) {
            sum += *value;
            ++count;
        }
    }
    if (count == 0) {
        return std::nullopt;
    }
    return mean ? sum / count : sum;
}

TopRow row_of(const Json& item) {
    TopRow row;
    row.rank = static_cast<std::int32_t>(integer_at(item, "rank").value_or(-1));
    row.node = text_at(item, "node");
    row.state = text_at(item, "state");
    row.end = rank_end(item);
    row.step = integer_at(item, "step");
    row.loss = number_at(item, "loss");
    row.step_seconds = number_at(item, "step_seconds");
    row.busy = number_at(item, "busy_seconds");
    row.wait = number_at(item, "comm_wait_seconds");
    row.data_wait = number_at(item, "data_wait_seconds");
    row.age = number_at(item, "report_age_seconds");
    row.has_gpus = !items_at(item, "gpus").empty();
    row.use = of_gpus(item, "utilization_ratio", true);
    row.memory_bytes = of_gpus(item, "memory_used_bytes", false);
    row.power_watts = of_gpus(item, "power_watts", false);
    return row;
}

}  // namespace

std::optional<TopSort> parse_top_sort(std::string_view word) {
    const auto found = std::find(kTopSorts.begin(), kTopSorts.end(), word);
    return found == kTopSorts.end()
               ? std::nullopt
               : std::optional{static_cast<TopSort>(found - kTopSorts.begin())};
}

std::string sort_query(const TopChoice& choice) {
    struct SortKey {
        const char* name;
        bool descending;
    };
    static constexpr std::array<SortKey, kTopSorts.size()> kKeys{{{"busy_seconds", true},
                                                                  {"loss", true},
                                                                  {"step", false},
                                                                  {"utilization_ratio", false},
                                                                  {"rank", false}}};
    const SortKey& key = kKeys.at(static_cast<std::size_t>(choice.sort));
    return std::string("sort=") + (key.descending != choice.reversed ? "-" : "") + key.name;
}

void TopView::take_job(const Json& job, UnixMillis now) {
    id_ = text_at(job, "id");
    name_ = text_at(job, "name");
    state_ = text_at(job, "state");
    pending_ = text_at(job, "pending_reason");
    smaller_ = smaller_text(job);
    hang_ = text_at(at(job, "hang"), "message");
    desync_ = text_at(at(job, "desync"), "message");
    step_ = integer_at(job, "step");
    total_steps_ = integer_at(job, "total_steps");
    ettr_ = number_at(job, "ettr");
    run_seconds_ = running_seconds(job, now);
    now_ = time_at(job, "finished_at").value_or(now);
    lacks_loss_ = lacks_loss(job, now);
    const Json& cause = at(job, "cause");
    cause_ = text_at(cause, "message");
    std::int64_t starts = 0;
    attempt_ = 0;
    generation_ = 0;
    for (const Json& attempt : items_at(job, "attempts")) {
        attempt_ = integer_at(attempt, "number").value_or(0);
        for (const Json& generation : items_at(attempt, "generations")) {
            generation_ = integer_at(generation, "number").value_or(0);
            ++starts;
        }
    }
    restarts_ = std::max<std::int64_t>(starts - 1, 0);
    anomalies_total_ = 0;
    const Json& anomalies = at(job, "anomalies");
    if (anomalies.is_object()) {
        for (const auto& [kind, count] : anomalies.items()) {
            anomalies_total_ += count.is_number_integer() ? count.get<std::int64_t>() : 0;
        }
    }
}

void TopView::take_ranks(const Json& ranks, std::size_t offset) {
    rows_.clear();
    for (const Json& item : items_at(ranks, "items")) {
        rows_.push_back(row_of(item));
        gpus_ = gpus_ || rows_.back().has_gpus;
    }
    offset_ = offset;
    const std::int64_t total = integer_at(ranks, "total").value_or(0);
    total_ = std::max(static_cast<std::size_t>(std::max<std::int64_t>(total, 0)),
                      rows_.empty() ? 0 : offset + rows_.size());
    reporting_ = integer_at(ranks, "ranks_reporting");
    samples_per_second_ = number_at(ranks, "samples_per_second");
}

TopSort TopView::usual_sort() const {
    const auto busy = [](const TopRow& row) { return row.busy.has_value(); };
    const auto step = [](const TopRow& row) { return row.step.has_value(); };
    const bool by_step = std::none_of(rows_.begin(), rows_.end(), busy) &&
                         std::any_of(rows_.begin(), rows_.end(), step);
    return by_step ? TopSort::step : TopSort::busy;
}

void TopView::take_event(const Json& event) {
    if (text_at(event, "kind") != "anomaly") {
        return;
    }
    const Json& data = at(event, "data");
    TopAnomaly anomaly;
    anomaly.time = text_at(event, "time");
    anomaly.at = time_at(event, "time").value_or(0);
    anomaly.kind = text_at(data, "anomaly");
    anomaly.message = text_at(data, "message");
    anomaly.step = integer_at(data, "step");
    anomaly.node = text_at(event, "node");
    anomaly.rank = integer_at(event, "rank");
    anomaly.attempt = integer_at(event, "attempt").value_or(0);
    anomaly.generation = integer_at(event, "generation").value_or(0);
    const Json& over = at(data, "over");
    anomaly.over = over.is_boolean() && over.get<bool>();
    anomalies_.push_back(std::move(anomaly));
    if (anomalies_.size() > limits::kTopAnomaliesKept) {
        anomalies_.pop_front();
    }
}

std::string TopView::trouble(const TopRow& row) const {
    // But for what lasts, whose end is told, an anomaly is told when it begins and never taken
    // back: an old one says nothing of now.
    constexpr std::int64_t kRecentMillis = 600'000;
    std::set<std::string_view> over;
    for (auto one = anomalies_.rbegin(); one != anomalies_.rend(); ++one) {
        if (one->over) {
            over.insert(one->kind);
        }
        const bool lasts = one->kind == "hang" || one->kind == "desync";
        const bool now = over.count(one->kind) == 0 && one->attempt == attempt_ &&
                         one->generation == generation_ &&
                         (lasts || now_ - one->at <= kRecentMillis);
        const bool here = one->kind == "slow_node" ? !row.node.empty() && one->node == row.node
                                                   : one->rank.value_or(-1) == row.rank;
        if (now && here) {
            return one->kind;
        }
    }
    return "";
}

std::string TopView::note_of(const TopRow& row) const {
    if (!row.end.empty() && row.end != "exit 0") {
        return row.end;
    }
    std::string kind = trouble(row);
    if (!kind.empty()) {
        return kind;
    }
    return row.state == "running" ? "" : row.state;
}

}  // namespace lockstep::cli
