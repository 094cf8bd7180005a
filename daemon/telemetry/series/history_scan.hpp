// Reads history for one metric: chunks on disk and the rows that are in none yet, oldest first, as
// entries (x, lowest, highest, last). Where whole buckets of the pyramid are fine enough they are
// handed out instead of rows; a bucket never crosses a multiple of its stride, so columns that are
// multiples of it keep every extreme exactly.
// What a later generation made again is left out: of an earlier one only the steps before the first
// that the later one reported. Pure but for its source; any thread.
#pragma once

#include "daemon/telemetry/history/history_chunk.hpp"
#include "daemon/telemetry/series/series_query.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

struct ChunkMeta {
    std::int64_t id = 0;
    std::uint32_t block = 0;
    Start start;
    std::int64_t step_low = -1;
    std::int64_t step_high = -1;
    double time_low = 0;
    double time_high = 0;
};

// Where chunks are; an error ends the scan. (A chunk that does not read back does not: it is left
// out and logged.)
class HistorySource {
  public:
    virtual ~HistorySource() = default;
    // Of the blocks low … high, oldest first.
    virtual Result<std::vector<ChunkMeta>> chunks(std::uint32_t low, std::uint32_t high) = 0;
    // Nothing: the chunk has no such section.
    virtual Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                                       std::uint8_t level) = 0;
    // Whether chunks hold all there is of the job.
    virtual Result<bool> packed() { return true; }
    // Names of the metrics that any chunk has values of, in any order.
    virtual Result<std::vector<std::string>> metrics() { return std::vector<std::string>{}; }
    // What chunks do not say, as text (daemon/control/history/history_restore.hpp).
    virtual Result<std::string> state() { return std::string{}; }
};

struct HistoryAsk {
    std::string metric;
    std::vector<std::uint32_t> entities;  // ascending
    Axis x = Axis::step;
    double from = -std::numeric_limits<double>::infinity();  // both ends included
    double to = std::numeric_limits<double>::infinity();
    std::size_t columns = 800;
    // Also what a later generation made again: what happened, and not what came of it.
    bool every_generation = false;
};

// How the axis is cut. Columns of steps are whole multiples of `width`, so that a longer run moves
// none of them; columns of time are equal parts of the range.
struct Columns {
    double origin = 0;
    double width = 1;
    std::size_t count = 0;  // 0 = there is nothing
    std::size_t level = 0;  // the coarsest whose buckets fit
    std::size_t column_of(double x) const;
};
Columns plan_columns(Axis x, double low, double high, std::size_t most);

struct HistoryEntry {
    double x = 0;
    double low = kAbsent;  // absent: no finite value
    double high = kAbsent;
    double last = kAbsent;  // may be non-finite
};

class HistorySink {
  public:
    virtual ~HistorySink() = default;
    virtual void columns(const Columns& columns) = 0;  // once, first
    // `which`: index into HistoryAsk::entities. Of one entity in the order of arrival.
    virtual void entry(std::size_t which, const HistoryEntry& entry) = 0;
    virtual void nonfinite(std::size_t which, std::uint64_t total,
                           const std::vector<Nonfinite>& kept) = 0;
};

Status scan_history(HistorySource& source, const HistoryAsk& ask, const std::vector<TailRows>& tail,
                    HistorySink& sink);

// GET series from history: at most `columns` buckets a rank, as query_series() gives them.
Result<std::vector<RankHistory>> fold_series(HistorySource& source, const HistoryAsk& ask,
                                             const std::vector<TailRows>& tail);

}  // namespace lockstep::telemetry
