#include "daemon/telemetry/series/step_columns.hpp"

#include "daemon/telemetry/series/bands.hpp"
#include "daemon/telemetry/series/order_statistics.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr double kStepShades = 253;       // as in a heat map (heatmap.hpp)
constexpr unsigned char kOddShade = 255;  // nothing finite
Json step_number(float value) {
    if (std::isfinite(value)) {
        return static_cast<double>(value);
    }
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json quantiles_of(std::vector<float> values) {
    Json out = Json::object();
    if (values.empty()) {
        return out;
    }
    const auto at_share = [&values](double share) {
        const double place = std::ceil(share * static_cast<double>(values.size())) - 1;
        const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
        std::nth_element(values.begin(), at, values.end());
        return static_cast<double>(*at);
    };
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    out["min"] = static_cast<double>(*low);
    const double highest = static_cast<double>(*high);
    out["p5"] = at_share(0.05);
    out["median"] = median_of(values);
    out["p95"] = at_share(0.95);
    out["max"] = highest;
    return out;
}

Json worst_of(const StepColumn& column, std::string_view metric, std::size_t count) {
    const bool low = low_is_worse(metric);
    const auto badness = [&](std::uint32_t rank) {
        const float value = column.values[rank];
        constexpr float kWorst = std::numeric_limits<float>::infinity();
        return !std::isfinite(value) ? kWorst : low ? -value : value;
    };
    std::vector<std::uint32_t> ranks;
    ranks.reserve(column.count);
    for (std::uint32_t rank = 0; rank < column.values.size(); ++rank) {
        if (column.values[rank] != kNoStepValue) {
            ranks.push_back(rank);
        }
    }
    const std::size_t most = std::min(count, ranks.size());
    std::partial_sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(most), ranks.end(),
                      [&](std::uint32_t a, std::uint32_t b) {
                          const float left = badness(a);
                          const float right = badness(b);
                          return left != right ? left > right : a < b;
                      });
    Json out = Json::array();
    for (std::size_t i = 0; i < most; ++i) {
        Json one = Json::object();
        one["rank"] = ranks[i];
        one["value"] = step_number(column.values[ranks[i]]);
        out.push_back(std::move(one));
    }
    return out;
}

}  // namespace

// Counted as they come and go: a backlog drops a step with each that it adds, at 10,000 ranks.
void StepColumns::forget(const StepColumn& column) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (column.values[rank] != kNoStepValue && --reports_[rank] == 0) {
            --reporting_;
        }
    }
}

void StepColumns::add(Start start, std::uint32_t rank, std::int64_t step, double time,
                      double value) {
    if (start < start_ || rank >= ranks_) {
        return;
    }
    if (start > start_) {
        start_ = start;
        held_.clear();
        reports_.assign(ranks_, 0);
        reporting_ = 0;
        expected_ = 0;
        taken_ = -1;
    }
    if (step < taken_ || (step == taken_ && (held_.empty() || held_.front().step != step))) {
        return;
    }
    auto at = std::find_if(held_.begin(), held_.end(),
                           [step](const StepColumn& one) { return one.step >= step; });
    if (at == held_.end() || at->step != step) {
        StepColumn made;
        if (held_.size() == kHeld) {
            if (at == held_.begin()) {
                return;  // older than all that is held
            }
            expected_ = reporting_;  // the others do not come: what there is must do
            forget(held_.front());
            made = std::move(held_.front());
            const auto place = at - held_.begin() - 1;
            held_.erase(held_.begin());
            at = held_.begin() + place;
        }
        made.start = start;
        made.step = step;
        made.time = 0;
        made.count = 0;
        made.values.assign(ranks_, kNoStepValue);
        at = held_.insert(at, std::move(made));
    }
    if (at->values[rank] == kNoStepValue) {
        ++at->count;
        reporting_ += reports_[rank]++ == 0 ? 1 : 0;
    }
    at->time = std::max(at->time, time);
    constexpr double kFarthest = std::numeric_limits<float>::max() / 2;
    at->values[rank] =
        static_cast<float>(std::isfinite(value) ? std::clamp(value, -kFarthest, kFarthest) : value);
    if (step == taken_) {
        expected_ = std::max(expected_, at->count);  // it takes part after all
    }
}

bool StepColumns::complete(const StepColumn& column) const {
    return column.count >= (expected_ == 0 ? ranks_ : expected_);
}

const StepColumn* StepColumns::take() {
    for (auto one = held_.rbegin(); one != held_.rend(); ++one) {
        if (one->step > taken_ && complete(*one)) {
            taken_ = one->step;
            expected_ = one->count;
            const auto kept = std::prev(one.base());
            std::for_each(held_.begin(), kept, [this](const StepColumn& old) { forget(old); });
            held_.erase(held_.begin(), kept);
            return &held_.front();
        }
    }
    return nullptr;
}

std::string step_json(std::string_view job, std::string_view metric, const StepColumn& column,
                      std::size_t worst) {
    std::vector<float> finite;
    finite.reserve(column.count);
    std::size_t odd = 0;
    for (const float value : column.values) {
        if (value != kNoStepValue) {
            std::isfinite(value) ? finite.push_back(value) : static_cast<void>(++odd);
        }
    }
    const auto range = std::minmax_element(finite.begin(), finite.end());
    const double low = finite.empty() ? 0 : static_cast<double>(*range.first);
    const double high = finite.empty() ? 0 : static_cast<double>(*range.second);
    const double scale = high > low ? kStepShades / (high - low) : 0;
    std::string cells;
    cells.reserve(column.values.size());
    for (const float value : column.values) {
        unsigned char shade = 0;
        if (value != kNoStepValue) {
            shade = std::isfinite(value)
                        ? static_cast<unsigned char>(
                              1 + std::lround((static_cast<double>(value) - low) * scale))
                        : kOddShade;
        }
        cells.push_back(static_cast<char>(shade));
    }
    Json out = Json::object();
    out["id"] = job;
    out["metric"] = metric;
    out["attempt"] = column.start.attempt;
    out["generation"] = column.start.generation;
    out["step"] = column.step;
    out["time"] = column.time;
    out["ranks"] = column.values.size();
    out["count"] = finite.size();
    out["nonfinite"] = odd;
    out["low"] = low;
    out["high"] = high;
    out["quantiles"] = quantiles_of(std::move(finite));
    out["worst"] = worst_of(column, metric, worst);
    out["cells"] = base64_encode(cells);
    return dump_json(out);
}

}  // namespace lockstep::telemetry
