// Jobs that are removed: at once what makes them jobs, the rest of them in slices.
#include "daemon/store/removal_records.hpp"

#include "daemon/store/connection.hpp"
#include "daemon/store/job_records.hpp"

namespace lockstep {
namespace {

RemovalRow removal_row(SQLite::Statement& row) {
    RemovalRow out;
    out.job.value = row.getColumn(0).getString();
    out.user = row.getColumn(1).getString();
    out.finished_at = row.getColumn(2).getInt64();
    out.removed_at = row.getColumn(3).getInt64();
    out.checkpoints = row.getColumn(4).getInt() != 0;
    out.snapshot = row.getColumn(5).getString();
    out.folder = row.getColumn(6).getString();
    return out;
}

constexpr const char* kRemovalColumns =
    "SELECT job, user, finished_at, removed_at, checkpoints, snapshot, folder FROM removals ";

}  // namespace

Result<bool> RemovalRecords::remove_job(RemovalRow removal) {
    return connection_.guarded("remove job", [&] {
        const auto find = connection_.statement(
            "SELECT user, finished_at, (SELECT coalesce(max(seq), 0) FROM events WHERE job = ?1) "
            "FROM jobs WHERE id = ?1 AND final = 1");
        find->bindNoCopy(1, removal.job.value);
        if (!find->executeStep()) {
            return false;
        }
        removal.user = find->getColumn(0).getString();
        removal.finished_at = find->getColumn(1).getInt64();
        const std::int64_t last_seq = find->getColumn(2).getInt64();
        const auto shared = connection_.statement(
            "SELECT 1 FROM labels WHERE name = ?1 AND value = ?2 AND job != ?3 LIMIT 1");
        const auto own =
            connection_.statement("SELECT value FROM labels WHERE job = ?1 AND name = ?2");
        own->bindNoCopy(1, removal.job.value);
        own->bind(2, kSnapshotLabel);
        if (own->executeStep()) {
            const std::string snapshot = own->getColumn(0).getString();
            shared->bind(1, kSnapshotLabel);
            shared->bindNoCopy(2, snapshot);
            shared->bindNoCopy(3, removal.job.value);
            removal.snapshot = shared->executeStep() ? "" : snapshot;
        }
        const auto insert = connection_.statement(
            "INSERT INTO removals (job, user, finished_at, removed_at, checkpoints, snapshot, "
            "last_seq, folder, done) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)");
        insert->bindNoCopy(1, removal.job.value);
        insert->bindNoCopy(2, removal.user);
        insert->bind(3, removal.finished_at);
        insert->bind(4, removal.removed_at);
        insert->bind(5, removal.checkpoints ? 1 : 0);
        insert->bindNoCopy(6, removal.snapshot);
        insert->bind(7, last_seq);
        insert->bindNoCopy(8, removal.folder);
        insert->exec();
        // A key that went with its job would let a repetition of the submission make it once more.
        const auto hand_on = connection_.statement(
            "UPDATE idempotency SET job = coalesce((SELECT job FROM labels WHERE name = ?2 AND "
            "value = (SELECT value FROM labels WHERE job = ?1 AND name = ?2) AND job != ?1 "
            "ORDER BY job LIMIT 1), job) WHERE job = ?1");
        hand_on->bindNoCopy(1, removal.job.value);
        hand_on->bind(2, kSweepLabel);
        hand_on->exec();
        for (const char* drop :
             {"DELETE FROM labels WHERE job = ?", "DELETE FROM notices WHERE job = ?",
              "DELETE FROM events WHERE job = ?", "DELETE FROM jobs WHERE id = ?"}) {
            const auto statement = connection_.statement(drop);
            statement->bindNoCopy(1, removal.job.value);
            statement->exec();
        }
        return true;
    });
}

Status RemovalRecords::done(const JobId& job) {
    return connection_.guarded("removal", [&] {
        const auto update = connection_.statement("UPDATE removals SET done = 1 WHERE job = ?");
        update->bindNoCopy(1, job.value);
        update->exec();
    });
}

Status RemovalRecords::forget(UnixMillis before) {
    return connection_.guarded("removal", [&] {
        for (const char* drop :
             {"DELETE FROM idempotency WHERE job IN (SELECT job FROM removals WHERE removed_at < ? "
              "AND done = 1 AND last_seq < (SELECT coalesce(max(seq), 0) FROM events))",
              "DELETE FROM removals WHERE removed_at < ? AND done = 1 "
              "AND last_seq < (SELECT coalesce(max(seq), 0) FROM events)"}) {
            const auto statement = connection_.statement(drop);
            statement->bind(1, before);
            statement->exec();
        }
    });
}

Result<std::optional<RemovalRow>> RemovalRecords::find(const JobId& job) {
    return connection_.guarded("removal", [&]() -> std::optional<RemovalRow> {
        const auto find = connection_.statement(std::string{kRemovalColumns} + "WHERE job = ?");
        find->bindNoCopy(1, job.value);
        if (!find->executeStep()) {
            return std::nullopt;
        }
        return removal_row(*find);
    });
}

Result<std::vector<RemovalRow>> RemovalRecords::unfinished(const JobId& after, std::size_t limit) {
    return connection_.guarded("removals", [&] {
        std::vector<RemovalRow> out;
        const auto find = connection_.statement(std::string{kRemovalColumns} +
                                                "WHERE done = 0 AND job > ? ORDER BY job LIMIT ?");
        find->bindNoCopy(1, after.value);
        find->bind(2, static_cast<std::int64_t>(limit));
        while (find->executeStep()) {
            out.push_back(removal_row(*find));
        }
        return out;
    });
}

}  // namespace lockstep
