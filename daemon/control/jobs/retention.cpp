#include "daemon/control/jobs/retention.hpp"

#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/base/age_limit.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kPassEvery = std::chrono::hours{1};
constexpr std::size_t kChunksAtOnce = 64;  // a transaction of some megabytes
constexpr std::size_t kJobsAtOnce = 32;    // of age, before what is left of them is removed
constexpr std::size_t kClearedAtOnce = 4;
constexpr unsigned kLooksOfDay = 24;

}  // namespace

Retention::Retention(ControlContext& context, Remove remove, InUse in_use,
                     EarlierFolder earlier_folder, Unfinished unfinished)
    : context_(context),
      remove_(std::move(remove)),
      in_use_(std::move(in_use)),
      earlier_folder_(std::move(earlier_folder)),
      unfinished_(std::move(unfinished)),
      files_(context.io, kClearedAtOnce),
      walks_(context.io, kHangingWalks),
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
            return JobRecords{db}.ended_before(limit, after, kJobsAtOnce);
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
            [after](Database& db) { return RemovalRecords{db}.unfinished(after, kJobsAtOnce); };
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
        return JobRecords{db}.snapshot_used(name);
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
    walks_.let_go();
}

}  // namespace lockstep
