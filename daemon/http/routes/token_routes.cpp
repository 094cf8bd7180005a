#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// As a job's name; a user may also begin with _ and hold @.
bool is_name(std::string_view text, std::string_view first, std::string_view further) {
    const auto word = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    };
    return !text.empty() && text.size() <= 64 &&
           (word(text.front()) || first.find(text.front()) != std::string_view::npos) &&
           std::all_of(text.begin(), text.end(), [&](char c) {
               return word(c) || further.find(c) != std::string_view::npos;
           });
}

// "are metrics, read, write, secrets and admin"
std::string scopes_there_are() {
    std::string out = "are ";
    for (std::size_t i = 0; i < kTokenScopes.size(); ++i) {
        out += i == 0 ? "" : i + 1 < kTokenScopes.size() ? ", " : " and ";
        out += to_string(kTokenScopes[i]);
    }
    return out;
}

Result<TokenRequest> token_request(const HttpRequest& request) {
    const auto json = parse_json(request.body);
    LOCKSTEP_TRY(json);
    if (!json->is_object()) {
        return fail(Errc::invalid, "the body must be an object");
    }
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    TokenRequest out;
    std::vector<std::string> scopes;
    std::size_t role = static_cast<std::size_t>(out.role);
    std::int64_t seconds = limits::kTokenDefaultSeconds;
    if (!in.has("name")) {
        in.error("name", "is missing");
    }
    in.string("name", out.name, limits::kTextBytes);
    in.string("user", out.user, limits::kTextBytes);
    in.word("role", role, {to_string(Role::viewer), to_string(Role::user), to_string(Role::admin)});
    in.strings("scopes", scopes, kTokenScopes.size(), limits::kTextBytes);
    in.integer("expires_in", seconds, 1, limits::kTokenSeconds);
    if (errors.empty() && !is_name(out.name, "", "._-")) {
        in.error("name", "must match ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
    }
    if (errors.empty() && in.has("user") && out.user != request.principal.user &&
        !is_name(out.user, "_", "._@-")) {
        in.error("user", "must match ^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$");
    }
    out.role = static_cast<Role>(role);
    if (in.has("expires_in")) {
        out.expires_in = seconds;
    }
    if (in.has("scopes")) {
        out.scopes = 0;
        for (std::size_t i = 0; i < scopes.size(); ++i) {
            const auto scope = parse_token_scope(scopes[i]);
            if (!scope) {
                in.error("scopes", scopes_there_are());
                break;
            }
            out.scopes = static_cast<ScopeSet>(*out.scopes | bit(*scope));
        }
        if (scopes.empty()) {
            in.error("scopes", "must not be empty");
        }
    }
    in.finish();
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

Task<HttpResponse> create(TokenTable& tokens, HttpRequest request) {
    auto asked = token_request(request);
    if (!asked) {
        co_return problem(asked.error());
    }
    Principal by = request.principal;
    auto made = co_await tokens.create(std::move(by), std::move(*asked));
    if (!made) {
        co_return problem(made.error(), storing_status_of(made.error().code));
    }
    const std::string id = made->value("id", "");
    HttpResponse response = json_response(dump_json(*made), 201);
    response.headers.emplace_back("Location", "/v1/tokens/" + id);
    co_return response;
}

HttpResponse list_tokens(const TokenTable& tokens, const HttpRequest& request) {
    QueryReader in{request.query};
    TokenQuery query;
    std::int64_t limit = limits::kPageDefault;
    in.boolean("all", query.all);
    in.integer("limit", limit, 1, limits::kPage);
    in.text("cursor", query.cursor, limits::kCursorBytes);
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    query.limit = static_cast<std::size_t>(limit);
    const auto found = tokens.list(request.principal, query);
    return found ? json_response(dump_json(*found)) : problem(found.error());
}

Task<HttpResponse> revoke(TokenTable& tokens, HttpRequest request) {
    Principal by = request.principal;
    std::string id{request.param()};
    const auto done = co_await tokens.revoke(std::move(by), std::move(id));
    if (!done) {
        co_return problem(done.error(), storing_status_of(done.error().code));
    }
    HttpResponse response;
    response.status = 204;
    co_return response;
}

}  // namespace

RouteParts create_token_route(const RouteContext& context) {
    TokenTable& tokens = context.tokens;
    RouteParts route;
    route.handler =
        SlowHandler{[&tokens](HttpRequest request) { return create(tokens, std::move(request)); }};
    route.summary =
        "Create a token: for the caller, with at most the caller's rights; with the scope admin, "
        "for any user. It is revoked together with the token it was created with. Its secret is "
        "shown only in this answer.";
    route.answer_headers = {{"Location", "string", "Path of the token, to revoke it."}};
    return route;
}

RouteParts list_tokens_route(const RouteContext& context) {
    TokenTable& tokens = context.tokens;
    RouteParts route;
    route.handler =
        FastHandler{[&tokens](const HttpRequest& request) { return list_tokens(tokens, request); }};
    route.summary =
        "List the caller's tokens (administrators: all tokens), newest first, without their "
        "secrets.";
    route.query = {{"all", "boolean", "With those that are revoked or have expired."},
                   {"limit", "integer", "Items in one answer, 1..1000; 50 if not given."},
                   {"cursor", "string", "next_cursor of the answer before."}};
    return route;
}

RouteParts revoke_token_route(const RouteContext& context) {
    TokenTable& tokens = context.tokens;
    RouteParts route;
    route.handler =
        SlowHandler{[&tokens](HttpRequest request) { return revoke(tokens, std::move(request)); }};
    route.summary =
        "Revoke a token and all tokens created with it: further requests are refused at once, open "
        "streams end within a second. A token may always revoke itself. Repeating the request is "
        "not an error.";
    return route;
}

}  // namespace lockstep
