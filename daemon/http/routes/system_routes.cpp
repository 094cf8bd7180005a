#include "daemon/http/base/problem.hpp"
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

RouteParts connect_agent_route(const RouteContext&) {
    RouteParts route;
    route.handler = AgentUpgrade{};
    route.summary = "WebSocket of lockstep-agent; the bearer is its attempt's ticket.";
    return route;
}

RouteParts get_health_route(const RouteContext&) {
    RouteParts route;
    route.handler = FastHandler{[](const HttpRequest&) {
        return json_response(R"({"status":"ok","version":")" + std::string{kVersion} + "\"}");
    }};
    route.summary = "Whether the daemon answers.";
    return route;
}

RouteParts get_readiness_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        SlowHandler{[&control = context.control](HttpRequest) { return ready(control); }};
    route.summary =
        "Whether jobs can be accepted and begin: store and runs directory writable, scheduler "
        "reachable.";
    return route;
}

RouteParts get_openapi_route(const RouteContext& context) {
    RouteParts route;
    route.handler = FastHandler{[text = context.openapi](const HttpRequest&) {
        HttpResponse response = json_response(std::shared_ptr<const std::string>{text});
        response.cache_control = "no-cache";
        return response;
    }};
    route.summary = "This document.";
    return route;
}

}  // namespace lockstep
