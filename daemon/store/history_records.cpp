// History and the telemetry log in SQLite.
#include "daemon/store/history_records.hpp"

#include "daemon/store/connection.hpp"

namespace lockstep {
namespace {

// What SQLite adds to a section's bytes, about: row, index entry, the rest of its last page.
constexpr std::int64_t kSectionOverhead = 100;

// The jobs of an index, one look each instead of one a row.
std::string jobs_of(const std::string& table) {
    return "SELECT job FROM (WITH RECURSIVE t (job) AS (SELECT min(job) FROM " + table +
           " UNION ALL SELECT (SELECT min(job) FROM " + table +
           " WHERE job > t.job) FROM t WHERE t.job IS NOT NULL) "
           "SELECT job FROM t WHERE job IS NOT NULL)";
}

}  // namespace

Result<std::int64_t> HistoryRecords::add_log(const LogWrite& write) {
    return connection_.guarded("telemetry", [&]() -> std::int64_t {
        if (connection_.removed(write.job)) {
            return 0;
        }
        const auto insert =
            connection_.statement("INSERT INTO telemetry_log (job, data) VALUES (?, ?)");
        insert->bindNoCopy(1, write.job.value);
        insert->bindNoCopy(2, write.data.data(), static_cast<int>(write.data.size()));
        insert->exec();
        return connection_.db.getLastInsertRowid();
    });
}

Result<std::int64_t> HistoryRecords::add_chunks(const ChunksWrite& write) {
    return connection_.guarded("history", [&]() -> std::int64_t {
        if (connection_.removed(write.job)) {
            return 0;
        }
        std::int64_t newest = 0;
        HistorySize added;
        for (const ChunkRow& chunk : write.chunks) {
            std::int64_t bytes = 0;
            for (const SectionRow& section : chunk.sections) {
                bytes += static_cast<std::int64_t>(section.data.size()) + kSectionOverhead;
            }
            const auto insert = connection_.statement(
                "INSERT INTO history_chunks (job, kind, block, attempt, generation, step_low, "
                "step_high, time_low, time_high, rows, samples, bytes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
            insert->bindNoCopy(1, write.job.value);
            insert->bind(2, chunk.kind);
            insert->bind(3, static_cast<std::int64_t>(chunk.block));
            insert->bind(4, chunk.attempt);
            insert->bind(5, static_cast<std::int64_t>(chunk.generation));
            insert->bind(6, chunk.step_low);
            insert->bind(7, chunk.step_high);
            insert->bind(8, chunk.time_low);
            insert->bind(9, chunk.time_high);
            insert->bind(10, chunk.rows);
            insert->bind(11, chunk.samples);
            insert->bind(12, bytes);
            insert->exec();
            newest = connection_.db.getLastInsertRowid();
            added += {1, chunk.samples, bytes};
            for (const SectionRow& section : chunk.sections) {
                const auto put = connection_.statement(
                    "INSERT INTO history_sections (chunk, name, level, data) VALUES (?, ?, ?, ?)");
                put->bind(1, newest);
                put->bindNoCopy(2, section.name);
                put->bind(3, section.level);
                put->bindNoCopy(4, section.data.data(), static_cast<int>(section.data.size()));
                put->exec();
            }
        }
        const auto remove =
            connection_.statement("DELETE FROM telemetry_log WHERE job = ? AND id <= ?");
        remove->bindNoCopy(1, write.job.value);
        remove->bind(2, write.log_upto);
        remove->exec();
        if (const BatchPlace& upto = write.batches_upto; upto.attempt >= 0) {
            const auto old = connection_.statement(
                "DELETE FROM batches WHERE job = ? AND (attempt, seq, node_rank) <= (?, ?, ?)");
            old->bindNoCopy(1, write.job.value);
            old->bind(2, upto.attempt);
            old->bind(3, static_cast<std::int64_t>(upto.seq));
            old->bind(4, upto.node_rank);
            old->exec();
        }
        if (!write.state.empty()) {
            const auto state = connection_.statement(
                "INSERT INTO history_state (job, data) VALUES (?, ?) "
                "ON CONFLICT (job) DO UPDATE SET data = excluded.data");
            state->bindNoCopy(1, write.job.value);
            state->bindNoCopy(2, write.state);
            state->exec();
        }
        if (connection_.history) {
            *connection_.history += added;
        }
        return newest;
    });
}

Result<std::vector<BatchRow>> HistoryRecords::batches(const JobId& job, BatchPlace after,
                                                      std::size_t max_bytes) {
    return connection_.guarded("batches", [&] {
        std::vector<BatchRow> out;
        // Their order is not that of the table: places are sorted, not what is at them.
        const auto places = connection_.statement(
            "SELECT attempt, seq, node_rank FROM batches WHERE job = ? "
            "AND (attempt, seq, node_rank) > (?, ?, ?) ORDER BY attempt, seq, node_rank");
        places->bindNoCopy(1, job.value);
        places->bind(2, after.attempt);
        places->bind(3, static_cast<std::int64_t>(after.seq));
        places->bind(4, after.node_rank);
        std::size_t bytes = 0;
        while (bytes < max_bytes && places->executeStep()) {
            BatchRow row;
            row.job = job;
            row.attempt = places->getColumn(0).getInt();
            row.seq = static_cast<std::uint64_t>(places->getColumn(1).getInt64());
            row.node_rank = places->getColumn(2).getInt();
            const auto data = connection_.statement(
                "SELECT data FROM batches WHERE job = ? AND attempt = ? AND node_rank = ? "
                "AND seq = ?");
            data->bindNoCopy(1, job.value);
            data->bind(2, row.attempt);
            data->bind(3, row.node_rank);
            data->bind(4, places->getColumn(1).getInt64());
            data->executeStep();
            row.data = data->getColumn(0).getString();
            bytes += row.data.size();
            out.push_back(std::move(row));
        }
        return out;
    });
}

Result<std::vector<JobId>> HistoryRecords::unpacked(const JobId& after, std::size_t limit) {
    return connection_.guarded("unpacked telemetry", [&] {
        std::vector<JobId> out;
        const auto query = connection_.statement(
            "SELECT l.job FROM (" + jobs_of("telemetry_log") + " UNION " + jobs_of("batches") +
            ") l JOIN jobs j ON j.id = l.job WHERE j.final = 1 AND l.job > ? ORDER BY l.job "
            "LIMIT ?");
        query->bindNoCopy(1, after.value);
        query->bind(2, static_cast<std::int64_t>(limit));
        while (query->executeStep()) {
            out.push_back(JobId{query->getColumn(0).getString()});
        }
        return out;
    });
}

Result<bool> HistoryRecords::packed(const JobId& job) {
    return connection_.guarded("packed telemetry", [&] {
        const auto query = connection_.statement(
            "SELECT NOT EXISTS (SELECT 1 FROM telemetry_log WHERE job = ?1) "
            "AND NOT EXISTS (SELECT 1 FROM batches WHERE job = ?1)");
        query->bindNoCopy(1, job.value);
        query->executeStep();
        return query->getColumn(0).getInt() != 0;
    });
}

Result<std::vector<LogRow>> HistoryRecords::log(const JobId& job) {
    return connection_.guarded("telemetry log", [&] {
        std::vector<LogRow> out;
        const auto query =
            connection_.statement("SELECT id, data FROM telemetry_log WHERE job = ? ORDER BY id");
        query->bindNoCopy(1, job.value);
        while (query->executeStep()) {
            out.push_back({query->getColumn(0).getInt64(), query->getColumn(1).getString()});
        }
        return out;
    });
}

Result<std::string> HistoryRecords::state(const JobId& job) {
    return connection_.guarded("history state", [&]() -> std::string {
        const auto query = connection_.statement("SELECT data FROM history_state WHERE job = ?");
        query->bindNoCopy(1, job.value);
        return query->executeStep() ? query->getColumn(0).getString() : std::string{};
    });
}

Result<std::vector<ChunkRow>> HistoryRecords::chunks(const JobId& job, std::int32_t kind,
                                                     std::uint32_t low, std::uint32_t high,
                                                     std::int64_t newest) {
    return connection_.guarded("chunks", [&] {
        std::vector<ChunkRow> out;
        const auto query = connection_.statement(
            "SELECT id, block, attempt, generation, step_low, step_high, time_low, time_high, "
            "rows, samples FROM history_chunks WHERE job = ? AND kind = ? AND block BETWEEN ? "
            "AND ? AND id <= ? ORDER BY id");
        query->bindNoCopy(1, job.value);
        query->bind(2, kind);
        query->bind(3, static_cast<std::int64_t>(low));
        query->bind(4, static_cast<std::int64_t>(high));
        query->bind(5, newest);
        while (query->executeStep()) {
            ChunkRow row;
            row.kind = kind;
            row.id = query->getColumn(0).getInt64();
            row.block = query->getColumn(1).getUInt();
            row.attempt = query->getColumn(2).getInt();
            row.generation = query->getColumn(3).getUInt();
            row.step_low = query->getColumn(4).getInt64();
            row.step_high = query->getColumn(5).getInt64();
            row.time_low = query->getColumn(6).getDouble();
            row.time_high = query->getColumn(7).getDouble();
            row.rows = query->getColumn(8).getInt64();
            row.samples = query->getColumn(9).getInt64();
            out.push_back(std::move(row));
        }
        return out;
    });
}

Result<std::optional<std::string>> HistoryRecords::section(std::int64_t chunk,
                                                           std::string_view name,
                                                           std::int32_t level) {
    return connection_.guarded("section", [&]() -> std::optional<std::string> {
        const auto query = connection_.statement(
            "SELECT data FROM history_sections WHERE chunk = ? AND name = ? AND level = ?");
        query->bind(1, chunk);
        query->bind(2, std::string{name});
        query->bind(3, level);
        return query->executeStep() ? std::optional{query->getColumn(0).getString()} : std::nullopt;
    });
}

Result<std::vector<SectionRow>> HistoryRecords::sections(std::int64_t chunk, std::int32_t level) {
    return connection_.guarded("sections", [&] {
        std::vector<SectionRow> out;
        const auto query = connection_.statement(
            "SELECT name, data FROM history_sections WHERE chunk = ? AND level = ? ORDER BY id");
        query->bind(1, chunk);
        query->bind(2, level);
        while (query->executeStep()) {
            out.push_back(
                {query->getColumn(0).getString(), level, query->getColumn(1).getString()});
        }
        return out;
    });
}

Result<std::vector<std::string>> HistoryRecords::section_names(const JobId& job, std::int32_t kind,
                                                               std::int64_t newest) {
    return connection_.guarded("section names", [&] {
        std::vector<std::string> out;
        const auto query = connection_.statement(
            "SELECT DISTINCT name FROM history_sections WHERE level = 0 AND chunk IN (SELECT id "
            "FROM history_chunks WHERE job = ? AND kind = ? AND id <= ?)");
        query->bindNoCopy(1, job.value);
        query->bind(2, kind);
        query->bind(3, newest);
        while (query->executeStep()) {
            out.push_back(query->getColumn(0).getString());
        }
        return out;
    });
}

Result<std::int64_t> HistoryRecords::newest_chunk(const JobId& job) {
    return connection_.guarded("newest chunk", [&]() -> std::int64_t {
        const auto query =
            connection_.statement("SELECT coalesce(max(id), 0) FROM history_chunks WHERE job = ?");
        query->bindNoCopy(1, job.value);
        query->executeStep();
        return query->getColumn(0).getInt64();
    });
}

Result<HistorySize> HistoryRecords::size() {
    return connection_.guarded("history size", [&]() -> HistorySize {
        if (connection_.history) {
            return *connection_.history;
        }
        const auto query = connection_.statement(
            "SELECT count(*), coalesce(sum(samples), 0), coalesce(sum(bytes), 0) "
            "FROM history_chunks");
        query->executeStep();
        connection_.history =
            HistorySize{query->getColumn(0).getInt64(), query->getColumn(1).getInt64(),
                        query->getColumn(2).getInt64()};
        return *connection_.history;
    });
}

Result<std::int64_t> HistoryRecords::bytes_of(const JobId& job) {
    return connection_.guarded("history of a job", [&] {
        const auto sum = connection_.statement(
            "SELECT coalesce(sum(bytes), 0) FROM history_chunks WHERE job = ?");
        sum->bindNoCopy(1, job.value);
        sum->executeStep();
        return sum->getColumn(0).getInt64();
    });
}

}  // namespace lockstep
