// Retention's sizes: what jobs take on disk, whose go for it, and what each user has.
#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/base/age_limit.hpp"
#include "daemon/control/jobs/retention.hpp"
#include "daemon/control/jobs/stored_jobs.hpp"
#include "daemon/store/job_records.hpp"
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

constexpr std::size_t kMeasuredAtOnce = 256;
constexpr auto kMeasuring = std::chrono::minutes{5};
// What ended less than this ago stays, however much it takes: somebody may not have seen it yet.
constexpr std::int64_t kFreshDays = 1;

UserBytes::Folder bytes_in(const fs::path& folder, std::chrono::steady_clock::time_point until) {
    const DiskUse use = disk_use(folder, limits::kFilesOfJob, until);
    return {use.logs + use.evidence + use.checkpoints + use.other, !use.failed};
}

}  // namespace

// Of what a job has in its folder. not_found: somebody has removed it meanwhile; unavailable: the
// runs directory is not there; timed_out: the file system hangs.
Task<Result<UserBytes::Folder>> Retention::measure(const JobId& job) {
    const std::string id = job.value;
    JobId asked = job;
    auto finding = earlier_folder_(std::move(asked));
    const auto earlier = co_await std::move(finding);
    LOCKSTEP_CO_TRY(earlier);
    if (const std::string problem = context_.runs_folder.problem(); !problem.empty()) {
        co_return fail(Errc::unavailable, problem);  // every folder would seem empty
    }
    const std::function<UserBytes::Folder()> walk = [folder = context_.settings.runs_dir / id,
                                                     before = *earlier] {
        const auto until = std::chrono::steady_clock::now() + kMeasuring;
        std::error_code ec;  // by a link they may be the same
        const bool two = !before.empty() && !fs::equivalent(folder, before, ec);
        UserBytes::Folder out = bytes_in(folder, until);
        if (two) {
            const UserBytes::Folder more = bytes_in(before, until);
            out.bytes += more.bytes;
            out.whole = out.whole && more.whole;
        }
        return out;
    };
    // Of one that is too large it is what was counted until then; one that hangs gives nothing.
    const auto size = co_await walks_.run<UserBytes::Folder>(
        walk, std::chrono::steady_clock::now() + kMeasuring + kMeasuring / 5);
    if (!size) {
        co_return fail(Errc::timed_out, "the folder of " + id + " cannot be measured");
    }
    co_return *size;
}

// Of one that is over: it changes seldom, so once a day is enough.
Task<Result<UserBytes::Folder>> Retention::size_of(const JobId& job) {
    const auto known = sizes_.find(job.value);
    if (known != sizes_.end()) {
        co_return UserBytes::Folder{known->second, true};
    }
    const auto size = co_await measure(job);
    if (size && size->whole) {
        sizes_[job.value] = size->bytes;
    }
    co_return size;
}

// All that are over and may have to go for their size, from the oldest to the newest.
Task<Result<RemovalOrder>> Retention::sizes_of_ended(UnixMillis fresh_since) {
    RemovalOrder out;
    EndedJob after;
    for (bool more = true; more && !ending_;) {
        const std::function<Result<std::vector<EndedJob>>(Database&)> read = [after](Database& db) {
            return JobRecords{db}.ended_before(std::numeric_limits<UnixMillis>::max(), after,
                                               kMeasuredAtOnce);
        };
        const auto page = co_await context_.store.read<std::vector<EndedJob>>(read);
        LOCKSTEP_CO_TRY(page);
        for (const EndedJob& one : *page) {
            const auto size = co_await size_of(one.job);
            if (!size && size.error().code == Errc::not_found) {
                continue;
            }
            LOCKSTEP_CO_TRY(size);
            RemovalOrder::Place place{one.job, one.user, one.finished_at, size->bytes};
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
        const std::function<Result<std::vector<SpecificationSize>>(Database&)> read =
            [before](Database& db) { return stored_jobs(db, before); };
        const auto some = co_await context_.store.read<std::vector<SpecificationSize>>(read);
        LOCKSTEP_CO_TRY(some);
        for (const SpecificationSize& one : *some) {
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
    std::size_t hanging = 0;
    bool told = false;
    for (std::string id = context_.stored.next("");
         !id.empty() && !ending_ && hanging < kHangingWalks; id = context_.stored.next(id)) {
        const JobId job{id};
        auto measuring = unfinished_(id) ? measure(job) : size_of(job);
        const auto size = co_await std::move(measuring);
        if (size) {
            context_.stored.measured(id, *size);
        } else if (size.error().code == Errc::not_found) {
            context_.stored.removed(id);  // between the store's answer and ours
        } else {
            // Without the runs directory none of them can be measured.
            hanging = size.error().code == Errc::timed_out ? hanging + 1 : kHangingWalks;
            if (!ending_ && !std::exchange(told, true)) {
                log::warn("user-gb goes by what was measured before",
                          {{"what", size.error().message}});
            }
        }
        if (std::exchange(waiting_, false)) {
            co_await clear_all();  // it may take long, and who removes jobs wants the room now
        }
    }
}

}  // namespace lockstep
