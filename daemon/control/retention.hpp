// Removes what is left of jobs that were removed (chunks of history, files), and jobs that have
// been over for longer than the settings keep them. What a kill interrupts is taken up by the next
// start. Files go on threads of their own: a checkpoint may be a terabyte, a file system may hang,
// and the daemon's end waits for neither. Control thread only.
#pragma once

#include "daemon/control/context.hpp"
#include "job/async/side_thread.hpp"

#include <functional>

namespace lockstep {

class Retention {
  public:
    // `remove` makes a job that is over none: what the caller of Control::remove asks for, too.
    using Remove = std::function<Task<Status>(JobId)>;
    Retention(ControlContext& context, Remove remove);

    // What is left from before; ages, now and every hour. Until halt().
    void begin();
    // A job has been removed: the rest of it, soon.
    void hurry();
    void halt();

  private:
    Task<void> tend();
    Task<void> remove_old();
    Task<void> clear_all();
    Task<Status> clear(RemovalRow removal);

    ControlContext& context_;
    Remove remove_;
    SideThread files_{context_.io, 2};  // one that hangs does not hold up the other
    net::steady_timer wake_;
    bool waiting_ = false;  // removals since the last look
    bool ending_ = false;
};

}  // namespace lockstep
