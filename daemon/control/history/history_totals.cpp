#include "daemon/control/history/history_totals.hpp"

#include "daemon/control/history/state_line.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using telemetry::Aggregate;
using telemetry::CoreMetric;
using telemetry::JobSeries;
using telemetry::JobTotals;
using telemetry::kAbsent;
using telemetry::RankMetric;
using telemetry::RankSeries;
using telemetry::RankTotals;

constexpr std::string_view kTotalsLines = "counted ";
constexpr std::string_view kOfRank = "counted rank";
constexpr std::string_view kOfJob = "counted job";

void put_total(std::string& out, std::optional<double> value) {
    put_number(out, value.value_or(std::numeric_limits<double>::quiet_NaN()));
}

bool take_total(std::string_view& line, double& value) {
    if (!take_number(line, value)) {
        return false;
    }
    value = std::isnan(value) ? kAbsent : value;
    return true;
}

bool take_total(std::string_view& line, std::optional<double>& value) {
    double read = 0;
    if (!take_number(line, read)) {
        return false;
    }
    value = std::isnan(read) ? std::nullopt : std::optional{read};
    return true;
}

void put_rank(std::string& out, std::size_t number, const RankSeries& rank) {
    bool counted = rank.nonfinite() > 0;
    std::string line{kOfRank};
    put_number(line, number);
    put_number(line, rank.nonfinite());
    put_number(line, rank.nonfinite(CoreMetric::loss));
    put_number(line, rank.nonfinite(CoreMetric::grad_norm));
    for (const RankMetric& row : telemetry::kRankMetrics) {
        if (row.aggregate == Aggregate::total) {
            const auto total = rank.total(row.metric);
            counted = counted || total.has_value();
            put_total(line, total);
        }
    }
    if (counted) {
        out += line;
        out += '\n';
    }
}

bool take_rank(std::string_view line, std::vector<RankTotals>& ranks) {
    line.remove_prefix(kOfRank.size());
    std::size_t number = 0;
    RankTotals one;
    if (!take_number(line, number) || !take_number(line, one.nonfinite) ||
        !take_number(line, one.core_nonfinite[index(CoreMetric::loss)]) ||
        !take_number(line, one.core_nonfinite[index(CoreMetric::grad_norm)])) {
        return false;
    }
    for (const RankMetric& row : telemetry::kRankMetrics) {
        if (row.aggregate == Aggregate::total && !take_total(line, one.sum[index(row.metric)])) {
            return false;
        }
    }
    if (!line.empty() || number >= ranks.size()) {
        return false;
    }
    ranks[number] = one;
    return true;
}

void put_job(std::string& out, const JobTotals& job) {
    if (job.nonfinite_loss + job.nonfinite_grad_norm + job.nonfinite_other == 0 && !job.samples &&
        !job.tokens && !job.checkpoint_seconds) {
        return;
    }
    out += kOfJob;
    put_number(out, job.nonfinite_loss);
    put_number(out, job.nonfinite_grad_norm);
    put_number(out, job.nonfinite_other);
    put_total(out, job.samples);
    put_total(out, job.tokens);
    put_total(out, job.checkpoint_seconds);
    out += '\n';
}

bool take_job(std::string_view line, JobTotals& job) {
    line.remove_prefix(kOfJob.size());
    return take_number(line, job.nonfinite_loss) && take_number(line, job.nonfinite_grad_norm) &&
           take_number(line, job.nonfinite_other) && take_total(line, job.samples) &&
           take_total(line, job.tokens) && take_total(line, job.checkpoint_seconds) && line.empty();
}

bool take_totals(std::string_view line, std::vector<RankTotals>& ranks, JobTotals& job) {
    return line.starts_with(kOfRank) ? take_rank(line, ranks)
                                     : line.starts_with(kOfJob) && take_job(line, job);
}

}  // namespace

bool is_totals_line(std::string_view line) {
    return line.starts_with(kTotalsLines);
}

std::string encode_totals(const JobSeries& series) {
    std::string out;
    for (std::size_t i = 0; i < std::min(series.world_size(), limits::kFullTierRanks); ++i) {
        put_rank(out, i, series.rank(i));
    }
    if (series.world_size() > limits::kFullTierRanks) {
        put_job(out, telemetry::totals_beyond(series, limits::kFullTierRanks));
    }
    return out;
}

Status restore_totals(std::string_view state, bool complete, JobSeries& series) {
    std::vector<RankTotals> ranks(series.world_size());
    JobTotals job;
    bool any = false;
    const Status read = each_line(state, [&](std::string_view line) {
        if (!is_totals_line(line)) {
            return true;
        }
        any = true;
        return take_totals(line, ranks, job);
    });
    if (!read) {
        series.restore_totals({}, {});
        return read;
    }
    if (any || !complete) {
        series.restore_totals(ranks, job);
    }
    return {};
}

}  // namespace lockstep
