// One metric of all of a job's ranks, step by step, while somebody watches: a heat map grows by a
// column as soon as a step is complete, of 10,000 ranks as of ten. Owns its columns; control
// thread.
#pragma once

#include "daemon/telemetry/history/history_chunk.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// A step that is complete: every rank that takes part has reported it. Reports come in batches, a
// node's at a time; who falls kHeld steps behind does not take part any more.
struct StepColumn {
    Start start;
    std::int64_t step = -1;
    double time = 0;            // of the newest report, the rank's clock
    std::size_t count = 0;      // ranks that have reported it
    std::vector<float> values;  // by rank; kNoStepValue = none, else maybe not finite
};
inline constexpr float kNoStepValue = -3.402823466e+38F;

class StepColumns {
  public:
    explicit StepColumns(std::size_t ranks) : ranks_(ranks), reports_(ranks) {}

    // A report of an accepted row; `step` ≥ 0. One of an earlier generation is left out.
    void add(Start start, std::uint32_t rank, std::int64_t step, double time, double value);
    // The newest complete step, if it has not been taken; the complete ones before it are dropped.
    // Good until the next add().
    const StepColumn* take();

  private:
    bool complete(const StepColumn& column) const;
    void forget(const StepColumn& column);  // it is about to be dropped

    static constexpr std::size_t kHeld = 32;  // steps between the fastest and the slowest rank
    std::size_t ranks_;
    std::size_t expected_ = 0;  // ranks that took part in the newest whole step; 0 = not known
    std::vector<StepColumn> held_;
    std::vector<std::uint8_t> reports_;  // by rank: the steps that are held with a report of it
    std::size_t reporting_ = 0;          // ranks with any
    Start start_;
    std::int64_t taken_ = -1;
};

// The column as the event `steps` has it (README.md), without the job: `metric`, `worst` ranks by
// name. One line of JSON.
std::string step_json(std::string_view job, std::string_view metric, const StepColumn& column,
                      std::size_t worst);

}  // namespace lockstep::telemetry
