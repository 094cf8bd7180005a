// Who is missing while the nodes of a job meet, and why: in the job's view once a second and, every
// 5 s, in the log. Value; control thread only.
#pragma once

#include "job/model/job.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

struct AttemptRun;

class MissingNodes {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Called with every input and tick. What the job's pending reason is to be from now on: ""
    // nobody is missing any more; nothing: as it is. `run`: what this is a part of.
    std::optional<std::string> look(const Job& job, const AttemptRun& run, Time now);

  private:
    std::optional<std::string> nobody();

    std::optional<Time> since_{};  // none: nobody is waited for
    Time viewed_{};                // last looked for
    Time logged_{};
    bool told_ = false;  // the job's pending reason says it
};

}  // namespace lockstep
