// What a request must pass before its handler: the checks of Session, in their order.
#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/server/agent_socket.hpp"
#include "daemon/http/server/session.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

bool takes_body(Method method) {
    return method == Method::post || method == Method::put || method == Method::patch;
}

}  // namespace

Session::Verdict Session::refusal(HttpResponse response, bool close) {
    Verdict verdict;
    verdict.refusal = std::move(response);
    verdict.close = close;
    return verdict;
}

Session::Verdict Session::judge() {
    if (auto bad = parse_head({in_.data(), head_size_}, request_.head)) {
        request_.head.clear();
        return refusal(protocol_problem(bad->status, bad->detail), true);
    }
    const Method method = request_.head.method;
    if (method == Method::other) {
        return refusal(protocol_problem(501, "unknown method"), true);
    }
    if (method == Method::connect || method == Method::trace) {
        auto response = protocol_problem(405, "this method is not supported");
        response.headers.emplace_back("Allow", "GET, HEAD, POST, PUT, DELETE");
        return refusal(std::move(response), true);
    }
    if (auto bad = split_target(request_)) {
        return refusal(protocol_problem(bad->status, bad->detail), true);
    }
    if (!host_allowed(request_.header("host"))) {
        return refusal(
            protocol_problem(421, "this daemon does not serve that Host; see --allowed-host"),
            true);
    }
    const auto match = server_.router().match(method, request_);
    if (!match.path_known || (match.route != nullptr && !surface_serves(*match.route))) {
        return refusal(protocol_problem(404, "there is no such path"), false);
    }
    if (match.route == nullptr) {
        auto response = protocol_problem(405, "the path does not take this method");
        response.headers.emplace_back("Allow", server_.router().allowed_methods(request_));
        return refusal(std::move(response), false);
    }
    Verdict verdict;
    verdict.route = match.route;
    verdict.index = match.index;
    verdict.refusal = check_caller(*match.route);
    if (!verdict.refusal && with_token_ && !admitted_.known(request_.principal.user)) {
        server_.metrics().turned_away(telemetry::TurnedAway::full);
        Error error{Errc::exhausted, "you have " +
                                         std::to_string(server_.limits().user_connections) +
                                         " connections open and at work: close one"};
        error.retry_after_s = 1;
        verdict.refusal = problem(error, 429);
        verdict.close = true;
    }
    if (!verdict.refusal) {
        verdict.refusal = check_body(*match.route);
    }
    return verdict;
}

bool Session::host_allowed(std::string_view host) const {
    const auto name = host_without_port(host);
    if (name.empty()) {
        return false;
    }
    // An address cannot be rebound by a name server, so the one the client reached is good.
    if (name == local_ || same_token(name, "localhost") || name == "127.0.0.1" || name == "[::1]") {
        return true;
    }
    const auto& allowed = server_.settings().allowed_hosts;
    return std::any_of(allowed.begin(), allowed.end(),
                       [name](const std::string& one) { return same_token(one, name); });
}

bool Session::surface_serves(const Route& route) const {
    switch (surface_) {
        case Surface::all:
            return true;
        case Surface::agents:
            return route.scope == Scope::agent;
        case Surface::metrics:
            return route.scope == Scope::metrics ||
                   (route.scope == Scope::open && !route.for_people);
    }
    return false;
}

std::optional<HttpResponse> Session::check_origin(const Route& route, bool with_cookie) const {
    if (route.method == Method::get) {
        return std::nullopt;
    }
    const auto origin = request_.header("origin");
    if (!origin.empty()) {
        const auto host = request_.header("host");
        const auto at = origin.find("://");
        if (at == std::string_view::npos || !same_token(origin.substr(at + 3), host)) {
            return protocol_problem(403, "requests from other origins are refused");
        }
    }
    // A browser adds the cookie by itself, but no other site's page can add this header.
    if (with_cookie && request_.header("x-lockstep-request") != "1") {
        return protocol_problem(403,
                                "a write with a cookie needs the header X-Lockstep-Request: 1");
    }
    return std::nullopt;
}

std::optional<HttpResponse> Session::check_caller(const Route& route) {
    request_.principal = {};
    with_token_ = false;
    request_.remote.assign(remote_);
    request_.secure = socket_.secure();
    const auto authorization = request_.header("authorization");
    const auto cookie = server_.settings().by_cookie && authorization.empty()
                            ? session_cookie(request_)
                            : std::string_view{};
    with_cookie_ = !cookie.empty();
    if (auto refused = check_origin(route, with_cookie_)) {
        return refused;
    }
    if (route.scope == Scope::open || route.scope == Scope::agent) {
        return std::nullopt;  // an agent's ticket is checked by the gate
    }
    const auto token = bearer_token(authorization);
    // Who a proxy on this machine speaks for may be anywhere.
    const bool forwarded =
        !request_.header("x-forwarded-for").empty() || !request_.header("forwarded").empty();
    if (route.without_token && server_.settings().metrics_open && near_ && !forwarded &&
        authorization.empty() && !with_cookie_) {
        return std::nullopt;  // Prometheus without credentials; a wrong token is still refused
    }
    std::optional<Principal> principal;
    if (with_cookie_) {
        principal = server_.settings().by_cookie(token_.hash(cookie));
    } else if (!token.empty()) {
        principal = server_.authenticator()(token_.hash(token));
    }
    if (!principal) {
        const bool shown = with_cookie_ || !token.empty();
        if (with_cookie_ || !authorization.empty()) {
            const bool known = server_.settings().whose && shown;
            note_refusal(
                with_cookie_ ? "cookie" : "token", request_.path,
                known ? server_.settings().whose(token_.last_hash(), with_cookie_) : AuditOwner{});
        }
        const bool named = server_.settings().why_refused && shown;
        const std::string why =
            named ? server_.settings().why_refused(token_.last_hash(), with_cookie_) : "";
        auto response = protocol_problem(
            401, why.empty() ? "a valid token is needed: Authorization: Bearer …" : why);
        response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"lockstep\"");
        return response;
    }
    request_.principal = std::move(*principal);
    if (!allows(request_.principal, route, request_)) {
        return problem(Error{Errc::denied, "this needs the scope " +
                                               std::string{to_string(route.scope)} + "; the role " +
                                               std::string{to_string(request_.principal.role)} +
                                               " or this token does not have it"});
    }
    with_token_ = true;
    return std::nullopt;
}

// Before the handler takes the request with it.
std::optional<AuditEntry> Session::change_of(const Route* route) const {
    if (server_.settings().audit == nullptr || route == nullptr || route->method == Method::get ||
        route->changes_nothing) {
        return std::nullopt;
    }
    const Principal& who = request_.principal;
    if (who.user.empty() && route->scope != Scope::open) {
        return std::nullopt;  // refused, which has been answered already
    }
    AuditEntry out{who.user, who.token, who.session, remote_, route->operation, request_.path};
    if (route->operation == "revokeToken" && server_.settings().token_user) {
        out.owner = server_.settings().token_user(std::string{request_.param()});
    }
    return out;
}

void Session::note_change(AuditEntry change, const HttpResponse& response) {
    constexpr int kFirstFailure = 400;
    if (change.user.empty()) {
        // A sign-in, which is not limited, or a sign-out without a session.
        if (response.status >= kFirstFailure) {
            note_refusal(change.operation, change.path);
            return;
        }
        const auto who = parse_json(response.text());
        change.user = who && who->is_object() ? who->value("user", "") : "";
        if (change.user.empty()) {
            return;
        }
    }
    const auto made = std::find_if(response.headers.begin(), response.headers.end(),
                                   [](const auto& header) { return header.first == "Location"; });
    server_.settings().audit->answered(
        change, response.status,
        made == response.headers.end() ? std::string_view{} : made->second);
}

void Session::note_refusal(std::string_view what, const std::string& path,
                           const AuditOwner& owner) {
    server_.metrics().token_refused();
    if (server_.settings().audit != nullptr) {
        server_.settings().audit->refused(what, remote_, path, owner);
    }
}

std::optional<HttpResponse> Session::check_body(const Route& route) const {
    const auto expect = request_.header("expect");
    if (!expect.empty() && !same_token(expect, "100-continue")) {
        return protocol_problem(417, "only Expect: 100-continue is understood");
    }
    const auto length = request_.head.content_length;
    if (const auto most = route.largest_body(); length > most) {
        return protocol_problem(413,
                                route.request_schema.empty()
                                    ? "this request takes no body"
                                    : "the body is larger than " + std::to_string(most) + " bytes");
    }
    if (length == 0 || !takes_body(route.method)) {
        return std::nullopt;
    }
    auto type = request_.header("content-type");
    type = trim(type.substr(0, type.find(';')));
    if (!same_token(type, "application/json")) {
        return protocol_problem(415, "the body must be application/json");
    }
    return std::nullopt;
}

std::optional<HttpResponse> Session::upgrade() {
    const auto& head = request_.head;
    if (!has_token(head.header("upgrade"), "websocket") ||
        !has_token(head.header("connection"), "upgrade") ||
        head.header("sec-websocket-version") != "13") {
        auto response = protocol_problem(426, "this path speaks WebSocket (RFC 6455) only");
        response.headers.emplace_back("Upgrade", "websocket");
        response.headers.emplace_back("Sec-WebSocket-Version", "13");
        return response;
    }
    if (head.http_10 || head.content_length > 0 || head.header("sec-websocket-key").size() != 24) {
        return protocol_problem(400, "not a WebSocket upgrade");
    }
    const auto ticket = bearer_token(head.header("authorization"));
    if (ticket.empty() || server_.gate() == nullptr || server_.stopping()) {
        return protocol_problem(ticket.empty() ? 401 : 503,
                                "agents must send their attempt's ticket");
    }
    const auto agent = std::make_shared<AgentSocket>(server_);
    auto opened = server_.gate()->open(token_.hash(ticket), agent, remote_);
    if (!opened) {
        const Errc code = opened.error().code;
        const bool unknown = code == Errc::denied || code == Errc::not_found;
        if (unknown) {
            note_refusal("ticket", request_.path);
        }
        return problem(opened.error(), unknown ? 401 : code == Errc::conflict ? 403 : 503);
    }
    std::string key{head.header("sec-websocket-key")};
    std::string received{in_.data() + head_size_, in_size_ - head_size_};
    server_.tasks().spawn("agent socket", agent->run(agent, std::move(socket_), std::move(key),
                                                     std::move(received), std::move(*opened)));
    return std::nullopt;
}

}  // namespace lockstep
