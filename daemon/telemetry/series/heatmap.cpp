#include "daemon/telemetry/series/heatmap.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::telemetry {
namespace {

constexpr std::uint32_t kMagic = 0x3148534C;
constexpr std::uint8_t kNotFinite = 255;
constexpr double kShades = 253;
constexpr double kMost = 3e38;  // what an f32 holds

template <class T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class Cells final : public HistorySink {
  public:
    Cells(std::size_t ranks, std::size_t most_rows) {
        ranks_per_row_ = (ranks + most_rows - 1) / most_rows;
        rows_ = (ranks + ranks_per_row_ - 1) / ranks_per_row_;
    }
    void columns(const Columns& columns) override {
        columns_ = columns;
        // f32 keeps the order, and that decides; low and high are those of the values as f32.
        cells_.assign(rows_ * columns_.count, kNone);
    }
    void entry(std::size_t which, const HistoryEntry& entry) override {
        float& cell = cells_[which / ranks_per_row_ * columns_.count + columns_.column_of(entry.x)];
        if (is_absent(entry.high)) {
            cell = cell == kNone ? std::numeric_limits<float>::infinity() : cell;
            return;
        }
        const auto value = static_cast<float>(std::clamp(entry.high, -kMost, kMost));
        cell = cell == kNone || std::isinf(cell) ? value : std::max(cell, value);
    }
    void nonfinite(std::size_t, std::uint64_t, const std::vector<Nonfinite>&) override {}

    std::string take(std::uint32_t first_rank, Axis x) {
        drop_undone();
        // Microseconds: JavaScript's numbers hold them, and of 4,000 columns the last is off by
        // 2 ms at most.
        const double unit = x == Axis::time ? 1e6 : 1;
        double low = std::numeric_limits<double>::infinity();
        double high = -low;
        for (const float cell : cells_) {
            if (cell != kNone && !std::isinf(cell)) {
                low = std::min(low, static_cast<double>(cell));
                high = std::max(high, static_cast<double>(cell));
            }
        }
        if (low > high) {
            low = high = 0;
        }
        std::string out;
        out.reserve(64 + cells_.size());
        put(out, kMagic);
        put(out, std::uint16_t{1});
        put(out, std::uint16_t{0});
        put(out, static_cast<std::uint32_t>(columns_.count == 0 ? 0 : rows_));
        put(out, static_cast<std::uint32_t>(columns_.count));
        put(out, first_rank);
        put(out, static_cast<std::uint32_t>(ranks_per_row_));
        put(out, static_cast<std::int64_t>(std::llround(columns_.origin * unit)));
        put(out, static_cast<std::int64_t>(std::llround(columns_.width * unit)));
        put(out, low);
        put(out, high);
        const double scale = high > low ? kShades / (high - low) : 0;
        for (const float cell : cells_) {
            std::uint8_t shade = 0;
            if (cell != kNone) {
                shade = std::isinf(cell)
                            ? kNotFinite
                            : static_cast<std::uint8_t>(
                                  1 + std::lround((static_cast<double>(cell) - low) * scale));
            }
            out.push_back(static_cast<char>(shade));
        }
        return out;
    }

  private:
    // Columns at the end in which no rank has a value are no part of the picture: steps that an
    // earlier generation had made and the newest has not come to yet.
    void drop_undone() {
        std::size_t used = 0;
        for (std::size_t row = 0; row < rows_; ++row) {
            std::size_t end = columns_.count;
            while (end > used && cells_[row * columns_.count + end - 1] == kNone) {
                --end;
            }
            used = end;
        }
        for (std::size_t row = 1; row < rows_ && used < columns_.count; ++row) {
            std::copy_n(cells_.begin() + static_cast<std::ptrdiff_t>(row * columns_.count), used,
                        cells_.begin() + static_cast<std::ptrdiff_t>(row * used));
        }
        columns_.count = used;
        cells_.resize(rows_ * used);
    }

    static constexpr float kNone = std::numeric_limits<float>::lowest();
    std::size_t ranks_per_row_ = 1;
    std::size_t rows_ = 0;
    Columns columns_;
    std::vector<float> cells_;
};

}  // namespace

std::string empty_heatmap() {
    return Cells{1, 1}.take(0, Axis::step);
}

Result<std::string> make_heatmap(HistorySource& source, const HeatmapAsk& ask,
                                 const std::vector<TailRows>& tail) {
    HistoryAsk scan;
    scan.metric = ask.metric;
    scan.entities = ask.entities;
    if (scan.entities.empty()) {
        scan.entities.resize(std::size_t{ask.rank_high} - ask.rank_low + 1);
        std::iota(scan.entities.begin(), scan.entities.end(), ask.rank_low);
    }
    scan.from = ask.from;
    scan.to = ask.to;
    scan.x = ask.x;
    scan.every_generation = ask.every_generation;
    scan.columns = std::max<std::size_t>(ask.columns, 1);
    const std::size_t room = std::max<std::size_t>(limits::kHeatmapCells / scan.columns, 1);
    Cells cells{scan.entities.size(), ask.rows > 0 ? std::min(ask.rows, room) : room};
    LOCKSTEP_TRY(scan_history(source, scan, tail, cells));
    return cells.take(scan.entities.front(), ask.x);
}

}  // namespace lockstep::telemetry
