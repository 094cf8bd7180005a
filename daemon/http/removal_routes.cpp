// Removing a job that is over, and what a job takes on disk.
#include "daemon/http/problem.hpp"
#include "daemon/http/query_reader.hpp"
#include "daemon/http/routes.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

Task<HttpResponse> remove_job(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    std::string checkpoints;
    in.text("checkpoints", checkpoints, limits::kTextBytes);
    if (!checkpoints.empty() && checkpoints != "keep" && checkpoints != "remove") {
        in.error("checkpoints", "must be keep or remove");
    }
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto done =
        co_await context.control.remove(caller_of(request), std::move(id), checkpoints == "keep");
    co_return json_or_problem(std::move(done));
}

Task<HttpResponse> disk_of(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto use = co_await context.control.disk(caller_of(request), std::move(id));
    co_return json_or_problem(std::move(use));
}

}  // namespace

void add_removal_routes(Router& router, const RouteContext& context) {
    Route route;
    route.method = Method::delete_;
    route.path = "/v1/jobs/{id}";
    route.scope = Scope::write;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return remove_job(context, std::move(request)); }};
    route.operation = "removeJob";
    route.summary =
        "Remove a job that is over: its record at once, then its logs, evidence, telemetry, the "
        "checkpoints in lockstepd's own folder and the snapshot that no other job uses. 409: it is "
        "not over, Slurm still holds it, or a job waits for it; 503: its agents are still leaving.";
    route.query = {
        {"checkpoints", "string", "keep: those below the runs directory stay; remove (default)."}};
    route.response_schema = "JobRemoved";
    route.failures = {404, 409, 503};
    router.add(std::move(route));

    route = Route{};
    route.path = "/v1/jobs/{id}/disk";
    route.scope = Scope::read;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return disk_of(context, std::move(request)); }};
    route.operation = "getJobDisk";
    route.summary =
        "What the job takes on disk, counted now: its folder in lockstepd's runs directory and its "
        "telemetry. What it writes elsewhere is not looked at.";
    route.response_schema = "JobDisk";
    route.failures = {404};
    router.add(std::move(route));
}

}  // namespace lockstep
