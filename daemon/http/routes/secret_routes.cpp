// One's own secrets: set, listed by name, removed. Their values go in and never come out; the only
// readers are the agents of one's jobs.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/secret_store.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <utility>

namespace lockstep {
namespace {

Json view_of(const SecretStore::About& secret) {
    Json json = Json::object();
    json["name"] = secret.name;
    json["set_at"] = to_rfc3339(secret.set_at);
    return json;
}

HttpResponse storage_problem(const Error& error) {
    return problem(error, storing_status_of(error.code));
}

Result<std::string> value_of(const HttpRequest& request) {
    const auto json = parse_json(request.body);
    LOCKSTEP_TRY(json);
    if (!json->is_object()) {
        return fail(Errc::invalid, "the body must be an object");
    }
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::string value;
    in.string("value", value, limits::kSecretBytes);
    if (!in.has("value")) {
        in.error("value", "is missing");
    } else if (const Status good = check_secret_value(value); errors.empty() && !good) {
        in.error("value", good.error().message);
    }
    in.finish();
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return value;
}

Task<HttpResponse> put_secret(SecretStore& secrets, HttpRequest request) {
    std::string name{request.param()};
    if (const Status good = check_secret_name(name); !good) {
        co_return problem(Error{Errc::invalid, "name: " + good.error().message});
    }
    auto value = value_of(request);
    if (!value) {
        co_return problem(value.error());
    }
    std::string user = request.principal.user;
    const auto kept = co_await secrets.put(std::move(user), std::move(name), std::move(*value));
    co_return kept ? json_response(dump_json(view_of(*kept))) : storage_problem(kept.error());
}

HttpResponse list_secrets(const SecretStore& secrets, const HttpRequest& request) {
    Json out = Json::object();
    out["items"] = Json::array();
    for (const SecretStore::About& secret : secrets.list(request.principal.user)) {
        out["items"].push_back(view_of(secret));
    }
    return json_response(dump_json(out));
}

Task<HttpResponse> remove_secret(SecretStore& secrets, HttpRequest request) {
    std::string name{request.param()};
    std::string user = request.principal.user;
    const Status gone = co_await secrets.remove(std::move(user), std::move(name));
    if (!gone) {
        co_return storage_problem(gone.error());
    }
    HttpResponse response;
    response.status = 204;
    co_return response;
}

}  // namespace

RouteParts list_secrets_route(const RouteContext& context) {
    SecretStore* const secrets = context.secrets;
    RouteParts route;
    route.handler = FastHandler{
        [secrets](const HttpRequest& request) { return list_secrets(*secrets, request); }};
    route.summary = "List the names of the caller's secrets, at most 100; never their values.";
    return route;
}

RouteParts put_secret_route(const RouteContext& context) {
    SecretStore* const secrets = context.secrets;
    RouteParts route;
    route.handler = SlowHandler{
        [secrets](HttpRequest request) { return put_secret(*secrets, std::move(request)); }};
    route.summary =
        "Set or replace a secret of the caller. Jobs that name it in `secrets` get it as an "
        "environment variable; running jobs get a new value only with their next attempt. It "
        "cannot be read back. Requires the scope secrets, which is not included in write.";
    return route;
}

RouteParts remove_secret_route(const RouteContext& context) {
    SecretStore* const secrets = context.secrets;
    RouteParts route;
    route.handler = SlowHandler{
        [secrets](HttpRequest request) { return remove_secret(*secrets, std::move(request)); }};
    route.summary =
        "Delete a secret of the caller. Running jobs keep it; a job that names it and has not "
        "started yet fails, with that as its cause.";
    return route;
}

}  // namespace lockstep
