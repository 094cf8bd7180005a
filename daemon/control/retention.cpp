#include "daemon/control/retention.hpp"

#include "daemon/control/job_folder.hpp"
#include "job/base/log.hpp"

#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::hours{1};
constexpr std::size_t kChunksAtOnce = 64;  // a transaction of some megabytes
constexpr std::size_t kJobsAtOnce = 32;    // of age, before what is left of them is removed
constexpr std::int64_t kDayMillis = 86'400'000;
constexpr std::int64_t kRemembered = 90 * kDayMillis;  // what Slurm holds is known by it
// A folder that is not gone by then may never be: the others go on, and it is tried again.
constexpr auto kFilesPatience = std::chrono::hours{1};

}  // namespace

Retention::Retention(ControlContext& context, Remove remove)
    : context_(context), remove_(std::move(remove)), wake_(context.io) {}

void Retention::begin() {
    waiting_ = true;
    context_.tasks.spawn("retention", tend());
}

void Retention::hurry() {
    waiting_ = true;
    wake_.cancel();
}

Task<void> Retention::tend() {
    auto due = std::chrono::steady_clock::now();
    while (!ending_) {
        if (std::chrono::steady_clock::now() >= due) {
            due = std::chrono::steady_clock::now() + kLookEvery;
            waiting_ = true;  // what could not be removed is tried again
            co_await remove_old();
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
    if (const Status done = co_await context_.store.forget_removals(now - kRemembered); !done) {
        log::warn("cannot forget old removals", {{"what", done.error().message}});
    }
    if (context_.settings.keep_days <= 0) {
        co_return;
    }
    const UnixMillis before = now - context_.settings.keep_days * kDayMillis;
    std::size_t skipped = 0;  // they stay in front: somebody still needs them
    std::size_t removed = 0;
    while (!ending_) {
        const std::size_t most = kJobsAtOnce + skipped;
        const std::function<Result<std::vector<JobId>>(Database&)> read =
            [before, most](Database& db) { return db.ended_before(before, most); };
        const auto old = co_await context_.store.read<std::vector<JobId>>(read);
        if (!old) {
            log::error("cannot look for old jobs", {{"what", old.error().message}});
            co_return;
        }
        std::size_t kept = 0;
        for (const JobId& job : *old) {
            auto removing = remove_(job);
            const Status done = co_await std::move(removing);
            kept += done ? 0 : 1;
            removed += done ? 1 : 0;
        }
        if (kept == old->size()) {
            break;
        }
        skipped = kept;
        co_await clear_all();
    }
    if (removed > 0) {
        log::info("old jobs removed",
                  {{"jobs", removed}, {"keep_days", context_.settings.keep_days}});
    }
}

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
            if (ending_) {
                co_return;
            }
            auto clearing = clear(row);
            if (const Status done = co_await std::move(clearing); !done) {
                log::warn("something of a removed job stays for now",
                          {{"job", row.job.value}, {"what", done.error().message}});
            }
        }
        if (rows->size() < kJobsAtOnce) {
            co_return;
        }
    }
}

Task<Status> Retention::clear(RemovalRow removal) {
    for (;;) {
        JobId one = removal.job;
        const auto gone = co_await context_.store.remove_history(std::move(one), kChunksAtOnce);
        if (!gone) {
            co_return fail(gone.error());
        }
        if (gone->chunks < static_cast<std::int64_t>(kChunksAtOnce)) {
            break;
        }
        if (ending_) {
            co_return Status{};
        }
    }
    const fs::path directory = context_.settings.runs_dir / removal.job.value;
    fs::path snapshot;
    // One folder below the snapshots', whatever a label came to say.
    if (fs::path{removal.snapshot}.filename() == removal.snapshot && removal.snapshot != "." &&
        removal.snapshot != ".." && !removal.snapshot.empty() &&
        !context_.settings.snapshots_dir.empty()) {
        snapshot = context_.settings.snapshots_dir / removal.snapshot;
    }
    const std::function<Status()> remove = [directory, snapshot,
                                            checkpoints = removal.checkpoints]() -> Status {
        if (Status done = remove_job_files(directory, checkpoints); !done || snapshot.empty()) {
            return done;
        }
        std::error_code ec;
        fs::remove_all(snapshot, ec);
        return ec ? Status{fail(Errc::unavailable, snapshot.string() + ": " + ec.message())}
                  : Status{};
    };
    const auto until = std::chrono::steady_clock::now() + kFilesPatience;
    const std::optional<Status> done = co_await files_.run<Status>(remove, until);
    if (!done && ending_) {
        co_return Status{};  // the next start goes on
    }
    if (!done) {
        co_return fail(Errc::timed_out, directory.string() + ": its file system does not answer");
    }
    if (!*done) {
        co_return *done;
    }
    JobId job = removal.job;  // moved: GCC 12 frees a copy made in the expression twice
    co_return co_await context_.store.removal_done(std::move(job));
}

void Retention::halt() {
    ending_ = true;
    wake_.cancel();
    files_.let_go();
}

}  // namespace lockstep
