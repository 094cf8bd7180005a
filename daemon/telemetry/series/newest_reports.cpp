#include "daemon/telemetry/series/newest_reports.hpp"

#include <algorithm>

namespace lockstep::telemetry {
namespace {

constexpr double kLeastSilence = 30;  // seconds

template <class T>
std::size_t heap(const std::vector<T>& column) {
    return column.capacity() * sizeof(T);
}

}  // namespace

NewestReports::NewestReports(std::size_t ranks)
    : last_step_(ranks, -1),
      last_time_(ranks),
      last_received_(ranks),
      silence_(ranks, kLeastSilence),
      nonfinite_(ranks),
      ever_(ranks) {}

void NewestReports::set(Column& column, std::size_t rank, double value) const {
    if (column.empty() && !is_absent(value)) {
        column.assign(ever_.size(), kAbsent);
    }
    if (!column.empty()) {
        column[rank] = value;
    }
}

void NewestReports::take(std::size_t rank, const RankSeries& series) {
    for (const RankMetric& row : kRankMetrics) {
        const std::size_t i = index(row.metric);
        set(latest_[i], rank, series.latest(row.metric).value_or(kAbsent));
        if (row.aggregate == Aggregate::total) {
            set(total_[i], rank, series.total(row.metric).value_or(kAbsent));
        }
        if (row.mean) {
            set(mean_[mean_place(i)], rank, series.mean(row.metric).value_or(kAbsent));
        }
    }
    const auto interval = series.interval();
    set(interval_, rank, interval.value_or(kAbsent));
    silence_[rank] = std::max(3 * interval.value_or(0), kLeastSilence);
    last_step_[rank] = series.last_step();
    last_time_[rank] = series.last_time();
    last_received_[rank] = series.last_received();
    nonfinite_[rank] = series.nonfinite();
    any_nonfinite_ = any_nonfinite_ || series.nonfinite() > 0;
    ever_[rank] = series.empty() ? 0 : 1;
}

std::size_t NewestReports::bytes() const {
    std::size_t sum = heap(interval_) + heap(last_step_) + heap(last_time_) + heap(last_received_) +
                      heap(silence_) + heap(nonfinite_) + heap(ever_);
    for (const Column& column : latest_) {
        sum += heap(column);
    }
    for (const Column& column : total_) {
        sum += heap(column);
    }
    for (const Column& column : mean_) {
        sum += heap(column);
    }
    return sum;
}

}  // namespace lockstep::telemetry
