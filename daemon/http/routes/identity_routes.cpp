// Who the caller is, and in whose name their jobs run.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/identities.hpp"
#include "scheduler-integration/signatures.hpp"

#include <utility>

namespace lockstep {
namespace {

HttpResponse whoami(const RouteContext& context, const HttpRequest& request) {
    return json_response(whoami_text(context, request.principal));
}

Error acts_as_itself() {
    return {Errc::not_found,
            "this lockstepd submits jobs as its own user; it accepts users' Slurm tokens only with "
            "--scheduler slurmrestd"};
}

HttpResponse put_token(const RouteContext& context, const HttpRequest& request) {
    Identities* const identities = context.identities;
    if (identities == nullptr) {
        return problem(acts_as_itself());
    }
    const auto json = parse_json(request.body);
    if (!json) {
        return problem(json.error());
    }
    if (!json->is_object()) {
        return problem({Errc::invalid, "the body must be an object"});
    }
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    std::string token;
    if (!in.has("token")) {
        in.error("token", "is missing");
    }
    in.string("token", token, limits::kSlurmTokenBytes);
    in.finish();
    if (!errors.empty()) {
        return problem(field_errors(std::move(errors)));
    }
    if (const Status kept = identities->put(request.principal.user, token); !kept) {
        return problem(kept.error().code == Errc::invalid
                           ? field_errors({{"/token", kept.error().message}})
                           : kept.error());
    }
    return whoami(context, request);
}

HttpResponse forget_token(Identities* identities, const HttpRequest& request) {
    const Status done = identities == nullptr ? Status{fail(acts_as_itself())}
                                              : identities->forget(request.principal.user);
    if (!done) {
        return problem(done.error());
    }
    HttpResponse response;
    response.status = 204;
    return response;
}

}  // namespace

std::string whoami_text(const RouteContext& context, const Principal& who) {
    const Identities* const identities = context.identities;
    Json json = Json::object();
    json["user"] = who.user;
    json["role"] = to_string(who.role);
    json["scopes"] = Json::array();
    for (const Scope scope : kTokenScopes) {
        if (allows(who, scope)) {
            json["scopes"].push_back(to_string(scope));
        }
    }
    if (!who.token.empty()) {
        json["token"] = who.token;
    }
    if (!who.session.empty()) {
        json["session"] = who.session;
    }
    if (who.expires_at != 0) {
        json["expires_at"] = to_rfc3339(who.expires_at);
    }
    if (const auto until =
            identities != nullptr ? identities->good_until(who.user) : std::nullopt) {
        Json slurm = Json::object();
        if (*until != 0) {
            slurm["expires_at"] = to_rfc3339(*until);
        }
        json["slurm_token"] = std::move(slurm);
    }
    json["identity"] = context.signatures != nullptr ? "lockstep-exec"
                       : identities != nullptr       ? "slurmrestd"
                                                     : "self";
    if (context.signatures != nullptr) {
        const Signing& signing = context.signatures->signing();
        json["signing"] = Json{{"audience", signing.audience}, {"gres", signing.gpus_as_gres}};
    }
    if (context.account.is_shared()) {
        json["shared_account"] = true;
        json["account"] = context.account.name;
    }
    if (!context.grafana_url.empty()) {
        json["grafana_url"] = context.grafana_url;
    }
    return dump_json(json);
}

RouteParts who_am_i_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        FastHandler{[context](const HttpRequest& request) { return whoami(context, request); }};
    route.summary = "The owner of the token and its rights.";
    return route;
}

RouteParts put_slurm_token_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        FastHandler{[context](const HttpRequest& request) { return put_token(context, request); }};
    route.summary =
        "Store the caller's Slurm token, used from now on to submit, follow and cancel the "
        "caller's jobs. It replaces the previous one. Only with --scheduler slurmrestd.";
    return route;
}

RouteParts forget_slurm_token_route(const RouteContext& context) {
    Identities* const identities = context.identities;
    RouteParts route;
    route.handler = FastHandler{
        [identities](const HttpRequest& request) { return forget_token(identities, request); }};
    route.summary =
        "Delete the caller's stored Slurm token. Running jobs continue; waiting jobs are not "
        "submitted and the end of running ones is not noticed until there is a new token.";
    return route;
}

}  // namespace lockstep
