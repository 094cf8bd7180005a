#include "daemon/store/event_records.hpp"

#include "daemon/store/connection.hpp"

#include <limits>

namespace lockstep {
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

// Those that `sql` (seq, job, time, kind, data) finds with what `bind` puts into it.
template <class Bind>
Result<std::vector<Event>> read_events_of(StoreConnection& connection, const std::string& sql,
                                          Bind bind) {
    std::vector<Event> events;
    const Result<Status> read = connection.guarded("events", [&] {
        const auto query = connection.statement(sql);
        bind(*query);
        return read_events(*query, events);
    });
    LOCKSTEP_TRY(read);
    LOCKSTEP_TRY(*read);
    return events;
}

}  // namespace

Status EventRecords::add(const std::vector<Event>& events) {
    return connection_.guarded("append", [&] {
        for (const Event& event : events) {
            const auto insert = connection_.statement(
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
    });
}

Result<Seq> EventRecords::last_seq() {
    return connection_.guarded("last_seq", [&] {
        const auto query = connection_.statement(
            "SELECT max((SELECT coalesce(max(seq), 0) FROM events), "
            "(SELECT coalesce(max(last_seq), 0) FROM removals))");
        query->executeStep();
        return Seq{query->getColumn(0).getInt64()};
    });
}

Result<std::vector<Event>> EventRecords::of_job(const JobId& job, Seq after, std::size_t limit) {
    return read_events_of(connection_,
                          "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND seq > ? "
                          "ORDER BY seq LIMIT ?",
                          [&](SQLite::Statement& query) {
                              query.bindNoCopy(1, job.value);
                              query.bind(2, after);
                              query.bind(3, static_cast<std::int64_t>(limit));
                          });
}

Result<std::vector<Event>> EventRecords::of_job_before(const JobId& job, Seq before,
                                                       std::size_t limit) {
    return read_events_of(connection_,
                          "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND seq < ? "
                          "ORDER BY seq DESC LIMIT ?",
                          [&](SQLite::Statement& query) {
                              query.bindNoCopy(1, job.value);
                              query.bind(2, before == 0 ? std::numeric_limits<Seq>::max() : before);
                              query.bind(3, static_cast<std::int64_t>(limit));
                          });
}

Result<std::vector<Event>> EventRecords::newest_of(const JobId& job, EventKind kind,
                                                   std::size_t limit, Seq before) {
    const std::string word{to_string(kind)};
    // From one to the newest before its generation began: what lies between is not read, and an
    // event of thousands of ranks is half a megabyte.
    return read_events_of(
        connection_,
        "WITH RECURSIVE newest(at) AS (SELECT (SELECT e.seq FROM events AS e WHERE "
        "e.job = ?1 AND e.kind = ?2 AND (?4 = 0 OR e.seq < (SELECT g.seq FROM events AS g "
        "WHERE g.job = ?1 AND g.kind = 'generation_started' AND g.seq < ?4 "
        "ORDER BY g.seq DESC LIMIT 1)) ORDER BY e.seq DESC LIMIT 1) "
        "UNION ALL SELECT (SELECT e.seq FROM events AS e "
        "WHERE e.job = ?1 AND e.kind = ?2 AND e.seq < (SELECT g.seq FROM events AS g WHERE "
        "g.job = ?1 AND g.kind = 'generation_started' AND g.seq < newest.at "
        "ORDER BY g.seq DESC LIMIT 1) ORDER BY e.seq DESC LIMIT 1) FROM newest "
        "WHERE newest.at IS NOT NULL LIMIT ?3) SELECT seq, job, time, kind, data "
        "FROM newest JOIN events ON seq = at ORDER BY seq DESC",
        [&](SQLite::Statement& query) {
            query.bindNoCopy(1, job.value);
            query.bindNoCopy(2, word);
            query.bind(3, static_cast<std::int64_t>(limit));
            query.bind(4, before);
        });
}

Result<std::vector<Event>> EventRecords::newest(const JobId& job, EventKind kind, std::size_t limit,
                                                Seq before) {
    const std::string word{to_string(kind)};
    return read_events_of(connection_,
                          "SELECT seq, job, time, kind, data FROM events WHERE job = ? AND "
                          "kind = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
                          [&](SQLite::Statement& query) {
                              query.bindNoCopy(1, job.value);
                              query.bindNoCopy(2, word);
                              query.bind(3, before == 0 ? std::numeric_limits<Seq>::max() : before);
                              query.bind(4, static_cast<std::int64_t>(limit));
                          });
}

Result<std::vector<Event>> EventRecords::after(Seq after, std::size_t limit) {
    return read_events_of(
        connection_,
        "SELECT seq, job, time, kind, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
        [&](SQLite::Statement& query) {
            query.bind(1, after);
            query.bind(2, static_cast<std::int64_t>(limit));
        });
}

}  // namespace lockstep
