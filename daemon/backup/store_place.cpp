#include "daemon/backup/store_place.hpp"

#include "daemon/backup/copied_store.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "daemon/store/snapshot.hpp"
#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMarkBytes = 4096;
constexpr std::size_t kIdLength = 32;

// Of these the numbers of files are made up at each mount.
bool keeps_numbers(const fs::path& file) {
    constexpr long kFuse = 0x65735546;
    constexpr long kExfat = 0x2011BAB0;
    struct statfs info = {};
    if (::statfs(file.c_str(), &info) != 0) {
        return false;
    }
    const long type = info.f_type;
    return type != kFuse && type != kExfat && type != MSDOS_SUPER_MAGIC;
}

std::string new_id() {
    return random_secret().substr(0, kIdLength);
}

// --- the runs directory's word ------------------------------------------------------------------

struct RunsMark {
    std::string incarnation;
    FileMark file{};
    std::string host{};
    std::string directory{};
    bool in_place = false;  // it is the file that was written, no copy of it
};

fs::path mark_path(const fs::path& runs, const std::string& store) {
    return runs / (".store-" + store);
}

std::optional<RunsMark> read_mark(const fs::path& path) {
    const auto text = read_plain_file(path, kMarkBytes);
    const auto json = text ? parse_json(*text) : fail(text.error());
    if (!json || !json->is_object()) {
        return std::nullopt;
    }
    RunsMark out;
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    in.string("incarnation", out.incarnation, kIdLength);
    in.integer("inode", out.file.inode, INT64_MIN, INT64_MAX);
    in.integer("born", out.file.born, INT64_MIN, INT64_MAX);
    in.string("host", out.host, kMarkBytes);
    in.string("directory", out.directory, kMarkBytes);
    if (!errors.empty()) {
        return std::nullopt;
    }
    const auto now = mark_of(path);
    out.in_place = now && keeps_numbers(path) && out.file.same_file(*now);
    return out;
}

// Written into the file that is there: its number is in it.
Status write_mark(const fs::path& path, const StoreIdentity& identity) {
    UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    const auto mark = fd ? mark_of(path) : fail(errno_error("open " + path.string(), errno));
    LOCKSTEP_TRY(mark);
    Json json = Json::object();
    json["incarnation"] = identity.incarnation;
    json["inode"] = mark->inode;
    json["born"] = mark->born;
    json["host"] = identity.host;
    json["directory"] = identity.directory;
    const std::string text = dump_json(json) + "\n";
    const auto put = ::pwrite(fd.get(), text.data(), text.size(), 0);
    if (put != static_cast<ssize_t>(text.size()) ||
        ::ftruncate(fd.get(), static_cast<off_t>(text.size())) != 0 || ::fsync(fd.get()) != 0) {
        return fail(errno_error("write " + path.string(), errno));
    }
    return {};
}

// --- the place of the one it was copied from -----------------------------------------------------

// The process that holds a data directory's lock; 0 = none, or not to be told from here.
pid_t holder_of(const fs::path& directory) {
    const UniqueFd fd{::open((directory / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    struct flock whole = {};
    whole.l_type = F_RDLCK;
    whole.l_whence = SEEK_SET;
    if (!fd || ::fcntl(fd.get(), F_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) {
        return 0;
    }
    return whole.l_pid;
}

std::string where(const StoreIdentity& identity) {
    return identity.directory + " on " + identity.host;
}

// Why the store may not be taken over, as far as this machine can see the other one.
Status may_take_over(Database& database, const StoreIdentity& known, const StorePlace& here) {
    const fs::path there = known.directory;
    std::error_code ec;
    // To look at a lock of our own would be to let go of it.
    if (!fs::exists(there / "lockstep.db", ec) || fs::equivalent(there, here.directory, ec)) {
        return {};
    }
    if (const pid_t pid = holder_of(there); pid > 0) {
        return fail(Errc::conflict, "cannot take over from " + there.string() +
                                        ": its lockstepd runs (process " + std::to_string(pid) +
                                        ")");
    }
    const auto facts = read_facts(there / "lockstep.db");
    const auto seq = EventRecords{database}.last_seq();
    if (facts && seq && facts->store == known.store && facts->last_seq > *seq) {
        return fail(Errc::conflict,
                    "cannot take over: " + there.string() +
                        " has gone on since this copy was made; copy it again, or make it a "
                        "backup (lockstepd backup) and restore that");
    }
    return {};
}

Status refuse(const StoreIdentity& known, const StorePlace& here) {
    const std::string from = known.directory.empty() ? "a backup" : where(known);
    return fail(Errc::conflict,
                here.directory.string() + " is a copy; its store was that of " + from +
                    ". Start once with --take-over if that lockstepd is gone for good and the "
                    "copy is newer than its last moment; with --as-copy if it goes on, or may: "
                    "then its unfinished jobs end here, and only here. A backup is put to use by "
                    "lockstepd restore");
}

bool inside(const fs::path& path, const fs::path& folder) {
    const auto rest = path.lexically_relative(folder);
    return !rest.empty() && *rest.begin() != "..";
}

// The same of runs as they were typed and a data directory without links in its path. By name
// alone, too: a link may have been left where the data directory was.
bool runs_inside(const fs::path& runs, const fs::path& directory) {
    std::error_code ec;
    return inside(runs, directory) || inside(fs::weakly_canonical(runs, ec), directory);
}

// Jobs whose agents, if they live, are at the old paths.
Result<std::vector<JobId>> jobs_at(Database& database, const fs::path& runs) {
    auto ids = JobRecords{database}.unfinished();
    if (ids) {
        std::erase_if(*ids, [&](const JobId& id) {
            std::error_code ec;
            return !fs::exists(runs / id.value, ec);
        });
    }
    return ids;
}

Status note_move(Database& database, const StoreIdentity& known, const StorePlace& here,
                 bool unfinished_stay) {
    if (known.runs.empty() || fs::path{known.runs} == here.runs) {
        return {};
    }
    std::vector<JobId> stay;
    if (unfinished_stay) {
        auto ids = jobs_at(database, known.runs);
        LOCKSTEP_TRY(ids);
        stay = std::move(*ids);
    }
    return IdentityRecords{database}.move_runs(known.runs, here.runs.string(), stay);
}

Status take_over(Database& database, StoreIdentity& identity, const StorePlace& here,
                 std::string& note) {
    if (const Status may = may_take_over(database, identity, here); !may) {
        return may;
    }
    note = "taken over from " + where(identity);
    const Status moved = note_move(database, identity, here, true);
    identity.incarnation = new_id();
    return moved;
}

Status go_own_way(Database& database, StoreIdentity& identity, const StorePlace& here,
                  UnixMillis now, std::string& note) {
    const std::string why = "this lockstepd has a copy of the store of " + where(identity) +
                            ": the original continues there";
    const auto ended = end_foreign_jobs(database, why, now, [](const Job&) { return true; });
    LOCKSTEP_TRY(ended);
    note = "a copy of " + where(identity) + "; " + std::to_string(*ended) +
           " unfinished jobs are left to that one and have ended here";
    Status done = NoticeRecords{database}.drop_all();
    done = done ? note_move(database, identity, here, false) : done;
    identity.store = new_id();
    identity.incarnation = new_id();
    return done;
}

Status settle(Database& database, StoreIdentity& identity, bool copied, OnCopy on_copy,
              const StorePlace& here, UnixMillis now, std::string& note) {
    if (!copied) {
        // Renamed, with the runs in it. Elsewhere they stay where they are, whatever --runs-dir
        // says of the next ones.
        const bool renamed = runs_inside(identity.runs, identity.directory) &&
                             runs_inside(here.runs, here.directory) &&
                             here.directory != fs::path{identity.directory};
        return renamed ? note_move(database, identity, here, false) : Status{};
    }
    return on_copy == OnCopy::take_over ? take_over(database, identity, here, note)
                                        : go_own_way(database, identity, here, now, note);
}

// A runs directory that cannot be written to now is no reason not to start: attempts say so.
void leave_mark(const StorePlace& here, const StoreIdentity& identity, const std::string& before) {
    const Status left = claim_runs(here.runs, identity);
    if (left && !before.empty() && before != identity.store) {
        ::unlink(mark_path(here.runs, before).c_str());  // it came along with the copy
    }
    if (!left) {
        log::warn("cannot write into the runs directory", {{"what", left.error().message}});
    }
}

}  // namespace

Result<FileMark> mark_of(const fs::path& file) {
    struct statx info = {};
    if (::statx(AT_FDCWD, file.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &info) != 0) {
        return fail(errno_error("look at " + file.string(), errno));
    }
    constexpr std::int64_t kSecond = 1'000'000'000;
    FileMark out;
    out.inode = static_cast<std::int64_t>(info.stx_ino);
    if ((info.stx_mask & STATX_BTIME) != 0) {
        out.born = info.stx_btime.tv_sec * kSecond + info.stx_btime.tv_nsec;
    }
    return out;
}

Status check_runs(const fs::path& runs, const StoreIdentity& identity) {
    const auto mark = read_mark(mark_path(runs, identity.store));
    if (!mark || !mark->in_place || mark->incarnation == identity.incarnation) {
        return {};
    }
    return fail(Errc::conflict, runs.string() + " is the runs directory of the lockstepd of " +
                                    mark->directory + " on " + mark->host +
                                    ", which has this store now or shares its past");
}

Status claim_runs(const fs::path& runs, const StoreIdentity& identity) {
    const Status made = make_private_directories(runs);
    return made ? write_mark(mark_path(runs, identity.store), identity) : made;
}

bool has_been_claimed(const fs::path& runs, const std::string& store) {
    std::error_code ec;
    return fs::is_regular_file(fs::symlink_status(mark_path(runs, store), ec));
}

Status settle_place(Database& database, const StorePlace& here, OnCopy on_copy, UnixMillis now,
                    std::string& note) {
    const auto known = IdentityRecords{database}.find();
    const auto mark = known ? mark_of(here.database) : fail(known.error());
    LOCKSTEP_TRY(mark);
    StoreIdentity identity = known->value_or(StoreIdentity{});
    const std::string before = identity.store;
    const bool fresh = !known->has_value();
    const bool copied = !fresh && (identity.file.inode == 0 || (keeps_numbers(here.database) &&
                                                                !identity.file.same_file(*mark)));
    if (copied && on_copy == OnCopy::refuse) {
        return refuse(identity, here);
    }
    if (fresh) {
        identity.store = new_id();
        identity.incarnation = new_id();
    } else if (!(copied && on_copy == OnCopy::take_over)) {
        // Of a copy that goes its own way: nobody's but the other one's incarnation is there.
        StoreIdentity asked = identity;
        asked.incarnation = copied ? "" : identity.incarnation;
        if (const Status free = check_runs(here.runs, asked); !free) {
            const std::string help =
                copied ? ": give this one its own --runs-dir"
                       : ". If that one has taken over from this one, start that one; a copy of "
                         "this one may be started with --as-copy. If this one was restored to "
                         "take over from that one, restore it again, with --take-over --runs-dir " +
                             here.runs.string();
            return fail(free.error().code, free.error().message + help);
        }
    }
    StoreIdentity place = identity;
    place.file = *mark;
    place.host = here.host;
    place.directory = here.directory.string();
    place.runs = here.runs.string();
    Status done = database.begin();
    if (!done) {
        return done;
    }
    done = settle(database, identity, copied, on_copy, here, now, note);
    place.store = identity.store;
    place.incarnation = identity.incarnation;
    done = done ? IdentityRecords{database}.set(place) : done;
    done = done ? database.commit() : done;
    if (!done) {
        database.rollback();
        return done;
    }
    leave_mark(here, place, before);
    return {};
}

}  // namespace lockstep
