#include "daemon/http/openapi.hpp"

#include "daemon/http/problem.hpp"
#include "job/base/check.hpp"
#include "job/base/json.hpp"
#include "job/base/version.hpp"
#include "job/model/spec_schema.hpp"

#include <set>
#include <utility>

namespace lockstep {
namespace {

std::string lower_word(Method method) {
    std::string word{to_string(method)};
    for (char& c : word) {
        c = static_cast<char>(c - 'A' + 'a');
    }
    return word;
}

Json reference(std::string_view schema) {
    Json json = Json::object();
    json["$ref"] = "#/components/schemas/" + std::string{schema};
    return json;
}

Json content(std::string_view type, Json schema) {
    Json json = Json::object();
    json[std::string{type}]["schema"] = std::move(schema);
    return json;
}

Json parameter(const ParameterDoc& doc, std::string_view where) {
    Json json = Json::object();
    json["name"] = doc.name;
    json["in"] = where;
    if (where == "path") {
        json["required"] = true;
    }
    json["description"] = doc.description;
    json["schema"]["type"] = doc.type;
    return json;
}

Json parameters(const Route& route) {
    Json list = Json::array();
    std::string_view rest = route.path;
    for (auto open = rest.find('{'); open != std::string_view::npos; open = rest.find('{')) {
        const auto close = rest.find('}');
        const std::string name{rest.substr(open + 1, close - open - 1)};
        const bool token = route.path.starts_with("/v1/tokens/");
        list.push_back(parameter(
            {name, "string", token ? "The token's id, tk-…" : "The job's id, ls-…"}, "path"));
        rest.remove_prefix(close + 1);
    }
    for (const auto& doc : route.query) {
        list.push_back(parameter(doc, "query"));
    }
    for (const auto& doc : route.headers) {
        list.push_back(parameter(doc, "header"));
    }
    return list;
}

// What every route of the kind can answer beside its own failures.
std::set<int> failures_of(const Route& route) {
    std::set<int> out{400, 421, 500};
    out.insert(route.failures.begin(), route.failures.end());
    if (route.scope != Scope::open) {
        out.insert({401, 403});
    }
    if (!route.request_schema.empty()) {
        out.insert({411, 413, 415, 503});
    }
    return out;
}

Json responses(const Route& route) {
    Json json = Json::object();
    Json good = Json::object();
    good["description"] = route.success == 101 ? std::string{"Switching Protocols"}
                                               : std::string{reason_phrase(route.success)};
    if (!route.response_schema.empty()) {
        good["content"] = content(route.response_type, reference(route.response_schema));
    } else if (!route.response_type.empty()) {
        Json schema = Json::object();
        schema["type"] = route.response_type == content_type::kJson ? "object" : "string";
        good["content"] = content(route.response_type, std::move(schema));
    }
    json[std::to_string(route.success)] = std::move(good);
    for (const int status : failures_of(route)) {
        Json bad = Json::object();
        bad["description"] = reason_phrase(status);
        bad["content"] = content(content_type::kProblem, reference("Problem"));
        json[std::to_string(status)] = std::move(bad);
    }
    return json;
}

Json operation(const Route& route) {
    Json json = Json::object();
    json["operationId"] = route.operation;
    json["summary"] = route.summary;
    json["x-lockstep-scope"] = to_string(route.scope);
    if (route.scope == Scope::open) {
        json["security"] = Json::array();
    }
    Json list = parameters(route);
    if (!list.empty()) {
        json["parameters"] = std::move(list);
    }
    if (!route.request_schema.empty()) {
        json["requestBody"]["required"] = true;
        json["requestBody"]["content"] =
            content(content_type::kJson, reference(route.request_schema));
    }
    json["responses"] = responses(route);
    return json;
}

}  // namespace

std::string openapi_document(const std::vector<Route>& routes) {
    Json document = Json::object();
    document["openapi"] = "3.1.0";
    document["info"]["title"] = "Lockstep";
    document["info"]["version"] = kVersion;
    document["info"]["summary"] = "Multi-node training jobs: submit, watch, stop.";
    document["servers"] = Json::array({Json::object({{"url", "/"}})});
    document["security"] = Json::array({Json::object({{"bearer", Json::array()}})});
    document["paths"] = Json::object();
    for (const auto& route : routes) {
        document["paths"][route.path][lower_word(route.method)] = operation(route);
    }
    auto schemas = parse_json(openapi_schemas());
    LOCKSTEP_CHECK(schemas.has_value());
    document["components"]["schemas"] = std::move(*schemas);
    for (const auto& [name, schema] : spec_schemas().items()) {
        document["components"]["schemas"][name] = schema;
    }
    Json& bearer = document["components"]["securitySchemes"]["bearer"];
    bearer["type"] = "http";
    bearer["scheme"] = "bearer";
    return dump_json(document);
}

}  // namespace lockstep
