#include "daemon/telemetry/rank_series.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::telemetry {
namespace {

double lower(double a, double b) {
    if (is_absent(a)) {
        return b;
    }
    return is_absent(b) ? a : std::min(a, b);
}
double higher(double a, double b) {
    if (is_absent(a)) {
        return b;
    }
    return is_absent(b) ? a : std::max(a, b);
}
double finite_or_absent(double value) {
    return std::isfinite(value) ? value : kAbsent;
}

// From here on low and high are stored, because rows are about to hold more than one report.
void widen(MetricColumn& column) {
    if (!column.low.empty() || column.last.empty()) {
        return;
    }
    column.low.resize(column.last.size());
    std::transform(column.last.begin(), column.last.end(), column.low.begin(), finite_or_absent);
    column.high = column.low;
}

void put(MetricColumn& column, std::size_t row, double value) {
    column.last.resize(std::max(column.last.size(), row + 1), kAbsent);
    column.last[row] = value;
    if (!column.low.empty()) {
        column.low.resize(column.last.size(), kAbsent);
        column.high.resize(column.last.size(), kAbsent);
        const double finite = finite_or_absent(value);
        column.low[row] = lower(column.low[row], finite);
        column.high[row] = higher(column.high[row], finite);
    }
}

// Keeps the rows for which keep[row] is set.
template <class T>
void filter(std::vector<T>& values, const std::vector<bool>& keep) {
    std::size_t to = 0;
    for (std::size_t row = 0; row < values.size(); ++row) {
        if (keep[row]) {
            values[to++] = values[row];
        }
    }
    values.resize(to);
}

template <class T>
std::size_t heap(const std::vector<T>& values) {
    return values.capacity() * sizeof(T);
}

}  // namespace

void Ewma20::add(double sample) {
    constexpr double kAlpha = 2.0 / 21.0;
    if (std::isfinite(sample)) {
        mean_ = is_absent(mean_) ? sample : mean_ + kAlpha * (sample - mean_);
    }
}

std::optional<double> Ewma20::value() const {
    return is_absent(mean_) ? std::nullopt : std::optional{mean_};
}

double MetricColumn::low_of(std::size_t row) const {
    return row < low.size() ? low[row] : (low.empty() ? finite_or_absent(last_of(row)) : kAbsent);
}

double MetricColumn::high_of(std::size_t row) const {
    return row < high.size() ? high[row]
                             : (high.empty() ? finite_or_absent(last_of(row)) : kAbsent);
}

const MetricColumn* RankSeries::column(std::size_t metric) const {
    return metric < columns_.size() && !is_absent(columns_[metric].latest) ? &columns_[metric]
                                                                           : nullptr;
}

std::optional<double> RankSeries::latest(std::size_t metric) const {
    const MetricColumn* found = column(metric);
    return found == nullptr ? std::nullopt : std::optional{found->latest};
}

std::optional<double> RankSeries::total(CoreMetric metric) const {
    const std::size_t i = index(metric);
    return is_absent(core_latest_[i]) ? std::nullopt : std::optional{core_total_[i]};
}

std::optional<double> RankSeries::mean(CoreMetric metric) const {
    const std::size_t i = index(metric);
    return i < means_.size() ? means_[i].value() : std::nullopt;
}

void RankSeries::add(std::int64_t step, double time, double received,
                     const std::vector<double>& values, std::size_t capacity) {
    if (step >= 0 && cut_pending_) {
        cut(step);
    }
    if (step < 0 && !cut_pending_) {
        step = last_step_;
    }
    columns_.resize(std::max(columns_.size(), values.size()));
    if (reports_ > 0 && time > last_time_) {
        interval_.add(time - last_time_);
    }
    ++reports_;
    last_time_ = time;
    last_received_ = received;
    last_step_ = step >= 0 ? step : last_step_;
    note_latest(step, time, values);
    remember(step, values);
    if (fill_newest(step, values)) {
        return;
    }
    while (rows() >= capacity && filled_ >= stride_) {
        merge_pairs();
    }
    append(step, time, values);
}

void RankSeries::note_latest(std::int64_t step, double time, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_absent(values[i])) {
            continue;
        }
        MetricColumn& column = columns_[i];
        column.latest = values[i];
        if (i < means_.size()) {
            means_[i].add(values[i]);
        }
        if (i < kCoreMetrics) {
            core_latest_[i] = values[i];
        }
        if (std::isfinite(values[i])) {
            if (i < kCoreMetrics) {
                core_total_[i] += values[i];
            }
            continue;
        }
        ++nonfinite_;
        if (i < kCoreMetrics) {
            ++core_nonfinite_[i];
        }
        ++column.nonfinite_total;
        if (column.nonfinite.size() < kNonfiniteKept) {
            column.nonfinite.push_back({step, time, values[i]});
        }
    }
}

void RankSeries::remember(std::int64_t step, const std::vector<double>& values) {
    const double loss = values[index(CoreMetric::loss)];
    const double step_seconds = values[index(CoreMetric::step_seconds)];
    if (step < 0 || (is_absent(loss) && is_absent(step_seconds))) {
        return;
    }
    if (recent_.size() < kRecentSteps) {
        recent_.push_back({step, loss, step_seconds});
        recent_next_ = recent_.size() % kRecentSteps;
        return;
    }
    recent_[recent_next_] = {step, loss, step_seconds};
    recent_next_ = (recent_next_ + 1) % kRecentSteps;
}

// Two reports of one step with different metrics (a printed loss, then an accuracy sent by hand)
// share a row.
bool RankSeries::fill_newest(std::int64_t step, const std::vector<double>& values) {
    if (stride_ != 1 || rows() == 0 || step < 0 || steps_.back() != step) {
        return false;
    }
    const std::size_t row = rows() - 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!is_absent(values[i]) && !is_absent(columns_[i].last_of(row))) {
            return false;
        }
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!is_absent(values[i]) && i != index(CoreMetric::total_steps)) {
            put(columns_[i], row, values[i]);
        }
    }
    return true;
}

void RankSeries::append(std::int64_t step, double time, const std::vector<double>& values) {
    if (rows() == 0 || filled_ >= stride_) {
        steps_.push_back(step);
        times_.push_back(time);
        filled_ = 0;
    }
    ++filled_;
    const std::size_t row = rows() - 1;
    steps_[row] = step;
    times_[row] = time;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!is_absent(values[i]) && i != index(CoreMetric::total_steps)) {
            if (stride_ > 1 && columns_[i].last.empty()) {
                // First seen when rows hold several reports already.
                columns_[i].last.assign(row + 1, kAbsent);
                widen(columns_[i]);
            }
            put(columns_[i], row, values[i]);
        }
    }
}

void RankSeries::merge_pairs() {
    const std::size_t before = rows();
    const std::size_t after = (before + 1) / 2;
    for (std::size_t i = 0; i < after; ++i) {
        const std::size_t newer = std::min(2 * i + 1, before - 1);
        steps_[i] = steps_[newer];
        times_[i] = times_[newer];
    }
    steps_.resize(after);
    times_.resize(after);
    for (auto& column : columns_) {
        if (column.last.empty()) {
            continue;
        }
        column.last.resize(before, kAbsent);
        widen(column);
        column.low.resize(before, kAbsent);
        column.high.resize(before, kAbsent);
        for (std::size_t i = 0; i < after; ++i) {
            const std::size_t older = 2 * i;
            const std::size_t newer = std::min(older + 1, before - 1);
            const double last = column.last[newer];
            column.last[i] = is_absent(last) ? column.last[older] : last;
            column.low[i] = lower(column.low[older], column.low[newer]);
            column.high[i] = higher(column.high[older], column.high[newer]);
        }
        column.last.resize(after);
        column.low.resize(after);
        column.high.resize(after);
    }
    filled_ += before % 2 == 0 ? stride_ : 0;
    stride_ *= 2;
}

void RankSeries::cut(std::int64_t step) {
    cut_pending_ = false;
    std::vector<bool> keep(rows());
    for (std::size_t row = 0; row < rows(); ++row) {
        keep[row] = steps_[row] < step;
    }
    for (auto& column : columns_) {
        filter(column.last, keep);
        filter(column.low, keep);
        filter(column.high, keep);
        std::erase_if(column.nonfinite, [step](const Nonfinite& n) { return n.step >= step; });
    }
    filter(steps_, keep);
    filter(times_, keep);
    filled_ = stride_;
    // Times of the previous start say nothing about this one.
    interval_ = {};
    means_ = {};
    recent_.clear();
    recent_next_ = 0;
    last_step_ = step;
}

std::optional<double> RankSeries::recent(std::int64_t step, double RecentStep::*field) const {
    for (std::size_t back = 1; back <= recent_.size(); ++back) {
        const RecentStep& entry = recent_[(recent_next_ + recent_.size() - back) % recent_.size()];
        if (entry.step <= step && !is_absent(entry.*field)) {
            return entry.*field;
        }
    }
    return std::nullopt;
}

std::optional<double> RankSeries::loss_at(std::int64_t step) const {
    return recent(step, &RecentStep::loss);
}

std::optional<double> RankSeries::step_seconds_at(std::int64_t step) const {
    return recent(step, &RecentStep::step_seconds);
}

std::size_t RankSeries::bytes() const {
    std::size_t sum = sizeof *this + heap(steps_) + heap(times_) + heap(columns_) + heap(recent_);
    for (const auto& column : columns_) {
        sum += heap(column.last) + heap(column.low) + heap(column.high) + heap(column.nonfinite);
    }
    return sum;
}

}  // namespace lockstep::telemetry
