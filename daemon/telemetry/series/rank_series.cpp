#include "daemon/telemetry/series/rank_series.hpp"

#include "job/base/limits.hpp"

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
// Whether its agent has seen some of it, beyond the core metrics.
bool has_further(const std::vector<double>& values, const std::vector<bool>& seen) {
    for (std::size_t i = kCoreMetrics; i < std::min(values.size(), seen.size()); ++i) {
        if (seen[i] && !is_absent(values[i])) {
            return true;
        }
    }
    return false;
}

// Whether the rank itself has said nothing of it: its agent has seen it.
bool is_only_seen(std::int64_t given_step, const std::vector<double>& values,
                  const std::vector<bool>& further) {
    bool seen = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_absent(values[i])) {
            continue;
        }
        if (i < kCoreMetrics ? !kRankMetrics[i].seen : i >= further.size() || !further[i]) {
            return false;
        }
        seen = true;
    }
    return seen && given_step < 0;
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

void put_value(MetricColumn& column, std::size_t row, double value) {
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
std::size_t heap_of(const std::vector<T>& values) {
    return values.capacity() * sizeof(T);
}

}  // namespace

void Ewma20::add(double sample) {
    constexpr double kNewest = 2.0 / 21.0;
    if (std::isfinite(sample)) {
        const double next = mean_ + kNewest * (sample - mean_);
        // Their difference may be beyond what a double holds though both are within.
        const double far = (1 - kNewest) * mean_ + kNewest * sample;
        mean_ = is_absent(mean_) ? sample : (std::isfinite(next) ? next : far);
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

std::size_t MetricColumn::heap() const {
    return heap_of(last) + heap_of(low) + heap_of(high) + heap_of(nonfinite);
}

const MetricColumn* RankSeries::column(std::size_t metric) const {
    return metric < columns_.size() && !is_absent(columns_[metric].latest) ? &columns_[metric]
                                                                           : nullptr;
}

std::optional<double> RankSeries::latest(std::size_t metric) const {
    const MetricColumn* found = column(metric);
    return found == nullptr ? std::nullopt : std::optional{found->latest};
}

void RankSeries::forget_latest(std::size_t metric) {
    if (column(metric) != nullptr) {
        columns_[metric].latest = kAbsent;
        --metrics_;
    }
}

std::optional<double> RankSeries::mean(CoreMetric metric) const {
    const std::size_t place = mean_place(index(metric));
    return place < means_.size() ? means_[place].value() : std::nullopt;
}

bool RankSeries::add(std::int64_t step, double time, double received,
                     const std::vector<double>& values, std::size_t capacity,
                     const std::vector<bool>& seen, double still_at) {
    const bool said = !is_only_seen(step, values, seen);
    if (step < 0 && has_further(values, seen)) {
        last_seen_ = received;
    }
    const bool replaces = step >= 0 && cut_pending_;
    if (replaces) {
        cut(step);
    }
    if (step < 0 && !cut_pending_) {
        step = last_step_;
    }
    if (columns_.size() < values.size()) {
        columns_.resize(values.size());
        heap_ = count_heap();
    }
    if (said) {
        const bool stood_still = last_time_ <= still_at && still_at <= time;
        if (reports_ > 0 && time > last_time_ && !stood_still) {
            interval_.add(time - last_time_);
        }
        ++reports_;
        last_time_ = time;
        last_received_ = received;
    }
    last_step_ = step >= 0 ? step : last_step_;
    note_latest(step, time, values);
    if (!fill_newest(step, values)) {
        while (rows() >= capacity && filled_ >= stride_) {
            merge_pairs();
        }
        append(step, time, values);
    }
    return replaces;
}

void RankSeries::put(std::size_t metric, std::size_t row, double value) {
    MetricColumn& column = columns_[metric];
    const std::size_t before = column.heap();
    put_value(column, row, value);
    heap_ += column.heap() - before;
}

void RankSeries::note_latest(std::int64_t step, double time, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_absent(values[i])) {
            continue;
        }
        MetricColumn& column = columns_[i];
        metrics_ += is_absent(column.latest) ? 1 : 0;
        column.latest = values[i];
        if (const std::size_t place = mean_place(i); place < means_.size()) {
            means_[place].add(values[i]);
        }
        const bool finite = std::isfinite(values[i]);
        if (i < kCoreMetrics) {
            core_latest_[i] = values[i];
            double& sum = totals_.sum[i];
            sum = (is_absent(sum) ? 0 : sum) + (finite ? values[i] : 0);
        }
        if (finite) {
            continue;
        }
        ++totals_.nonfinite;
        if (i < kCoreMetrics) {
            ++totals_.core_nonfinite[i];
        }
        ++column.nonfinite_total;
        if (column.nonfinite.size() < limits::kNonfiniteKept) {
            const std::size_t before = column.heap();
            column.nonfinite.push_back({step, time, values[i]});
            heap_ += column.heap() - before;
        }
    }
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
            put(i, row, values[i]);
        }
    }
    return true;
}

void RankSeries::append(std::int64_t step, double time, const std::vector<double>& values) {
    if (rows() == 0 || filled_ >= stride_) {
        const std::size_t before = heap_of(steps_) + heap_of(times_);
        steps_.push_back(step);
        times_.push_back(time);
        heap_ += heap_of(steps_) + heap_of(times_) - before;
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
                heap_ = count_heap();
            }
            put(i, row, values[i]);
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
    heap_ = count_heap();
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
    last_step_ = step;
    heap_ = count_heap();
}

std::size_t RankSeries::count_heap() const {
    std::size_t sum = heap_of(steps_) + heap_of(times_) + heap_of(columns_);
    for (const auto& column : columns_) {
        sum += column.heap();
    }
    return sum;
}

}  // namespace lockstep::telemetry
