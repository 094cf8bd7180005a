#include "daemon/store/snapshot.hpp"

#include "daemon/store/connection.hpp"
#include "daemon/store/database.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kBusyMs = 30'000;
constexpr int kStepsBetweenStops = 10'000;  // of SQLite's virtual machine
constexpr int kProblemsTold = 5;

std::int64_t number(SQLite::Database& db, const char* sql) {
    return db.execAndGet(sql).getInt64();
}

DatabaseFacts facts_of(SQLite::Database& db) {
    DatabaseFacts out;
    out.schema = db.execAndGet("PRAGMA user_version").getInt();
    out.jobs = number(db, "SELECT count(*) FROM jobs");
    out.unfinished = number(db, "SELECT count(*) FROM jobs WHERE final = 0");
    out.events = number(db, "SELECT count(*) FROM events");
    out.last_seq = number(db, "SELECT coalesce(max(seq), 0) FROM events");
    if (db.tableExists("identity")) {
        SQLite::Statement find{db, "SELECT store, runs FROM identity"};
        if (find.executeStep()) {
            out.store = find.getColumn(0).getString();
            out.runs = find.getColumn(1).getString();
        }
    }
    return out;
}

int asked_to_stop(void* stop) {
    return (*static_cast<const std::function<bool()>*>(stop))() ? 1 : 0;
}

}  // namespace

Status copy_database(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::function<bool()>& stop) {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(from, ec)) {
        return fail(Errc::not_found, from.string() + " is not there");
    }
    std::int32_t version = 0;
    bool stopped = false;
    const auto copied = guarded("copy " + from.string(), [&] {
        SQLite::Database db{from.string(), SQLite::OPEN_READWRITE, kBusyMs};
        // The WAL stays its lockstepd's, also where this is the last connection.
        ::sqlite3_db_config(db.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
        version = db.execAndGet("PRAGMA user_version").getInt();
        if (version > schema_version()) {
            return;
        }
        std::function<bool()> ask = [&] { return stopped = stopped || stop(); };
        ::sqlite3_progress_handler(db.getHandle(), kStepsBetweenStops, asked_to_stop, &ask);
        SQLite::Statement into{db, "VACUUM INTO ?"};
        into.bind(1, to.string());
        into.exec();
    });
    if (version > schema_version()) {
        return fail(newer_schema(from, version));
    }
    if (!copied) {
        return stopped ? fail(Errc::cancelled, "was asked to stop") : copied;
    }
    return {};
}

Result<DatabaseFacts> read_facts(const std::filesystem::path& file) {
    return guarded("read " + file.string(), [&] {
        SQLite::Database db{file.string(), SQLite::OPEN_READWRITE, kBusyMs};
        ::sqlite3_db_config(db.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
        return facts_of(db);
    });
}

Result<DatabaseFacts> check_database(const std::filesystem::path& file) {
    std::string wrong;
    DatabaseFacts facts;
    const auto checked = guarded("check " + file.string(), [&] {
        SQLite::Database db{file.string(), SQLite::OPEN_READONLY};
        SQLite::Statement check{db,
                                "PRAGMA integrity_check(" + std::to_string(kProblemsTold) + ")"};
        while (check.executeStep()) {
            const std::string said = check.getColumn(0).getString();
            if (said != "ok") {
                wrong += (wrong.empty() ? "" : "; ") + said;
            }
        }
        if (wrong.empty()) {
            facts = facts_of(db);
        }
    });
    LOCKSTEP_TRY(checked);
    if (!wrong.empty()) {
        std::replace(wrong.begin(), wrong.end(), '\n', ' ');
        return fail(Errc::corrupt, file.string() + ": " + wrong);
    }
    return facts;
}

}  // namespace lockstep
