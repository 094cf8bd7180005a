// Whose series are in memory: those of unfinished jobs, and of jobs that are over at most
// limits::kSeriesJobsCached, the newest; the others come back from history when somebody asks.
// Control thread only.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "job/model/job.hpp"

#include <list>
#include <string>

namespace lockstep {

class SeriesCache {
  public:
    SeriesCache(ControlContext& context, HistoryKeeper& history)
        : context_(context), history_(history) {}

    // The job is over: its series go into chunks, and from memory when others need the room.
    void finish(const std::string& job);
    // The job is none any more.
    void forget(const std::string& job);
    // The job's series as far as they are in memory now; nullptr: there are none.
    Task<Result<const telemetry::JobSeries*>> load(const Job& job);
    // Whether chunks alone answer questions about the job; if not, its series are in memory now, as
    // far as there are any.
    Task<Result<bool>> packed(const Job& job);

  private:
    void keep(const std::string& job);

    ControlContext& context_;
    HistoryKeeper& history_;
    std::list<std::string> ages_;  // jobs that are over, newest first
};

}  // namespace lockstep
