#include "daemon/control/jobs/retention.hpp"

#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/base/age_limit.hpp"
#include "daemon/control/jobs/stored_jobs.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kPassEvery = std::chrono::hours{1};
constexpr std::size_t kChunksAtOnce = 64;  // a transaction of some megabytes
constexpr std::size_t kJobsAtOnce = 32;    // of age, before what is left of them is removed
constexpr std::size_t kClearedAtOnce = 4;
constexpr std::size_t kMeasuredAtOnce = 256;
constexpr auto kMeasuring = std::chrono::minutes{5};
constexpr unsigned kLooksOfDay = 24;
// What ended less than this ago stays, however much it takes: somebody may not have seen it yet.
constexpr std::int64_t kFreshDays = 1;

std::int64_t bytes_in(const fs::path& folder, std::chrono::steady_clock::time_point until) {
    const DiskUse use = disk_use(folder, limits::kFilesOfJob, until);
    return use.logs + use.evidence + use.checkpoints + use.other;
}

}  // namespace

Retention::Retention(ControlContext& context, Remove remove, InUse in_use,
                     EarlierFolder earlier_folder, Unfinished unfinished)
    : context_(context),
      remove_(std::move(remove)),
      in_use_(std::move(in_use)),
      earlier_folder_(std::move(earlier_folder)),
      unfinished_(std::move(unfinished)),
      files_(context.io, kClearedAtOnce),
      wake_(context.io) {}

void Retention::begin() {
    waiting_ = true;
    context_.tasks.spawn("retention", tend());
}

void Retention::wake() {
    waiting_ = true;
    wake_.cancel();
}

Task<void> Retention::tend() {
    auto due = std::chrono::steady_clock::now();
    while (!ending_) {
        if (std::chrono::steady_clock::now() >= due) {
            due = std::chrono::steady_clock::now() + kPassEvery;
            waiting_ = true;
            later_.clear();  // what could not be removed is tried again
            tell_slow();
            co_await remove_old();
            if (looks_++ % kLooksOfDay == 0) {
                sizes_.clear();
            }
            co_await remove_beyond_size();
            co_await measure_users();
        }
        while (std::exchange(waiting_, false) && !ending_) {
            co_await clear_all();
        }
        if (ending_) {
            break;
        }
        wake_.expires_at(due);
        ErrorCode ec;
        co_await wake_.async_wait(into(ec));
    }
}

Task<void> Retention::remove_old() {
    const auto now = context_.clock.wall();
    if (const Status done = co_await context_.store.forget_removals(now - limits::kRemovalsKept);
        !done) {
        log::warn("cannot forget old removals", {{"what", done.error().message}});
    }
    if (context_.settings.keep_days <= 0) {
        co_return;
    }
    const auto before = co_await older_than(context_, context_.settings.keep_days);
    if (!before) {
        log::error("cannot tell how old jobs are", {{"what", before.error().message}});
        co_return;
    }
    EndedJob after;  // those that somebody still needs are passed over
    std::size_t removed = 0;
    for (bool more = true; more && !ending_;) {
        const std::function<Result<std::vector<EndedJob>>(Database&)> read = [limit = *before,
                                                                              after](Database& db) {
            return db.ended_before(limit, after, kJobsAtOnce);
        };
        const auto old = co_await context_.store.read<std::vector<EndedJob>>(read);
        if (!old) {
            log::error("cannot look for old jobs", {{"what", old.error().message}});
            co_return;
        }
        for (const EndedJob& one : *old) {
            JobId job = one.job;
            auto removing = remove_(std::move(job));
            const Status done = co_await std::move(removing);
            removed += done ? 1 : 0;
        }
        more = old->size() == kJobsAtOnce;
        if (more) {
            after = old->back();
            co_await clear_all();
        }
    }
    if (removed > 0) {
        log::info("old jobs removed",
                  {{"jobs", removed}, {"keep_days", context_.settings.keep_days}});
    }
}

// Of what a job has in its folder. not_found: somebody has removed it meanwhile.
Task<Result<std::int64_t>> Retention::measure(const JobId& job) {
    const std::string id = job.value;
    JobId asked = job;
    auto finding = earlier_folder_(std::move(asked));
    const auto earlier = co_await std::move(finding);
    LOCKSTEP_CO_TRY(earlier);
    const auto until = std::chrono::steady_clock::now() + kMeasuring;
    const std::function<std::int64_t()> walk = [folder = context_.settings.runs_dir / id,
                                                before = *earlier, until] {
        std::error_code ec;  // by a link they may be the same
        const bool two = !before.empty() && !fs::equivalent(folder, before, ec);
        return bytes_in(folder, until) + (two ? bytes_in(before, until) : 0);
    };
    // Of one that is too large it is what was counted until then; one that hangs gives nothing.
    const auto bytes = co_await files_.run<std::int64_t>(walk, until + kMeasuring / 5);
    if (!bytes) {
        co_return fail(Errc::unavailable, "the folder of " + id + " cannot be measured");
    }
    co_return *bytes;
}

// Of one that is over: it changes no more, so once a day is enough.
Task<Result<std::int64_t>> Retention::size_of(const JobId& job) {
    const auto known = sizes_.find(job.value);
    if (known != sizes_.end()) {
        co_return known->second;
    }
    const auto bytes = co_await measure(job);
    if (bytes) {
        sizes_[job.value] = *bytes;
    }
    co_return bytes;
}

// All that are over and may have to go for their size, from the oldest to the newest.
Task<Result<RemovalOrder>> Retention::sizes_of_ended(UnixMillis fresh_since) {
    RemovalOrder out;
    EndedJob after;
    for (bool more = true; more && !ending_;) {
        const std::function<Result<std::vector<EndedJob>>(Database&)> read = [after](Database& db) {
            return db.ended_before(std::numeric_limits<UnixMillis>::max(), after, kMeasuredAtOnce);
        };
        const auto page = co_await context_.store.read<std::vector<EndedJob>>(read);
        LOCKSTEP_CO_TRY(page);
        for (const EndedJob& one : *page) {
            const auto size = co_await size_of(one.job);
            if (!size && size.error().code == Errc::not_found) {
                continue;
            }
            LOCKSTEP_CO_TRY(size);
            RemovalOrder::Place place{one.job, one.user, one.finished_at, *size};
            out.add(std::move(place), one.finished_at < fresh_since);
        }
        more = page->size() == kMeasuredAtOnce;
        after = more ? page->back() : after;
    }
    co_return out;
}

Task<void> Retention::remove_beyond_size() {
    if (context_.settings.keep_bytes <= 0) {
        co_return;
    }
    const auto fresh_since = co_await older_than(context_, kFreshDays);
    if (!fresh_since) {
        log::error("cannot tell how old jobs are", {{"what", fresh_since.error().message}});
        co_return;
    }
    auto jobs = co_await sizes_of_ended(*fresh_since);
    if (!jobs) {
        if (!ending_) {
            log::warn("keep-gb is not looked after", {{"what", jobs.error().message}});
        }
        co_return;
    }
    const std::int64_t most = context_.settings.keep_bytes;
    std::size_t removed = 0;
    while (jobs->bytes() > most && !ending_) {
        const auto one = jobs->next();
        if (!one) {
            break;
        }
        JobId job = one->job;
        auto removing = remove_(std::move(job));
        if (const Status done = co_await std::move(removing)) {  // else somebody needs it
            jobs->gone(*one);
            sizes_.erase(one->job.value);
            ++removed;
        }
    }
    if (removed > 0) {
        log::info("jobs removed, the oldest of the user who had most",
                  {{"jobs", removed}, {"keep_bytes", most}});
    }
    if (jobs->bytes() > most && !ending_) {
        log::warn("jobs that are over take more than keep-gb, and none of them may go",
                  {{"bytes", jobs->bytes()}, {"keep_bytes", most}});
    }
}

// After a start the store says which jobs there are and what their specifications take; from then
// on whoever submits and removes does.
Task<Status> Retention::find_stored() {
    std::string before;
    while (!stored_found_ && !ending_) {
        const std::function<Result<std::vector<StoredJob>>(Database&)> read =
            [before](Database& db) { return stored_jobs(db, before); };
        const auto some = co_await context_.store.read<std::vector<StoredJob>>(read);
        LOCKSTEP_CO_TRY(some);
        for (const StoredJob& one : *some) {
            context_.stored.add(one.job.value, one.user, one.bytes);
            before = one.job.value;
        }
        stored_found_ = some->empty();
    }
    co_return Status{};
}

// Unlike what may go, that counts everything: jobs with the label keep, and those that still write.
Task<void> Retention::measure_users() {
    if (context_.settings.user_bytes <= 0) {
        co_return;
    }
    if (const Status found = co_await find_stored(); !found) {
        log::error("cannot look for jobs", {{"what", found.error().message}});
        co_return;
    }
    for (std::string id = context_.stored.next(""); !id.empty() && !ending_;
         id = context_.stored.next(id)) {
        const JobId job{id};
        auto measuring = unfinished_(id) ? measure(job) : size_of(job);
        const auto bytes = co_await std::move(measuring);
        if (bytes) {
            context_.stored.measured(id, *bytes);
        } else if (bytes.error().code == Errc::not_found) {
            context_.stored.removed(id);  // between the store's answer and ours
        } else {
            if (!ending_) {
                log::warn("user-gb goes by what was measured before",
                          {{"what", bytes.error().message}});
            }
            co_return;
        }
        if (std::exchange(waiting_, false)) {
            co_await clear_all();  // it may take long, and who removes jobs wants the room now
        }
    }
}

void Retention::tell_slow() const {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& [job, begun] : clearing_) {
        if (now - begun >= kPassEvery / 2) {
            log::warn(
                "a removed job's files are still being removed: a slow file system, or one that "
                "does not answer",
                {{"job", job}});
        }
    }
}

// Begins with as many as there is room for; each that ends asks for the next.
Task<void> Retention::clear_all() {
    JobId after;
    while (!ending_) {
        const std::function<Result<std::vector<RemovalRow>>(Database&)> read =
            [after](Database& db) { return db.unfinished_removals(after, kJobsAtOnce); };
        const auto rows = co_await context_.store.read<std::vector<RemovalRow>>(read);
        if (!rows) {
            log::error("cannot read what is to be removed", {{"what", rows.error().message}});
            co_return;
        }
        for (const RemovalRow& row : *rows) {
            after = row.job;
            if (ending_ || clearing_.size() >= kClearedAtOnce) {
                co_return;
            }
            const auto now = std::chrono::steady_clock::now();
            if (!later_.contains(row.job.value) &&
                clearing_.try_emplace(row.job.value, now).second) {
                context_.tasks.spawn("removal", clear(row));
            }
        }
        if (rows->size() < kJobsAtOnce) {
            co_return;
        }
    }
}

Task<void> Retention::clear(RemovalRow removal) {
    const Status done = co_await clear_one(removal);
    clearing_.erase(removal.job.value);
    if (!done) {
        later_.insert(removal.job.value);
        log::warn("something of a removed job stays for now",
                  {{"job", removal.job.value}, {"what", done.error().message}});
    }
    wake();
}

// The snapshot that goes with its last job, asked now: a job may have come that runs in it. "" = it
// stays.
Task<Result<fs::path>> Retention::snapshot_to_remove(const std::string& name) {
    const fs::path& all = context_.settings.snapshots_dir;
    // One folder below the snapshots', whatever a label came to say.
    if (name.empty() || all.empty() || folder_below(all / name, all) != name) {
        co_return fs::path{};
    }
    const std::function<Result<bool>(Database&)> read = [name](Database& db) {
        return db.snapshot_used(name);
    };
    const auto used = co_await context_.store.read<bool>(read);
    LOCKSTEP_CO_TRY(used);
    co_return *used || in_use_(name) ? fs::path{} : all / name;
}

Task<Status> Retention::clear_one(const RemovalRow& removal) {
    for (;;) {
        JobId one = removal.job;
        const auto gone = co_await context_.store.remove_history(std::move(one), kChunksAtOnce);
        LOCKSTEP_CO_TRY(gone);
        if (gone->chunks < static_cast<std::int64_t>(kChunksAtOnce)) {
            break;
        }
        if (ending_) {
            co_return Status{};
        }
    }
    const fs::path directory = context_.settings.runs_dir / removal.job.value;
    const std::function<Status()> files = [directory, problem = context_.runs_folder.problem(),
                                           before = fs::path{removal.folder},
                                           checkpoints = removal.checkpoints] {
        return remove_job_files(directory, problem, before, checkpoints);
    };
    auto removing = remove_on_thread(files);
    if (Status done = co_await std::move(removing); !done || ending_) {
        co_return done;
    }
    const auto snapshot = co_await snapshot_to_remove(removal.snapshot);
    LOCKSTEP_CO_TRY(snapshot);
    if (!snapshot->empty()) {
        const std::function<Status()> folder = [path = *snapshot] { return remove_folder(path); };
        auto also = remove_on_thread(folder);
        if (Status done = co_await std::move(also); !done || ending_) {
            co_return done;
        }
    }
    JobId job = removal.job;  // moved: GCC 12 frees a copy made in the expression twice
    co_return co_await context_.store.removal_done(std::move(job));
}

// As long as it takes: a file system that hangs may come back, and whoever tried again meanwhile
// would hang there, too. Status{} without it being done: the daemon ends, the next start goes on.
Task<Status> Retention::remove_on_thread(std::function<Status()> work) {
    const std::optional<Status> done =
        co_await files_.run<Status>(std::move(work), std::chrono::steady_clock::time_point::max());
    if (!done) {
        co_return ending_ ? Status{} : Status{fail(Errc::internal, "its files were not removed")};
    }
    co_return *done;
}

void Retention::halt() {
    ending_ = true;
    wake_.cancel();
    files_.let_go();
}

}  // namespace lockstep
