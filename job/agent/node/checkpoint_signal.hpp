// The signal at which the ranks of one generation on this node write a checkpoint. Most programs
// would die of it, so only processes get it that catch it, unless the job names the signal.
// Agent thread only; the specification and the group outlive it.
#pragma once

#include "job/agent/ranks/rank_group.hpp"
#include "job/model/spec/spec.hpp"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

namespace lockstep {

class CheckpointSignal {
  public:
    CheckpointSignal(const JobSpec& spec, const RankGroup& group) : spec_(spec), group_(group) {}

    struct Deaf {
        std::int32_t rank = -1;  // -1 = none is
        std::string problem;
    };
    // The first rank whose processes do not all catch the signal.
    Deaf find_deaf() const;
    // To every rank that catches it.
    void send();
    // The same, and to the others as soon as they do; who is left out so far.
    Deaf warn(std::chrono::steady_clock::time_point now);
    // Sends it to those that warn() has left out, and that catch it by now. Cheap; as often as one
    // likes.
    void warn_the_rest(std::chrono::steady_clock::time_point now);

  private:
    void send(bool only_unwarned);

    const JobSpec& spec_;
    const RankGroup& group_;
    std::set<std::int32_t> unwarned_;  // ranks that warn() has left out
    std::chrono::steady_clock::time_point warned_at_{};
};

}  // namespace lockstep
