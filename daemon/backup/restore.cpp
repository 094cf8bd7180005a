#include "daemon/backup/restore.hpp"

#include "daemon/backup/copied_store.hpp"
#include "daemon/backup/staged_folder.hpp"
#include "daemon/backup/store_place.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "job/base/files.hpp"
#include "job/base/machine.hpp"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A file, or a link, of the backup; what is there stays.
Result<bool> put_entry(const fs::path& from, const fs::path& to, const FileEntry& entry,
                       const StopAsked& stop) {
    LOCKSTEP_TRY(make_private_directories(to.parent_path()));
    std::error_code ec;
    if (fs::exists(fs::symlink_status(to, ec))) {
        return false;
    }
    if (entry.sha256.empty()) {
        if (::symlink(entry.link.c_str(), to.c_str()) != 0) {
            return fail(errno_error("make link " + to.string(), errno));
        }
        return true;
    }
    const auto copied = copy_plain_file(from, to, stop);
    LOCKSTEP_TRY(copied);
    if (copied->sha256 != entry.sha256) {
        return fail(Errc::corrupt, from.string() + ": its bytes have changed");
    }
    if (::chmod(to.c_str(), entry.mode) != 0) {
        return fail(errno_error("chmod " + to.string(), errno));
    }
    return true;
}

// Into the new data directory, and the runs where they are to be.
Status put_files(const RestorePlan& plan, const fs::path& data, const fs::path& runs,
                 const StopAsked& stop, RestoreReport& out) {
    const std::string of_data = std::string{kDataFolder} + "/";
    const std::string of_runs = std::string{kRunsFolder} + "/";
    return read_file_list(plan.from, [&](const FileEntry& entry) -> Status {
        if (!entry.left_out.empty()) {
            return {};
        }
        const bool run = entry.path.starts_with(of_runs);
        if (!run && !entry.path.starts_with(of_data)) {
            return fail(Errc::corrupt, "not a file of a backup: " + entry.path);
        }
        const fs::path to = run ? runs / entry.path.substr(of_runs.size())
                                : data / entry.path.substr(of_data.size());
        const auto put = put_entry(plan.from / entry.path, to, entry, stop);
        LOCKSTEP_TRY(put);
        out.files += run && *put ? 1U : 0U;
        out.kept += *put ? 0U : 1U;
        return {};
    });
}

// With the first one gone: what a scheduler had is looked for and followed.
Status follow(Database& database, UnixMillis since, RestoreReport& out) {
    const auto ids = JobRecords{database}.unfinished();
    LOCKSTEP_TRY(ids);
    for (const JobId& id : *ids) {
        if (Status noted = IdentityRecords{database}.follow(id, since); !noted) {
            return noted;
        }
        ++out.followed;
    }
    return {};
}

Status note_runs(Database& database, const std::string& before, const fs::path& now) {
    if (before.empty() || fs::path{before} == now) {
        return {};
    }
    auto ids = JobRecords{database}.unfinished();
    LOCKSTEP_TRY(ids);
    std::erase_if(*ids, [&](const JobId& id) {
        std::error_code ec;
        return !fs::exists(fs::path{before} / id.value, ec);
    });
    return IdentityRecords{database}.move_runs(before, now.string(), *ids);
}

// A directory that was named at the start is named again at the next one, and live agents are
// there.
fs::path runs_of(const RestorePlan& plan, const Manifest& manifest) {
    if (!plan.runs.empty()) {
        return plan.runs;
    }
    const fs::path before = manifest.runs_directory;
    const bool named = !before.empty() && before != fs::path{manifest.data_directory} / kRunsFolder;
    return plan.take_over && named && has_been_claimed(before, manifest.database.store)
               ? before
               : plan.data / kRunsFolder;
}

Result<StoreIdentity> make_it_ours(Database& database, const FileMark& file,
                                   const RestorePlan& plan, UnixMillis now, RestoreReport& out) {
    const fs::path& runs = out.runs;
    const UnixMillis since = out.manifest.made_at;
    const std::string when = to_rfc3339(since).substr(0, 19) + "Z";
    const auto known = IdentityRecords{database}.find();
    LOCKSTEP_TRY(known);
    StoreIdentity identity = known->value_or(StoreIdentity{});
    if (Status free = check_runs(runs, {identity.store, ""}); !free && !plan.take_over) {
        return fail(free.error().code, free.error().message + ": name another --runs-dir");
    }
    Status done = database.begin();
    LOCKSTEP_TRY(done);
    const auto ended = end_foreign_jobs(
        database,
        plan.take_over
            ? "restored from a backup of " + when +
                  ": the scheduler did not have it then. Whether it has been submitted since is "
                  "not known, so it is not submitted now; if it has not run, submit it again"
            : "restored from a backup of " + when +
                  ": what has become of it since is not known here",
        now, [&](const Job& job) { return !plan.take_over || !was_handed_over(job); });
    done = ended ? Status{} : fail(ended.error());
    out.ended = ended.value_or(0);
    done = done && plan.take_over ? follow(database, since, out) : done;
    done = done ? NoticeRecords{database}.drop_all() : done;
    done = done ? note_runs(database, out.manifest.runs_directory, runs) : done;
    if (!plan.take_over || identity.store.empty()) {
        identity.store = random_secret().substr(0, 32);
    }
    identity.incarnation = random_secret().substr(0, 32);
    identity.file = file;
    identity.host = host_name();
    identity.directory = plan.data.string();
    identity.runs = runs.string();
    done = done ? IdentityRecords{database}.set(identity) : done;
    done = done ? database.commit() : done;
    return done ? Result<StoreIdentity>{std::move(identity)} : fail(done.error());
}

}  // namespace

Result<RestoreReport> restore_backup(const RestorePlan& plan, UnixMillis now, const StopAsked& stop,
                                     const std::function<void(const std::string&)>& problem) {
    auto verified = verify_backup(plan.from, stop, problem);
    LOCKSTEP_TRY(verified);
    RestoreReport out;
    out.manifest = std::move(*verified);
    out.runs = runs_of(plan, out.manifest);
    const bool inside = plan.runs.empty() && out.runs == plan.data / kRunsFolder;
    LOCKSTEP_TRY(make_private_directories(plan.data.parent_path()));
    auto folder = StagedFolder::begin(plan.data);
    LOCKSTEP_TRY(folder);
    const fs::path file = folder->path() / kDatabaseName;
    LOCKSTEP_TRY(copy_plain_file(plan.from / kDatabaseName, file, stop));
    StoreIdentity identity;
    {
        const auto mark = mark_of(file);  // it keeps that when its folder gets its name
        auto database = mark ? Database::open(file) : fail(mark.error());  // migrates it, too
        LOCKSTEP_TRY(database);
        auto ours = make_it_ours(**database, *mark, plan, now, out);
        LOCKSTEP_TRY(ours);
        identity = std::move(*ours);
    }
    const fs::path runs = inside ? folder->path() / kRunsFolder : out.runs;
    LOCKSTEP_TRY(put_files(plan, folder->path(), runs, stop, out));
    if (!inside) {
        // The first one finds it there, should it come back: not before there is one to go on.
        LOCKSTEP_TRY(claim_runs(runs, identity));
    }
    LOCKSTEP_TRY(folder->finish());
    return out;
}

}  // namespace lockstep
