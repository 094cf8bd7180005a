// Jobs that were removed, in the database, until nothing is left of them and a while longer.
// Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/record_access.hpp"
#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A job that was removed; see schema/0005_removals.sql.
struct RemovalRow {
    JobId job;
    std::string user;  // given by the store, as the next one
    UnixMillis finished_at = 0;
    UnixMillis removed_at = 0;
    bool checkpoints = true;  // those below the runs directory go, too
    std::string snapshot{};   // folder that no other job uses, given by the store; "" = none
    // The job's folder, if it is of a runs directory that there was before; "" = of the one of now.
    std::string folder{};
};

class RemovalRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    // The job is none any more: its events and labels go, the rest follows by
    // HistoryRecords::remove(). Its idempotency key is that of another job of its sweep from now
    // on, or stays for as long as the removal is known. False: there is no such job that is over.
    Result<bool> remove_job(RemovalRow removal);
    Status done(const JobId& job);     // nothing is left of it
    Status forget(UnixMillis before);  // with the idempotency keys of these jobs

    Result<std::optional<RemovalRow>> find(const JobId& job);
    // Of which something may be left, in the order of their ids, beyond `after`.
    Result<std::vector<RemovalRow>> unfinished(const JobId& after, std::size_t limit);
};

}  // namespace lockstep
