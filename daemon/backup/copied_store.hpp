// What becomes of the unfinished jobs of a store that is a copy: the daemon that has them is
// another one. Blocking, before anything else uses the database.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"
#include "job/model/job.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace lockstep {

class Database;

// An unfinished job as its events say; corrupt if they do not.
Result<Job> fold_job(Database& database, const JobId& id);

// Whether a scheduler may have something of the job: its newest attempt was handed over, or was
// about to be.
bool was_handed_over(const Job& job);

// Ends the unfinished jobs that `which` names, here and nowhere else: failed, with a cause of class
// `scheduler` that says `why`. Their allocations, agents and files are not touched, now or later
// (schema/0009_identity.sql, foreign_jobs). Inside a transaction. How many there were.
Result<std::size_t> end_foreign_jobs(Database& database, const std::string& why, UnixMillis now,
                                     const std::function<bool(const Job&)>& which);

}  // namespace lockstep
