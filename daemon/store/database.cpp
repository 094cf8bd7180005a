// size: all SQL of lockstepd's tables of jobs in one place
#include "daemon/store/database.hpp"

#include "daemon/store/connection.hpp"
#include "daemon/store/node_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/job.hpp"

#include <fcntl.h>
#include <lockstep_migrations.hpp>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

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

JobRow row_of(const Job& job, std::string view) {
    JobRow out;
    out.id = job.id;
    out.user = job.user;
    out.name = job.spec.name;
    out.state = job.state;
    out.submitted_at = job.submitted_at;
    out.finished_at = job.finished_at;
    out.last_seq = job.last_seq;
    out.view = std::move(view);
    return out;
}

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

Status Database::append(const Append& append) {
    const Status appended = connection_->guarded("append", [&] {
        for (const Event& event : append.events) {
            const auto insert = connection_->statement(
                "INSERT INTO events (seq, job, time, kind, data) VALUES (?, ?, ?, ?, ?)");
            const std::string data = encode_event_data(event.data);
            const std::string kind{to_string(event.kind())};
            insert->bind(1, event.seq);
            insert->bindNoCopy(2, event.job.value);
            insert->bind(3, event.time);
            insert->bindNoCopy(4, kind);
            insert->bindNoCopy(5, data);
            insert->exec();
        }
        const JobRow& row = append.row;
        const std::string state{to_string(row.state)};
        const auto upsert = connection_->statement(
            "INSERT INTO jobs (id, user, name, state, final, submitted_at, finished_at, last_seq, "
            "view) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "state = excluded.state, final = excluded.final, finished_at = excluded.finished_at, "
            "last_seq = excluded.last_seq, view = excluded.view");
        upsert->bindNoCopy(1, row.id.value);
        upsert->bindNoCopy(2, row.user);
        upsert->bindNoCopy(3, row.name);
        upsert->bindNoCopy(4, state);
        upsert->bind(5, is_final(row.state) ? 1 : 0);
        upsert->bind(6, row.submitted_at);
        upsert->bind(7, row.finished_at);
        upsert->bind(8, row.last_seq);
        upsert->bindNoCopy(9, row.view);
        upsert->exec();
        for (const auto& [name, value] : row.labels) {
            const auto label = connection_->statement(
                "INSERT OR IGNORE INTO labels (name, value, job) VALUES (?, ?, ?)");
            label->bindNoCopy(1, name);
            label->bindNoCopy(2, value);
            label->bindNoCopy(3, row.id.value);
            label->exec();
        }
    });
    LOCKSTEP_TRY(appended);
    LOCKSTEP_TRY(NodeRecords{*this}.add(append.notes));
    return NoticeRecords{*this}.add(append.notices);
}

Result<std::optional<SubmitDone>> Database::submitted_before(const std::string& user,
                                                             const std::string& key,
                                                             const std::string& body_sha256) {
    return connection_->guarded("idempotency", [&] {
        std::optional<SubmitDone> out;
        const auto find = connection_->statement(
            "SELECT body_sha256, job FROM idempotency WHERE user = ? AND key = ?");
        find->bindNoCopy(1, user);
        find->bindNoCopy(2, key);
        if (find->executeStep()) {
            out.emplace();
            out->repeated = true;
            out->other_body = find->getColumn(0).getString() != body_sha256;
            out->id.value = find->getColumn(1).getString();
        }
        return out;
    });
}

Result<SubmitDone> Database::submit(const SubmitWrite& write) {
    SubmitDone done;
    done.id = write.append.row.id;
    if (!write.idempotency_key.empty()) {
        auto before =
            submitted_before(write.append.row.user, write.idempotency_key, write.body_sha256);
        if (!before || *before) {
            return before ? Result<SubmitDone>{std::move(**before)} : fail(before.error());
        }
        const auto noted = connection_->guarded("idempotency", [&] {
            const auto insert = connection_->statement(
                "INSERT INTO idempotency (user, key, body_sha256, job) VALUES (?, ?, ?, ?)");
            insert->bindNoCopy(1, write.append.row.user);
            insert->bindNoCopy(2, write.idempotency_key);
            insert->bindNoCopy(3, write.body_sha256);
            insert->bindNoCopy(4, write.append.row.id.value);
            insert->exec();
        });
        LOCKSTEP_TRY(noted);
    }
    LOCKSTEP_TRY(append(write.append));
    for (const Append& one : write.more) {
        LOCKSTEP_TRY(append(one));
    }
    return done;
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

Result<Seq> Database::last_seq() {
    return connection_->guarded("last_seq", [&] {
        const auto query = connection_->statement(
            "SELECT max((SELECT coalesce(max(seq), 0) FROM events), "
            "(SELECT coalesce(max(last_seq), 0) FROM removals))");
        query->executeStep();
        return Seq{query->getColumn(0).getInt64()};
    });
}

namespace {
// Reads every row of a query (seq, job, time, kind, data); stops at the first that does not decode.
Status read_events(SQLite::Statement& query, std::vector<Event>& out) {
    while (query.executeStep()) {
        Event event;
        event.seq = query.getColumn(0).getInt64();
        event.job.value = query.getColumn(1).getString();
        event.time = query.getColumn(2).getInt64();
        const auto kind = parse_event_kind(query.getColumn(3).getString());
        auto data = kind ? decode_event_data(*kind, query.getColumn(4).getString())
                         : Result<EventData>{fail(Errc::corrupt, "unknown event kind")};
        if (!data) {
            return fail(data.error().in("event " + std::to_string(event.seq)));
        }
        event.data = std::move(*data);
        out.push_back(std::move(event));
    }
    return {};
}

Result<std::vector<Event>> finish_events(const Result<Status>& read, std::vector<Event> events) {
    LOCKSTEP_TRY(read);
    if (!*read) {
        return fail(read->error());
    }
    return events;
}
}  // namespace

Result<std::vector<Event>> Database::events_of(const JobId& job, Seq after, std::size_t limit) {
    std::vector<Event> events;
    const auto read = connection_->guarded("events", [&] {
        const auto query = connection_->statement(
            "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND seq > ? "
            "ORDER BY seq LIMIT ?");
        query->bindNoCopy(1, job.value);
        query->bind(2, after);
        query->bind(3, static_cast<std::int64_t>(limit));
        return read_events(*query, events);
    });
    return finish_events(read, std::move(events));
}

Result<std::vector<Event>> Database::events_before(const JobId& job, Seq before,
                                                   std::size_t limit) {
    std::vector<Event> events;
    const auto read = connection_->guarded("events", [&] {
        const auto query = connection_->statement(
            "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND seq < ? "
            "ORDER BY seq DESC LIMIT ?");
        query->bindNoCopy(1, job.value);
        query->bind(2, before == 0 ? std::numeric_limits<Seq>::max() : before);
        query->bind(3, static_cast<std::int64_t>(limit));
        return read_events(*query, events);
    });
    return finish_events(read, std::move(events));
}

Result<std::vector<Event>> Database::newest_of(const JobId& job, EventKind kind, std::size_t limit,
                                               Seq before) {
    std::vector<Event> events;
    const std::string word{to_string(kind)};
    // From one to the newest before its generation began: what lies between is not read, and an
    // event of thousands of ranks is half a megabyte.
    const auto read = connection_->guarded("events", [&] {
        const auto query = connection_->statement(
            "WITH RECURSIVE newest(at) AS (SELECT (SELECT e.seq FROM events AS e WHERE "
            "e.job = ?1 AND e.kind = ?2 AND (?4 = 0 OR e.seq < (SELECT g.seq FROM events AS g "
            "WHERE g.job = ?1 AND g.kind = 'generation_started' AND g.seq < ?4 "
            "ORDER BY g.seq DESC LIMIT 1)) ORDER BY e.seq DESC LIMIT 1) "
            "UNION ALL SELECT (SELECT e.seq FROM events AS e "
            "WHERE e.job = ?1 AND e.kind = ?2 AND e.seq < (SELECT g.seq FROM events AS g WHERE "
            "g.job = ?1 AND g.kind = 'generation_started' AND g.seq < newest.at "
            "ORDER BY g.seq DESC LIMIT 1) ORDER BY e.seq DESC LIMIT 1) FROM newest "
            "WHERE newest.at IS NOT NULL LIMIT ?3) SELECT seq, job, time, kind, data "
            "FROM newest JOIN events ON seq = at ORDER BY seq DESC");
        query->bindNoCopy(1, job.value);
        query->bindNoCopy(2, word);
        query->bind(3, static_cast<std::int64_t>(limit));
        query->bind(4, before);
        return read_events(*query, events);
    });
    return finish_events(read, std::move(events));
}

Result<std::vector<Event>> Database::newest(const JobId& job, EventKind kind, std::size_t limit,
                                            Seq before) {
    std::vector<Event> events;
    const std::string word{to_string(kind)};
    const auto read = connection_->guarded("events", [&] {
        const auto query = connection_->statement(
            "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND "
            "kind = ? AND seq < ? ORDER BY seq DESC LIMIT ?");
        query->bindNoCopy(1, job.value);
        query->bindNoCopy(2, word);
        query->bind(3, before == 0 ? std::numeric_limits<Seq>::max() : before);
        query->bind(4, static_cast<std::int64_t>(limit));
        return read_events(*query, events);
    });
    return finish_events(read, std::move(events));
}

Result<std::vector<Event>> Database::events_after(Seq after, std::size_t limit) {
    std::vector<Event> events;
    const auto read = connection_->guarded("events", [&] {
        const auto query = connection_->statement(
            "SELECT seq, job, time, kind, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?");
        query->bind(1, after);
        query->bind(2, static_cast<std::int64_t>(limit));
        return read_events(*query, events);
    });
    return finish_events(read, std::move(events));
}

Result<std::vector<JobId>> Database::unfinished() {
    return connection_->guarded("unfinished", [&] {
        std::vector<JobId> out;
        const auto query =
            connection_->statement("SELECT id FROM jobs WHERE final = 0 ORDER BY id");
        while (query->executeStep()) {
            out.push_back(JobId{query->getColumn(0).getString()});
        }
        return out;
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
