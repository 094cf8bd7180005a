// size: what is asked of ranks, one function a question
// What the API shows of ranks: their newest values, their series and the heat map.
#include "daemon/control/control_service.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/json_page.hpp"
#include "daemon/telemetry/job_stats.hpp"
#include "daemon/telemetry/series_query.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace lockstep {
namespace {

constexpr std::size_t kPointsOfMetric = 65'536;   // 3 MB, 30 ms
constexpr std::size_t kPointsTogether = 262'144;  // in one answer

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

// What the rank is sorted by; nothing if there is none.
std::optional<double> sort_value(RankKey key, std::size_t rank, const telemetry::JobSeries* series,
                                 const std::vector<telemetry::RankGpu>& gpus, double now) {
    using telemetry::CoreMetric;
    if (key == RankKey::rank) {
        return static_cast<double>(rank);
    }
    if (key == RankKey::utilization_ratio || key == RankKey::power_watts) {
        const bool use = key == RankKey::utilization_ratio;
        double sum = 0;
        int count = 0;
        for (const telemetry::RankGpu& one :
             telemetry::gpus_of(gpus, static_cast<std::int32_t>(rank))) {
            const double value = (*one.gpu)[use ? GpuMetric::utilization : GpuMetric::power];
            sum += std::isnan(value) ? 0 : value;
            count += std::isnan(value) ? 0 : 1;
        }
        return count == 0 ? std::nullopt : std::optional{use ? sum / count : sum};
    }
    if (series == nullptr || rank >= series->world_size() || series->rank(rank).empty()) {
        return std::nullopt;
    }
    const telemetry::RankSeries& one = series->rank(rank);
    switch (key) {
        case RankKey::step:
            return one.last_step() < 0 ? std::nullopt
                                       : std::optional{static_cast<double>(one.last_step())};
        case RankKey::loss:
            return one.latest(CoreMetric::loss);
        case RankKey::step_seconds:
            return one.latest(CoreMetric::step_seconds);
        case RankKey::busy_seconds:
            return one.latest(CoreMetric::busy_seconds);
        case RankKey::comm_wait_seconds:
            return one.latest(CoreMetric::comm_wait_seconds);
        case RankKey::data_wait_seconds:
            return one.latest(CoreMetric::data_wait_seconds);
        case RankKey::report_age_seconds:
            return series->report_age(rank, now);
        case RankKey::rank:
        case RankKey::utilization_ratio:
        case RankKey::power_watts:
            break;
    }
    return std::nullopt;
}

}  // namespace

namespace {

// A launcher's rank may end long before the launcher, whose end is the one that is stored.
void put_process(Json& item, const wire::StartedRank& process) {
    item["pid"] = process.pid;
    if (!process.ended || item["state"] != "running") {
        return;
    }
    const bool good = process.end_known && process.exit_code == 0 && process.signal == 0;
    item["state"] = good ? "succeeded" : process.end_known ? "failed" : "ended";
    if (process.signal != 0) {
        item["signal"] = process.signal;
    } else if (process.end_known) {
        item["exit_code"] = process.exit_code;
    }
}

}  // namespace

std::string ControlService::ranks_text(const Job& job, const telemetry::JobSeries* series,
                                       const JobActor* actor, const RanksQuery& query) const {
    const auto world = static_cast<std::size_t>(job.world_size());
    const double now = context_.now_seconds();
    const auto gpus = context_.gpus.ranks(job.id.value, now);
    std::vector<std::optional<double>> values(world);
    for (std::size_t rank = 0; rank < world; ++rank) {
        values[rank] = sort_value(query.key, rank, series, gpus, now);
    }
    std::vector<std::string> texts;
    for (const std::int32_t number : ranks_in_order(values, query)) {
        const auto rank = static_cast<std::size_t>(number);
        Json item = rank_json(job, number);
        if (const auto* process = actor == nullptr ? nullptr : actor->process(number)) {
            put_process(item, *process);
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
        put_gpus(item, telemetry::gpus_of(gpus, number));
        texts.push_back(dump_json(item));
    }
    return json_page({texts.begin(), texts.end()}, "");
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

Task<Result<bool>> ControlService::ready_history(const Job& job) {
    const auto packed = co_await history_.packed(job);
    if (!packed || *packed) {
        co_return packed;
    }
    const auto series = co_await load_series(job);
    co_return series ? Result<bool>{false} : Result<bool>{fail(series.error())};
}

Task<Result<std::string>> ControlService::ranks(Caller caller, std::string id, RanksQuery query) {
    const auto job = co_await registry_.load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    const auto series = co_await load_series(**job);
    if (!series) {
        co_return fail(series.error());
    }
    const ActorPtr actor = registry_.find(id);
    std::string text = ranks_text(**job, *series, actor.get(), query);
    Json rest = Json::object();
    rest["total"] = (*job)->world_size();
    std::optional<telemetry::JobStats> computed;
    const telemetry::JobStats* stats = actor ? actor->stats() : nullptr;
    if (stats == nullptr && *series != nullptr) {
        stats = &computed.emplace(telemetry::compute_job_stats(**series, context_.now_seconds()));
    }
    if (stats != nullptr) {
        rest["ranks_reporting"] = stats->ranks_reporting;
        put_number(rest, "samples_per_second", stats->samples_per_second);
    }
    text.back() = ',';  // one object of the two
    text += dump_json(rest).substr(1);
    co_return text;
}

namespace {

bool is_empty(const std::vector<telemetry::RankHistory>& found) {
    return std::all_of(found.begin(), found.end(),
                       [](const telemetry::RankHistory& rank) { return rank.buckets.empty(); });
}

}  // namespace

namespace {

// An answer of a million points is 50 MB and holds up this thread for half a second: fewer of each
// line where there are many lines.
std::size_t most_points(const SeriesQuery& query, std::int32_t world) {
    const bool together = !query.stats.empty() || query.worst > 0;
    const std::size_t all = std::min(static_cast<std::size_t>(world), limits::kSeriesRanks);
    const std::size_t asked = query.ranks.empty() ? all : query.ranks.size();
    const std::size_t lines = std::max<std::size_t>(together ? query.worst : asked, 1);
    return std::max<std::size_t>(
        std::min(kPointsOfMetric, kPointsTogether / std::max<std::size_t>(query.metrics, 1)) /
            lines,
        1);
}

}  // namespace

Task<Result<std::string>> ControlService::series(Caller caller, std::string id, SeriesQuery query) {
    const auto job = co_await registry_.load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    for (const std::int32_t rank : query.ranks) {
        if (rank >= (*job)->spec.world_size()) {
            co_return fail(Errc::invalid, "ranks: the job has ranks 0-" +
                                              std::to_string((*job)->spec.world_size() - 1));
        }
    }
    query.points = std::min(query.points, most_points(query, (*job)->spec.world_size()));
    const auto turn = co_await history_.turn(caller.user);
    if (!turn) {
        co_return fail(turn.error());
    }
    const auto packed = co_await ready_history(**job);
    if (!packed) {
        co_return fail(packed.error());
    }
    if (query.of_gpus) {
        co_return co_await gpu_series(std::move(id), std::move(query));
    }
    if (!query.stats.empty() || query.worst > 0) {
        std::shared_ptr<const Job> of = *job;
        co_return co_await bands(std::move(of), std::move(query));
    }
    telemetry::SeriesQuery asked;
    asked.metric = query.metric;
    asked.ranks = query.ranks;
    asked.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    asked.from = query.from.value_or(asked.from);
    asked.to = query.to.value_or(asked.to);
    asked.points = query.points;
    if (asked.ranks.empty()) {
        const auto world = static_cast<std::size_t>((*job)->spec.world_size());
        asked.ranks.resize(std::min(world, limits::kSeriesRanks));
        std::iota(asked.ranks.begin(), asked.ranks.end(), 0);
    }
    const telemetry::JobSeries* series = context_.series.find(id);
    std::vector<telemetry::RankHistory> found;
    if (!*packed && series != nullptr && HistoryKeeper::in_memory(*series, asked.ranks)) {
        found = telemetry::query_series(*series, asked);
    } else if (*packed || series != nullptr) {
        telemetry::HistoryAsk ask;
        ask.metric = asked.metric;
        ask.entities.assign(asked.ranks.begin(), asked.ranks.end());
        std::sort(ask.entities.begin(), ask.entities.end());
        ask.entities.erase(std::unique(ask.entities.begin(), ask.entities.end()),
                           ask.entities.end());
        ask.x = asked.x;
        ask.from = asked.from;
        ask.to = asked.to;
        ask.columns = asked.points;
        auto read = co_await history_.series(id, std::move(ask));
        if (!read) {
            co_return fail(read.error());
        }
        found = std::move(*read);
    }
    Json answer = telemetry::to_json(asked, found);
    if (is_empty(found)) {
        // What was asked for by a name that nobody used is answered with the names that were.
        answer["metrics"] = Json::array();
        series = context_.series.find(id);  // the job may have been forgotten meanwhile
        if (*packed) {
            // As chunks have them, whether the newest rows are in memory or not.
            const auto names = co_await history_.metrics(id);
            if (!names) {
                co_return fail(names.error());
            }
            answer["metrics"] = parse_json(*names).value_or(Json::array());
        } else if (series != nullptr) {
            answer["metrics"] = series->reported_metrics();
        }
    }
    co_return dump_json(answer);
}

Task<Result<std::string>> ControlService::heatmap(Caller caller, std::string id,
                                                  HeatmapQuery query) {
    const auto job = co_await registry_.load(caller, id);
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
    ask.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    const auto turn = co_await history_.turn(caller.user);
    if (!turn) {
        co_return fail(turn.error());
    }
    if (const auto ready = co_await ready_history(**job); !ready) {
        co_return fail(ready.error());
    }
    if (query.of_gpus) {
        co_return co_await gpu_heatmap(std::move(id), std::move(query));
    }
    co_return co_await history_.heatmap(id, std::move(ask));
}

Task<Result<std::string>> ControlService::samples(Caller caller, std::string id,
                                                  SamplesQuery query) {
    const auto job = co_await registry_.load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    const std::int32_t world = (*job)->spec.world_size();
    if (query.ranks.empty() && !query.of_gpus) {
        if (world > static_cast<std::int32_t>(limits::kSeriesRanks)) {
            co_return fail(Errc::invalid, "ranks: the job has " + std::to_string(world) +
                                              "; name at most " +
                                              std::to_string(limits::kSeriesRanks));
        }
        query.ranks.resize(static_cast<std::size_t>(world));
        std::iota(query.ranks.begin(), query.ranks.end(), 0);
    }
    if (std::any_of(query.ranks.begin(), query.ranks.end(),
                    [world](std::int32_t rank) { return rank >= world; })) {
        co_return fail(Errc::invalid, "ranks: the job has ranks 0-" + std::to_string(world - 1));
    }
    telemetry::SampleAsk ask;
    ask.metric = query.metric;
    ask.entities.assign(query.ranks.begin(), query.ranks.end());
    ask.from = query.from;
    ask.to = query.to;
    ask.attempt = query.attempt;
    if (query.generation) {
        ask.generation = static_cast<std::uint32_t>(*query.generation);
    }
    ask.limit = query.limit;
    if (!query.cursor.empty()) {
        const auto place = telemetry::parse_cursor(query.cursor);
        if (!place) {
            co_return fail(Errc::invalid, "cursor: not one that this service has given out");
        }
        ask.place = *place;
    }
    const auto turn = co_await history_.turn(caller.user);
    if (!turn) {
        co_return fail(turn.error());
    }
    if (const auto ready = co_await ready_history(**job); !ready) {
        co_return fail(ready.error());
    }
    if (query.of_gpus) {
        co_return co_await gpu_samples(std::move(id), std::move(ask), std::move(query));
    }
    co_return co_await history_.samples(id, std::move(ask));
}

Task<Result<std::string>> ControlService::metric_names(Caller caller, std::string id) {
    const auto job = co_await registry_.load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    const auto turn = co_await history_.turn(caller.user);
    if (!turn) {
        co_return fail(turn.error());
    }
    if (const auto ready = co_await ready_history(**job); !ready) {
        co_return fail(ready.error());
    }
    const auto names = co_await history_.metrics(id);
    if (!names) {
        co_return fail(names.error());
    }
    co_return "{\"ranks\":" + std::to_string((*job)->spec.world_size()) + ",\"items\":" + *names +
        "}";
}

}  // namespace lockstep
