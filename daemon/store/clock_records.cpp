#include "daemon/store/clock_records.hpp"

#include "daemon/store/connection.hpp"

namespace lockstep {

Result<std::vector<ClockGap>> ClockRecords::look(UnixMillis now, UnixMillis most) {
    return connection_.guarded("clock", [&] {
        const auto find = connection_.statement(
            "SELECT coalesce((SELECT at FROM clock_look), "
            "(SELECT max(max(submitted_at), max(finished_at)) FROM jobs), ?)");
        find->bind(1, now);
        find->executeStep();
        const UnixMillis last = find->getColumn(0).getInt64();
        const auto drop = connection_.statement("DELETE FROM clock_gaps WHERE ended > ?");
        drop->bind(1, now);
        drop->exec();
        if (now - last > most) {
            const auto insert = connection_.statement(
                "INSERT OR REPLACE INTO clock_gaps (began, ended) VALUES (?, ?)");
            insert->bind(1, last);
            insert->bind(2, now);
            insert->exec();
        }
        const auto look =
            connection_.statement("INSERT OR REPLACE INTO clock_look (id, at) VALUES (0, ?)");
        look->bind(1, now);
        look->exec();
        std::vector<ClockGap> out;
        const auto gaps =
            connection_.statement("SELECT began, ended FROM clock_gaps ORDER BY began");
        while (gaps->executeStep()) {
            out.push_back({gaps->getColumn(0).getInt64(), gaps->getColumn(1).getInt64()});
        }
        return out;
    });
}

}  // namespace lockstep
