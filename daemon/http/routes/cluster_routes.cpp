#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kNodeCursorBytes = 512;

HttpResponse cluster(Control& control, const HttpRequest& request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    return json_response(dump_json(control.cluster()));
}

Task<HttpResponse> nodes(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    NodeQuery query;
    std::int64_t limit = static_cast<std::int64_t>(query.limit);
    in.text("partition", query.partition, limits::kTextBytes);
    in.text("state", query.state, limits::kTextBytes);
    in.text("cursor", query.cursor, kNodeCursorBytes);
    in.integer("limit", limit, 1, limits::kPage);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    query.limit = static_cast<std::size_t>(limit);
    auto found = co_await context.control.nodes(caller_of(request), std::move(query));
    co_return found ? json_response(std::move(*found)) : query_problem(found.error());
}

Task<HttpResponse> node(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string name{request.param()};
    auto found = co_await context.control.node(caller_of(request), std::move(name));
    co_return json_or_problem(std::move(found));
}

}  // namespace

void add_cluster_routes(Router& router, const RouteContext& context) {
    Control& control = context.control;
    Route route;
    route.path = "/v1/cluster";
    route.scope = Scope::read;
    route.handler =
        FastHandler{[&control](const HttpRequest& request) { return cluster(control, request); }};
    route.operation = "getCluster";
    route.summary =
        "The scheduler, its partitions, and how many nodes, CPUs and GPUs are free; from the last "
        "query; the request does not wait for the scheduler.";
    route.response_schema = "Cluster";
    router.add(std::move(route));

    route = Route{};
    route.path = "/v1/nodes";
    route.scope = Scope::read;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return nodes(context, std::move(request)); }};
    route.operation = "listNodes";
    route.summary =
        "The scheduler's nodes by name, with the caller's jobs on them and the faults of each in "
        "the last 90 days.";
    route.query = {
        {"partition", "string", "Only nodes of this partition."},
        {"state", "string", "usable, unusable, idle, or a state as the scheduler names it."},
        {"limit", "integer", "Items in one answer, 1..1000; 500 if not given."},
        {"cursor", "string", "next_cursor of the answer before."}};
    route.response_schema = "NodePage";
    router.add(std::move(route));

    route = Route{};
    route.path = "/v1/nodes/{name}";
    route.scope = Scope::read;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return node(context, std::move(request)); }};
    route.operation = "getNode";
    route.summary =
        "One node, with the newest 50 occasions on which it was lost, at fault or excluded. For "
        "information only: no job is kept from the node because of them.";
    route.response_schema = "NodeDetail";
    route.failures = {404, 503};
    router.add(std::move(route));
}

}  // namespace lockstep
