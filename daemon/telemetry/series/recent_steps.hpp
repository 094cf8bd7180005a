// The newest limits::kRecentSteps steps of every rank, exactly, however coarse the rank's rows are
// by now: what job aggregates need of a step that all ranks have reached. Column by column and not
// rank by rank: ranks of one job go on together, so the same step of all of them lies side by side,
// and a walk over 10,000 ranks reads it as one piece. Owns its columns; control thread only.
#pragma once

#include "job/base/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::telemetry {

class RecentSteps {
  public:
    explicit RecentSteps(std::size_t ranks) : next_(ranks), count_(ranks) {}

    // A report; kAbsent = it has no such value. One with neither is not remembered.
    void add(std::size_t rank, std::int64_t step, double loss, double step_seconds);
    void clear(std::size_t rank);

    // The newest value of a step ≤ `step`; nothing if none is that recent.
    std::optional<double> loss_at(std::size_t rank, std::int64_t step) const;
    std::optional<double> step_seconds_at(std::size_t rank, std::int64_t step) const;
    // Those of several ranks, without the ranks that have none.
    std::vector<double> losses_at(std::span<const std::uint32_t> ranks, std::int64_t step) const;
    std::vector<double> losses_at(std::int64_t step) const;  // of all
    std::vector<double> step_seconds_at(std::span<const std::uint32_t> ranks,
                                        std::int64_t step) const;
    std::size_t bytes() const;

  private:
    struct Slot {
        std::vector<std::int64_t> step;
        std::vector<double> loss;
        std::vector<double> step_seconds;
    };
    using Field = std::vector<double> Slot::*;
    double at(std::size_t rank, std::int64_t step, Field field) const;
    template <class Ranks>
    std::vector<double> all_at(const Ranks& ranks, std::int64_t step, Field field) const;

    std::vector<Slot> slots_;         // as many as the rank with the most has used
    std::vector<std::uint8_t> next_;  // by rank: where its next one goes
    std::vector<std::uint8_t> count_;
};

}  // namespace lockstep::telemetry
