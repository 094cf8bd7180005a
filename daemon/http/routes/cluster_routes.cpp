#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

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
    in.text("cursor", query.cursor, limits::kNodeCursorBytes);
    in.integer("limit", limit, 1, limits::kPage);
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    query.limit = static_cast<std::size_t>(limit);
    auto found = co_await context.control.nodes(caller_of(request), std::move(query));
    co_return found ? json_response(std::move(*found)) : problem(found.error());
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

RouteParts get_cluster_route(const RouteContext& context) {
    Control& control = context.control;
    RouteParts route;
    route.handler =
        FastHandler{[&control](const HttpRequest& request) { return cluster(control, request); }};
    route.summary =
        "The scheduler, its partitions, and how many nodes, CPUs and GPUs are free; from the last "
        "query; the request does not wait for the scheduler.";
    return route;
}

RouteParts list_nodes_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return nodes(context, std::move(request)); }};
    route.summary =
        "The scheduler's nodes by name, with the caller's jobs on them and the faults of each in "
        "the last 90 days.";
    route.query = {
        {"partition", "string", "Only nodes of this partition."},
        {"state", "string", "usable, unusable, idle, or a state as the scheduler names it."},
        {"limit", "integer", "Items in one answer, 1..1000; 500 if not given."},
        {"cursor", "string", "next_cursor of the answer before."}};
    return route;
}

RouteParts get_node_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        SlowHandler{[context](HttpRequest request) { return node(context, std::move(request)); }};
    route.summary =
        "One node, with the newest 50 occasions on which it was lost, at fault or excluded. For "
        "information only: no job is kept from the node because of them.";
    return route;
}

}  // namespace lockstep
