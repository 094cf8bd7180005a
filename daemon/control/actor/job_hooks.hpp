// What the rest of control does about a job (job_lifecycle.hpp). Control thread.
#pragma once

#include "daemon/control/actor/owed_notices.hpp"
#include "job/async/asio.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"

#include <functional>
#include <vector>

namespace lockstep {

class JobActor;

struct JobHooks {
    std::function<void(JobActor&, const std::vector<Event>&)> on_events;  // after the append
    // What of the events is to be told, for the same append; and that it is stored.
    std::function<OwedNotices(const Job&, const std::vector<Event>&)> notices_of;
    std::function<void(OwedNotices)> on_notices;
    std::function<void(JobActor&)> on_attempt;   // a ticket is good from now on
    std::function<void(JobActor&)> on_finished;  // once; the coroutine ends after it
    std::function<void(JobActor&)> on_aside;     // aside() has changed
    // Every batch that has arrived is durable and in the series.
    std::function<Task<void>()> flush_telemetry;
};

}  // namespace lockstep
