#include "daemon/control/history/history_steps.hpp"

#include "daemon/control/history/state_line.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {
namespace {

using telemetry::StepTimes;

constexpr std::string_view kStepTimesLine = "steptimes ";

bool take_flag(std::string_view& line, bool& flag) {
    std::uint8_t value = 0;
    if (!take_number(line, value) || value > 1) {
        return false;
    }
    flag = value == 1;
    return true;
}

bool take_step_times(std::string_view line, StepTimes::State& out) {
    line.remove_prefix(kStepTimesLine.size() - 1);  // a number takes the blank before it
    if (!take_number(line, out.start.attempt) || !take_number(line, out.start.generation) ||
        !take_number(line, out.step) || !take_number(line, out.at) ||
        !take_number(line, out.seconds) || !take_flag(line, out.counts) ||
        !take_flag(line, out.paused) || !std::isfinite(out.at) || !std::isfinite(out.seconds)) {
        return false;
    }
    while (!line.empty() && out.newest.size() < StepTimes::kWindow) {
        if (!take_number(line, out.newest.emplace_back())) {
            return false;
        }
    }
    return line.empty();
}

}  // namespace

bool is_step_times_line(std::string_view line) {
    return line.starts_with(kStepTimesLine);
}

std::string encode_step_times(const telemetry::JobSeries& series) {
    const StepTimes::State state = series.step_times().state();
    if (state.step < 0) {
        return "";
    }
    std::string out{kStepTimesLine.substr(0, kStepTimesLine.size() - 1)};
    put_number(out, state.start.attempt);
    put_number(out, state.start.generation);
    put_number(out, state.step);
    put_number(out, state.at);
    put_number(out, state.seconds);
    put_number(out, state.counts ? 1 : 0);
    put_number(out, state.paused ? 1 : 0);
    for (const std::uint8_t bucket : state.newest) {
        put_number(out, bucket);
    }
    return out + '\n';
}

Status restore_step_times(std::string_view state, telemetry::JobSeries& series) {
    return each_line(state, [&](std::string_view line) {
        if (!is_step_times_line(line)) {
            return true;
        }
        StepTimes::State read;
        if (!take_step_times(line, read)) {
            return false;
        }
        series.restore_step_times(StepTimes::from(read));
        return true;
    });
}

}  // namespace lockstep
