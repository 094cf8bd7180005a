// Answers GET /v1/jobs/{id}/heatmap: ranks × steps, one byte a cell, the highest value of the cell.
//
// Layout, little-endian, no padding (README.md has it too):
//   u32 magic 0x3148534C ("LSH1")   u16 version = 1   u16 reserved = 0
//   u32 rows                        u32 columns
//   u32 first rank                  u32 ranks per row
//   i64 first step                  i64 steps per column   (x=time: microseconds since the Unix
//                                                          epoch, microseconds)
//   f64 low                         f64 high          of all cells; both 0 if there is none
//   u8 cell[rows × columns], row by row: 0 = nothing, 255 = only values that are not finite,
//   1 … 254 = low + (cell − 1) / 253 × (high − low), rounded to the nearest
// Rows and columns are whole numbers of ranks and steps; a cell that stands for several has the
// highest value of them, so that no spike is lost. Pure but for its source; any thread.
#pragma once

#include "daemon/telemetry/series/history_scan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::telemetry {

struct HeatmapAsk {
    std::string metric = "busy_seconds";
    std::uint32_t rank_low = 0;
    std::uint32_t rank_high = 0;  // included
    double from = -std::numeric_limits<double>::infinity();
    double to = std::numeric_limits<double>::infinity();
    std::size_t columns = 400;
    std::size_t rows = 0;  // at most so many; 0 = one per rank if limits::kHeatmapCells allows it
    // If given, ascending, a row is of these and not of the ranks from rank_low to rank_high.
    std::vector<std::uint32_t> entities{};
    Axis x = Axis::step;
    bool every_generation = false;  // as in HistoryAsk
};

// One without rows and columns.
std::string empty_heatmap();
Result<std::string> make_heatmap(HistorySource& source, const HeatmapAsk& ask,
                                 const std::vector<TailRows>& tail);

}  // namespace lockstep::telemetry
