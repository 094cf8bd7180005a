// How long a step took, of a rank that reports its steps and not their times. One per rank; agent
// thread only.
#pragma once

#include "job/agent/ranks/rank_message.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

class StepTimer {
  public:
    // Adds step_seconds to a report that has the loss of a later step than the one before: the
    // seconds between the two, divided by the steps between them. Not if the rank reports
    // step_seconds by itself, then never again; not if it did something else in between, or if the
    // reports came at once and not step by step.
    void time(RankReport& report);
    // It does something else than train: what comes next is no step's time.
    void pause() { last_.reset(); }

  private:
    struct Last {
        std::int64_t step;
        double time;
    };
    std::optional<Last> last_;
    bool of_its_own_ = false;
};

}  // namespace lockstep
