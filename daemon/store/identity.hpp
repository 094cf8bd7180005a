// Which store this is and where it lies: what tells a copy from the original, however it was made.
// A database knows the number of its own file (inode) and when that file was made. Whoever copies
// it makes another file; whoever renames it, or takes its disk to another machine, does not. What
// this does not see is a copy of a whole file system: a snapshot, a clone of a virtual machine.
// Plain values; any thread.
#pragma once

#include "job/base/clock.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct FileMark {
    std::int64_t inode = 0;  // 0 = it lies nowhere: of a backup
    std::int64_t born = 0;   // nanoseconds since the Unix epoch; 0 = the file system does not tell
    // Nothing that is known of both speaks against it.
    bool same_file(const FileMark& other) const {
        return inode == other.inode && (born == 0 || other.born == 0 || born == other.born);
    }
};

struct StoreIdentity {
    std::string store;        // a copy that goes its own way has another
    std::string incarnation;  // another one since each take-over
    FileMark file{};          // of the database
    std::string host{};       // where it was started last
    std::string directory{};  // data directory
    std::string runs{};       // runs directory
};

// What control must know of jobs that are not like others.
struct CopiedJobs {
    std::map<std::string, UnixMillis> followed;  // since the backup of …: never handed in again
    std::vector<std::pair<std::string, std::string>> moves;  // of runs: before, now; in this order
    std::set<std::string> stay;                              // jobs that these do not concern
    bool empty() const { return followed.empty() && moves.empty(); }
};

}  // namespace lockstep
