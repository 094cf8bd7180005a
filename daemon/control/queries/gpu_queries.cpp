// What the API shows of a job's GPUs over time. Answers are made on the reading thread.
#include "daemon/control/base/query_error.hpp"
#include "daemon/control/queries/series_answers.hpp"
#include "daemon/control/queries/series_queries.hpp"
#include "daemon/telemetry/series/bands.hpp"
#include "daemon/telemetry/series/series_query.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

Json gpu_json(const telemetry::GpuDirectory& gpus, std::uint32_t id) {
    return Json{{"id", id},
                {"node", gpus.node_of(id)},
                {"gpu", gpus.at(id).gpu},
                {"ranks", gpus.at(id).ranks}};
}

// As telemetry::to_json() makes it of a rank, of a GPU.
Json item_json(const telemetry::SeriesQuery& asked, const telemetry::GpuDirectory& gpus,
               const telemetry::RankHistory& history) {
    Json item = gpu_json(gpus, static_cast<std::uint32_t>(history.rank));
    const Json of_rank = telemetry::to_json(asked, {history})["series"][0];
    for (const auto& [key, value] : of_rank.items()) {
        if (key != "rank") {
            item[key] = value;
        }
    }
    return item;
}

Result<std::set<std::string>> metrics_of(const GpuView& view) {
    const auto stored = view.source.metrics();
    LOCKSTEP_TRY(stored);
    std::set<std::string> all{stored->begin(), stored->end()};
    all.insert(view.metrics.begin(), view.metrics.end());
    return all;
}

// What was asked for by a name that nothing has is answered with the names that there are.
Result<std::string> finish_answer(Json answer, bool empty, const GpuView& view) {
    if (empty) {
        const auto names = metrics_of(view);
        LOCKSTEP_TRY(names);
        answer["metrics"] = *names;
    }
    return dump_json(answer);
}

Json head_json(const SeriesQuery& query) {
    return Json{{"metric", query.metric},
                {"entity", "gpu"},
                {"x", query.by_time ? "time" : "step"},
                {"series", Json::array()}};
}

telemetry::SeriesQuery asked_of(const SeriesQuery& query) {
    telemetry::SeriesQuery asked;
    asked.metric = query.metric;
    asked.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    return asked;
}

Result<std::string> series_answer(const SeriesQuery& query, const GpuView& view) {
    telemetry::HistoryAsk ask;
    take_range(query, ask);
    ask.entities = view.ids;
    ask.columns = query.points;
    ask.every_generation = query.by_time;
    const auto found = telemetry::fold_series(view.source, ask, view.tail);
    LOCKSTEP_TRY(found);
    const telemetry::SeriesQuery asked = asked_of(query);
    Json answer = head_json(query);
    bool empty = true;
    for (const telemetry::RankHistory& one : *found) {
        empty = empty && one.buckets.empty();
        answer["series"].push_back(item_json(asked, view.gpus, one));
    }
    return finish_answer(std::move(answer), empty, view);
}

Result<std::string> bands_answer(const SeriesQuery& query, const GpuView& view) {
    telemetry::BandsAsk ask = bands_ask(query, telemetry::gpu_low_is_worse(query.metric));
    ask.entities = view.ids;
    ask.every_generation = query.by_time;
    const auto found = telemetry::fold_bands(view.source, ask, view.tail);
    LOCKSTEP_TRY(found);
    const telemetry::SeriesQuery asked = asked_of(query);
    Json answer = head_json(query);
    answer["gpus"] = view.ids.size();
    put_bands(answer, ask, *found, [&](const telemetry::RankHistory& history) {
        return item_json(asked, view.gpus, history);
    });
    return finish_answer(std::move(answer), found->bands.x.empty() && found->worst.empty(), view);
}

GpuChoice choice_of(const EntityQuery& query, std::vector<std::int32_t> ranks) {
    GpuChoice choice;
    choice.ids = query.gpus;
    choice.ranks = std::move(ranks);
    return choice;
}

}  // namespace

Task<Result<std::string>> SeriesQueries::gpus(Caller caller, std::string id, std::size_t offset,
                                              std::size_t limit) {
    const auto job = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(job);
    const auto turn = co_await history_.turn(caller.user);
    LOCKSTEP_CO_TRY(turn);
    if (const auto ready = co_await cache_.packed(**job); !ready) {
        co_return fail(ready.error());
    }
    GpuChoice none;
    none.most = 0;
    AnswerGpus answer = [offset, limit](const GpuView& view) -> Result<std::string> {
        const auto names = metrics_of(view);
        LOCKSTEP_TRY(names);
        Json out{{"total", view.gpus.size()}, {"metrics", *names}, {"items", Json::array()}};
        const std::size_t end = std::min(view.gpus.size(), offset + limit);
        for (std::size_t i = offset; i < end; ++i) {
            out["items"].push_back(gpu_json(view.gpus, static_cast<std::uint32_t>(i)));
        }
        return dump_json(out);
    };
    std::string no_metric;
    co_return co_await history_.gpus(std::move(id), std::move(none), std::move(no_metric),
                                     std::move(answer));
}

Task<Result<std::string>> SeriesQueries::gpu_series(std::string id, SeriesQuery query) {
    const bool together = !query.stats.empty() || query.worst > 0;
    GpuChoice choice = choice_of(query, query.ranks);
    if (!together) {
        choice.most = limits::kSeriesRanks;
    }
    std::string metric = query.metric;
    AnswerGpus answer = [query = std::move(query), together](const GpuView& view) {
        return together ? bands_answer(query, view) : series_answer(query, view);
    };
    co_return co_await history_.gpus(std::move(id), std::move(choice), std::move(metric),
                                     std::move(answer));
}

Task<Result<std::string>> SeriesQueries::gpu_heatmap(std::string id, HeatmapQuery query) {
    GpuChoice choice = choice_of(query, query.ranks);
    std::string metric = query.metric;
    AnswerGpus answer = [query = std::move(query)](const GpuView& view) -> Result<std::string> {
        if (view.ids.empty()) {
            return telemetry::empty_heatmap();
        }
        telemetry::HeatmapAsk ask;
        take_range(query, ask);
        ask.entities = view.ids;
        ask.columns = query.columns;
        ask.rows = query.rows;
        ask.every_generation = query.by_time;
        return telemetry::make_heatmap(view.source, ask, view.tail);
    };
    co_return co_await history_.gpus(std::move(id), std::move(choice), std::move(metric),
                                     std::move(answer));
}

Task<Result<std::string>> SeriesQueries::gpu_samples(std::string id, telemetry::SampleAsk ask,
                                                     SamplesQuery query) {
    GpuChoice choice = choice_of(query, std::move(query.ranks));
    std::string metric = ask.metric;
    AnswerGpus answer = [ask = std::move(ask)](const GpuView& view) -> Result<std::string> {
        if (view.ids.size() > limits::kSeriesRanks) {
            return fail(query_error("gpus", "these are " + std::to_string(view.ids.size()) +
                                                "; name at most " +
                                                std::to_string(limits::kSeriesRanks)));
        }
        telemetry::SampleAsk of_gpus = ask;
        of_gpus.entities = view.ids;
        const auto page = telemetry::read_samples(view.source, of_gpus, view.tail, view.newest);
        LOCKSTEP_TRY(page);
        return telemetry::to_json_text(of_gpus, *page, [&view](std::uint32_t gpu) {
            const std::string members = dump_json(gpu_json(view.gpus, gpu));
            return members.substr(1, members.size() - 2);  // without the braces
        });
    };
    co_return co_await history_.gpus(std::move(id), std::move(choice), std::move(metric),
                                     std::move(answer));
}

}  // namespace lockstep
