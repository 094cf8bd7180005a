// What the parts of Database share: the connection, its statements, and SQLite's errors as ours.
// For database*.cpp only; one thread at a time a Database: the store thread, and the reading thread
// of history for the connection that reader() made.
#pragma once

#include "daemon/store/database.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline Error sqlite_error(std::string_view what, const SQLite::Exception& why) {
    const int code = why.getErrorCode();
    Errc errc = Errc::internal;
    if (code == SQLITE_FULL) {
        errc = Errc::exhausted;
    } else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
        errc = Errc::corrupt;
    } else if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        errc = Errc::unavailable;
    }
    return Error{errc, std::string{what} + ": " + why.what()};
}

// Runs one piece of SQLite work; its exceptions end here.
template <class Work>
auto guarded(std::string_view what, Work&& work) -> Result<decltype(work())> {
    try {
        if constexpr (std::is_void_v<decltype(work())>) {
            work();
            return {};
        } else {
            return work();
        }
    } catch (const SQLite::Exception& why) {
        return fail(sqlite_error(what, why));
    }
}

struct Database::Impl {
    explicit Impl(const std::filesystem::path& file)
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

    SQLite::Database db;
    // Of all chunks; nothing = not counted yet. Of the connection that writes: a reader's would
    // age.
    std::optional<HistorySize> history;
    std::map<std::string, std::unique_ptr<SQLite::Statement>> cache;
};

}  // namespace lockstep
