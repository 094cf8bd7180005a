#include "job/agent/ranks/step_timer.hpp"

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kStepSeconds = "step_seconds";
constexpr double kShortest = 1e-4;  // seconds: reports that are closer tell of steps long over

}  // namespace

void StepTimer::time(RankReport& report) {
    of_its_own_ = of_its_own_ || std::ranges::any_of(report.metrics, [](const auto& metric) {
                      return metric.first == kStepSeconds;
                  });
    if (of_its_own_ || report.step < 0 || !report.has_loss) {
        return;
    }
    if (last_ && report.step > last_->step) {
        const double took =
            (report.time - last_->time) / static_cast<double>(report.step - last_->step);
        if (took >= kShortest) {
            report.metrics.emplace_back(kStepSeconds, took);
        }
    }
    last_ = Last{report.step, report.time};
}

}  // namespace lockstep
