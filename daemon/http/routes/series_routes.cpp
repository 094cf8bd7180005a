// Charts: the history of metrics, of single ranks or of all of them together.
#include "daemon/http/base/entity_query.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::string band_stat_words() {
    std::string out;
    for (const std::string_view word : telemetry::kBandStatNames) {
        out.append(out.empty() ? "" : ", ").append(word);
    }
    return out;
}

void take_stats(QueryReader& in, SeriesQuery& query) {
    std::string text;
    in.text("stat", text, limits::kTextBytes);
    if (text.empty()) {
        return;
    }
    for (const std::string& word : split(text, ',')) {
        const auto stat = telemetry::parse_band_stat(word);
        if (!stat) {
            in.error("stat", "must be some of " + band_stat_words());
            return;
        }
        if (std::find(query.stats.begin(), query.stats.end(), *stat) == query.stats.end()) {
            query.stats.push_back(*stat);
        }
    }
}

void take_worst(QueryReader& in, SeriesQuery& query) {
    std::int64_t worst = 0;
    std::string worse;
    in.integer("worst", worst, 0, limits::kWorstRanks);
    in.text("worse", worse, limits::kTextBytes);
    query.worst = static_cast<std::size_t>(worst);
    if (!worse.empty() && worse != "high" && worse != "low") {
        in.error("worse", "must be high or low");
    } else if (!worse.empty()) {
        query.low_is_worse = worse == "low";
    }
}

// One question a metric.
Result<std::vector<SeriesQuery>> series_queries(const HttpRequest& request) {
    QueryReader in{request.query};
    SeriesQuery query;
    std::string metrics = query.metric;
    std::string axis = "step";
    std::int64_t points = static_cast<std::int64_t>(query.points);
    in.text("metric", metrics, limits::kTextBytes * limits::kMetricsAsked);
    in.text("x", axis, limits::kTextBytes);
    in.number("from", query.from);
    in.number("to", query.to);
    in.integer("points", points, 1, limits::kSeriesPoints);
    take_stats(in, query);
    take_worst(in, query);
    const bool together = !query.stats.empty() || query.worst > 0;
    take_entities(in, query, query.ranks, together ? limits::kRanks : limits::kSeriesRanks,
                  metrics);
    if (axis != "step" && axis != "time") {
        in.error("x", "must be step or time");
    }
    query.by_time = axis == "time";
    query.points = static_cast<std::size_t>(points);
    std::vector<SeriesQuery> out;
    for (std::string& metric : split(metrics, ',')) {
        query.metric = std::move(metric);
        out.push_back(query);
    }
    if (out.size() > limits::kMetricsAsked) {
        in.error("metric", "more than " + std::to_string(limits::kMetricsAsked) + " metrics");
    }
    if (auto error = in.finish()) {
        return fail(std::move(*error));
    }
    return out;
}

Task<HttpResponse> series(RouteContext context, HttpRequest request) {
    const auto queries = series_queries(request);
    if (!queries) {
        co_return problem(queries.error());
    }
    const Caller caller = caller_of(request);
    const std::string id{request.param()};
    std::string body = "{\"items\":[";
    for (std::size_t i = 0; i < queries->size(); ++i) {
        SeriesQuery query = (*queries)[i];
        query.metrics = queries->size();
        auto text = co_await context.control.series(caller, id, std::move(query));
        if (!text) {
            co_return problem(text.error());
        }
        if (queries->size() == 1) {
            co_return json_response(std::move(*text));
        }
        body += i > 0 ? "," : "";
        body += *text;
    }
    body += "]}";
    co_return json_response(std::move(body));
}

Task<HttpResponse> job_gpus(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    std::int64_t offset = 0;
    std::int64_t limit = limits::kPage;
    in.integer("offset", offset, 0, limits::kRanks);
    in.integer("limit", limit, 1, limits::kPage);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto text = co_await context.control.gpus(caller_of(request), std::move(id),
                                              static_cast<std::size_t>(offset),
                                              static_cast<std::size_t>(limit));
    co_return json_or_problem(std::move(text));
}

Task<HttpResponse> job_nodes(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto text = co_await context.control.job_nodes(caller_of(request), std::move(id));
    co_return json_or_problem(std::move(text));
}

}  // namespace

RouteParts get_job_nodes_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return job_nodes(context, std::move(request)); }};
    route.summary =
        "The job's nodes, by node rank: each with its ranks together, its agent and its GPUs.";
    return route;
}

RouteParts get_job_gpus_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return job_gpus(context, std::move(request)); }};
    route.summary =
        "The GPUs the job has had, also once it is over, and the metrics there are of them.";
    route.query = {{"offset", "integer", "Leave out so many GPUs; 0 if not given."},
                   {"limit", "integer", "Items in one answer, 1..1000; 1000 if not given."}};
    return route;
}

RouteParts get_job_series_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return series(context, std::move(request)); }};
    route.summary =
        "History of a metric, reduced so that every extreme stays: of single ranks, or, with stat "
        "or "
        "worst, of all of them together. Concurrent requests are queued, fairly between users.";
    route.query = {
        {"metric", "string",
         "Name of the metric; loss if not given, of GPUs gpu_utilization_ratio. Several, as "
         "loss,busy_seconds, at most 16: the answer is {items: […]} in this order."},
        entity_parameter(),
        gpus_parameter(),
        {"ranks", "string",
         "Which ranks, as 0-7,12, or all. Of single ranks at most 256, and the first 256 if not "
         "given; with stat or worst any number, and all if not given."},
        {"x",
         "string",
         "step (default) or time, in seconds since the epoch. Of a GPU step is the newest that a "
         "rank on it, or else any rank, had reported when the GPU was sampled; by time, repeated "
         "steps after a restart are included as well.",
         {"step", "time"}},
        {"from", "number", "Smallest x: a step, or seconds since the epoch."},
        {"to", "number", "Largest x, likewise a step or seconds."},
        {"points", "integer",
         "Buckets per rank, or columns, 1..4000; 800 if not given. Fewer where there are many "
         "lines: 65,536 in all of a metric, 262,144 of an answer."},
        {"stat", "string",
         "Instead of single ranks, columns of these over all ranks: " + band_stat_words() +
             ". min and max are of every value; the others are over ranks, of each one's last "
             "value "
             "in the column."},
        {"worst", "integer",
         "The worst so many ranks with their points, 0..64: those with values that are not finite, "
         "then those farthest from the median of all."},
        {"worse",
         "string",
         "high or low: which values are the worse. If not given, low for waits in collectives, "
         "rates and counts of samples, and for a GPU's use, clocks, power and traffic; else high.",
         {"high", "low"}}};
    return route;
}

}  // namespace lockstep
