// The event log in the database: the truth, of which all else of a job is a fold. Threads,
// transactions, errors: record_access.hpp; corrupt, too: an event does not decode.
#pragma once

#include "daemon/store/record_access.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"
#include "job/model/event.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

class EventRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction; JobRecords::append() adds them with what follows from them.
    Status add(const std::vector<Event>& events);

    Result<Seq> last_seq();
    Result<std::vector<Event>> of_job(const JobId& job, Seq after, std::size_t limit);
    // Newest first, from the one before `before` on; 0: from the newest.
    Result<std::vector<Event>> of_job_before(const JobId& job, Seq before, std::size_t limit);
    // The newest of one kind in each of the newest `limit` generations that have any, newest first;
    // of those before the generation in which the event `before` is, 0: of all.
    Result<std::vector<Event>> newest_of(const JobId& job, EventKind kind, std::size_t limit,
                                         Seq before = 0);
    // All of a kind, the newest first, from the one before `before` on; 0: from the newest.
    Result<std::vector<Event>> newest(const JobId& job, EventKind kind, std::size_t limit,
                                      Seq before = 0);
    Result<std::vector<Event>> after(Seq after, std::size_t limit);
};

}  // namespace lockstep
