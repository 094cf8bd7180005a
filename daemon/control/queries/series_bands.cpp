// What the API shows of many ranks at once: quantiles over them, and the worst by name.
#include "daemon/control/queries/series_queries.hpp"
#include "daemon/telemetry/series/bands.hpp"
#include "daemon/telemetry/series/series_query.hpp"
#include "job/model/job_view.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

Task<Result<std::string>> SeriesQueries::bands(std::shared_ptr<const Job> job, SeriesQuery query) {
    telemetry::BandsAsk ask;
    ask.metric = query.metric;
    ask.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    ask.from = query.from.value_or(ask.from);
    ask.to = query.to.value_or(ask.to);
    ask.columns = query.points;
    ask.stats = query.stats;
    ask.worst = query.worst;
    ask.low_is_worse = query.low_is_worse.value_or(telemetry::low_is_worse(query.metric));
    ask.entities.assign(query.ranks.begin(), query.ranks.end());
    if (ask.entities.empty()) {
        ask.entities.resize(static_cast<std::size_t>(job->spec.world_size()));
        std::iota(ask.entities.begin(), ask.entities.end(), 0U);
    }
    std::sort(ask.entities.begin(), ask.entities.end());
    telemetry::BandsAsk copy = ask;
    const auto found = co_await history_.bands(job->id.value, std::move(copy));
    LOCKSTEP_CO_TRY(found);
    telemetry::SeriesQuery asked;
    asked.metric = ask.metric;
    asked.x = ask.x;
    Json answer = telemetry::to_json(asked, {});
    answer["ranks"] = ask.entities.size();
    if (!ask.stats.empty()) {
        answer["bands"] = telemetry::bands_json(ask, found->bands);
    }
    if (ask.worst > 0) {
        answer["worst"] = Json::array();
        for (const telemetry::WorstRank& one : found->worst) {
            Json item = telemetry::to_json(asked, {one.history})["series"][0];
            if (one.score) {
                item["score"] = *one.score;
            }
            const Json rank = rank_json(*job, one.history.rank);
            if (rank.contains("node")) {
                item["node"] = rank["node"];
            }
            answer["worst"].push_back(std::move(item));
        }
        answer["worse"] = ask.low_is_worse ? "low" : "high";
    }
    if (found->bands.x.empty() && found->worst.empty()) {
        // What was asked for by a name that nobody used is answered with the names that were.
        const auto names = co_await history_.metrics(job->id.value);
        LOCKSTEP_CO_TRY(names);
        answer["metrics"] = parse_json(*names).value_or(Json::array());
    }
    co_return dump_json(answer);
}

}  // namespace lockstep
