#include "daemon/http/base/problem.hpp"
#include "daemon/http/routes/openapi.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/json.hpp"
#include "job/base/version.hpp"

#include <memory>
#include <utility>

namespace lockstep {
namespace {

Task<HttpResponse> ready(Control& control) {
    const auto status = co_await control.ready();
    if (!status) {
        Error error = status.error();
        error.code = Errc::unavailable;
        co_return problem(error);
    }
    co_return json_response(std::string{R"({"status":"ready"})"});
}

}  // namespace

void add_system_routes(Router& router, const RouteContext& context) {
    Control& control = context.control;
    Route route;
    route.path = "/v1/agent";
    route.scope = Scope::agent;
    route.handler = AgentUpgrade{};
    route.operation = "connectAgent";
    route.summary = "WebSocket of lockstep-agent; the bearer is its attempt's ticket.";
    route.response_type = "";
    route.success = 101;
    route.failures = {426, 503};
    router.add(std::move(route));

    route = Route{};
    route.path = "/healthz";
    route.scope = Scope::open;
    route.handler = FastHandler{[](const HttpRequest&) {
        return json_response(R"({"status":"ok","version":")" + std::string{kVersion} + "\"}");
    }};
    route.operation = "getHealth";
    route.summary = "Whether the daemon answers.";
    route.response_schema = "Health";
    router.add(std::move(route));

    route = Route{};
    route.path = "/readyz";
    route.scope = Scope::open;
    route.handler = SlowHandler{[&control](HttpRequest) { return ready(control); }};
    route.operation = "getReadiness";
    route.summary = "Whether jobs can be accepted: store writable, scheduler reachable.";
    route.response_schema = "Health";
    route.failures = {503};
    router.add(std::move(route));
}

void add_routes(Router& router, const RouteContext& context) {
    add_job_routes(router, context);
    add_view_routes(router, context);
    add_series_routes(router, context);
    add_log_search_routes(router, context);
    add_evidence_routes(router, context);
    add_removal_routes(router, context);
    add_cluster_routes(router, context);
    add_token_routes(router, context);
    add_secret_routes(router, context);
    add_identity_routes(router, context);
    add_system_routes(router, context);
    add_metrics_routes(router, context);
    add_session_routes(router, context);
    add_web_routes(router, context);
    // Last: the document describes every route, itself included.
    const auto text = std::make_shared<std::string>();
    Route route;
    route.path = "/openapi.json";
    route.scope = Scope::open;
    route.handler = FastHandler{[text](const HttpRequest&) {
        HttpResponse response = json_response(std::shared_ptr<const std::string>{text});
        response.cache_control = "no-cache";
        return response;
    }};
    route.operation = "getOpenApi";
    route.summary = "This document.";
    router.add(std::move(route));
    *text = openapi_document(router.routes());
}

}  // namespace lockstep
