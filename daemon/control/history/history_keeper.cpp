// size: one seam with its cases: memory and store over failures, upgrades and ends of jobs
#include "daemon/control/history/history_keeper.hpp"

#include "daemon/control/base/age_limit.hpp"
#include "daemon/control/history/history_restore.hpp"
#include "daemon/store/event_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

using telemetry::History;
using telemetry::HistoryRows;
using telemetry::JobSeries;
using SteadyClock = std::chrono::steady_clock;

// Of a database of before version 3, read at a time.
constexpr std::size_t kStoredBatchBytes = 64U << 20U;
constexpr std::size_t kExpireChunks = 256;             // in one transaction
constexpr std::size_t kLeftovers = 64;                 // jobs looked up at a time
constexpr std::size_t kStates = 256;                   // looked at in one transaction
constexpr auto kRetryFirst = std::chrono::seconds{1};  // after a flush that failed, then doubled
constexpr auto kRetryMost = std::chrono::seconds{60};
constexpr auto kLate = std::chrono::seconds{60};  // more may come from the same agents
constexpr auto kKeepEvery = std::chrono::hours{1};

Result<ChunksWrite> pack(const JobId& job,
                         const std::vector<std::shared_ptr<const HistoryRows>>& sealed,
                         const std::vector<std::string>& names) {
    const auto& of_gpus = telemetry::gpu_history_metrics();
    ChunksWrite write;
    write.job = job;
    telemetry::ColumnCodec codec;
    for (const auto& rows : sealed) {
        auto encoded = telemetry::encode_chunk(
            *rows, rows->kind == telemetry::EntityKind::gpu ? of_gpus : names, codec);
        LOCKSTEP_TRY(encoded);
        telemetry::Chunk& chunk = *encoded;
        ChunkRow row;
        row.kind = static_cast<std::int32_t>(chunk.kind);
        row.block = chunk.block;
        row.attempt = chunk.start.attempt;
        row.generation = chunk.start.generation;
        row.step_low = chunk.step_low;
        row.step_high = chunk.step_high;
        row.time_low = chunk.time_low;
        row.time_high = chunk.time_high;
        row.rows = static_cast<std::int64_t>(chunk.rows);
        row.samples = static_cast<std::int64_t>(chunk.samples);
        for (telemetry::Section& section : chunk.sections) {
            row.sections.push_back(
                {std::move(section.name), section.level, std::move(section.data)});
        }
        write.chunks.push_back(std::move(row));
    }
    return write;
}

}  // namespace

void HistoryKeeper::begin() {
    leftovers_ = true;
    due_ = SteadyClock::now();
    context_.tasks.spawn("history-care", tend());
    expire();
}

void HistoryKeeper::halt() {
    ending_ = true;
    turns_.close();
    wake_.cancel();
}

Task<Status> HistoryKeeper::restore(const Job& job) {
    JobId id = job.id;
    const bool over = is_final(job.state);
    const auto ranks = static_cast<std::size_t>(job.spec.world_size());
    std::vector<double> still_at = suspensions(job);
    co_return co_await load(id, ranks, over, still_at);
}

Task<Status> HistoryKeeper::load(JobId id, std::size_t ranks, bool over,
                                 std::vector<double> still_at) {
    const std::function<Result<StoredHistory>(Database&)> work = [id](Database& db) {
        return read_stored(db, id, limits::kRestoreSamples, kStoredBatchBytes);
    };
    auto stored = co_await context_.store.read<StoredHistory>(work);
    LOCKSTEP_CO_TRY(stored);
    // Somebody else who asked at the same time was first.
    if (context_.series.find(id.value) != nullptr || (stored->empty() && over)) {
        co_return Status{};
    }
    JobSeries& series = context_.series.job(id.value, ranks);
    for (const double at : still_at) {
        series.stood_still(at);
    }
    restore_history(id, *stored, series);
    const auto history = series.keep_history().shared_from_this();
    if (!stored->batches.empty()) {
        std::vector<BatchRow> batches = std::move(stored->batches);
        const Status done = co_await load_batches(id, history, std::move(batches));
        LOCKSTEP_CO_TRY(done);
    }
    JobSeries* found = find_mutable(id.value);
    if (found == nullptr || found->history() != history.get()) {
        co_return Status{};
    }
    for (const LogRow& row : stored->log) {
        restore_log(id, row, *found);
        history->newest_log = std::max(history->newest_log, row.id);  // more may have come
    }
    if (over) {
        finish(id.value);
    }
    co_return Status{};
}

// What a database of before version 3 has, piece by piece, into chunks: it may be more than memory.
Task<Status> HistoryKeeper::load_batches(JobId id, std::shared_ptr<History> history,
                                         std::vector<BatchRow> batches) {
    while (!batches.empty() && !ending_) {
        JobSeries* series = find_mutable(id.value);
        if (series == nullptr || series->history() != history.get()) {
            break;
        }
        restore_batches(batches, *series);
        const BatchPlace upto{batches.back().attempt, batches.back().seq, batches.back().node_rank};
        old_batches_[id.value] = upto;
        const std::function<Result<std::vector<BatchRow>>(Database&)> more = [id,
                                                                              upto](Database& db) {
            return HistoryRecords{db}.batches(id, upto, kStoredBatchBytes);
        };
        auto next = co_await context_.store.read<std::vector<BatchRow>>(more);
        LOCKSTEP_CO_TRY(next);
        batches = std::move(*next);
        if (!batches.empty() && !history->storing) {
            history->storing = true;
            co_await flush(id.value, history);
        }
    }
    co_return Status{};
}

JobSeries* HistoryKeeper::find_mutable(const std::string& job) {
    const JobSeries* known = context_.series.find(job);
    return known == nullptr ? nullptr : &context_.series.job(job, known->world_size());
}

void HistoryKeeper::look(const std::string& job) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() == nullptr) {
        return;
    }
    note_open(job, series->history()->open_samples());
    if (series->history()->due(context_.now_seconds())) {
        begin_flush(job, *series->history());
    } else if (open_of_all_ > context_.settings.open_samples) {
        flush_largest();
    }
}

void HistoryKeeper::note_open(const std::string& job, std::size_t samples) {
    std::size_t& known = open_[job];
    open_of_all_ = open_of_all_ - known + samples;
    known = samples;
    if (samples == 0) {
        open_.erase(job);
    }
}

// Each job is below its own bound, all of them together are not.
void HistoryKeeper::flush_largest() {
    std::string largest;
    std::size_t most = 0;
    std::vector<std::string> gone;
    for (const auto& [job, samples] : open_) {
        const JobSeries* series = context_.series.find(job);
        if (series == nullptr || series->history() == nullptr) {
            gone.push_back(job);
        } else if (samples > most && !series->history()->storing) {
            largest = job;
            most = samples;
        }
    }
    for (const std::string& job : gone) {
        note_open(job, 0);
    }
    if (most > 0 && open_of_all_ > context_.settings.open_samples) {
        begin_flush(largest, *context_.series.find(largest)->history());
    }
}

void HistoryKeeper::finish(const std::string& job) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() == nullptr) {
        leftovers_ = true;  // if it has any, they are in the log only
        attend(kLate);
        return;
    }
    History& history = *series->history();
    if (history.empty() && history.newest_log == history.stored_log &&
        !old_batches_.contains(job)) {
        return;
    }
    if (history.storing) {
        history.finishing = true;
    } else {
        begin_flush(job, history);
    }
}

void HistoryKeeper::begin_flush(const std::string& job, History& history) {
    history.storing = true;
    context_.tasks.spawn("history", flush(job, history.shared_from_this()));
}

Task<void> HistoryKeeper::flush(std::string job, std::shared_ptr<History> history) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() != history.get()) {
        history->storing = false;
        co_return;
    }
    // All of one moment: what is sealed is what these log rows and this state are about.
    auto sealed = history->seal();
    note_open(job, 0);
    const std::int64_t log_upto = history->newest_log;
    auto old = old_batches_.extract(job);
    const BatchPlace batches_upto = old ? old.mapped() : BatchPlace{};
    // Of a job that never has a chunk, nothing takes the state away again.
    const bool nothing = sealed.empty() && history->newest_chunk == 0;
    std::string state = nothing ? std::string{} : encode_state(*series);
    const std::function<Result<ChunksWrite>()> work =
        [id = JobId{job}, sealed, names = series->metrics()] { return pack(id, sealed, names); };
    auto packed = co_await on_thread<Result<ChunksWrite>>(packing_, work);
    Status done{};
    std::int64_t newest = 0;
    if (packed) {
        ChunksWrite write = std::move(*packed);
        write.log_upto = log_upto;
        write.batches_upto = batches_upto;
        write.state = std::move(state);
        const auto stored = co_await context_.store.add_chunks(std::move(write));
        newest = stored.value_or(0);
        done = stored ? Status{} : Status{fail(stored.error())};
    } else {
        done = fail(packed.error());
    }
    history->storing = false;
    if (!done) {
        if (old) {
            old_batches_.insert(std::move(old));
        }
        log::error("cannot store history", {{"job", job}, {"what", done.error().message}});
        retry_later(job, *history);
        co_return;
    }
    retry_ = kRetryFirst;
    history->stored(sealed.size(), newest);
    history->stored_log = log_upto;
    const bool more = !history->empty() || history->newest_log != log_upto;
    if (history->forgotten && !more) {
        context_.series.erase(job);
    } else if (more && (history->finishing || history->forgotten)) {
        begin_flush(job, *history);  // what came meanwhile
    }
    history->finishing = false;
    expire();
}

// The rows are in the log, and in memory if anybody needs them there.
void HistoryKeeper::retry_later(const std::string& job, const History& history) {
    if (history.forgotten) {
        context_.series.erase(job);
        leftovers_ = true;
    } else {
        failed_.insert(job);
    }
    attend(retry_);
    retry_ = std::min<SteadyClock::duration>(2 * retry_, kRetryMost);
}

void HistoryKeeper::attend(SteadyClock::duration delay) {
    due_ = std::min(due_, SteadyClock::now() + delay);
    wake_.cancel();
}

// What no batch of a job sets off: another try, what is left of jobs that are over, age.
Task<void> HistoryKeeper::tend() {
    auto hour = SteadyClock::now() + kKeepEvery;
    while (!ending_) {
        wake_.expires_at(std::min(hour, due_));
        ErrorCode ec;
        co_await wake_.async_wait(into(ec));
        const auto now = SteadyClock::now();
        if (now >= hour) {
            hour = now + kKeepEvery;
            due_ = now;
            leftovers_ = true;
            expire();
        }
        if (now < due_ || ending_) {
            continue;
        }
        due_ = SteadyClock::time_point::max();
        for (const std::string& job : std::exchange(failed_, {})) {
            const JobSeries* series = context_.series.find(job);
            if (series == nullptr || series->history() == nullptr) {
                leftovers_ = true;
            } else if (!series->history()->storing) {
                begin_flush(job, *series->history());
            }
        }
        if (std::exchange(leftovers_, false)) {
            co_await pack_leftovers();
            co_await forget_states();
        }
    }
}

// Telemetry of jobs that are over and that nobody flushed: a kill between a job's end and its last
// flush, batches that came later, a database of before version 3.
Task<void> HistoryKeeper::pack_leftovers() {
    JobId after;
    while (!ending_) {
        const std::function<Result<std::vector<JobId>>(Database&)> next = [after](Database& db) {
            return HistoryRecords{db}.unpacked(after, kLeftovers);
        };
        const auto jobs = co_await context_.store.read<std::vector<JobId>>(next);
        if (!jobs) {
            log::error("cannot look for telemetry outside history",
                       {{"what", jobs.error().message}});
            co_return;
        }
        for (const JobId& job : *jobs) {
            after = job;
            if (!ending_) {
                co_await pack_leftover(job);
            }
        }
        if (jobs->size() < kLeftovers) {
            co_return;
        }
    }
}

Task<void> HistoryKeeper::pack_leftover(JobId id) {
    if (const JobSeries* known = context_.series.find(id.value)) {
        const History* history = known->history();
        if (history != nullptr &&
            (history->storing || !history->empty() || history->newest_log != history->stored_log)) {
            finish(id.value);
            co_return;
        }
        context_.series.erase(id.value);  // it does not know of what is in the log
    }
    const std::function<Result<std::vector<Event>>(Database&)> first = [id](Database& db) {
        return EventRecords{db}.of_job(id, 0, 1);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(first);
    const auto job = events && !events->empty()
                         ? start_job(events->front())
                         : Result<Job>{fail(Errc::corrupt, "a job without events")};
    if (!job) {
        log::warn("telemetry of a job that does not read back",
                  {{"job", id.value}, {"what", job.error().message}});
        co_return;
    }
    const auto ranks = static_cast<std::size_t>(job->spec.world_size());
    std::vector<double> never;
    const Status loaded = co_await load(id, ranks, false, never);
    const JobSeries* series = context_.series.find(id.value);
    if (!loaded || series == nullptr || series->history() == nullptr) {
        log::warn("telemetry outside history does not read back", {{"job", id.value}});
        co_return;
    }
    const auto history = series->history()->shared_from_this();
    if (!history->storing) {
        history->storing = true;
        context_.series.erase(id.value);  // once it is stored
        co_await flush(id.value, history);
    }
}

// Of jobs whose last chunk went while they ran.
Task<void> HistoryKeeper::forget_states() {
    std::string after;
    do {
        const auto last = co_await context_.store.forget_states(after, kStates);
        if (!last) {
            log::warn("states of expired telemetry stay for now", {{"why", last.error().message}});
        }
        after = last.value_or("");
    } while (!after.empty() && !ending_);
}

void HistoryKeeper::expire() {
    if (!expiring_) {
        expiring_ = true;
        context_.tasks.spawn("history-expiry", remove_old());
    }
}

Task<void> HistoryKeeper::remove_old() {
    if (context_.settings.history_days > 0 &&
        (!old_ || SteadyClock::now() - old_at_ >= kKeepEvery / 2)) {
        const auto limit = co_await older_than(context_, context_.settings.history_days);
        if (limit) {
            old_ = static_cast<double>(*limit) / 1000.0;
            old_at_ = SteadyClock::now();
        } else {
            log::error("cannot tell how old history is", {{"what", limit.error().message}});
        }
    }
    const double before = old_.value_or(-std::numeric_limits<double>::infinity());
    const std::int64_t bytes = context_.settings.history_mb << 20U;
    while (!ending_) {
        const auto gone = co_await context_.store.expire_history(bytes, before, kExpireChunks);
        if (!gone) {
            log::error("cannot remove old history", {{"what", gone.error().message}});
            break;
        }
        context_.metrics.history_expired.Increment(static_cast<double>(gone->samples));
        if (gone->chunks < static_cast<std::int64_t>(kExpireChunks)) {
            break;
        }
    }
    const std::function<Result<HistorySize>(Database&)> size = [](Database& db) {
        return HistoryRecords{db}.size();
    };
    if (const auto now = co_await context_.store.read<HistorySize>(size)) {
        context_.metrics.disk_tier(static_cast<std::size_t>(now->samples),
                                   static_cast<std::size_t>(now->bytes));
    }
    expiring_ = false;
}

void HistoryKeeper::stop() {
    packing_.join();
    reading_.join();
    reader_.reset();
}

}  // namespace lockstep
