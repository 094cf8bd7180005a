// The connection that a Database owns: its statements, and SQLite's errors as ours. For the .cpp
// files of this folder only: whoever else wants rows asks the types that read and write them
// (record_access.hpp). One thread at a time a connection: the store thread, and the reading thread
// of history for the one that Database::reader() made.
#pragma once

#include "daemon/store/history_records.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep {

// What an error of SQLite means for whoever writes. It calls ENOSPC SQLITE_FULL, but a used-up
// quota (EDQUOT), and a full disk under the index of the WAL, an I/O error. A sync that has failed
// stays one, whatever it is called: nobody knows what is on the disk.
inline Errc sqlite_errc(int code, int extended, int system_errno) {
    const bool no_room = system_errno == ENOSPC || system_errno == EDQUOT;
    const bool grows = extended == SQLITE_IOERR_WRITE || extended == SQLITE_IOERR_SHMSIZE ||
                       code == SQLITE_CANTOPEN;
    if (code == SQLITE_FULL || (no_room && grows)) {
        return Errc::exhausted;
    }
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
        return Errc::corrupt;
    }
    return code == SQLITE_BUSY || code == SQLITE_LOCKED ? Errc::unavailable : Errc::internal;
}

// Of the last call for the write-ahead log that failed. sqlite3_system_errno() does not know those
// of a COMMIT.
inline int wal_errno(sqlite3* db) {
    sqlite3_file* file = nullptr;
    int number = 0;
    if (::sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) == SQLITE_OK &&
        file != nullptr && file->pMethods != nullptr) {
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &number);
    }
    return number;
}

// `db`: the connection, if it still is there; it knows the errno.
inline Error sqlite_error(std::string_view what, const SQLite::Exception& why, sqlite3* db) {
    int number = db != nullptr ? ::sqlite3_system_errno(db) : 0;
    if (db != nullptr && why.getExtendedErrorCode() == SQLITE_IOERR_WRITE) {
        const int of_log = wal_errno(db);
        number = of_log != 0 ? of_log : number;
    }
    const Errc errc = sqlite_errc(why.getErrorCode(), why.getExtendedErrorCode(), number);
    if (errc == Errc::exhausted && why.getErrorCode() != SQLITE_FULL) {
        return Error{errc, errno_error(what, number).message};
    }
    return Error{errc, std::string{what} + ": " + why.what()};
}

// Runs one piece of SQLite work; its exceptions end here. `db` as of sqlite_error().
template <class Work>
auto guarded(std::string_view what, Work&& work, sqlite3* db = nullptr)
    -> Result<decltype(work())> {
    try {
        if constexpr (std::is_void_v<decltype(work())>) {
            work();
            return {};
        } else {
            return work();
        }
    } catch (const SQLite::Exception& why) {
        return fail(sqlite_error(what, why, db));
    }
}

struct StoreConnection {
    explicit StoreConnection(const std::filesystem::path& file)
        : db(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 5000) {}

    // A statement in use; reset when it goes: one that was stepped and not reset keeps its read
    // transaction open, and then the WAL can never be checkpointed.
    class Lease {
      public:
        explicit Lease(SQLite::Statement& statement) : statement_(statement) {}
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() { statement_.tryReset(); }
        SQLite::Statement* operator->() const { return &statement_; }
        SQLite::Statement& operator*() const { return statement_; }

      private:
        SQLite::Statement& statement_;
    };

    // Statements are compiled once.
    Lease statement(const std::string& sql) {
        auto found = cache.find(sql);
        if (found == cache.end()) {
            found = cache.emplace(sql, std::make_unique<SQLite::Statement>(db, sql)).first;
        }
        found->second->tryReset();
        found->second->clearBindings();
        return Lease{*found->second};
    }

    // What comes of a job after its removal would never be found again, nor removed.
    bool removed(const JobId& job) {
        const auto find = statement("SELECT 1 FROM removals WHERE job = ?");
        find->bindNoCopy(1, job.value);
        return find->executeStep();
    }

    // As the function of that name, of this connection.
    template <class Work>
    auto guarded(std::string_view what, Work&& work) -> Result<decltype(work())> {
        auto out = lockstep::guarded(what, std::forward<Work>(work), db.getHandle());
        if (!out) {
            note_failure(out.error());
        }
        return out;
    }

    // After a call that failed with `error`. A full disk is no such error: it has room again later.
    void note_failure(const Error& error) {
        const int code = ::sqlite3_errcode(db.getHandle());
        const bool of_disk =
            code == SQLITE_IOERR || code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
        if (of_disk && error.code != Errc::exhausted && !disk_error) {
            disk_error = error;
        }
    }

    SQLite::Database db;
    std::optional<Error> disk_error;
    // Of all chunks; nothing = not counted yet. Of the connection that writes: a reader's would
    // age.
    std::optional<HistorySize> history;
    std::map<std::string, std::unique_ptr<SQLite::Statement>> cache;
};

}  // namespace lockstep
