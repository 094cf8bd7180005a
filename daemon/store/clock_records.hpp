// When the daemon looked at its clock, in the database, and what of time it did not see. Threads,
// transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/record_access.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <vector>

namespace lockstep {

// Time that nobody saw pass: lockstepd was away, or its clock was set. Milliseconds since the
// epoch.
struct ClockGap {
    UnixMillis began = 0;  // the last look at the clock before it
    UnixMillis ended = 0;  // the first one after it
};

class ClockRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    // The clock shows `now`. More than `most` since the last look, or since the newest job where
    // there was none, is a gap; those that a clock set back shows to be none go. All, oldest first.
    Result<std::vector<ClockGap>> look(UnixMillis now, UnixMillis most);
};

}  // namespace lockstep
