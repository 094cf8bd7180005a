// Signing in to the web page and out of it.
#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/digest.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

HttpResponse nobody_signs_in() {
    return problem(Error{Errc::not_found, "this daemon has no sessions"});
}

// The cookie goes where the browser sees /v1/ (its default path, RFC 6265 §5.1.4), under whatever
// prefix a proxy puts before it; the page itself needs none.
std::string cookie_line(const HttpRequest& request, std::string_view secret, std::int64_t seconds) {
    std::string out = session_cookie_name(request.header("host"));
    out.append("=").append(secret).append("; Max-Age=").append(std::to_string(seconds));
    out += "; HttpOnly; SameSite=Strict";
    if (request.secure || same_token(request.header("x-forwarded-proto"), "https")) {
        out += "; Secure";
    }
    return out;
}

HttpResponse make_code(PageSessions* sessions, const HttpRequest& request) {
    if (sessions == nullptr) {
        return nobody_signs_in();
    }
    const auto made = sessions->make_code(request.principal);
    if (!made) {
        return problem(made.error());
    }
    Json json = Json::object();
    json["code"] = made->code;
    json["expires_at"] = to_rfc3339(made->expires_at);
    return json_response(dump_json(json), 201);
}

Task<HttpResponse> sign_in(RouteContext context, HttpRequest request) {
    if (context.sessions == nullptr) {
        co_return nobody_signs_in();
    }
    const auto json = parse_json(request.body);
    if (!json) {
        co_return problem(json.error());
    }
    if (!json->is_object()) {
        co_return problem(Error{Errc::invalid, "the body must be an object"});
    }
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::string code;
    std::string token;
    in.string("code", code, limits::kTextBytes);
    in.string("token", token, limits::kTextBytes * 2);
    if (in.has("code") == in.has("token")) {
        in.error("code", "either a code or a token");
    }
    in.finish();
    if (!errors.empty()) {
        co_return problem(field_errors(std::move(errors)));
    }
    Task<Result<PageSessions::Opened>> opening =
        in.has("code") ? context.sessions->open_by_code(std::move(code))
                       : context.sessions->open_by_token(std::move(token));
    const auto opened = co_await std::move(opening);
    if (!opened) {
        const Errc error = opened.error().code;
        const int status = error == Errc::denied ? 401 : storing_status_of(error);
        HttpResponse refused = problem(opened.error(), status);
        if (status == 401) {
            refused.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"lockstep\"");
        }
        co_return refused;
    }
    HttpResponse response = json_response(whoami_text(context, opened->principal));
    // Also where the token ends sooner: who still sends the cookie is told why it counts no more.
    response.headers.emplace_back(
        "Set-Cookie", cookie_line(request, opened->secret, limits::kPageSessionSeconds));
    co_return response;
}

Task<HttpResponse> sign_out(RouteContext context, HttpRequest request) {
    if (context.sessions == nullptr) {
        co_return nobody_signs_in();
    }
    if (const auto cookie = session_cookie(request); !cookie.empty()) {
        std::string hash = sha256_hex(cookie);
        const Status closed = co_await context.sessions->close(std::move(hash));
        if (!closed) {
            co_return problem(closed.error());
        }
    }
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("Set-Cookie", cookie_line(request, "", 0));
    co_return response;
}

}  // namespace

RouteParts create_sign_in_code_route(const RouteContext& context) {
    RouteParts route;
    route.handler = FastHandler{[sessions = context.sessions](const HttpRequest& request) {
        return make_code(sessions, request);
    }};
    route.summary =
        "Create a single-use code, valid for one minute, that signs a browser in with the rights "
        "of the caller's token; the session ends with that token. Used by lockstep open.";
    return route;
}

RouteParts sign_in_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return sign_in(context, std::move(request)); }};
    route.summary =
        "Sign a browser in with a code or a token: 200 and a cookie of 7 days, HttpOnly and "
        "SameSite=Strict, that stands for the token. Every write with the cookie needs the header "
        "X-Lockstep-Request: 1.";
    route.answer_headers = {{"Set-Cookie", "string", "The session's cookie."}};
    return route;
}

RouteParts sign_out_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return sign_out(context, std::move(request)); }};
    route.summary = "End the session of the cookie; without a session this has no effect.";
    route.headers = {{"X-Lockstep-Request",
                      "string",
                      "Proof that the request was not sent by another site.",
                      {"1"}}};
    route.answer_headers = {{"Set-Cookie", "string", "The cookie without a value, which ends it."}};
    return route;
}

}  // namespace lockstep
