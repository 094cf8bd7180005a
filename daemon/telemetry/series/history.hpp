// The newest rows of a job's history: those that are in no chunk on disk yet. They are safe in the
// telemetry log of the store until a chunk holds them (daemon/README.md), and every question about
// history sees them too. Ranks and GPUs share the bounds, the chunks' numbers and the log.
// Owns its rows. Control thread only; what seal() hands out is read by others and never changes.
#pragma once

#include "daemon/telemetry/history/history_chunk.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

// The rows that no chunk held at one moment, of one metric and some entities: taken on the control
// thread, made into rows on another. What was closed already is shared and never changes; only
// what is open is copied.
class HistoryTail {
  public:
    // Oldest first. Any thread.
    std::vector<TailRows> rows() const;

  private:
    friend class History;
    EntityKind kind_ = EntityKind::rank;
    std::size_t metric_ = 0;
    std::vector<std::uint32_t> entities_;
    std::vector<std::shared_ptr<const HistoryRows>> sealed_;
    std::vector<TailRows> open_;
};

class History : public std::enable_shared_from_this<History> {
  public:
    // `values` by metric id of that kind of entity, kAbsent = none; `step` -1 = not given; `now`:
    // the daemon's clock.
    void add(Start start, std::uint32_t entity, std::int64_t step, double time,
             const std::vector<double>& values, double now, EntityKind kind = EntityKind::rank);
    bool due(double now) const;
    bool empty() const { return open_.empty() && sealed_.empty(); }
    // Closes what is open. All that no chunk holds yet, oldest first.
    std::vector<std::shared_ptr<const HistoryRows>> seal();
    // The oldest `count` that seal() gave are in chunks; `newest_chunk` is the last one's id.
    void stored(std::size_t count, std::int64_t newest_chunk);

    // One metric of some entities (ascending), for a question.
    HistoryTail tail(std::size_t metric, std::vector<std::uint32_t> entities,
                     EntityKind kind = EntityKind::rank) const;
    std::size_t bytes() const;
    std::size_t open_samples() const { return open_samples_; }  // values that seal() would close

    // Chunks beyond this one hold rows that are here as well.
    std::int64_t newest_chunk = 0;
    // The newest row of the telemetry log whose batches are here or in chunks.
    std::int64_t newest_log = 0;
    std::int64_t stored_log = 0;  // up to here they are in chunks, and gone from the log
    bool storing = false;         // somebody is writing what seal() gave
    bool finishing = false;       // all that is left goes into chunks after that
    bool forgotten = false;       // the series are no longer needed; the writer drops them
    bool complete = true;         // the series in memory have every row that history has

  private:
    struct Block {
        EntityKind kind = EntityKind::rank;
        std::uint32_t block = 0;
        Start start;
        friend auto operator<=>(const Block&, const Block&) = default;
    };
    std::map<Block, HistoryRows> open_;
    std::vector<std::shared_ptr<const HistoryRows>> sealed_;
    std::size_t open_samples_ = 0;
    std::size_t open_rows_ = 0;
    double opened_ = 0;
    bool block_full_ = false;
};

}  // namespace lockstep::telemetry
