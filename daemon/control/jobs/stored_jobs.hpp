// Which jobs the store has, whose they are, and how many bytes their specifications take in it.
#pragma once

#include "daemon/store/job_records.hpp"
#include "job/base/result.hpp"
#include "job/model/event.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class Database;

// Of the event as the store writes it, with the specification and little else. Any thread.
std::int64_t specification_bytes(const event::Submitted& submitted);

// Some jobs older than `before`, from the newest to the oldest; "" = from the newest of all. None
// if there are no more. Few, because the store has nobody else's turn meanwhile. Store thread; the
// errors are the store's. No specification is decoded.
Result<std::vector<SpecificationSize>> stored_jobs(Database& database, const std::string& before);

}  // namespace lockstep
