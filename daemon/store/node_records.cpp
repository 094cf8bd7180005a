// What is remembered of nodes: node_history.hpp.
#include "daemon/store/node_records.hpp"

#include "daemon/store/connection.hpp"
#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kKept = std::chrono::milliseconds{limits::kNodeHistory}.count();

}  // namespace

Status NodeRecords::add(const NodeNotes& notes) {
    if (notes.empty()) {
        return {};
    }
    return connection_.guarded("nodes", [&] {
        UnixMillis now = 0;
        const auto seen = [&](const std::string& node, UnixMillis time, bool ended, bool healthy) {
            const auto upsert = connection_.statement(
                "INSERT INTO node_totals (node, attempts, first_at, seen_at, healthy_at) "
                "VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT (node) DO UPDATE SET "
                "attempts = attempts + excluded.attempts, "
                "seen_at = max(seen_at, excluded.seen_at), "
                "healthy_at = max(healthy_at, excluded.healthy_at)");
            upsert->bindNoCopy(1, node);
            upsert->bind(2, ended ? 1 : 0);
            upsert->bind(3, time);
            upsert->bind(4, healthy ? time : UnixMillis{0});
            upsert->exec();
            now = std::max(now, time);
        };
        for (const NodeFault& fault : notes.faults) {
            seen(fault.node, fault.time, false, false);
            const auto insert = connection_.statement(
                "INSERT OR IGNORE INTO node_faults (node, time, kind, job, user, attempt, "
                "generation, gpu, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
            insert->bindNoCopy(1, fault.node);
            insert->bind(2, fault.time);
            insert->bindNoCopy(3, fault.kind);
            insert->bindNoCopy(4, fault.job.value);
            insert->bindNoCopy(5, fault.user);
            insert->bind(6, fault.attempt);
            insert->bind(7, fault.generation);
            insert->bind(8, fault.gpu);
            insert->bindNoCopy(9, fault.message);
            insert->exec();
            const auto trim = connection_.statement(
                "DELETE FROM node_faults WHERE id IN (SELECT id FROM node_faults WHERE node = ? "
                "ORDER BY time DESC, id DESC LIMIT -1 OFFSET ?)");
            trim->bindNoCopy(1, fault.node);
            trim->bind(2, static_cast<std::int64_t>(limits::kNodeFaults));
            trim->exec();
        }
        for (const NodeEnded& one : notes.ended) {
            seen(one.node, one.time, true, one.healthy);
        }
        if (notes.absolved) {
            const auto absolve = connection_.statement(
                "DELETE FROM node_faults WHERE job = ? AND attempt = ? AND generation = ? "
                "AND kind = 'node_lost'");
            absolve->bindNoCopy(1, notes.absolved->job.value);
            absolve->bind(2, notes.absolved->attempt);
            absolve->bind(3, notes.absolved->generation);
            absolve->exec();
        }
        for (const char* sql : {"DELETE FROM node_faults WHERE time < ?",
                                "DELETE FROM node_totals WHERE seen_at < ?"}) {
            const auto expire = connection_.statement(sql);
            expire->bind(1, now - kKept);
            expire->exec();
        }
    });
}

Result<std::map<std::string, NodeSummary>> NodeRecords::summaries(const std::string& first,
                                                                  const std::string& last,
                                                                  UnixMillis now) {
    return connection_.guarded("nodes", [&] {
        std::map<std::string, NodeSummary> out;
        const auto totals = connection_.statement(
            "SELECT node, attempts, first_at, healthy_at FROM node_totals "
            "WHERE node BETWEEN ? AND ? AND seen_at >= ?");
        totals->bindNoCopy(1, first);
        totals->bindNoCopy(2, last);
        totals->bind(3, now - kKept);
        while (totals->executeStep()) {
            NodeSummary& one = out[totals->getColumn(0).getString()];
            one.attempts = totals->getColumn(1).getInt64();
            one.first_at = totals->getColumn(2).getInt64();
            one.healthy_at = totals->getColumn(3).getInt64();
        }
        const auto faults = connection_.statement(
            "SELECT node, kind, count(*), sum(time >= ?4), max(time) FROM node_faults "
            "WHERE node BETWEEN ?1 AND ?2 AND time >= ?3 GROUP BY node, kind");
        faults->bindNoCopy(1, first);
        faults->bindNoCopy(2, last);
        faults->bind(3, now - kKept);
        faults->bind(4, now - std::chrono::milliseconds{limits::kNodeFaultsLately}.count());
        while (faults->executeStep()) {
            // A fault has always left a total, no older than itself.
            const auto node = out.find(faults->getColumn(0).getString());
            if (node != out.end()) {
                node->second.kinds[faults->getColumn(1).getString()] = {
                    faults->getColumn(2).getInt64(), faults->getColumn(3).getInt64(),
                    faults->getColumn(4).getInt64()};
            }
        }
        return out;
    });
}

Result<std::vector<NodeFault>> NodeRecords::faults(const std::string& node, UnixMillis now,
                                                   std::size_t limit) {
    return connection_.guarded("nodes", [&] {
        std::vector<NodeFault> out;
        const auto query = connection_.statement(
            "SELECT time, kind, job, user, attempt, generation, gpu, message FROM node_faults "
            "WHERE node = ? AND time >= ? ORDER BY time DESC, id DESC LIMIT ?");
        query->bindNoCopy(1, node);
        query->bind(2, now - kKept);
        query->bind(3, static_cast<std::int64_t>(limit));
        while (query->executeStep()) {
            NodeFault fault;
            fault.node = node;
            fault.time = query->getColumn(0).getInt64();
            fault.kind = query->getColumn(1).getString();
            fault.job.value = query->getColumn(2).getString();
            fault.user = query->getColumn(3).getString();
            fault.attempt = query->getColumn(4).getInt();
            fault.generation = query->getColumn(5).getInt();
            fault.gpu = query->getColumn(6).getInt();
            fault.message = query->getColumn(7).getString();
            out.push_back(std::move(fault));
        }
        return out;
    });
}

}  // namespace lockstep
