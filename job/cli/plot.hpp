// Lines over an x axis, drawn with characters. Pure; any thread.
#pragma once

#include "job/cli/terminal.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

struct PlotPoint {
    double x = 0;
    double low = 0;
    double high = 0;
    double last = 0;
};
struct PlotLine {
    std::int32_t rank = 0;
    std::vector<PlotPoint> points;
};

// `height` rows of canvas, then the x axis and a legend; at most terminal.width columns. With
// colour each rank has its own, in braille dots (2 × 4 per character, min to max of each point);
// without colour or Unicode each rank has its own mark, and * where they meet. Empty when there is
// no finite point.
std::vector<std::string> plot(const Terminal& terminal, const std::string& title,
                              const std::string& x_title, const std::vector<PlotLine>& lines,
                              std::size_t height);

}  // namespace lockstep::cli
