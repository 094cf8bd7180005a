// When Slurm is asked next, and whether the budget of questions has room for it. The poll loop
// sleeps here; who needs an answer sooner wakes it. Control thread; it lives as long as the
// scheduler, and nobody may sleep any more when it goes.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"

#include <chrono>
#include <cstdint>

namespace lockstep {

class SlurmPace {
  public:
    // What there is to ask about.
    struct Needs {
        const SlurmTrackedMap& tracked;
        int failures = 0;              // SlurmLink::failures
        bool leftover = false;         // a job of an ended attempt is to be cancelled
        bool nodes = false;            // somebody reads them, and they are old
        std::int64_t min_job_age = 0;  // seconds until Slurm forgets an ended job; 0: not known
    };

    SlurmPace(net::io_context& io, const Clock& clock, const SlurmSchedulerOptions& options);

    void soon();                            // after the shortest pause between two queries
    void look_again() { timer_.cancel(); }  // whoever sleeps: at what is wanted now
    void note_change() { last_change_ = clock_.steady(); }
    void spend() { tokens_ -= 1; }  // a question is asked
    // When the next query may be made: counted from the last one, so that being woken, however
    // often, never puts it off; and not before the budget has room for it.
    SteadyTime next_query(const Needs& needs);
    void begin_query();  // it is made now
    // Until then, or until soon() or look_again().
    Task<void> sleep(SteadyTime::duration rest);

  private:
    std::chrono::milliseconds next_pause(const Needs& needs) const;

    const Clock& clock_;
    const SlurmSchedulerOptions& options_;
    double tokens_;  // of the budget
    SteadyTime tokens_at_;
    SteadyTime last_query_;
    SteadyTime last_change_;
    bool soon_ = false;
    net::steady_timer timer_;
};

}  // namespace lockstep
