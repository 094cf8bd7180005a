// Lines over an x axis, drawn with characters. Pure; any thread.
#pragma once

#include "job/cli/terminal.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

// NaN: there is no finite value.
struct PlotPoint {
    double x = 0;
    double low = 0;
    double high = 0;
    double last = 0;
};
struct PlotLine {
    std::int32_t rank = 0;
    std::vector<PlotPoint> points;
    std::vector<double> nonfinite{};  // x of values that were NaN or infinite
};

struct PlotLabels {
    std::string title;
    std::string x_title = "step";
    bool x_is_time = false;          // seconds since the Unix epoch
    bool y_is_time = false;          // a time span in seconds
    std::vector<double> restarts{};  // x at which the ranks were started anew
};

// More lines than this are drawn as a band from the lowest to the highest, with the median.
inline constexpr std::size_t kPlotLines = 4;

// A title, `height` rows of canvas, the x axis, a row of marks if there are any, and a legend with
// the extremes; at most terminal.width columns. Every point is drawn from its min to its max: no
// spike is lost. Where something was not finite, or the ranks were started anew, the line is broken
// and marked. In braille dots (2 × 4 per character) where colours tell the lines apart or there is
// but one; else a character each, * where they meet. Empty when there is no finite point.
std::vector<std::string> plot(const Terminal& terminal, const PlotLabels& labels,
                              const std::vector<PlotLine>& lines, std::size_t height);

// "s" of step_seconds, "B" of …_bytes; "" = none, or not known.
std::string unit_of(const std::string& metric);

}  // namespace lockstep::cli
