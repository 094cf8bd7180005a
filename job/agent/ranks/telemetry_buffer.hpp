// The rows that ranks reported and that are not yet in a batch, and the counts of what was lost.
// Agent thread only.
#pragma once

#include "job/agent/ranks/rank_message.hpp"
#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace lockstep {

class TelemetryBuffer {
  public:
    explicit TelemetryBuffer(std::int32_t node_rank) {
        open_.node_rank = static_cast<std::uint32_t>(node_rank);
    }

    // Batches up to this number are known already: of the agent that was here before (keeper.hpp).
    void begin_after(std::uint64_t seq) { next_seq_ = std::max(next_seq_, seq + 1); }
    // Rows of another generation must be taken out (take()) before this is called.
    void set_generation(std::int32_t generation) {
        open_.generation = static_cast<std::uint32_t>(generation);
    }
    // Adds a report. Metric names beyond limits::kMetricsPerJob are left out and counted. False
    // when the batch is full: take() it first.
    bool add(std::int32_t rank, const RankReport& report);
    bool full() const;
    bool empty() const { return open_.rows() == 0; }
    // The open batch with the next number, encoded later by the caller; nothing if it has no rows.
    std::optional<Batch> take();

    // Values that were left out because the job has too many metric names.
    std::uint64_t refused_values() const { return refused_values_; }

  private:
    Batch open_;
    std::set<std::string, std::less<>> names_;
    std::uint64_t next_seq_ = 1;
    std::uint64_t refused_values_ = 0;
};

}  // namespace lockstep
