// size: one short handler for each read-only route of a job
#include "daemon/http/base/entity_query.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/logs/log_times.hpp"
#include "daemon/http/logs/rank_log_reader.hpp"
#include "daemon/http/routes/folder_reads.hpp"
#include "daemon/http/routes/log_follower.hpp"
#include "daemon/http/server/event_feed.hpp"
#include "daemon/telemetry/series/sample_scan.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kAnyOffset = std::numeric_limits<std::int64_t>::max();

std::string rank_keys() {
    std::string out;
    for (const RankKey& key : kRankKeys) {
        out.append(out.empty() ? "" : " ").append(key.name);
    }
    return out;
}

// `text`: of the parameter ranks; "" leaves them as they are.
Task<HttpResponse> ranks(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    RanksQuery query;
    std::string sort{kRankKeys.front().name};
    std::int64_t offset = 0;
    std::int64_t limit = limits::kRanks;
    in.text("sort", sort, limits::kTextBytes);
    in.integer("offset", offset, 0, limits::kRanks);
    in.integer("limit", limit, 1, limits::kRanks);
    if (!query.sort_by(sort)) {
        in.error("sort", "must be one of " + rank_keys() + ", - in front for the highest first");
    }
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    query.offset = static_cast<std::size_t>(offset);
    query.limit = static_cast<std::size_t>(limit);
    std::string id{request.param()};
    auto text = co_await context.control.ranks(caller_of(request), std::move(id), query);
    co_return json_or_problem(std::move(text));
}

Task<HttpResponse> job_events(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    EventsQuery query;
    std::string order;
    std::int64_t limit = limits::kPageDefault;
    in.integer("after", query.after, 0, kAnyOffset);
    in.integer("before", query.before, 1, kAnyOffset);
    in.text("order", order, limits::kTextBytes);
    in.integer("limit", limit, 1, limits::kPage);
    if (!order.empty() && order != "asc" && order != "desc") {
        in.error("order", "must be asc or desc");
    }
    query.newest_first = order == "desc";
    query.limit = static_cast<std::size_t>(limit);
    if (query.newest_first ? query.after != 0 : query.before != 0) {
        in.error(query.newest_first ? "after" : "before",
                 "after goes with order=asc, before with order=desc");
    }
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto text = co_await context.control.events(caller_of(request), std::move(id), query);
    co_return json_or_problem(std::move(text));
}

Result<HeatmapQuery> heatmap_query(const HttpRequest& request) {
    QueryReader in{request.query};
    HeatmapQuery query;
    std::string axis = "step";
    std::int64_t columns = static_cast<std::int64_t>(query.columns);
    std::int64_t rows = 0;
    in.text("metric", query.metric, limits::kTextBytes);
    in.text("x", axis, limits::kTextBytes);
    in.number("from", query.from);
    in.number("to", query.to);
    in.integer("columns", columns, 1, limits::kSeriesPoints);
    in.integer("rows", rows, 1, limits::kRanks);
    take_entities(in, query, query.ranks, limits::kRanks, query.metric);
    if (axis != "step" && axis != "time") {
        in.error("x", "must be step or time");
    }
    query.by_time = axis == "time";
    query.columns = static_cast<std::size_t>(columns);
    query.rows = static_cast<std::size_t>(rows);
    if (auto error = in.finish()) {
        return fail(std::move(*error));
    }
    return query;
}

Task<HttpResponse> heatmap(RouteContext context, HttpRequest request) {
    auto query = heatmap_query(request);
    if (!query) {
        co_return problem(query.error());
    }
    std::string id{request.param()};
    auto bytes =
        co_await context.control.heatmap(caller_of(request), std::move(id), std::move(*query));
    if (!bytes) {
        co_return problem(bytes.error());
    }
    HttpResponse response;
    response.content_type = content_type::kBinary;
    response.body = std::move(*bytes);
    co_return response;
}

Result<SamplesQuery> samples_query(const HttpRequest& request) {
    QueryReader in{request.query};
    SamplesQuery query;
    auto limit = static_cast<std::int64_t>(query.limit);
    const auto optional = [&in](std::string_view name, auto& target, std::int64_t most) {
        std::int64_t value = 0;
        in.integer(name, value, 0, most);
        if (in.has(name)) {
            target = static_cast<typename std::decay_t<decltype(target)>::value_type>(value);
        }
    };
    in.text("metric", query.metric, limits::kTextBytes);
    optional("from", query.from, kAnyOffset);
    optional("to", query.to, kAnyOffset);
    optional("attempt", query.attempt, std::numeric_limits<std::int32_t>::max());
    optional("generation", query.generation, std::numeric_limits<std::int32_t>::max());
    in.integer("limit", limit, 1, limits::kSamplesPage);
    in.text("cursor", query.cursor, limits::kTextBytes);
    take_entities(in, query, query.ranks, limits::kSeriesRanks, query.metric);
    query.limit = static_cast<std::size_t>(limit);
    if (auto error = in.finish()) {
        return fail(std::move(*error));
    }
    return query;
}

Task<HttpResponse> samples(RouteContext context, HttpRequest request) {
    auto query = samples_query(request);
    if (!query) {
        co_return problem(query.error());
    }
    std::string id{request.param()};
    auto text =
        co_await context.control.samples(caller_of(request), std::move(id), std::move(*query));
    if (!text) {
        co_return problem(text.error());
    }
    co_return json_response(std::move(*text));
}

Task<HttpResponse> metric_names(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto text = co_await context.control.metric_names(caller_of(request), std::move(id));
    co_return json_or_problem(std::move(text));
}

struct LogQuery {
    std::int32_t rank = 0;
    std::int32_t attempt = 0;  // 0: the newest that has begun
    std::optional<std::int64_t> tail;
    std::int64_t offset = 0;
    bool follow = false;
    bool timestamps = false;
};

Result<LogQuery> log_query(const HttpRequest& request) {
    QueryReader in{request.query};
    LogQuery query;
    std::int64_t rank = 0;
    std::int64_t attempt = 0;
    std::int64_t tail = 0;
    in.integer("rank", rank, 0, limits::kRanks - 1);
    in.integer("attempt", attempt, 1, limits::kAttempts);
    in.integer("tail", tail, 1, limits::kLogTailLines);
    in.integer("offset", query.offset, 0, kAnyOffset);
    in.boolean("follow", query.follow);
    in.boolean("timestamps", query.timestamps);
    if (query.follow && query.timestamps) {
        in.error("timestamps",
                 "cannot be given together with follow; ask again from "
                 "Lockstep-Log-Next");
    }
    if (in.has("tail") && in.has("offset")) {
        in.error("tail", "cannot be given together with offset");
    }
    if (auto error = in.finish()) {
        return fail(std::move(*error));
    }
    query.rank = static_cast<std::int32_t>(rank);
    query.attempt = static_cast<std::int32_t>(attempt);
    if (in.has("tail")) {
        query.tail = tail;
    }
    return query;
}

// Blocking.
HttpResponse log_slice(const LogPlace& place, const LogQuery& query) {
    HttpResponse response = text_response({});
    response.headers.emplace_back("Lockstep-Log-Attempt", std::to_string(place.attempt));
    RankLogReader::Slice slice;
    const std::string* path = &place.path;
    auto reader = RankLogReader::open(*path);
    if (!reader && reader.error().code == Errc::not_found && !place.instead.empty()) {
        path = &place.instead;
        reader = RankLogReader::open(*path);
        response.headers.emplace_back("Lockstep-Log-Rank", std::to_string(place.instead_rank));
    }
    if (reader) {
        std::int64_t from = query.offset;
        if (query.tail) {
            const auto at = reader->tail(*query.tail, limits::kBodyBytes);
            if (!at) {
                return problem(at.error());
            }
            from = *at;
        }
        std::optional<LogTimes> times;
        if (query.timestamps) {
            times = LogTimes::open(*path);
        }
        auto read = reader->read(from, limits::kBodyBytes, times ? &*times : nullptr);
        if (!read) {
            return problem(read.error());
        }
        slice = std::move(*read);
    } else if (reader.error().code != Errc::not_found) {
        return problem(reader.error());
    }
    // A log that is not there yet is an empty one: its rank has been placed and prints nothing.
    response.body = std::move(slice.text);
    response.headers.emplace_back("Lockstep-Log-Offset", std::to_string(slice.offset));
    response.headers.emplace_back("Lockstep-Log-Next", std::to_string(slice.next));
    if (slice.dropped) {
        response.headers.emplace_back(
            "Lockstep-Log-Dropped",
            std::to_string(slice.dropped->begin) + "-" + std::to_string(slice.dropped->end));
    }
    return response;
}

Task<HttpResponse> logs(RouteContext context, HttpRequest request) {
    const auto query = log_query(request);
    if (!query) {
        co_return problem(query.error());
    }
    const Caller caller = caller_of(request);
    const std::string id{request.param()};
    const auto place = co_await context.control.log_place(caller, id, query->rank, query->attempt);
    const bool none_yet = !place && place.error().code == Errc::unavailable;
    if (!place && !(none_yet && query->follow)) {
        co_return none_yet ? problem(place.error(), 404) : problem(place.error());
    }
    if (!query->follow) {
        std::string folder = std::filesystem::path{place->path}.parent_path().string();
        std::function<HttpResponse()> read = [place = *place, query = *query] {
            return log_slice(place, query);
        };
        co_return co_await read_aside(context, std::move(folder), std::move(read));
    }
    HttpResponse response = text_response({});
    response.headers.emplace_back("X-Accel-Buffering", "no");
    if (place) {
        response.headers.emplace_back("Lockstep-Log-Attempt", std::to_string(place->attempt));
    }
    const LogFollower::Asked asked{query->rank, query->attempt, place ? place->attempt : 0,
                                   query->offset, query->tail};
    response.stream = std::make_shared<LogFollower>(context, caller, id, asked);
    co_return response;
}

HttpResponse event_stream(const RouteContext& context, const HttpRequest& request) {
    QueryReader in{request.query};
    std::string topics = "jobs";
    std::int64_t after = -1;
    in.text("topics", topics, limits::kTopicsBytes);
    in.integer("last_event_id", after, 0, kAnyOffset);
    auto wanted = TopicSet::parse(topics);
    if (!wanted) {
        in.error("topics", wanted.error().message);
    }
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    // A browser that comes back sends the header; it knows better than the address it was given.
    if (const auto seen = to_int(request.header("last-event-id")); seen && *seen >= 0) {
        after = *seen;
    } else if (!request.header("last-event-id").empty()) {
        return problem(Error{Errc::invalid, "Last-Event-ID: not an id of this stream"});
    }
    HttpResponse response;
    response.content_type = content_type::kEvents;
    response.headers.emplace_back("X-Accel-Buffering", "no");
    response.stream =
        EventFeed::start(context.io, context.control.stream(), context.metrics, caller_of(request),
                         std::move(*wanted), after < 0 ? std::nullopt : std::optional{after},
                         EventStream::Settings{});
    return response;
}

using ViewCall = Task<HttpResponse> (*)(RouteContext, HttpRequest);
SlowHandler waiting_for_view(const RouteContext& context, ViewCall call) {
    return [context, call](HttpRequest request) { return call(context, std::move(request)); };
}

}  // namespace

RouteParts get_job_ranks_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, ranks);
    route.summary = "Every rank: where it runs, its state, its last report.";
    route.query = {{"sort", "string",
                    "One of " + rank_keys() +
                        "; - in front: the highest first. Those without a value come last, NaN is "
                        "above everything."},
                   {"offset", "integer", "Leave out so many ranks; 0 if not given."},
                   {"limit", "integer", "At most so many ranks; all if not given."}};
    return route;
}

RouteParts get_job_logs_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, logs);
    route.summary =
        "A rank's output, at most 1 MiB an answer, or as it comes with follow. With launch node a "
        "rank may share the output of its launcher: the header Lockstep-Log-Rank then names the "
        "rank whose output this is. Lockstep-Log-Attempt: the attempt whose output it is, if none "
        "is asked for the newest that has begun (with follow, the one it begins with); with "
        "another attempt offsets "
        "begin again at 0. Lockstep-Log-Dropped, where the output has a line `[lockstep: N bytes "
        "dropped]`: which bytes the first of those stands for, `BEGIN-END` without END itself; "
        "what is before ends at BEGIN.";
    route.query = {
        {"rank", "integer", "Which rank; 0 if not given."},
        {"attempt", "integer", "Of which attempt; the newest that has begun if not given."},
        {"tail", "integer", "The last N lines; not together with offset."},
        {"offset", "integer", "Begin at this byte; Lockstep-Log-Next of the answer before."},
        {"follow", "boolean",
         "Send what comes until the job has ended, of later generations and attempts as well; with "
         "attempt, until that attempt has ended."},
        {"timestamps", "boolean",
         "Put the time (RFC 3339, UTC, the node's clock, to about 10 ms) and the generation before "
         "each line, as in `2026-11-22T22:30:37.184Z 2 loss 0.3`; `- - ` where they are not known. "
         "Not together with follow."}};
    route.answer_headers = {
        {"Lockstep-Log-Attempt", "integer", "Number of the attempt whose output it is."},
        {"Lockstep-Log-Rank", "integer",
         "Rank whose output this is, where it shares that of its launcher; otherwise absent."},
        {"Lockstep-Log-Offset", "integer", "Byte at which the answer begins; not with follow."},
        {"Lockstep-Log-Next", "integer", "Byte at which the next one begins; not with follow."},
        {"Lockstep-Log-Dropped", "string",
         "BEGIN-END: the bytes, END not among them, that the first line about dropped bytes stands "
         "for; absent without one, and with follow."}};
    return route;
}

RouteParts get_job_heatmap_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, heatmap);
    route.summary =
        "Ranks × steps of one metric, one byte a cell, the highest value of each. Little-endian: "
        "'LSH1', u16 version 1, u16 0, u32 rows, u32 columns, u32 first rank, u32 ranks per row, "
        "i64 first step, i64 steps per column, f64 low, f64 high, then the cells row by row: 0 "
        "nothing, 255 nothing finite, else low + (cell - 1) / 253 * (high - low). Of GPUs the "
        "ranks are the chosen ids. By time the two i64 are in microseconds since the epoch.";
    route.query = {
        {"metric", "string",
         "Name of the metric; busy_seconds if not given, of GPUs gpu_utilization_ratio."},
        entity_parameter(),
        gpus_parameter(),
        {"ranks", "string", "The lowest to the highest of these, as 0-99; all if not given."},
        {"x", "string", "step (default) or time, in seconds since the epoch.", {"step", "time"}},
        {"from", "number", "Smallest step, or time."},
        {"to", "number", "Largest step, or time."},
        {"columns", "integer", "Most columns, 1..4000; 400 if not given."},
        {"rows", "integer", "Most rows; one per rank, as far as 8 Mi cells go, if not given."}};
    return route;
}

RouteParts get_job_metric_names_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, metric_names);
    route.summary = "Which metrics the job's ranks have reported, and how many ranks it has.";
    return route;
}

RouteParts get_job_samples_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, samples);
    route.summary =
        "Every stored sample of one metric, page by page, steps that a restart made again with "
        "each of their generations; of one rank in the order of arrival.";
    route.query = {
        {"metric", "string",
         "Name of the metric; loss if not given, of GPUs gpu_utilization_ratio."},
        entity_parameter(),
        gpus_parameter(),
        {"ranks", "string", "Which ranks, as 0-7,12, at most 256; all if not given."},
        {"from", "integer", "Smallest step."},
        {"to", "integer", "Largest step."},
        {"attempt", "integer", "Only of this attempt."},
        {"generation", "integer", "Only of generations with this number."},
        {"limit", "integer",
         "Samples in one answer, 1..65536; 10000 if not given. Of ranks that report now the newest "
         "come whole, rank by rank, and may be more."},
        {"cursor", "string", "next_cursor of the answer before."}};
    return route;
}

RouteParts get_job_events_route(const RouteContext& context) {
    RouteParts route;
    route.handler = waiting_for_view(context, job_events);
    route.summary = "What happened to the job, oldest first, or newest first.";
    route.query = {
        {"after", "integer", "Only events after this seq: the next_cursor of the answer before."},
        {"order", "string", "asc, the oldest first, if not given.", {"asc", "desc"}},
        {"before", "integer",
         "With order=desc, only events before this seq: the next_cursor of the answer "
         "before."},
        {"limit", "integer", "Items in one answer, 1..1000; 50 if not given."}};
    return route;
}

RouteParts stream_events_route(const RouteContext& context) {
    RouteParts route;
    route.handler = FastHandler{
        [context](const HttpRequest& request) { return event_stream(context, request); }};
    route.summary = "Server-sent events of all topics asked for, on one connection.";
    route.query = {
        {"topics", "string",
         "Comma-separated, at most 256: jobs (default), job.<id>, ranks.<id> (snapshots of the "
         "first "
         "256 ranks, not resumable), steps.<id>.<metric>[+<metric>…] (the newest complete "
         "step over all ranks, 10 a second at most: faster ones are left out; not resumable)."},
        {"last_event_id", "integer", "Resume after this event; the header Last-Event-ID wins."}};
    route.headers = {{"Last-Event-ID", "integer", "Resume after this event."}};
    return route;
}

}  // namespace lockstep
