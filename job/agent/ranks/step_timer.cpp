#include "job/agent/ranks/step_timer.hpp"

#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kStepSeconds = "step_seconds";
constexpr double kShortest = 1e-4;  // seconds: reports that are closer tell of steps long over

}  // namespace

void StepTimer::time(RankReport& report) {
    bool has_loss = false;  // of an optimizer step: micro-batches and epochs have other names
    for (const auto& [name, value] : report.metrics) {
        of_its_own_ = of_its_own_ || name == kStepSeconds;
        has_loss = has_loss || name == "loss";
    }
    if (of_its_own_ || report.step < 0 || !has_loss) {
        return;
    }
    if (last_ && report.step > last_->step) {
        const double took =
            (report.time - last_->time) / static_cast<double>(report.step - last_->step);
        if (took >= 0 && took < kShortest) {
            return;  // with the one before, whose moment counts for both
        }
        if (took > 0) {
            report.metrics.emplace_back(kStepSeconds, took);
        }
    }
    last_ = Last{report.step, report.time};
}

}  // namespace lockstep
