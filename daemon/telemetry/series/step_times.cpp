#include "daemon/telemetry/series/step_times.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::telemetry {
namespace {

constexpr double kLeast = 1e-3;  // seconds; all below are one bucket
constexpr double kPerOctave = 8;

std::size_t bucket_of(double seconds, std::size_t buckets) {
    if (!(seconds > kLeast)) {
        return 0;
    }
    const double place = 1 + std::floor(kPerOctave * std::log2(seconds / kLeast));
    return static_cast<std::size_t>(std::min(place, static_cast<double>(buckets - 1)));
}

double most_in(std::size_t bucket) {
    return kLeast * std::exp2(static_cast<double>(bucket) / kPerOctave);
}

}  // namespace

StepTimes::State StepTimes::state() const {
    State out{start_, step_, at_, seconds_, counts_, paused_};
    out.newest.reserve(count_);
    for (std::size_t i = 0; i < count_; ++i) {
        out.newest.push_back(newest_[(next_ + kWindow - count_ + i) % kWindow]);
    }
    return out;
}

StepTimes StepTimes::from(const State& state) {
    StepTimes out;
    for (const std::uint8_t bucket : state.newest) {
        out.push_bucket(bucket);
    }
    out.start_ = state.start;
    out.step_ = state.step;
    out.at_ = state.at;
    out.seconds_ = state.seconds;
    out.counts_ = state.counts;
    out.paused_ = state.paused;
    return out;
}

void StepTimes::push(double seconds) {
    push_bucket(static_cast<std::uint8_t>(bucket_of(seconds, kBuckets)));
}

void StepTimes::push_bucket(std::uint8_t bucket) {
    if (count_ == kWindow) {
        --in_bucket_[newest_[next_]];
    } else {
        ++count_;
    }
    newest_[next_] = bucket;
    ++in_bucket_[bucket];
    next_ = (next_ + 1) % kWindow;
}

void StepTimes::note(Start start, std::int64_t step, double time, double seconds, double still_at) {
    if (step < 0 || start < start_) {
        return;
    }
    const bool first = step_ < 0 || start_ < start;
    if (first || step > step_) {
        if (counts_ && seconds_ > 0) {
            push(seconds_);
        }
        const bool stood_still = at_ <= still_at && still_at <= time;
        counts_ = !first && !stood_still && !paused_;
        paused_ = false;
        seconds_ = counts_ ? std::max(0.0, time - at_) / static_cast<double>(step - step_) : 0;
        start_ = start;
        step_ = step;
        at_ = time;
    }
    if (step == step_ && std::isfinite(seconds)) {
        seconds_ = std::max(seconds_, seconds);
    }
}

// By the steps, for the ranks' clocks need not be the same; by the time, for not all who save
// report steps.
void StepTimes::pause(Start start, std::int64_t step, double time) {
    paused_ = paused_ || (start == start_ && (step >= step_ || time >= at_));
}

double StepTimes::p99() const {
    // So many may exceed it.
    std::size_t above = std::max<std::size_t>(count_ - (count_ * 99 + 99) / 100, 1);
    for (std::size_t bucket = kBuckets; count_ > 0 && bucket > 0; --bucket) {
        if (in_bucket_[bucket - 1] > above) {
            return most_in(bucket - 1);
        }
        above -= in_bucket_[bucket - 1];
    }
    return 0;
}

}  // namespace lockstep::telemetry
