// What the API shows of many ranks at once: quantiles over them, and the worst by name.
#include "daemon/control/queries/series_answers.hpp"
#include "daemon/control/queries/series_queries.hpp"
#include "job/model/job_view.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

telemetry::BandsAsk bands_ask(const SeriesQuery& query, bool low_is_worse) {
    telemetry::BandsAsk ask;
    take_range(query, ask);
    ask.columns = query.points;
    ask.stats = query.stats;
    ask.worst = query.worst;
    ask.low_is_worse = query.low_is_worse.value_or(low_is_worse);
    return ask;
}

void put_bands(Json& answer, const telemetry::BandsAsk& ask, const telemetry::BandsAnswer& found,
               const std::function<Json(const telemetry::RankHistory&)>& item) {
    if (!ask.stats.empty()) {
        answer["bands"] = telemetry::bands_json(ask, found.bands);
    }
    if (ask.worst == 0) {
        return;
    }
    answer["worst"] = Json::array();
    for (const telemetry::WorstRank& one : found.worst) {
        Json entry = item(one.history);
        if (one.score) {
            entry["score"] = *one.score;
        }
        answer["worst"].push_back(std::move(entry));
    }
    answer["worse"] = ask.low_is_worse ? "low" : "high";
}

Task<Result<std::string>> SeriesQueries::bands(std::shared_ptr<const Job> job, SeriesQuery query) {
    telemetry::BandsAsk ask = bands_ask(query, telemetry::low_is_worse(query.metric));
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
    put_bands(answer, ask, *found, [&](const telemetry::RankHistory& history) {
        Json item = telemetry::to_json(asked, {history})["series"][0];
        const Json rank = rank_json(*job, history.rank);
        if (rank.contains("node")) {
            item["node"] = rank["node"];
        }
        return item;
    });
    if (found->bands.x.empty() && found->worst.empty()) {
        // What was asked for by a name that nobody used is answered with the names that were.
        const auto names = co_await history_.metrics(job->id.value);
        LOCKSTEP_CO_TRY(names);
        answer["metrics"] = parse_json(*names).value_or(Json::array());
    }
    co_return dump_json(answer);
}

}  // namespace lockstep
