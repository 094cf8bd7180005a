// Which store this is, and what it says of jobs that came with a copy; see
// schema/0009_identity.sql. Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/identity.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class IdentityRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    Status set(const StoreIdentity& identity);
    Status add_foreign(const JobId& job);
    Status follow(const JobId& job, UnixMillis since);
    // Folders of attempts below `before` are below `now` from now on, but those of the jobs named.
    Status move_runs(const std::string& before, const std::string& now,
                     const std::vector<JobId>& stay);

    Result<std::optional<StoreIdentity>> find();  // nothing: it has none yet
    Result<bool> is_foreign(const JobId& job);
    Result<CopiedJobs> copied_jobs();
};

}  // namespace lockstep
