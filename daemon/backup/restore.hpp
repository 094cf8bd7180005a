// Makes a data directory of a backup. Blocking; one thread.
#pragma once

#include "daemon/backup/backup.hpp"

#include <cstddef>
#include <filesystem>

namespace lockstep {

struct RestorePlan {
    std::filesystem::path from;  // a backup
    std::filesystem::path
        data;  // new data directory, absolute: nothing or an empty folder is there
    // Absolute. "" = <data>/runs; or with `take_over`, where the runs that were backed up had a
    // directory of their own and it is still there, that one.
    std::filesystem::path runs;
    // The lockstepd that was backed up is gone for good. False: it may go on, or come back.
    bool take_over = false;
};

struct RestoreReport {
    Manifest manifest;
    std::filesystem::path runs;  // where they are now
    std::size_t ended = 0;       // jobs that were not over and have been ended in the new store
    std::size_t followed = 0;    // jobs whose allocations the next lockstepd looks for and follows
    std::size_t files = 0;       // put into the runs directory
    std::size_t kept = 0;        // that were there already
};

// Verifies the backup first (`problem` as of verify_backup). Of the unfinished jobs of the backup
// those that a scheduler had are followed with `take_over`, and never handed in again: what became
// of them since the backup is not known. All others end, failed, with a cause that says so; nothing
// of them is touched where they may run. Without `take_over` the store becomes another one; with
// it, a runs directory outside the data directory is the new one's, and the first one, should it
// come back, does not start in it. The data directory appears whole or not at all. conflict: it is
// there, or the runs directory is a living lockstepd's; corrupt: the backup is damaged.
Result<RestoreReport> restore_backup(const RestorePlan& plan, UnixMillis now, const StopAsked& stop,
                                     const std::function<void(const std::string&)>& problem);

}  // namespace lockstep
