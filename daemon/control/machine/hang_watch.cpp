#include "daemon/control/machine/hang_watch.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookEvery{250};

// May wrap: only whether it changes counts. A rank without a step (-1) adds nothing: what a job
// without a report has, and one with a report that names no step.
std::uint64_t sum_of_steps(const telemetry::JobSeries* series) {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; series != nullptr && rank < series->present(); ++rank) {
        sum += static_cast<std::uint64_t>(series->rank(rank).last_step() + 1);
    }
    return sum;
}

// Of the rank that reports most often; `first` until one has reported twice. A walk over all ranks:
// only when no step has come for so long that it may be a hang.
std::chrono::duration<double> between_reports(const telemetry::JobSeries& series,
                                              std::chrono::milliseconds first) {
    std::optional<double> least;
    for (std::size_t rank = 0; rank < series.present(); ++rank) {
        if (const auto interval = series.rank(rank).interval()) {
            least = std::min(least.value_or(*interval), *interval);
        }
    }
    return least ? std::chrono::duration<double>{*least} : first;
}

// Op "phase": eval, checkpoint. Who prepares, or trains, does not say why there are no steps.
bool evaluates_or_saves(const telemetry::JobSeries& series) {
    constexpr double kTraining = 1;
    const auto phase = series.metric("phase_code");
    for (std::size_t rank = 0; phase && rank < series.present(); ++rank) {
        const auto code = series.rank(rank).latest(*phase);
        if (code && *code > kTraining) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::optional<HangWatch::Verdict> HangWatch::look(const telemetry::JobSeries* series, TimePoint now,
                                                  Limit limit, bool stepped) {
    if (looked_at_ && now - *looked_at_ < kLookEvery) {
        return std::nullopt;
    }
    const bool first = !looked_at_;
    looked_at_ = now;
    const std::uint64_t sum = sum_of_steps(series);
    if (first) {
        steps_ = sum;
        began_at_ = now;
        moved_at_ = stepped ? std::optional{now} : std::nullopt;
        return std::nullopt;
    }
    // Ranks that take up from a checkpoint and hang where the generation before did leave the sum
    // as it was.
    if (sum != steps_ || (!moved_at_ && stepped)) {
        steps_ = sum;
        moved_at_ = now;
        spared_at_.reset();
    }
    if (!moved_at_) {
        return look_at_start(now, std::max(limit.seconds, limits::kStartLeast));
    }
    if (limit.spares && series != nullptr && evaluates_or_saves(*series)) {
        spared_at_ = now;
    }
    constexpr int kSpared = 10;
    const TimePoint since = limit.spares ? spared_at_.value_or(*moved_at_) : *moved_at_;
    const auto over = [&](std::chrono::duration<double> patience) {
        return now - since >= patience || now - *moved_at_ >= kSpared * patience;
    };
    constexpr int kReports = 3;
    if (!over(limit.seconds) ||
        (limit.grows && !over(kReports * between_reports(*series, limit.first)))) {
        return std::nullopt;
    }
    Verdict out = standing(*series);
    out.silence = std::chrono::duration_cast<std::chrono::seconds>(now - *moved_at_);
    return out;
}

std::optional<HangWatch::Verdict> HangWatch::look_at_start(TimePoint now,
                                                           std::chrono::seconds limit) {
    const bool soon = soon_ && now >= *soon_;
    const bool due = starts_ < limits::kStartLooks && now - began_at_ >= limit * (1 << starts_);
    if (!soon && !due) {
        return std::nullopt;
    }
    soon_.reset();
    starts_ += due ? 1 : 0;
    Verdict out;
    out.starting = true;
    out.silence = std::chrono::duration_cast<std::chrono::seconds>(now - began_at_);
    return out;
}

bool HangWatch::confirmed(const std::string& shown, TimePoint now) {
    const bool same = shown == shown_;
    shown_ = shown;
    if (!shown.empty() && !same) {
        soon_ = now + limits::kStartAgain;
    }
    return !shown.empty() && same;
}

bool HangWatch::still(const telemetry::JobSeries* series) const {
    return sum_of_steps(series) == steps_;
}

HangWatch::Verdict HangWatch::standing(const telemetry::JobSeries& series) {
    Verdict out;
    for (std::size_t rank = 0; rank < series.present(); ++rank) {
        out.step = std::max(out.step, series.rank(rank).last_step());
    }
    for (std::size_t rank = 0; rank < series.present(); ++rank) {
        const telemetry::RankSeries& one = series.rank(rank);
        if (!one.empty() && one.last_step() < out.step) {
            out.behind.push_back(static_cast<std::int32_t>(rank));
        }
    }
    return out;
}

HangWatch::Limit hang_limit(std::int32_t hang_seconds, double step_seconds,
                            std::chrono::milliseconds first) {
    if (hang_seconds > 0) {
        return std::chrono::seconds{hang_seconds};
    }
    constexpr double kTimes = 10;
    const double usual = std::isfinite(step_seconds) ? std::clamp(step_seconds, 0.0, 1e6) : 0;
    const auto steps = std::chrono::seconds{static_cast<std::int64_t>(kTimes * usual)};
    HangWatch::Limit out = std::max<std::chrono::seconds>(limits::kHangLeast, steps);
    out.grows = true;
    out.spares = true;
    out.first = first;
    return out;
}

}  // namespace lockstep
