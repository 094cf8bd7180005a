#include "daemon/control/history/ingest.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/history/history_restore.hpp"
#include "daemon/control/history/telemetry_log.hpp"
#include "daemon/store/history_records.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <set>

namespace lockstep {
namespace {

constexpr auto kRetry = std::chrono::seconds{1};

using Logs = std::map<std::string, std::string>;  // by job

Result<std::vector<LogWrite>> pack_logs(const Logs& logs) {
    std::vector<LogWrite> out;
    for (const auto& [job, log] : logs) {
        auto packed = pack_log(log);
        LOCKSTEP_TRY(packed);
        out.push_back({JobId{job}, std::move(*packed)});
    }
    return out;
}

}  // namespace

Ingest::Ingest(ControlContext& context, std::function<void(JobActor&)> on_job)
    : context_(context), on_job_(std::move(on_job)), idle_(context.io), retry_(context.io) {
    idle_.expires_at(net::steady_timer::time_point::max());
}

void Ingest::add(std::shared_ptr<AgentLink> link, Batch batch, std::string bytes) {
    if (bytes_ + bytes.size() > limits::kIngestBytes || stopping_) {
        // Not acknowledged, so not lost: the agent keeps it and replays it when it is back.
        link->close("the daemon cannot store telemetry fast enough");
        return;
    }
    context_.metrics.ingest_bytes.Increment(static_cast<double>(bytes.size()));
    enqueue({std::move(link), std::move(batch), std::move(bytes)});
}

void Ingest::add(std::shared_ptr<AgentLink> link, const GpuBatch& look) {
    const Job& job = link->actor()->job();
    if (stopping_ || is_final(job.state) || look.gpus.empty()) {
        return;
    }
    telemetry::JobSeries* series = context_.series.at(job.id.value);
    if (series != nullptr && !series->gpus().take_turn(link->node, context_.now_seconds())) {
        context_.metrics.ingest_dropped(telemetry::DropReason::rate_limited,
                                        telemetry::kept_gpu_values(look));
        return;
    }
    if (bytes_ > limits::kIngestBytes / 2) {
        context_.metrics.ingest_dropped(telemetry::DropReason::queue_full,
                                        telemetry::kept_gpu_values(look));
        return;
    }
    telemetry::Start start{link->attempt(), 0};
    const Attempt* attempt = job.attempt();
    if (attempt != nullptr && attempt->number == link->attempt() && job.generation() != nullptr) {
        start.generation = static_cast<std::uint32_t>(job.generation()->number);
    }
    auto rows = telemetry::make_gpu_rows(
        link->node, look, start.generation, [&](const std::vector<std::uint32_t>& ranks) {
            return series == nullptr ? -1 : series->step_in(start, ranks);
        });
    if (!rows) {
        return;
    }
    std::string bytes = telemetry::encode_gpu_rows(*rows);
    enqueue({std::move(link), std::move(*rows), std::move(bytes)});
}

void Ingest::enqueue(Item item) {
    bytes_ += item.bytes.size();
    items_.push_back(std::move(item));
    ++added_;
    context_.metrics.ingest_queue_depth.Set(static_cast<double>(items_.size()));
    if (!running_) {
        running_ = true;
        context_.tasks.spawn("ingest", run());
    }
}

Task<void> Ingest::run() {
    while (!items_.empty() && !stopping_) {
        std::vector<Item> items;
        items.swap(items_);
        const auto logs = std::make_shared<Logs>();
        std::size_t taken = 0;
        for (const Item& item : items) {
            append_logged((*logs)[item.link->actor()->job().id.value], item.link->attempt(),
                          item.node_rank(), item.bytes);
            taken += item.bytes.size();
        }
        std::map<std::string, std::int64_t> logged;
        for (const auto& [job, log] : *logs) {
            logged[job] = 0;
        }
        const auto stored = co_await store(logs);
        if (!stored) {
            log::error("cannot store telemetry", {{"what", stored.error().message}});
            items.insert(items.end(), std::make_move_iterator(items_.begin()),
                         std::make_move_iterator(items_.end()));
            items_ = std::move(items);
            co_await sleep_on(retry_, kRetry);
            continue;
        }
        bytes_ -= taken;
        auto id = stored->begin();  // one per job, in the jobs' order
        for (auto& [job, row] : logged) {
            row = *id++;
        }
        take(items, logged);
        stored_ += items.size();
        idle_.cancel();  // whoever waits for these goes on
        idle_.expires_at(net::steady_timer::time_point::max());
        context_.metrics.ingest_queue_depth.Set(static_cast<double>(items_.size()));
    }
    running_ = false;
    idle_.cancel();
}

Task<Result<std::vector<std::int64_t>>> Ingest::store(
    std::shared_ptr<const std::map<std::string, std::string>> logs) {
    using Packed = Result<std::vector<LogWrite>>;
    const std::function<Packed()> pack = [logs = std::move(logs)] { return pack_logs(*logs); };
    auto packed = co_await on_thread<Packed>(packing_, pack);
    LOCKSTEP_CO_TRY(packed);
    std::vector<LogWrite> writes = std::move(*packed);
    co_return co_await context_.store.add_log(std::move(writes));
}

void Ingest::take(const std::vector<Item>& items,
                  const std::map<std::string, std::int64_t>& logged) {
    std::set<std::shared_ptr<JobActor>> jobs;
    const double now = context_.now_seconds();
    for (const Item& item : items) {
        const auto& actor = item.link->actor();
        const std::string& id = actor->job().id.value;
        // What comes after a job's end, when its series are not here any more, stays in the log:
        // whoever asks for the job next reads it from there, and series of these few rows would
        // hide all the others.
        jobs.insert(actor);
        const Batch* batch = std::get_if<Batch>(&item.what);
        if (context_.series.find(id) == nullptr && is_final(actor->job().state)) {
            if (batch != nullptr) {
                item.link->acknowledge_batch(batch->seq);
            }
            continue;
        }
        auto& series =
            context_.series.job(id, static_cast<std::size_t>(actor->job().spec.world_size()));
        series.have_ranks(static_cast<std::size_t>(actor->job().world_size()));
        series.keep_history().newest_log = logged.at(id);
        if (batch != nullptr) {
            take(*item.link, *batch, series, now);
        } else {
            series.ingest(std::get<telemetry::GpuRows>(item.what), item.link->attempt(), now);
        }
    }
    for (const auto& actor : jobs) {
        on_job_(*actor);
    }
}

void Ingest::take(AgentLink& link, const Batch& batch, telemetry::JobSeries& series, double now) {
    series.stood_still(last_suspension(link.actor()->job()));
    const auto added = series.ingest(batch, link.attempt(), now);
    context_.metrics.ingest_samples.Increment(static_cast<double>(added.samples));
    if (added.late_values > 0) {
        context_.metrics.ingest_dropped(telemetry::DropReason::late, added.late_values);
    }
    if (added.bad_values + added.dropped_values > 0) {
        context_.metrics.ingest_dropped(telemetry::DropReason::bad_frame,
                                        added.bad_values + added.dropped_values);
    }
    for (const double time : batch.times) {
        context_.metrics.ingest_lag.Observe(std::max(0.0, now - time));
    }
    link.acknowledge_batch(batch.seq);
}

Task<void> Ingest::flush() {
    const std::uint64_t mine = added_;
    while (stored_ < mine && !stopping_) {
        ErrorCode ec;
        co_await idle_.async_wait(into(ec));
    }
}

void Ingest::stop() {
    stopping_ = true;
    retry_.cancel();
    idle_.cancel();
}

}  // namespace lockstep
