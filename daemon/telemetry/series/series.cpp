#include "daemon/telemetry/series/series.hpp"

#include "job/base/check.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::telemetry {
namespace {

// A foreign NaN may carry any payload, also the one that means absent.
double canonical(double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

// Sums stay finite whatever a rank says, and JSON has no infinity. 30 million years.
constexpr double kMostSeconds = 1e15;

constexpr double kTrainingPhase = 1;  // of op "phase": init, train, eval, checkpoint

void add_seconds(double& sum, double seconds) {
    if (std::isfinite(seconds) && seconds > 0) {
        sum = std::min(sum + seconds, kMostSeconds);
    }
}

// The newest step is reported by one rank after the other: the first says when it was made.
void note_step(GenerationReport& report, std::int64_t step, double time) {
    if (step < 0) {
        return;
    }
    const auto at = static_cast<UnixMillis>(time * 1000.0);
    if (report.first_step < 0 || step < report.first_step) {
        report.first_step = step;
    }
    if (report.first_at == 0 || at < report.first_at) {
        report.first_at = at;
    }
    if (step > report.last_step) {
        report.last_step = step;
        report.last_at = at;
    }
}

std::size_t values_of_row(const Batch& batch, std::size_t row) {
    return static_cast<std::size_t>(
        std::count_if(batch.columns.begin(), batch.columns.end(),
                      [row](const BatchColumn& column) { return column.present[row] != 0; }));
}

}  // namespace

JobSeries::JobSeries(std::size_t ranks)
    : ranks_(ranks),
      present_(ranks),
      newest_(ranks),
      recent_(ranks),
      rank_bytes_(ranks * sizeof(Rank)) {
    LOCKSTEP_CHECK(ranks >= 1 && ranks <= static_cast<std::size_t>(limits::kRanks));
    metrics_.reserve(kCoreMetrics);
    for (const RankMetric& row : kRankMetrics) {
        metrics_.emplace_back(row.name);
    }
}

std::optional<std::size_t> JobSeries::metric(std::string_view name) const {
    const auto found = std::find(metrics_.begin(), metrics_.end(), name);
    if (found == metrics_.end()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(found - metrics_.begin());
}

std::vector<std::string> JobSeries::reported_metrics() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
        if (std::any_of(ranks_.begin(), ranks_.end(),
                        [i](const Rank& r) { return r.series.column(i) != nullptr; })) {
            names.push_back(metrics_[i]);
        }
    }
    return names;
}

std::vector<std::optional<std::size_t>> JobSeries::metric_ids(const Batch& batch) {
    std::vector<std::optional<std::size_t>> ids;
    ids.reserve(batch.columns.size());
    for (const auto& column : batch.columns) {
        ids.push_back(add_metric(column.name));
    }
    return ids;
}

std::optional<std::size_t> JobSeries::add_metric(std::string_view name) {
    if (const auto known = metric(name)) {
        return known;
    }
    const auto bandwidth = nccl_bandwidth_named(name);
    const auto own = metrics_.size() - static_cast<std::size_t>(std::count(
                                           seen_by_agent_.begin(), seen_by_agent_.end(), true));
    if (!bandwidth && own >= limits::kMetricsPerJob) {
        return std::nullopt;
    }
    metrics_.emplace_back(name);
    seen_by_agent_.resize(metrics_.size());
    if (name == "phase_code") {
        phase_ = metrics_.size() - 1;
    }
    if (bandwidth) {
        seen_by_agent_.back() = true;
        nccl_bandwidths_.at(*bandwidth) = metrics_.size() - 1;
    }
    return metrics_.size() - 1;
}

History& JobSeries::keep_history() {
    if (!history_) {
        history_ = std::make_shared<History>();
    }
    return *history_;
}

StepColumns& JobSeries::watch(const std::string& metric) {
    return watched_.try_emplace(metric, ranks_.size()).first->second;
}

void JobSeries::watch_only(const std::vector<std::string>& metrics) {
    std::erase_if(watched_, [&metrics](const auto& one) {
        return std::find(metrics.begin(), metrics.end(), one.first) == metrics.end();
    });
}

// False if the row is of an earlier generation than the rank's newest.
bool JobSeries::begin_row(Rank& rank, Start start) {
    if (start < rank.start) {
        return false;
    }
    if (start > rank.start) {
        rank.start = start;
        rank.checkpoint_seconds = 0;
        rank.series.restart();
        const std::size_t metrics = rank.series.metrics();
        for (const auto& id : nccl_bandwidths_) {  // the next one may have other operations
            if (id) {
                rank.series.forget_latest(*id);
            }
        }
        // Nor does it evaluate because the process before did.
        if (phase_) {
            rank.series.forget_latest(*phase_);
        }
        series_ -= metrics - rank.series.metrics();  // counted again once it has them
    }
    return true;
}

void JobSeries::restore(Start start, std::uint32_t rank, std::int64_t step, double time,
                        const std::vector<double>& values) {
    if (rank >= ranks_.size() || !begin_row(ranks_[rank], start)) {
        return;
    }
    add_seconds(ranks_[rank].checkpoint_seconds, values[index(CoreMetric::checkpoint_seconds)]);
    add_row(start, rank, step, time, time, values, capacity());
}

void JobSeries::add_row(Start start, std::size_t rank, std::int64_t step, double time,
                        double received, const std::vector<double>& values, std::size_t capacity) {
    RankSeries& series = ranks_[rank].series;
    const std::int64_t at = series.step_of(step);
    const std::size_t bytes = series.bytes();
    const std::size_t metrics = series.metrics();
    const double still_at = still_before(time);
    if (series.add(step, time, received, values, capacity, seen_by_agent_, still_at)) {
        recent_.clear(rank);
    }
    step_times_.note(start, step, time, values[index(CoreMetric::step_seconds)], still_at);
    if (phase_ && *phase_ < values.size() && values[*phase_] > kTrainingPhase) {
        step_times_.pause(start, at, time);
    }
    recent_.add(rank, at, values[index(CoreMetric::loss)], values[index(CoreMetric::step_seconds)]);
    newest_.take(rank, series);
    rank_bytes_ += series.bytes() - bytes;
    series_ += series.metrics() - metrics;
}

void JobSeries::restore_seen(std::int32_t attempt, std::uint32_t node_rank, std::uint64_t seq) {
    std::uint64_t& seen = seen_[{attempt, node_rank}];
    seen = std::max(seen, seq);
}

void JobSeries::restore(GenerationReport report) {
    double seconds = 0;
    add_seconds(seconds, report.checkpoint_seconds);
    report.checkpoint_seconds = seconds;
    generation(report.attempt, static_cast<std::uint32_t>(report.generation)) = report;
}

void JobSeries::restore_totals(const std::vector<RankTotals>& ranks, const JobTotals& earlier) {
    restored_ = {earlier, std::min(ranks_.size(), limits::kFullTierRanks), 0};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        const RankTotals totals = i < ranks.size() ? ranks[i] : RankTotals{};
        const double spent = totals.sum[index(CoreMetric::checkpoint_seconds)];
        if (i < restored_.ranks && spent > restored_.checkpoint_seconds) {  // kAbsent is not
            restored_.checkpoint_seconds = spent;
        }
        ranks_[i].series.set_totals(totals);
        newest_.take(i, ranks_[i].series);
    }
}

// Rows of a rank within the budget of all: each takes 16 bytes and up to 24 per metric.
std::size_t JobSeries::capacity() const {
    const std::size_t row = 16 + 24 * metrics_.size();
    return std::clamp(limits::kJobSeriesBytes / (ranks_.size() * row), limits::kRowsMin,
                      limits::kRecentPoints);
}

std::uint64_t JobSeries::last_batch(std::int32_t attempt, std::int32_t node_rank) const {
    const auto found = seen_.find({attempt, static_cast<std::uint32_t>(node_rank)});
    return found == seen_.end() ? 0 : found->second;
}

const GenerationReport* JobSeries::report_of(std::int32_t attempt, std::int32_t generation) const {
    const auto found =
        std::find_if(generations_.rbegin(), generations_.rend(), [&](const GenerationReport& one) {
            return one.attempt == attempt && one.generation == generation;
        });
    return found == generations_.rend() ? nullptr : &*found;
}

GenerationReport& JobSeries::generation(std::int32_t attempt, std::uint32_t number) {
    const auto wanted = static_cast<std::int32_t>(number);
    const auto at = std::find_if(generations_.rbegin(), generations_.rend(), [&](const auto& one) {
                        return std::pair{one.attempt, one.generation} <= std::pair{attempt, wanted};
                    }).base();
    if (at != generations_.begin()) {
        GenerationReport& before = *std::prev(at);
        if (before.attempt == attempt && before.generation == wanted) {
            return before;
        }
    }
    if (generations_.size() >= limits::kGenerationsKept) {
        generations_.erase(generations_.begin());
        return generation(attempt, number);
    }
    GenerationReport made;
    made.attempt = attempt;
    made.generation = wanted;
    return *generations_.insert(at, made);
}

Ingested JobSeries::ingest(const Batch& batch, std::int32_t attempt, double received) {
    Ingested result;
    std::uint64_t& seen = seen_[{attempt, batch.node_rank}];
    if (batch.seq <= seen) {
        result.duplicate = true;
        return result;
    }
    seen = batch.seq;
    const auto ids = metric_ids(batch);
    const std::size_t room = capacity();
    const Start start{attempt, batch.generation};
    std::vector<double> values(metrics_.size());
    GenerationReport& report = generation(attempt, batch.generation);
    std::vector<std::pair<std::size_t, StepColumns*>> watched;
    for (auto& [name, columns] : watched_) {
        if (const auto id = metric(name)) {
            watched.emplace_back(*id, &columns);
        }
    }
    for (std::size_t row = 0; row < batch.rows(); ++row) {
        if (batch.ranks[row] >= ranks_.size()) {
            ++result.bad_rows;
            result.bad_values += values_of_row(batch, row);
            continue;
        }
        Rank& rank = ranks_[batch.ranks[row]];
        if (!begin_row(rank, start)) {
            ++result.late_rows;
            result.late_values += values_of_row(batch, row);
            continue;
        }
        std::fill(values.begin(), values.end(), kAbsent);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (batch.columns[i].present[row] == 0) {
                continue;
            }
            if (const auto id = ids[i]) {
                values[*id] = canonical(batch.columns[i].values[row]);
                ++result.samples;
            } else {
                ++result.dropped_values;
            }
        }
        const double time = batch.times[row];
        note_step(report, batch.steps[row], time);
        add_seconds(rank.checkpoint_seconds, values[index(CoreMetric::checkpoint_seconds)]);
        report.checkpoint_seconds = std::max(report.checkpoint_seconds, rank.checkpoint_seconds);
        if (history_) {
            history_->add(start, batch.ranks[row], rank.series.step_of(batch.steps[row]), time,
                          values, received > 0 ? received : time);
        }
        add_row(start, batch.ranks[row], batch.steps[row], time, received > 0 ? received : time,
                values, room);
        for (const auto& [id, columns] : watched) {
            if (batch.steps[row] >= 0 && !is_absent(values[id])) {
                columns->add(start, batch.ranks[row], batch.steps[row], time, values[id]);
            }
        }
        ++result.rows;
    }
    return result;
}

std::size_t JobSeries::ingest(const GpuRows& rows, std::int32_t attempt, double received) {
    const double now = received > 0               ? received
                       : rows.batch.times.empty() ? 0
                                                  : rows.batch.times.front();
    return gpus_.add(rows, attempt, now, keep_history());
}

// By their generation: until it has reported in a new one, a rank's newest step is of the one
// before, which went further.
std::int64_t JobSeries::step_in(Start start, const std::vector<std::uint32_t>& ranks) const {
    std::int64_t step = -1;
    for (const std::uint32_t rank : ranks) {
        if (rank < ranks_.size() && ranks_[rank].start == start) {
            step = std::max(step, ranks_[rank].series.last_step());
        }
    }
    if (step >= 0) {
        return step;
    }
    const auto* report = report_of(start.attempt, static_cast<std::int32_t>(start.generation));
    return report == nullptr ? -1 : report->last_step;
}

std::optional<double> JobSeries::report_age(std::size_t rank, double now) const {
    const RankSeries& series = ranks_[rank].series;
    if (series.empty()) {
        return std::nullopt;
    }
    return std::max(0.0, now - series.last_received());
}

std::size_t JobSeries::bytes() const {
    return sizeof *this + rank_bytes_ + newest_.bytes() + recent_.bytes() + gpus_.bytes() +
           (history_ ? history_->bytes() : 0);
}

JobSeries* SeriesStore::at(std::string_view id) {
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? nullptr : found->second.get();
}

JobSeries& SeriesStore::job(std::string_view id, std::size_t ranks) {
    auto found = jobs_.find(id);
    if (found == jobs_.end()) {
        found = jobs_.emplace(std::string{id}, std::make_unique<JobSeries>(ranks)).first;
    }
    return *found->second;
}

const JobSeries* SeriesStore::find(std::string_view id) const {
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? nullptr : found->second.get();
}

void SeriesStore::erase(std::string_view id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
        return;
    }
    History* history = found->second->history();
    if (history != nullptr && history->storing) {
        history->forgotten = true;
    } else {
        jobs_.erase(found);
    }
}

std::size_t SeriesStore::series() const {
    std::size_t sum = 0;
    for (const auto& [id, job] : jobs_) {
        sum += job->series();
    }
    return sum;
}

std::size_t SeriesStore::bytes() const {
    std::size_t sum = 0;
    for (const auto& [id, job] : jobs_) {
        sum += job->bytes();
    }
    return sum;
}

}  // namespace lockstep::telemetry
