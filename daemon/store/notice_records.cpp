// Notices: written with the events that they tell of, until they are settled.
#include "daemon/store/notice_records.hpp"

#include "daemon/store/connection.hpp"

namespace lockstep {
namespace {

NoticeRow notice_row(SQLite::Statement& row) {
    NoticeRow out;
    out.id = row.getColumn(0).getInt64();
    out.job.value = row.getColumn(1).getString();
    out.user = row.getColumn(2).getString();
    out.seq = row.getColumn(3).getInt64();
    out.target = row.getColumn(4).getString();
    out.lane = row.getColumn(5).getString();
    out.body = row.getColumn(6).getString();
    out.created_at = row.getColumn(7).getInt64();
    out.due_at = row.getColumn(8).getInt64();
    out.tries = row.getColumn(9).getInt();
    return out;
}

}  // namespace

Status NoticeRecords::add(const std::vector<NoticeRow>& rows) {
    return connection_.guarded("notices", [&] {
        for (const NoticeRow& row : rows) {
            const auto insert = connection_.statement(
                "INSERT OR IGNORE INTO notices (job, user, seq, target, lane, body, created_at, "
                "due_at, tries) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
            insert->bindNoCopy(1, row.job.value);
            insert->bindNoCopy(2, row.user);
            insert->bind(3, row.seq);
            insert->bindNoCopy(4, row.target);
            insert->bindNoCopy(5, row.lane);
            insert->bindNoCopy(6, row.body);
            insert->bind(7, row.created_at);
            insert->bind(8, row.due_at);
            insert->bind(9, row.tries);
            insert->exec();
        }
    });
}

Status NoticeRecords::settle(const std::vector<NoticeSettled>& settled) {
    return connection_.guarded("notices", [&] {
        for (const NoticeSettled& one : settled) {
            if (one.due_at == 0) {
                const auto drop = connection_.statement("DELETE FROM notices WHERE id = ?");
                drop->bind(1, one.id);
                drop->exec();
                continue;
            }
            const auto update =
                connection_.statement("UPDATE notices SET due_at = ?, tries = ? WHERE id = ?");
            update->bind(1, one.due_at);
            update->bind(2, one.tries);
            update->bind(3, one.id);
            update->exec();
        }
    });
}

Result<NoticeQueue> NoticeRecords::queue(const NoticeQuery& query) {
    return connection_.guarded("notices", [&] {
        NoticeQueue out;
        // Users take turns, and a user's lanes: whoever has a thousand, or one that hangs, keeps
        // neither the others nor the other lanes waiting.
        const auto due = connection_.statement(
            "SELECT n.id, n.job, n.user, n.seq, n.target, n.lane, n.body, n.created_at, n.due_at, "
            "n.tries FROM notices AS n JOIN (SELECT id, row_number() OVER (PARTITION BY user "
            "ORDER BY place, due_at, id) AS turn FROM (SELECT id, user, due_at, row_number() OVER "
            "(PARTITION BY user, lane ORDER BY due_at, id) AS place FROM notices "
            "WHERE due_at <= ?1 OR due_at > ?2) WHERE place <= ?3) AS t ON t.id = n.id "
            "ORDER BY t.turn, n.due_at, n.id LIMIT ?4");
        due->bind(1, query.now);
        due->bind(2, query.latest);
        due->bind(3, static_cast<std::int64_t>(query.of_lane));
        due->bind(4, static_cast<std::int64_t>(query.most));
        while (due->executeStep()) {
            out.due.push_back(notice_row(*due));
        }
        const auto next = connection_.statement(
            "SELECT coalesce(min(due_at), 0) FROM notices WHERE due_at > ?1 AND due_at <= ?2");
        next->bind(1, query.now);
        next->bind(2, query.latest);
        next->executeStep();
        out.next_due = next->getColumn(0).getInt64();
        const auto waiting =
            connection_.statement("SELECT user, count(*) FROM notices GROUP BY user");
        while (waiting->executeStep()) {
            out.waiting[waiting->getColumn(0).getString()] =
                static_cast<std::size_t>(waiting->getColumn(1).getInt64());
        }
        return out;
    });
}

Status NoticeRecords::drop_all() {
    return connection_.guarded("notices",
                               [&] { connection_.statement("DELETE FROM notices")->exec(); });
}

}  // namespace lockstep
