// GET /v1/jobs/{id}/logs/search: which ranks said this, and how often.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/logs/log_search.hpp"
#include "daemon/http/routes/folder_reads.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <filesystem>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

Task<HttpResponse> search(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    LogSearch ask;
    std::string which;
    bool regex = false;
    auto limit = static_cast<std::int64_t>(ask.limit);
    in.text("q", ask.text, limits::kPatternBytes);
    in.text("ranks", which, limits::kTextBytes * 8);
    in.boolean("regex", regex);
    in.integer("limit", limit, 1, limits::kLogFindings);
    if (ask.text.empty()) {
        in.error("q", "is missing");
    } else if (regex) {
        auto pattern = TextPattern::parse(ask.text);
        if (pattern) {
            ask.pattern = std::move(*pattern);
        } else {
            in.error("q", pattern.error().message);
        }
    }
    if (!which.empty() && which != "all") {
        auto set = parse_rank_set(which, limits::kRanks);
        if (set) {
            ask.ranks = std::move(*set);
        } else {
            in.error("ranks", set.error().message);
        }
    }
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    ask.limit = static_cast<std::size_t>(limit);
    const Caller caller = caller_of(request);
    const std::string id{request.param()};
    // The highest of the ranks asked for is looked up: then all of them are the job's.
    const std::int32_t highest = ask.ranks.empty() ? 0 : ask.ranks.back();
    const auto place = co_await context.control.log_place(caller, id, highest, 0);
    if (!place) {
        const bool none_yet = place.error().code == Errc::unavailable;
        co_return none_yet ? problem(place.error(), 404) : problem(place.error());
    }
    if (ask.ranks.empty()) {
        ask.ranks.resize(static_cast<std::size_t>(place->ranks));
        std::iota(ask.ranks.begin(), ask.ranks.end(), 0);
    }
    ask.folder = std::filesystem::path{place->path}.parent_path().string();
    std::string folder = ask.folder;
    std::function<HttpResponse()> work = [ask = std::move(ask)]() mutable {
        ask.until = std::chrono::steady_clock::now() + limits::kLogSearchPatience;
        return json_response(dump_json(search_logs(ask)));
    };
    co_return co_await read_aside(context, std::move(folder), std::move(work));
}

}  // namespace

RouteParts search_job_logs_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return search(context, std::move(request)); }};
    route.summary =
        "Which ranks printed a text, in the newest attempt that has begun: lines that differ only "
        "in numbers and addresses are one item. 64 MiB and 5 s at most, the newest of each rank's "
        "output.";
    route.query = {{"q", "string", "The text, as it stands in a line, 1..1024 bytes."},
                   {"regex", "boolean", "q is a regular expression (RE2; (?i) ignores case)."},
                   {"ranks", "string", "Which ranks, as 0-7,12; all if not given."},
                   {"limit", "integer", "Items in the answer, 1..500; 50 if not given."}};
    return route;
}

}  // namespace lockstep
