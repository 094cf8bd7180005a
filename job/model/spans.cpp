#include "job/model/spans.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

// One generation, whatever attempt it is of.
struct Stretch {
    const Attempt* attempt = nullptr;
    const Generation* generation = nullptr;
    GenerationReport report;
    std::int64_t step = -1;  // the highest known
    // The step after which it began; nothing: not known.
    std::optional<std::int64_t> began;
};

GenerationReport report_of(std::span<const GenerationReport> reports, const Attempt& attempt,
                           const Generation& generation) {
    for (const GenerationReport& report : reports) {
        if (report.attempt == attempt.number && report.generation == generation.number) {
            return report;
        }
    }
    return {};
}

std::optional<std::int64_t> began(const Generation& generation, const GenerationReport& report) {
    const std::int64_t resumed = generation.resumed_from_step;
    if (report.first_step >= 0) {
        return resumed < 0 ? report.first_step - 1 : std::min(resumed, report.first_step - 1);
    }
    return resumed < 0 ? std::nullopt : std::optional{resumed};
}

std::vector<Stretch> stretches(const Job& job, std::span<const GenerationReport> reports) {
    std::vector<Stretch> out;
    for (const Attempt& attempt : job.attempts) {
        for (const Generation& generation : attempt.generations) {
            Stretch one;
            one.attempt = &attempt;
            one.generation = &generation;
            one.report = report_of(reports, attempt, generation);
            one.step = std::max(one.report.last_step, generation.step);
            one.began = began(generation, one.report);
            out.push_back(one);
        }
    }
    return out;
}

// The step up to which what a generation did was not done again, by index; nothing: no rank has
// started after it, or it is not known where.
std::vector<std::optional<std::int64_t>> kept_steps(const std::vector<Stretch>& all) {
    std::vector<std::optional<std::int64_t>> out(all.size());
    std::optional<std::int64_t> lowest;
    for (std::size_t i = all.size(); i-- > 0;) {
        out[i] = lowest;
        if (const std::optional<std::int64_t>& began = all[i].began) {
            lowest = std::min(*began, lowest.value_or(*began));
        }
    }
    return out;
}

// Hands out the time from one moment on: each moment goes to one span, none twice.
class Ledger {
  public:
    Ledger(JobTime& time, UnixMillis from, UnixMillis end, std::vector<Suspension> still)
        : time_(time), at_(from), end_(std::max(from, end)), still_(std::move(still)) {}
    // What is between the moment it has reached and `until`. Returns the milliseconds in which
    // anything moved.
    UnixMillis to(Span span, UnixMillis until) {
        const UnixMillis reached = std::clamp(until, at_, end_);
        const UnixMillis still = suspended(at_, reached);
        const UnixMillis length = reached - at_ - still;
        add(span, static_cast<double>(length) / 1000.0);
        add(Span::suspended, static_cast<double>(still) / 1000.0);
        at_ = reached;
        return length;
    }
    // How much of that time it was suspended.
    UnixMillis suspended(UnixMillis from, UnixMillis until) const {
        UnixMillis out = 0;
        for (const Suspension& one : still_) {
            out += std::max<UnixMillis>(0, std::min(one.to, until) - std::max(one.from, from));
        }
        return out;
    }
    // When so many milliseconds from now have passed in which it was not.
    UnixMillis after(UnixMillis moving) const {
        UnixMillis out = at_ + moving;
        for (const Suspension& one : still_) {
            if (one.to > at_ && one.from < out) {
                out += one.to - std::max(one.from, at_);
            }
        }
        return out;
    }
    void add(Span span, double seconds) {
        time_.seconds[static_cast<std::size_t>(span)] += seconds;
    }
    UnixMillis at() const { return at_; }
    UnixMillis end() const { return end_; }

  private:
    JobTime& time_;
    UnixMillis at_;
    UnixMillis end_;
    std::vector<Suspension> still_;  // in order, none open
};

// Of all attempts, until `end` at the most.
std::vector<Suspension> suspensions(const Job& job, UnixMillis end) {
    std::vector<Suspension> out;
    for (const Attempt& attempt : job.attempts) {
        for (const Suspension& one : attempt.suspensions) {
            const UnixMillis to = one.to != 0                ? one.to
                                  : attempt.finished_at != 0 ? attempt.finished_at
                                                             : end;
            out.push_back({one.from, std::max(one.from, to)});
        }
    }
    return out;
}

// No step for so long that it is not a slow step: the mean of its steps, which took `stepping`,
// tells how slow they are.
bool is_still(const GenerationReport& report, UnixMillis stepping, UnixMillis since) {
    const std::int64_t steps = std::max<std::int64_t>(1, report.last_step - report.first_step);
    const UnixMillis mean = stepping / steps;
    return since >=
           std::max<UnixMillis>(std::chrono::milliseconds{limits::kHangLeast}.count(), 10 * mean);
}

// What the time after the last step was, until `end`.
Span after_the_last_step(const Stretch& one, UnixMillis stepping, UnixMillis since) {
    const Generation& generation = *one.generation;
    const CauseClass cause = !generation.open()         ? generation.cause.kind
                             : generation.first_failure ? generation.first_failure->kind
                                                        : CauseClass::none;
    // It was told, and no step has been made since: however it ended.
    const bool told = generation.hang && (generation.open() || cause != CauseClass::none);
    if (cause == CauseClass::hang || told) {
        return Span::stalled;
    }
    if (cause != CauseClass::none) {
        return Span::lost;
    }
    return generation.open() && is_still(one.report, stepping, since) ? Span::stalled
                                                                      : Span::productive;
}

// A generation whose ranks were all started, from there to its end.
void spend_running(Ledger& ledger, const Stretch& one, std::optional<std::int64_t> kept,
                   UnixMillis end) {
    const GenerationReport& report = one.report;
    if (report.first_step < 0) {
        const bool hung = after_the_last_step(one, 0, 0) == Span::stalled;
        ledger.to(hung ? Span::stalled : Span::init, end);
        return;
    }
    ledger.to(Span::init, std::min(report.first_at, end));
    // Between two steps of one generation the time is taken to be even.
    const std::int64_t steps = report.last_step - report.first_step;
    const UnixMillis last_at = std::clamp(report.last_at, ledger.at(), std::max(ledger.at(), end));
    UnixMillis kept_until = last_at;
    if (kept && *kept < report.last_step) {
        const double share =
            steps == 0 || *kept <= report.first_step
                ? 0.0
                : static_cast<double>(*kept - report.first_step) / static_cast<double>(steps);
        const UnixMillis moving = last_at - ledger.at() - ledger.suspended(ledger.at(), last_at);
        kept_until = ledger.after(std::llround(share * static_cast<double>(moving)));
    }
    const double stepping = static_cast<double>(ledger.to(Span::productive, kept_until)) / 1000.0;
    const double saving = std::clamp(report.checkpoint_seconds, 0.0, stepping);
    ledger.add(Span::productive, -saving);
    ledger.add(Span::checkpoint, saving);
    ledger.to(Span::lost, last_at);
    const UnixMillis until = std::min(end, ledger.end());
    const UnixMillis since = until - ledger.at() - ledger.suspended(ledger.at(), until);
    const UnixMillis steps_took =
        report.last_at - report.first_at - ledger.suspended(report.first_at, report.last_at);
    ledger.to(after_the_last_step(one, steps_took, since), end);
}

}  // namespace

const GenerationTime* JobTime::find(std::int32_t attempt, std::int32_t generation) const {
    for (const GenerationTime& one : generations) {
        if (one.attempt == attempt && one.generation == generation) {
            return &one;
        }
    }
    return nullptr;
}

JobTime job_time(const Job& job, std::span<const GenerationReport> reports, UnixMillis now) {
    JobTime out;
    const UnixMillis end = job.finished_at != 0 ? job.finished_at : now;
    Ledger ledger{out, job.submitted_at, end, suspensions(job, end)};
    const std::vector<Stretch> all = stretches(job, reports);
    const auto kept = kept_steps(all);
    std::size_t next = 0;
    bool reported = false;
    for (const Attempt& attempt : job.attempts) {
        const UnixMillis attempt_end = attempt.finished_at != 0 ? attempt.finished_at : end;
        ledger.to(Span::queue, attempt.placed_at != 0 ? attempt.placed_at : attempt_end);
        for (const Generation& generation : attempt.generations) {
            const Stretch& one = all[next];
            const UnixMillis over = generation.open() ? attempt_end : generation.finished_at;
            if (generation.number == 1) {
                ledger.to(Span::launch, std::min(attempt.claimed_at, generation.started_at));
            }
            ledger.to(Span::rendezvous, generation.running_at != 0 ? generation.running_at : over);
            if (generation.running_at != 0) {
                spend_running(ledger, one, kept[next], over);
            }
            GenerationTime time{attempt.number, generation.number, one.step, std::nullopt};
            if (kept[next] && one.step >= 0) {
                const std::int64_t from = std::max(*kept[next], one.began.value_or(-1));
                time.lost_steps = std::max<std::int64_t>(0, one.step - from);
                out.lost_steps = out.lost_steps.value_or(0) + *time.lost_steps;
            }
            reported = reported || one.report.first_step >= 0;
            out.generations.push_back(time);
            ++next;
        }
        const Span rest = attempt.placed_at == 0        ? Span::queue
                          : attempt.generations.empty() ? Span::launch
                          : attempt.finished_at == 0    ? Span::rendezvous
                                                        : Span::lost;
        ledger.to(rest, attempt_end);
    }
    ledger.to(Span::queue, end);
    if (job.started_at != 0 && end > job.started_at && reported) {
        const UnixMillis ran = end - job.started_at - ledger.suspended(job.started_at, end);
        out.ettr =
            ran > 0
                ? std::clamp(out.of(Span::productive) * 1000.0 / static_cast<double>(ran), 0.0, 1.0)
                : 0.0;
    }
    return out;
}

}  // namespace lockstep
