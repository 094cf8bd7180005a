#include "job/agent/node/clock_offset.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::uint32_t kFirstQuestions = 8;   // one a beat
constexpr std::uint32_t kQuestionPeriod = 16;  // beats, later

}  // namespace

bool ClockOffset::due() {
    const std::uint32_t beat = beats_++;
    return beat < kFirstQuestions || beat % kQuestionPeriod == 0;
}

void ClockOffset::asked(std::int64_t wall_us, Steady at) {
    asked_us_ = wall_us;
    asked_at_ = at;
}

void ClockOffset::answered(std::int64_t asked_us, std::int64_t daemon_us, Steady at) {
    if (asked_us_ == 0 || asked_us != asked_us_) {
        return;
    }
    asked_us_ = 0;
    const std::int64_t half =
        std::chrono::duration_cast<std::chrono::microseconds>(at - asked_at_).count() / 2;
    kept_.push_back({asked_us + half - daemon_us, half});
    if (kept_.size() > kKept) {
        kept_.pop_front();
    }
}

void ClockOffset::restart() {
    *this = ClockOffset{};
}

std::optional<ClockOffset::Estimate> ClockOffset::estimate() const {
    const auto best = std::min_element(
        kept_.begin(), kept_.end(),
        [](const Estimate& a, const Estimate& b) { return a.error_us < b.error_us; });
    return best == kept_.end() ? std::nullopt : std::optional{*best};
}

}  // namespace lockstep
