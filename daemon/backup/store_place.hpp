// Whether a data directory is the one that its store knows, or a copy of it; and what its runs
// directory says of that. Blocking; start-up and restore only.
//
// A plain copy of a data directory has everything: the unfinished jobs, their tickets, their names
// in Slurm. A lockstepd that took it for the original would adopt the attempts of the other one,
// end jobs that it does not see and hand in what the other one has handed in.
#pragma once

#include "daemon/store/identity.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

class Database;

struct StorePlace {
    std::filesystem::path directory;  // data directory, absolute
    std::filesystem::path database;
    std::filesystem::path runs;  // absolute
    std::string host;
};

// What to do with a store that is a copy.
enum class OnCopy : std::uint8_t {
    refuse,     // say so, change nothing
    take_over,  // the one it was copied from is gone for good: go on in its place
    own_way,    // that one goes on: end its unfinished jobs here, and be another store
};

// The file's number and birth, as far as the file system keeps them; not_found.
Result<FileMark> mark_of(const std::filesystem::path& file);

// Makes the store this place's. A store without an identity gets one. conflict: it is a copy and
// `on_copy` is `refuse`; or `take_over`, and the other one runs, or has gone on since; or the runs
// directory is another one's. `note` says what was done, "" = nothing worth it. In one transaction:
// after an error nothing has changed.
Status settle_place(Database& database, const StorePlace& here, OnCopy on_copy, UnixMillis now,
                    std::string& note);

// Refuses a runs directory that another store, which `identity` is a copy of, uses. Whatever says
// so lies in it: `.store-<store>`, written by settle_place() and restore.
Status check_runs(const std::filesystem::path& runs, const StoreIdentity& identity);
Status claim_runs(const std::filesystem::path& runs, const StoreIdentity& identity);
// Whether it says there that `store` uses it, or has used it.
bool has_been_claimed(const std::filesystem::path& runs, const std::string& store);

}  // namespace lockstep
