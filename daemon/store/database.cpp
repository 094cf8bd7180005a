#include "daemon/store/database.hpp"

#include "daemon/store/connection.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <lockstep_migrations.hpp>
#include <sqlite3.h>

#include <cerrno>

namespace lockstep {
namespace {

void migrate(SQLite::Database& db, int from) {
    for (std::size_t i = static_cast<std::size_t>(from); i < kMigrations.size(); ++i) {
        // The version moves in the same transaction: a crash leaves the old schema or the new one.
        db.exec("BEGIN IMMEDIATE");
        db.exec(kMigrations[i].sql);
        db.exec("PRAGMA user_version = " + std::to_string(i + 1));
        db.exec("COMMIT");
    }
}

}  // namespace

std::int32_t schema_version() {
    return static_cast<std::int32_t>(kMigrations.size());
}

Error newer_schema(const std::filesystem::path& file, std::int32_t version) {
    return Error{Errc::conflict,
                 file.string() + " was written by a newer lockstepd (schema " +
                     std::to_string(version) + ", this one knows " +
                     std::to_string(schema_version()) +
                     ") and was left as it is: start that version again, or restore a backup from "
                     "before the upgrade (lockstepd restore BACKUP --data-dir NEW)"};
}

Database::Database(std::unique_ptr<StoreConnection> connection)
    : connection_(std::move(connection)) {}
Database::~Database() = default;

RecordAccess::RecordAccess(Database& database) : connection_(database.connection()) {}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& file) {
    auto opened = lockstep::guarded("open " + file.string(),
                                    [&] { return std::make_unique<StoreConnection>(file); });
    if (!opened) {
        // Whatever the reason is, SQLite is "unable to open database file".
        const UniqueFd ours{::open(file.c_str(), O_RDWR | O_CLOEXEC)};
        if (!ours && errno != ENOENT) {
            return fail(errno_error("open " + file.string(), errno));
        }
    }
    LOCKSTEP_TRY(opened);
    SQLite::Database& db = (*opened)->db;
    int version = 0;
    const auto set_up = [&] {
        db.exec("PRAGMA journal_mode = WAL");
        db.exec("PRAGMA synchronous = FULL");
        db.exec("PRAGMA mmap_size = 0");
        db.exec("PRAGMA trusted_schema = OFF");
        db.exec("PRAGMA cache_size = -2048");  // 2 MiB: the daemon at rest stays small
        version = db.execAndGet("PRAGMA user_version").getInt();
    };
    LOCKSTEP_TRY(lockstep::guarded("prepare " + file.string(), set_up, db.getHandle()));
    if (version > schema_version()) {
        return fail(newer_schema(file, version));
    }
    const auto renew = [&] { migrate(db, version); };
    LOCKSTEP_TRY(lockstep::guarded("migrate " + file.string(), renew, db.getHandle()));
    return std::unique_ptr<Database>{new Database{std::move(*opened)}};
}

Status Database::begin() {
    return connection_->guarded("begin", [&] { connection_->db.exec("BEGIN IMMEDIATE"); });
}
Status Database::commit() {
    return connection_->guarded("commit", [&] { connection_->db.exec("COMMIT"); });
}
void Database::rollback() {
    connection_->history.reset();
    // A failed COMMIT may have rolled back by itself; then there is nothing to do.
    try {
        for (auto& [sql, statement] : connection_->cache) {
            statement->tryReset();
        }
        if (sqlite3_get_autocommit(connection_->db.getHandle()) == 0) {
            connection_->db.exec("ROLLBACK");
        }
    } catch (const SQLite::Exception&) {  // NOLINT(bugprone-empty-catch): see above
    }
}

Status Database::touch() {
    return connection_->guarded("touch", [&] {
        connection_
            ->statement(
                "INSERT INTO probe (one, count) VALUES (1, 1) "
                "ON CONFLICT (one) DO UPDATE SET count = count + 1")
            ->exec();
    });
}

Result<std::unique_ptr<Database>> Database::reader() {
    auto opened = open(connection_->db.getFilename());
    if (opened) {
        const auto done = connection_->guarded(
            "reader", [&] { (*opened)->connection_->db.exec("PRAGMA query_only = ON"); });
        LOCKSTEP_TRY(done);
    }
    return opened;
}

const std::optional<Error>& Database::disk_error() const {
    return connection_->disk_error;
}

Status Database::limit_pages(std::int64_t pages) {
    return connection_->guarded("limit_pages", [&] {
        connection_->db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
        SQLite::Statement set{connection_->db, "PRAGMA max_page_count = " + std::to_string(pages)};
        set.executeStep();
    });
}

}  // namespace lockstep
