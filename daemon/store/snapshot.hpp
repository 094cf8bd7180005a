// A database as a whole, from outside: copied while a lockstepd uses it, and checked. Neither
// changes it, migrates it or checkpoints its WAL. Blocking; any thread, a connection of its own.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep {

// What is in a database, whatever its version.
struct DatabaseFacts {
    std::int32_t schema = 0;
    std::string store;  // of its identity; "" = before version 9
    std::string runs;   // runs directory when lockstepd was started last; "" = not known
    std::int64_t jobs = 0;
    std::int64_t unfinished = 0;
    std::int64_t events = 0;
    std::int64_t last_seq = 0;
};

// Copies `from` as it is at one moment into `to`, which must not be there (VACUUM INTO: committed
// transactions only, whatever is written meanwhile; the copy is compact). not_found: no database;
// conflict: a newer lockstepd's; exhausted: the disk is full; cancelled: `stop` said so, asked some
// thousand times a second. What an error leaves of `to` is the caller's to remove. Not synced.
Status copy_database(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::function<bool()>& stop);

// What is in a database that another process may use.
Result<DatabaseFacts> read_facts(const std::filesystem::path& file);

// Reads all of a database that nobody uses: PRAGMA integrity_check, then what is in it. corrupt:
// with the first things that are wrong.
Result<DatabaseFacts> check_database(const std::filesystem::path& file);

}  // namespace lockstep
