// How long ago that was which a job's deadlines count from, by the steady clock. Events have the
// wall clock's time, and that may be set while the job runs: an hour ahead would end all that may
// take half of one. So a moment is kept here with the steady time of its event, or, if an earlier
// lockstepd has written that, of this one's first look at the job. Waiting for nodes to come or to
// meet begins anew where a suspension ends. Value; control thread only.
#pragma once

#include "daemon/control/machine/surroundings.hpp"
#include "job/model/job.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep {

class WaitClock {
  public:
    // What has happened to the job since the last look has happened at `at`.
    void look(const Job& job, const Surroundings& at);
    // Of a job that may be a step ahead of the last look: what is new is now. `ran` is 0 where the
    // scheduler keeps the time limit.
    Waited waited(const Job& job, std::chrono::steady_clock::time_point now) const;

  private:
    enum Which : std::size_t { placed, formed, ended, failed, count };
    struct Moment {
        std::int32_t attempt = 0;
        std::int32_t generation = 0;
        UnixMillis wall = 0;  // of its event; 0: it has not come
        bool operator==(const Moment&) const = default;
    };
    struct Seen {
        Moment moment;
        std::chrono::steady_clock::time_point at{};
    };
    static std::array<Moment, count> moments_of(const Job& job);

    std::array<Seen, count> seen_{};
    bool looked_ = false;
    bool was_suspended_ = false;
    std::chrono::steady_clock::time_point went_on_{};  // the newest end of a suspension
    bool counts_ran_ = true;  // the time limit is not the scheduler's own to keep
    // How long the attempt had run at the first look, by the wall clock, which is all there is for
    // it: a time limit that began anew with each lockstepd would be none.
    std::chrono::milliseconds before_{0};
    Moment before_of_;
};

}  // namespace lockstep
