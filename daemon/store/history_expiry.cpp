// What goes of history: by its size and age, and with its job.
#include "daemon/store/connection.hpp"
#include "daemon/store/history_records.hpp"

#include <set>

namespace lockstep {
namespace {

// The state of a job goes, unless it is still of use.
void forget_state(StoreConnection& connection, const std::string& job) {
    const auto forget = connection.statement(
        "DELETE FROM history_state WHERE job = ?1 "
        "AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = ?1 AND final = 0) "
        "AND NOT EXISTS (SELECT 1 FROM history_chunks WHERE job = ?1) "
        "AND NOT EXISTS (SELECT 1 FROM telemetry_log WHERE job = ?1) "
        "AND NOT EXISTS (SELECT 1 FROM batches WHERE job = ?1)");
    forget->bindNoCopy(1, job);
    forget->exec();
}

// The chunk that `found` stands at (id, samples, bytes) goes with its sections. What it was.
HistorySize drop_chunk(StoreConnection& connection, SQLite::Statement& found) {
    for (const char* drop : {"DELETE FROM history_sections WHERE chunk = ?",
                             "DELETE FROM history_chunks WHERE id = ?"}) {
        const auto statement = connection.statement(drop);
        statement->bind(1, found.getColumn(0).getInt64());
        statement->exec();
    }
    return {1, found.getColumn(1).getInt64(), found.getColumn(2).getInt64()};
}

}  // namespace

Result<HistorySize> HistoryRecords::expire(std::int64_t max_bytes, double before,
                                           std::size_t most) {
    LOCKSTEP_TRY(size());
    return connection_.guarded("expire history", [&] {
        HistorySize gone;
        std::set<std::string> jobs;
        HistorySize& left = *connection_.history;
        const auto remove = [&](const std::string& sql, auto bind, auto enough) {
            const auto find = connection_.statement(sql);
            bind(*find);
            while (!enough() && gone.chunks < static_cast<std::int64_t>(most) &&
                   find->executeStep()) {
                const HistorySize one = drop_chunk(connection_, *find);
                jobs.insert(find->getColumn(3).getString());
                gone += one;
                left -= one;
            }
        };
        const auto limit = static_cast<std::int64_t>(most);
        remove(
            "SELECT id, samples, bytes, job FROM history_chunks WHERE time_high < ? "
            "ORDER BY time_high LIMIT ?",
            [&](SQLite::Statement& find) {
                find.bind(1, before);
                find.bind(2, limit);
            },
            [] { return false; });
        for (const int over : {1, 0}) {
            if (left.bytes <= max_bytes) {
                break;
            }
            remove(
                "SELECT c.id, c.samples, c.bytes, c.job FROM history_chunks c LEFT JOIN jobs j "
                "ON j.id = c.job WHERE coalesce(j.final, 1) = ? ORDER BY c.id LIMIT ?",
                [&](SQLite::Statement& find) {
                    find.bind(1, over);
                    find.bind(2, limit);
                },
                [&] { return left.bytes <= max_bytes; });
        }
        for (const std::string& job : jobs) {
            forget_state(connection_, job);
        }
        return gone;
    });
}

Result<std::string> HistoryRecords::forget_states(const std::string& after, std::size_t most) {
    return connection_.guarded("forget history states", [&] {
        std::vector<std::string> jobs;
        const auto next = connection_.statement(
            "SELECT job FROM history_state WHERE job > ? ORDER BY job LIMIT ?");
        next->bindNoCopy(1, after);
        next->bind(2, static_cast<std::int64_t>(most));
        while (next->executeStep()) {
            jobs.push_back(next->getColumn(0).getString());
        }
        for (const std::string& job : jobs) {
            forget_state(connection_, job);
        }
        return jobs.size() < most ? std::string{} : jobs.back();
    });
}

Result<HistorySize> HistoryRecords::remove(const JobId& job, std::size_t most) {
    LOCKSTEP_TRY(size());
    return connection_.guarded("remove history", [&] {
        HistorySize gone;
        const auto find = connection_.statement(
            "SELECT id, samples, bytes FROM history_chunks WHERE job = ? LIMIT ?");
        find->bindNoCopy(1, job.value);
        find->bind(2, static_cast<std::int64_t>(most));
        while (find->executeStep()) {
            gone += drop_chunk(connection_, *find);
        }
        *connection_.history -= gone;
        if (gone.chunks < static_cast<std::int64_t>(most)) {
            for (const char* drop :
                 {"DELETE FROM telemetry_log WHERE job = ?", "DELETE FROM batches WHERE job = ?",
                  "DELETE FROM history_state WHERE job = ?"}) {
                const auto statement = connection_.statement(drop);
                statement->bindNoCopy(1, job.value);
                statement->exec();
            }
        }
        return gone;
    });
}

}  // namespace lockstep
