// Which store this is, and what it says of jobs that came with a copy.
#include "daemon/store/identity_records.hpp"

#include "daemon/store/connection.hpp"

namespace lockstep {

Result<std::optional<StoreIdentity>> IdentityRecords::find() {
    return connection_.guarded("identity", [&]() -> std::optional<StoreIdentity> {
        const auto find = connection_.statement(
            "SELECT store, incarnation, file, born, host, directory, runs FROM identity");
        if (!find->executeStep()) {
            return std::nullopt;
        }
        StoreIdentity out;
        out.store = find->getColumn(0).getString();
        out.incarnation = find->getColumn(1).getString();
        out.file = {find->getColumn(2).getInt64(), find->getColumn(3).getInt64()};
        out.host = find->getColumn(4).getString();
        out.directory = find->getColumn(5).getString();
        out.runs = find->getColumn(6).getString();
        return out;
    });
}

Status IdentityRecords::set(const StoreIdentity& identity) {
    return connection_.guarded("identity", [&] {
        const auto put = connection_.statement(
            "INSERT OR REPLACE INTO identity (one, store, incarnation, file, born, host, "
            "directory, runs) VALUES (1, ?, ?, ?, ?, ?, ?, ?)");
        put->bindNoCopy(1, identity.store);
        put->bindNoCopy(2, identity.incarnation);
        put->bind(3, identity.file.inode);
        put->bind(4, identity.file.born);
        put->bindNoCopy(5, identity.host);
        put->bindNoCopy(6, identity.directory);
        put->bindNoCopy(7, identity.runs);
        put->exec();
    });
}

Status IdentityRecords::add_foreign(const JobId& job) {
    return connection_.guarded("foreign job", [&] {
        const auto put =
            connection_.statement("INSERT OR IGNORE INTO foreign_jobs (job) VALUES (?)");
        put->bindNoCopy(1, job.value);
        put->exec();
    });
}

Result<bool> IdentityRecords::is_foreign(const JobId& job) {
    return connection_.guarded("foreign job", [&] {
        const auto find = connection_.statement("SELECT 1 FROM foreign_jobs WHERE job = ?");
        find->bindNoCopy(1, job.value);
        return find->executeStep();
    });
}

Status IdentityRecords::follow(const JobId& job, UnixMillis since) {
    return connection_.guarded("followed job", [&] {
        const auto put = connection_.statement(
            "INSERT OR REPLACE INTO followed_jobs (job, since) VALUES (?, ?)");
        put->bindNoCopy(1, job.value);
        put->bind(2, since);
        put->exec();
    });
}

Status IdentityRecords::move_runs(const std::string& before, const std::string& now,
                                  const std::vector<JobId>& stay) {
    return connection_.guarded("moved runs", [&] {
        const auto put =
            connection_.statement("INSERT INTO runs_moves (before, now) VALUES (?, ?)");
        put->bindNoCopy(1, before);
        put->bindNoCopy(2, now);
        put->exec();
        for (const JobId& job : stay) {
            const auto keep =
                connection_.statement("INSERT OR IGNORE INTO runs_stay (job) VALUES (?)");
            keep->bindNoCopy(1, job.value);
            keep->exec();
        }
    });
}

Result<CopiedJobs> IdentityRecords::copied_jobs() {
    return connection_.guarded("copied jobs", [&] {
        CopiedJobs out;
        const auto followed = connection_.statement("SELECT job, since FROM followed_jobs");
        while (followed->executeStep()) {
            out.followed[followed->getColumn(0).getString()] = followed->getColumn(1).getInt64();
        }
        const auto moves = connection_.statement("SELECT before, now FROM runs_moves ORDER BY id");
        while (moves->executeStep()) {
            out.moves.emplace_back(moves->getColumn(0).getString(),
                                   moves->getColumn(1).getString());
        }
        const auto stay = connection_.statement("SELECT job FROM runs_stay");
        while (stay->executeStep()) {
            out.stay.insert(stay->getColumn(0).getString());
        }
        return out;
    });
}

}  // namespace lockstep
