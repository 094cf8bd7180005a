#include "daemon/control/queries/series_queries.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/ranks_text.hpp"
#include "daemon/control/base/query_error.hpp"
#include "daemon/control/queries/series_answers.hpp"
#include "daemon/telemetry/series/series_query.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {
Task<Result<std::string>> SeriesQueries::ranks(Caller caller, std::string id, RanksQuery query) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    const auto series = co_await cache_.load(**job);
    LOCKSTEP_CO_TRY(series);
    const JobRegistry::ActorPtr actor = registry_.find(id);
    co_return ranks_answer(context_, **job, *series, actor.get(), query);
}

namespace {

bool is_empty(const std::vector<telemetry::RankHistory>& found) {
    return std::all_of(found.begin(), found.end(),
                       [](const telemetry::RankHistory& rank) { return rank.buckets.empty(); });
}

// An answer of a million points is 50 MB and holds up this thread for half a second: fewer of each
// line where there are many lines.
std::size_t most_points(const SeriesQuery& query, std::int32_t world) {
    const bool together = !query.stats.empty() || query.worst > 0;
    const std::size_t all = std::min(static_cast<std::size_t>(world), limits::kSeriesRanks);
    const std::size_t asked = query.ranks.empty() ? all : query.ranks.size();
    const std::size_t lines = std::max<std::size_t>(together ? query.worst : asked, 1);
    return std::max<std::size_t>(
        std::min(limits::kPointsOfMetric,
                 limits::kPointsTogether / std::max<std::size_t>(query.metrics, 1)) /
            lines,
        1);
}

}  // namespace

Task<Result<std::string>> SeriesQueries::series(Caller caller, std::string id, SeriesQuery query) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    for (const std::int32_t rank : query.ranks) {
        if (rank >= (*job)->spec.world_size()) {
            co_return fail(query_error(
                "ranks", "the job has ranks 0-" + std::to_string((*job)->spec.world_size() - 1)));
        }
    }
    query.points = std::min(query.points, most_points(query, (*job)->spec.world_size()));
    const auto turn = co_await history_.turn(caller.user);
    LOCKSTEP_CO_TRY(turn);
    const auto packed = co_await cache_.packed(**job);
    LOCKSTEP_CO_TRY(packed);
    if (query.of_gpus) {
        co_return co_await gpu_series(std::move(id), std::move(query));
    }
    if (!query.stats.empty() || query.worst > 0) {
        std::shared_ptr<const Job> of = *job;
        co_return co_await bands(std::move(of), std::move(query));
    }
    telemetry::SeriesQuery asked;
    take_range(query, asked);
    asked.ranks = query.ranks;
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
        LOCKSTEP_CO_TRY(read);
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
            LOCKSTEP_CO_TRY(names);
            answer["metrics"] = parse_json(*names).value_or(Json::array());
        } else if (series != nullptr) {
            answer["metrics"] = series->reported_metrics();
        }
    }
    co_return dump_json(answer);
}

Task<Result<std::string>> SeriesQueries::heatmap(Caller caller, std::string id,
                                                 HeatmapQuery query) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    const std::int32_t last = (*job)->spec.world_size() - 1;
    telemetry::HeatmapAsk ask;
    take_range(query, ask);
    ask.rank_high = static_cast<std::uint32_t>(last);
    if (!query.ranks.empty()) {
        const auto [low, high] = std::minmax_element(query.ranks.begin(), query.ranks.end());
        if (*high > last) {
            co_return fail(query_error("ranks", "the job has ranks 0-" + std::to_string(last)));
        }
        ask.rank_low = static_cast<std::uint32_t>(*low);
        ask.rank_high = static_cast<std::uint32_t>(*high);
    }
    ask.columns = query.columns;
    ask.rows = query.rows;
    const auto turn = co_await history_.turn(caller.user);
    LOCKSTEP_CO_TRY(turn);
    if (const auto ready = co_await cache_.packed(**job); !ready) {
        co_return fail(ready.error());
    }
    if (query.of_gpus) {
        co_return co_await gpu_heatmap(std::move(id), std::move(query));
    }
    co_return co_await history_.heatmap(id, std::move(ask));
}

Task<Result<std::string>> SeriesQueries::samples(Caller caller, std::string id,
                                                 SamplesQuery query) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    const std::int32_t world = (*job)->spec.world_size();
    if (query.ranks.empty() && !query.of_gpus) {
        if (world > static_cast<std::int32_t>(limits::kSeriesRanks)) {
            co_return fail(query_error("ranks", "the job has " + std::to_string(world) +
                                                    "; name at most " +
                                                    std::to_string(limits::kSeriesRanks)));
        }
        query.ranks.resize(static_cast<std::size_t>(world));
        std::iota(query.ranks.begin(), query.ranks.end(), 0);
    }
    if (std::any_of(query.ranks.begin(), query.ranks.end(),
                    [world](std::int32_t rank) { return rank >= world; })) {
        co_return fail(query_error("ranks", "the job has ranks 0-" + std::to_string(world - 1)));
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
            co_return fail(query_error("cursor", "not one that this service has given out"));
        }
        ask.place = *place;
    }
    const auto turn = co_await history_.turn(caller.user);
    LOCKSTEP_CO_TRY(turn);
    if (const auto ready = co_await cache_.packed(**job); !ready) {
        co_return fail(ready.error());
    }
    if (query.of_gpus) {
        co_return co_await gpu_samples(std::move(id), std::move(ask), std::move(query));
    }
    co_return co_await history_.samples(id, std::move(ask));
}

Task<Result<std::string>> SeriesQueries::metric_names(Caller caller, std::string id) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    const auto turn = co_await history_.turn(caller.user);
    LOCKSTEP_CO_TRY(turn);
    if (const auto ready = co_await cache_.packed(**job); !ready) {
        co_return fail(ready.error());
    }
    const auto names = co_await history_.metrics(id);
    LOCKSTEP_CO_TRY(names);
    co_return "{\"ranks\":" + std::to_string((*job)->spec.world_size()) + ",\"items\":" + *names +
        "}";
}

}  // namespace lockstep
