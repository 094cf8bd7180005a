// size: one small function per read of the Control interface
// The reading half of ControlService: jobs, events, ranks, series, logs, metrics.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/control_service.hpp"
#include "daemon/control/job_metrics.hpp"
#include "daemon/telemetry/series_query.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr auto kPublishEvery = std::chrono::milliseconds{200};
constexpr std::size_t kScriptBytes = 4U << 20U;  // the most that Slurm takes (max_script_size)

Error no_job(std::string_view id) {
    return Error{Errc::not_found, "no job " + printable(id.substr(0, 64))};
}

void put_number(Json& out, const char* key, std::optional<double> value) {
    if (!value) {
        return;
    }
    if (std::isfinite(*value)) {
        out[key] = *value;
    } else {
        // JSON has no NaN; a loss that is one is news and must not look like "unknown".
        out[key] = std::isnan(*value) ? "nan" : *value > 0 ? "inf" : "-inf";
    }
}

// `gpu` is the rank's first; most have one.
void put_gpus(Json& item, std::span<const telemetry::RankGpu> gpus) {
    for (const telemetry::RankGpu& one : gpus) {
        Json gpu = Json::object();
        const auto put = [&gpu](const char* key, double value) {
            if (!std::isnan(value)) {
                gpu[key] = value;
            }
        };
        gpu["gpu"] = one.gpu->gpu;
        put("utilization_ratio", (*one.gpu)[GpuMetric::utilization]);
        put("memory_bytes", one.memory_bytes);
        put("memory_used_bytes", (*one.gpu)[GpuMetric::memory_used]);
        put("memory_total_bytes", (*one.gpu)[GpuMetric::memory_total]);
        put("power_watts", (*one.gpu)[GpuMetric::power]);
        put("temperature_celsius", (*one.gpu)[GpuMetric::temperature_core]);
        item["gpus"].push_back(std::move(gpu));
    }
    if (!gpus.empty()) {
        item["gpu"] = gpus.front().gpu->gpu;
    }
}

std::string page(const std::vector<std::string_view>& items, const std::string& next) {
    std::string out = "{\"items\":[";
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) {
            out += ',';
        }
        out += items[i];
    }
    out += ']';
    if (!next.empty()) {
        out += ",\"next_cursor\":" + dump_json(Json(next));
    }
    out += '}';
    return out;
}

}  // namespace

Result<std::shared_ptr<const std::string>> ControlService::show_now(const Caller& caller,
                                                                    std::string_view id) {
    const std::string key{id};
    if (const auto active = jobs_.find(key); active != jobs_.end()) {
        if (!caller.sees(active->second->job().user)) {
            return fail(no_job(id));
        }
        return active->second->view();
    }
    const auto known = finished_.find(key);
    if (known == finished_.end()) {
        return std::shared_ptr<const std::string>{};
    }
    if (!caller.sees(known->second.user)) {
        return fail(no_job(id));
    }
    ages_.splice(ages_.begin(), ages_, known->second.age);
    return known->second.view;
}

Task<Result<std::shared_ptr<const std::string>>> ControlService::show(Caller caller,
                                                                      std::string id) {
    auto now = show_now(caller, id);
    if (!now || *now) {
        co_return now;
    }
    if (!is_job_id(id)) {
        co_return fail(no_job(id));
    }
    const JobId job{id};
    const std::function<Result<std::optional<JobRow>>(Database&)> read = [job](Database& db) {
        return db.job(job);
    };
    const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
    if (!row) {
        co_return fail(row.error());
    }
    if (!row->has_value() || !caller.sees((*row)->user)) {
        co_return fail(no_job(id));
    }
    auto view = std::make_shared<const std::string>((*row)->view);
    if (is_final((*row)->state)) {
        remember(id, (*row)->user, view);
    }
    co_return view;
}

Task<Result<std::string>> ControlService::list(Caller caller, JobQuery query) {
    RowQuery rows;
    rows.state = query.state;
    rows.user = query.user;
    if (!caller.admin && !caller.reads_all) {
        if (!query.user.empty() && query.user != caller.user) {
            co_return page({}, "");
        }
        rows.user = caller.user;
    }
    rows.name = query.name;
    rows.label_name = query.sweep.empty() ? query.label_name : kSweepLabel;
    rows.label_value = query.sweep.empty() ? query.label_value : query.sweep;
    if (!query.cursor.empty()) {
        const auto before = base64_decode(query.cursor);
        if (!before || !is_job_id(*before)) {
            co_return fail(Errc::invalid, "cursor: not one that this service has given out");
        }
        rows.before = *before;
    }
    rows.limit = query.limit + 1;
    const std::function<Result<std::vector<JobRow>>(Database&)> read = [rows](Database& db) {
        return db.jobs(rows);
    };
    const auto found = co_await context_.store.read<std::vector<JobRow>>(read);
    if (!found) {
        co_return fail(found.error());
    }
    const std::size_t count = std::min(found->size(), query.limit);
    std::vector<std::shared_ptr<const std::string>> alive;  // newer than what the store holds
    std::vector<std::string_view> items;
    for (std::size_t i = 0; i < count; ++i) {
        const JobRow& row = (*found)[i];
        const ActorPtr actor = find(row.id.value);
        if (actor) {
            alive.push_back(actor->view());
            items.push_back(*alive.back());
        } else {
            items.push_back(row.view);
        }
    }
    const std::string next =
        found->size() > query.limit ? base64_encode((*found)[count - 1].id.value) : "";
    co_return page(items, next);
}

Task<Result<std::shared_ptr<const Job>>> ControlService::load(Caller caller, std::string id) {
    if (const ActorPtr actor = find(id)) {
        if (!caller.sees(actor->job().user)) {
            co_return fail(no_job(id));
        }
        // The actor lives as long as whoever holds this.
        co_return std::shared_ptr<const Job>{actor, &actor->job()};
    }
    if (!is_job_id(id)) {
        co_return fail(no_job(id));
    }
    const JobId key{id};
    const std::function<Result<std::vector<Event>>(Database&)> read = [key](Database& db) {
        return db.events_of(key, 0, SIZE_MAX / 2);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    if (!events) {
        co_return fail(events.error());
    }
    if (events->empty()) {
        co_return fail(no_job(id));
    }
    auto job = start_job(events->front());
    if (!job) {
        co_return fail(job.error());
    }
    for (std::size_t i = 1; i < events->size(); ++i) {
        if (const auto applied = apply(*job, (*events)[i]); !applied) {
            co_return fail(Errc::corrupt, applied.error().message);
        }
    }
    if (!caller.sees(job->user)) {
        co_return fail(no_job(id));
    }
    co_return std::make_shared<const Job>(std::move(*job));
}

Task<Result<std::string>> ControlService::script(Caller caller, std::string id) {
    const auto loaded = co_await load(caller, id);
    if (!loaded) {
        co_return fail(loaded.error());
    }
    const Attempt* attempt = (*loaded)->attempt();
    const std::function<Result<std::string>()> read =
        [directory = attempt == nullptr ? std::string{} : attempt->directory] {
            return directory.empty()
                       ? Result<std::string>{fail(Errc::not_found, "no attempt")}
                       : read_plain_file(std::filesystem::path{directory} / slurm::kBatchFileName,
                                         kScriptBytes);
        };
    auto text = co_await on_thread<Result<std::string>>(context_.files, read);
    if (text || text.error().code != Errc::not_found) {
        co_return text;
    }
    if (context_.scheduler.name() == "local") {
        co_return fail(Errc::not_found, "the local scheduler uses no batch script");
    }
    const bool over = is_final((*loaded)->state);
    co_return fail(over ? Errc::not_found : Errc::unavailable,
                   over ? "the job has no batch script" : "the batch script is not written yet");
}

Task<Result<std::string>> ControlService::spec(Caller caller, std::string id) {
    const auto job = co_await load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    co_return dump_json(to_json((*job)->spec));
}

Task<Result<std::string>> ControlService::events(Caller caller, std::string id, std::int64_t after,
                                                 std::size_t limit) {
    const auto seen = co_await show(caller, id);
    if (!seen) {
        co_return fail(seen.error());
    }
    const JobId key{id};
    const std::function<Result<std::vector<Event>>(Database&)> read =
        [key, after, limit](Database& db) { return db.events_of(key, after, limit + 1); };
    const auto found = co_await context_.store.read<std::vector<Event>>(read);
    if (!found) {
        co_return fail(found.error());
    }
    const std::size_t count = std::min(found->size(), limit);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) {
        texts.push_back(dump_json(to_json((*found)[i])));
    }
    const std::string next = found->size() > limit ? std::to_string((*found)[count - 1].seq) : "";
    co_return page({texts.begin(), texts.end()}, next);
}

std::string ControlService::ranks_text(const Job& job, const telemetry::JobSeries* series,
                                       const JobActor* actor, std::size_t most) const {
    const auto world = static_cast<std::size_t>(job.spec.world_size());
    const double now = context_.now_seconds();
    const auto gpus = context_.gpus.ranks(job.id.value, now);
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < std::min(world, most); ++rank) {
        Json item = rank_json(job, static_cast<std::int32_t>(rank));
        if (actor != nullptr && actor->pid(static_cast<std::int32_t>(rank)) > 0) {
            item["pid"] = actor->pid(static_cast<std::int32_t>(rank));
        }
        if (series != nullptr && rank < series->world_size() && !series->rank(rank).empty()) {
            const auto& one = series->rank(rank);
            if (one.last_step() >= 0) {
                item["step"] = one.last_step();
            }
            put_number(item, "loss", one.latest(telemetry::CoreMetric::loss));
            put_number(item, "step_seconds", one.latest(telemetry::CoreMetric::step_seconds));
            put_number(item, "busy_seconds", one.latest(telemetry::CoreMetric::busy_seconds));
            put_number(item, "comm_wait_seconds",
                       one.latest(telemetry::CoreMetric::comm_wait_seconds));
            put_number(item, "data_wait_seconds",
                       one.latest(telemetry::CoreMetric::data_wait_seconds));
            if (const auto age = series->report_age(rank, now); age && !is_final(job.state)) {
                item["report_age_seconds"] = *age;
            }
        }
        put_gpus(item, telemetry::gpus_of(gpus, static_cast<std::int32_t>(rank)));
        texts.push_back(dump_json(item));
    }
    return page({texts.begin(), texts.end()}, "");
}

Task<Result<const telemetry::JobSeries*>> ControlService::load_series(const Job& job) {
    const std::string id = job.id.value;
    if (context_.series.find(id) == nullptr && is_final(job.state)) {
        if (const Status restored = co_await history_.restore(job); !restored) {
            co_return fail(restored.error());
        }
        if (context_.series.find(id) != nullptr &&
            std::find(series_ages_.begin(), series_ages_.end(), id) == series_ages_.end()) {
            series_ages_.push_front(id);
            while (series_ages_.size() > limits::kSeriesJobsCached) {
                context_.series.erase(series_ages_.back());
                series_ages_.pop_back();
            }
        }
    }
    co_return context_.series.find(id);
}

Task<Result<std::string>> ControlService::ranks(Caller caller, std::string id) {
    const auto job = co_await load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    const auto series = co_await load_series(**job);
    if (!series) {
        co_return fail(series.error());
    }
    const ActorPtr actor = find(id);
    co_return ranks_text(**job, *series, actor.get(), SIZE_MAX);
}

Task<Result<std::string>> ControlService::series(Caller caller, std::string id, SeriesQuery query) {
    const auto job = co_await load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    for (const std::int32_t rank : query.ranks) {
        if (rank >= (*job)->spec.world_size()) {
            co_return fail(Errc::invalid, "ranks: the job has ranks 0-" +
                                              std::to_string((*job)->spec.world_size() - 1));
        }
    }
    const auto series = co_await load_series(**job);
    if (!series) {
        co_return fail(series.error());
    }
    telemetry::SeriesQuery asked;
    asked.metric = query.metric;
    asked.ranks = query.ranks;
    asked.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    asked.from = query.from.value_or(asked.from);
    asked.to = query.to.value_or(asked.to);
    asked.points = query.points;
    if (*series == nullptr) {
        co_return dump_json(telemetry::to_json(asked, {}));
    }
    if (asked.ranks.empty()) {
        asked.ranks.resize(std::min((*series)->world_size(), limits::kSeriesRanks));
        std::iota(asked.ranks.begin(), asked.ranks.end(), 0);
    }
    if (HistoryKeeper::in_memory(**series, asked.ranks)) {
        co_return dump_json(telemetry::to_json(asked, telemetry::query_series(**series, asked)));
    }
    telemetry::HistoryAsk ask;
    ask.metric = asked.metric;
    ask.entities.assign(asked.ranks.begin(), asked.ranks.end());
    std::sort(ask.entities.begin(), ask.entities.end());
    ask.entities.erase(std::unique(ask.entities.begin(), ask.entities.end()), ask.entities.end());
    ask.x = asked.x;
    ask.from = asked.from;
    ask.to = asked.to;
    ask.columns = asked.points;
    const auto found = co_await history_.series(id, std::move(ask));
    if (!found) {
        co_return fail(found.error());
    }
    co_return dump_json(telemetry::to_json(asked, *found));
}

Task<Result<std::string>> ControlService::heatmap(Caller caller, std::string id,
                                                  HeatmapQuery query) {
    const auto job = co_await load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    const std::int32_t last = (*job)->spec.world_size() - 1;
    telemetry::HeatmapAsk ask;
    ask.metric = query.metric;
    ask.rank_high = static_cast<std::uint32_t>(last);
    if (!query.ranks.empty()) {
        const auto [low, high] = std::minmax_element(query.ranks.begin(), query.ranks.end());
        if (*high > last) {
            co_return fail(Errc::invalid, "ranks: the job has ranks 0-" + std::to_string(last));
        }
        ask.rank_low = static_cast<std::uint32_t>(*low);
        ask.rank_high = static_cast<std::uint32_t>(*high);
    }
    ask.from = query.from.value_or(ask.from);
    ask.to = query.to.value_or(ask.to);
    ask.columns = query.columns;
    ask.rows = query.rows;
    const auto series = co_await load_series(**job);
    if (!series) {
        co_return fail(series.error());
    }
    co_return co_await history_.heatmap(id, std::move(ask));
}

Task<Result<LogPlace>> ControlService::log_place(Caller caller, std::string id, std::int32_t rank) {
    const auto loaded = co_await load(caller, id);
    if (!loaded) {
        co_return fail(loaded.error());
    }
    const Job& job = **loaded;
    if (rank < 0 || rank >= job.spec.world_size()) {
        co_return fail(Errc::not_found, "no rank " + std::to_string(rank) + ": the job has 0-" +
                                            std::to_string(job.spec.world_size() - 1));
    }
    const Generation* generation = job.generation();
    if (generation == nullptr) {
        co_return fail(is_final(job.state) ? Errc::not_found : Errc::unavailable,
                       "rank " + std::to_string(rank) + " was not started" +
                           (is_final(job.state) ? "" : " yet"));
    }
    LogPlace out;
    out.path =
        (std::filesystem::path{job.attempt()->directory} / wire::rank_log_name(rank)).string();
    out.may_grow = !is_final(job.state) && !generation->exited[static_cast<std::size_t>(rank)];
    co_return out;
}

std::shared_ptr<void> ControlService::subscribe(Sink sink) {
    return context_.bus.subscribe(std::move(sink));
}

Task<Result<std::vector<StreamMessage>>> ControlService::replay(std::int64_t after,
                                                                std::size_t limit) {
    const std::function<Result<std::vector<Event>>(Database&)> read = [after, limit](Database& db) {
        return db.events_after(after, limit);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    if (!events) {
        co_return fail(events.error());
    }
    std::vector<StreamMessage> out;
    std::map<std::string, std::string> owners;
    for (const Event& event : *events) {
        auto owner = owners.find(event.job.value);
        if (owner == owners.end()) {
            std::string user;
            if (const ActorPtr actor = find(event.job.value)) {
                user = actor->job().user;
            } else {
                const JobId key = event.job;
                const std::function<Result<std::optional<JobRow>>(Database&)> lookup =
                    [key](Database& db) { return db.job(key); };
                const auto row = co_await context_.store.read<std::optional<JobRow>>(lookup);
                user = row && row->has_value() ? (*row)->user : "";
            }
            owner = owners.emplace(event.job.value, user).first;
        }
        out.push_back(stream_message(event, owner->second));
    }
    co_return out;
}

std::int64_t ControlService::last_seq() const {
    return context_.store.last_seq();
}

void ControlService::publish_ranks(JobActor& actor, bool now) {
    if (!context_.bus.has_subscribers()) {
        return;
    }
    const std::string& id = actor.job().id.value;
    const auto* series = context_.series.find(id);
    if (series == nullptr) {
        return;
    }
    auto& last = published_[id];
    const auto time = context_.clock.steady();
    if (!now && time - last < kPublishEvery) {
        return;
    }
    last = time;
    StreamMessage message;
    message.topic = "ranks." + id;
    message.event = "ranks";
    message.user = actor.job().user;
    message.data = std::make_shared<const std::string>(
        "{\"job\":\"" + id +
        "\",\"ranks\":" + ranks_text(actor.job(), series, &actor, limits::kSeriesRanks) + "}");
    context_.bus.publish(message);
}

MetricsBody ControlService::metrics(std::string_view accept) {
    const UnixMillis now = context_.clock.wall();
    telemetry::MetricsView view;
    view.now = context_.now_seconds();
    view.max_series_per_job = context_.settings.max_series_per_job;
    view.jobs = states_;
    view.submitted_total = submitted_total_;
    view.finished_total = finished_total_;
    std::vector<telemetry::JobMetricsView> active;
    std::vector<std::vector<telemetry::RankMetricsView>> ranks(jobs_.size());
    std::size_t connected = 0;
    double silence = 0;
    for (const auto& [id, actor] : jobs_) {
        const Job& job = actor->job();
        ++view.jobs[static_cast<std::size_t>(job.state)];
        // Jobs nobody has started have nothing to say beyond being counted: 10,000 of them queued
        // must not make 10,000 sets of series.
        if (job.attempt() == nullptr || job.attempt()->placed_at == 0) {
            continue;
        }
        active.push_back(metrics_view(job, context_.series.find(id), ranks[active.size()], now));
        actor->describe(active.back());
        active.back().stats = actor->stats();
        for (const auto& [node, link] : actor->links()) {
            ++connected;
            silence = std::max(
                silence,
                std::chrono::duration<double>(context_.clock.steady() - link->last_heard).count());
        }
    }
    view.active = active;
    view.gpus = &context_.gpus;
    context_.metrics.agents(connected, silence, 0);
    context_.metrics.memory_tier(context_.series.series(), context_.series.bytes());
    const telemetry::TextFormat format = telemetry::negotiate(accept);
    return {std::string{telemetry::content_type(format)},
            telemetry::render_metrics(format, context_.metrics, view)};
}

Task<Status> ControlService::ready() {
    if (const Status store = co_await context_.store.probe(); !store) {
        co_return fail(store.error().in("store"));
    }
    if (const Status scheduler = co_await context_.scheduler.ping(); !scheduler) {
        co_return fail(scheduler.error().in("scheduler"));
    }
    co_return Status{};
}

Json ControlService::cluster() {
    return cluster_json(context_.scheduler.cluster(), context_.scheduler.name());
}

Result<Json> ControlService::nodes(const Caller& caller, const NodeQuery& query) {
    const Cluster cluster = context_.scheduler.cluster();
    // Locally every node of a job is this machine.
    const bool one = context_.scheduler.name() == "local" && cluster.nodes.size() == 1;
    std::map<std::string, std::vector<std::string>> jobs;
    for (const auto& [id, actor] : jobs_) {
        const Attempt* attempt = actor->job().attempt();
        if (attempt == nullptr || !caller.sees(actor->job().user)) {
            continue;
        }
        for (const auto& [rank, claim] : attempt->claims) {
            auto& here = jobs[one ? cluster.nodes.front().name : claim.node];
            if (here.empty() || here.back() != id) {
                here.push_back(id);
            }
        }
    }
    return nodes_json(cluster, query, jobs);
}

}  // namespace lockstep
