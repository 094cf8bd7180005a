// size: one document, a function for each of its parts
#include "daemon/http/routes/openapi.hpp"

#include "daemon/http/base/problem.hpp"
#include "daemon/telemetry/series/rank_metrics.hpp"
#include "job/base/check.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"
#include "job/model/spec/spec_schema.hpp"
#include "job/model/state.hpp"

#include <map>
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

// What kRankMetrics adds to the schema or the example of a rank: behind its step the metrics that
// may be NaN, behind the age of its report those that are 0 or more.
template <class ValueOf>
Json with_rank_metrics(const Json& members, const ValueOf& value_of) {
    Json out = Json::object();
    const auto add = [&out, &value_of](telemetry::Answered kind) {
        for (const telemetry::RankMetric& row : telemetry::kRankMetrics) {
            if (row.answered == kind) {
                out[std::string{row.name}] = value_of(row);
            }
        }
    };
    for (const auto& [name, value] : members.items()) {
        out[name] = value;
        if (name == "step") {
            add(telemetry::Answered::any);
        } else if (name == "report_age_seconds") {
            add(telemetry::Answered::positive);
        }
    }
    return out;
}

Json metric_schema(const telemetry::RankMetric& row) {
    Json schema = Json::object();
    if (row.answered == telemetry::Answered::any) {
        schema = reference("LooseNumber");
    } else {
        schema["type"] = "number";
        schema["minimum"] = 0;
    }
    schema["description"] = row.description;
    return schema;
}

Json examples() {
    Json out = parse_json(openapi_examples()).value();
    Json& rank = out["Ranks"]["items"][0];
    rank = with_rank_metrics(rank, [](const auto& row) { return row.example; });
    return out;
}

// `example`: a name in examples(); none of it is no error, the lint of the document says so.
Json content(std::string_view type, Json schema, std::string_view example) {
    static const Json kExamples = examples();
    Json json = Json::object();
    Json& body = json[std::string{type}];
    body["schema"] = std::move(schema);
    if (const auto found = kExamples.find(example); found != kExamples.end()) {
        body["example"] = *found;
    }
    return json;
}

// A specification is answered as it is kept, which is not what may be sent: nothing is refused
// that a later version adds, and what has its default may be absent. Its schemas are those of a
// request with this behind their names.
constexpr std::string_view kAnswer = "Answer";

std::string answered(const std::string& schema) {
    return spec_schemas().contains(schema) ? schema + std::string{kAnswer} : schema;
}

// What is always there, beside what must be sent.
const std::map<std::string, std::vector<std::string>>& always_answered() {
    static const std::map<std::string, std::vector<std::string>> kMembers{
        {"JobSpec", {"resources", "environment", "capture", "labels"}},
        {"Resources", {"nodes", "ranks_per_node", "gpus_per_node", "cpus_per_rank"}}};
    return kMembers;
}

Json answered_schema(const Json& sent) {
    if (!sent.is_object()) {
        return sent;
    }
    Json out = Json::object();
    for (const auto& [key, value] : sent.items()) {
        if (key == "$ref") {
            out[key] = value.get<std::string>() + std::string{kAnswer};
        } else if (key == "properties") {
            for (const auto& [name, property] : value.items()) {
                out[key][name] = answered_schema(property);
            }
        } else if (key == "items") {
            out[key] = answered_schema(value);
        } else if (key != "default" && (key != "additionalProperties" || value.is_object())) {
            out[key] = value;
        }
    }
    if (const auto fallback = sent.find("default"); fallback != sent.end()) {
        out["description"] =
            out.value("description", std::string{}) + " Absent: " + dump_json(*fallback) + ".";
    }
    return out;
}

void add_spec_schemas(Json& schemas) {
    for (const auto& [name, schema] : spec_schemas().items()) {
        schemas[name] = schema;
    }
    for (const auto& [name, schema] : spec_schemas().items()) {
        Json answer = answered_schema(schema);
        if (name == "JobSpec") {
            answer["description"] =
                "A specification as it is kept: a member that is absent has "
                "its default, and each job of a sweep has its own.";
            answer["properties"].erase("sweep");
        }
        if (const auto more = always_answered().find(name); more != always_answered().end()) {
            for (const std::string& member : more->second) {
                answer["required"].push_back(member);
            }
        }
        schemas[name + std::string{kAnswer}] = std::move(answer);
    }
}

// Bounds and default as the description has them for people: "1..4000; 800 if not given".
void add_bounds(Json& schema, const ParameterDoc& doc) {
    const std::string_view text = doc.description;
    const bool number = doc.type == "integer" || doc.type == "number";
    const auto dots = text.find("..");
    if (number && dots != std::string_view::npos) {
        const auto digits = [](char c) { return c >= '0' && c <= '9'; };
        auto begin = dots;
        while (begin > 0 && digits(text[begin - 1])) {
            --begin;
        }
        auto end = dots + 2;
        while (end < text.size() && digits(text[end])) {
            ++end;
        }
        const auto low = to_int(text.substr(begin, dots - begin));
        const auto high = to_int(text.substr(dots + 2, end - dots - 2));
        if (low && high) {
            schema["minimum"] = *low;
            schema["maximum"] = *high;
        }
    }
    constexpr std::string_view kFallback = " if not given";
    const auto fallback = text.find(kFallback);
    if (number && fallback != std::string_view::npos) {
        const auto word = text.substr(0, fallback).rfind(' ');
        if (const auto value = to_int(text.substr(word + 1, fallback - word - 1))) {
            schema["default"] = *value;
        }
    }
    if (!doc.values.empty()) {
        schema["enum"] = doc.values;
    }
}

// What a stream of server-sent events may bring: OpenAPI has no words for it.
Json stream_events() {
    Json out = Json::object();
    const auto add = [&out](std::string name, std::string_view topic, std::string_view schema,
                            std::string_view description) {
        Json& event = out[std::move(name)];
        event["topics"] = topic;
        event["description"] = description;
        event["data"] = reference(schema);
    };
    for (std::size_t kind = 0; kind < kEventKinds; ++kind) {
        add(std::string{to_string(static_cast<EventKind>(kind))}, "jobs, job.<id>", "Event",
            "Stored; its id resumes the stream.");
    }
    add("removed", "jobs, job.<id>", "JobGone",
        "The job was removed, with its events. Sent once, without an id, and not sent again to who "
        "resumes: after a break GET /v1/jobs says which jobs are there.");
    add("ranks", "ranks.<id>", "RanksSnapshot",
        "The first 256 ranks as they are now, at most five times a second; without an id.");
    add("steps", "steps.<id>.<metric>", "StepColumn",
        "A step that all ranks have reported, at most ten a second and metric, the newest wins; "
        "without an id. A slow reader misses the oldest.");
    return out;
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
    add_bounds(json["schema"], doc);
    return json;
}

std::string_view example_name(const Route& route) {
    return route.path.starts_with("/assets/")                   ? "app-0123ABCD.js"
           : route.path.find("/evidence/") != std::string::npos ? "python.txt"
           : route.path.find("/profiles/") != std::string::npos ? "stacks.txt"
                                                                : "n1";
}

Json parameters(const Route& route) {
    Json list = Json::array();
    std::string_view rest = route.path;
    for (auto open = rest.find('{'); open != std::string_view::npos; open = rest.find('{')) {
        const auto close = rest.find('}');
        const std::string name{rest.substr(open + 1, close - open - 1)};
        const bool token = route.path.starts_with("/v1/tokens/");
        const std::string what = name != "id" ? "Its name."
                                 : token      ? "The token's id, tk-…"
                                              : "The job's id, ls-…";
        list.push_back(parameter({name, "string", what}, "path"));
        list.back()["example"] = name != "id" ? example_name(route)
                                 : token      ? "tk-08a899ae30ff"
                                              : "ls-01M7Y0TEBE6RGPKNAPWHDXZPKF";
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
    if (route.scope != Scope::open && route.scope != Scope::agent) {
        out.insert(429);  // all connections that the user may have are at work
    }
    if (!route.request_schema.empty()) {
        out.insert({411, 413, 415, 503});
    }
    return out;
}

Json answer_headers(const std::vector<ParameterDoc>& docs) {
    Json out = Json::object();
    for (const ParameterDoc& doc : docs) {
        Json& header = out[doc.name];
        header["description"] = doc.description;
        header["schema"]["type"] = doc.type;
        add_bounds(header["schema"], doc);
    }
    return out;
}

// Of every problem of the status, whichever route answers it (problem.cpp, session_checks.cpp).
std::vector<ParameterDoc> failure_headers(int status) {
    switch (status) {
        case 401:
            return {{"WWW-Authenticate", "string", "How to sign in: a bearer token."}};
        case 426:
            return {{"Upgrade", "string", "The protocol to ask for: websocket."},
                    {"Sec-WebSocket-Version", "string", "The version to ask for: 13."}};
        case 429:
            return {{"Retry-After", "integer",
                     "Seconds until it is worth trying again; absent where that is not known, as "
                     "when the user's jobs take as much of the disk as one user's may."}};
        case 503:
            return {{"Retry-After", "integer", "Seconds until it is worth trying again."}};
        default:
            return {};
    }
}

Json responses(const Route& route) {
    Json json = Json::object();
    Json good = Json::object();
    good["description"] = route.success == 101 ? std::string{"Switching Protocols"}
                                               : std::string{reason_phrase(route.success)};
    if (!route.response_schema.empty()) {
        const std::string schema = answered(route.response_schema);
        good["content"] = content(route.response_type, reference(schema), schema);
    } else if (!route.response_type.empty()) {
        Json schema = Json::object();
        schema["type"] = route.response_type == content_type::kJson ? "object" : "string";
        good["content"] = content(route.response_type, std::move(schema), route.operation);
    }
    Json headers = answer_headers(route.answer_headers);
    if (!headers.empty()) {
        good["headers"] = headers;
    }
    json[std::to_string(route.success)] = std::move(good);
    if (route.not_modified) {
        json["304"]["description"] = reason_phrase(304);
        json["304"]["headers"] = std::move(headers);
    }
    for (const int status : failures_of(route)) {
        Json bad = Json::object();
        bad["description"] = reason_phrase(status);
        if (Json sent = answer_headers(failure_headers(status)); !sent.empty()) {
            bad["headers"] = std::move(sent);
        }
        bad["content"] = content(content_type::kProblem, reference("Problem"), "");
        json[std::to_string(status)] = std::move(bad);
    }
    return json;
}

Json operation(const Route& route) {
    Json json = Json::object();
    json["operationId"] = route.operation;
    json["summary"] = route.summary;
    if (!route.tag.name.empty()) {
        json["tags"] = Json::array({route.tag.name});
    }
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
            content(content_type::kJson, reference(route.request_schema), route.request_schema);
    }
    json["responses"] = responses(route);
    if (route.response_type == content_type::kEvents) {
        json["x-lockstep-events"] = stream_events();
    }
    return json;
}

void describe_states(Json& schema) {
    std::string description;
    Json& names = schema["enum"] = Json::array();
    for (const JobStateRow& row : kJobStateRows) {
        names.push_back(row.name);
        if (!row.description.empty()) {
            description.append(row.name).append(": ").append(row.description).append("; ");
        }
    }
    constexpr std::size_t kFinal = 3;
    static_assert(
        [] {
            for (std::size_t i = 0; i < kJobStates; ++i) {
                if (kJobStateRows[i].final != (i >= kJobStates - kFinal)) {
                    return false;
                }
            }
            return true;
        }(),
        "the sentence below says which are final");
    schema["description"] = description + "the last three are final.";
}

// In the order in which routes have them.
Json tags_of(const std::vector<Route>& routes) {
    Json out = Json::array();
    std::set<std::string_view> known;
    for (const Route& route : routes) {
        if (!route.tag.name.empty() && known.insert(route.tag.name).second) {
            Json tag = Json::object();
            tag["name"] = route.tag.name;
            tag["description"] = route.tag.description;
            out.push_back(std::move(tag));
        }
    }
    return out;
}

}  // namespace

std::string openapi_document(const std::vector<Route>& routes) {
    Json document = Json::object();
    document["openapi"] = "3.1.0";
    document["info"]["title"] = "Lockstep";
    document["info"]["version"] = kVersion;
    document["info"]["summary"] = "Multi-node training jobs: submit, watch, stop.";
    document["servers"] = Json::array({Json::object({{"url", "/"}})});
    document["security"] = Json::array(
        {Json::object({{"bearer", Json::array()}}), Json::object({{"session", Json::array()}})});
    document["tags"] = tags_of(routes);
    document["paths"] = Json::object();
    for (const auto& route : routes) {
        document["paths"][route.path][lower_word(route.method)] = operation(route);
    }
    auto schemas = parse_json(
        "{" + std::string{openapi_schemas()} + "," + std::string{openapi_evidence_schemas()} + "," +
        std::string{openapi_gpu_schemas()} + "," + std::string{openapi_cluster_schemas()} + "}");
    LOCKSTEP_CHECK(schemas.has_value());
    add_spec_schemas(*schemas);
    Json& rank = (*schemas)["Rank"]["properties"];
    rank = with_rank_metrics(rank, metric_schema);
    Json commanded = (*schemas)["Job"];
    commanded["description"] = "The job after a command.";
    Json& already = commanded["properties"]["already_done"];
    already["type"] = "boolean";
    already["description"] =
        "true: the command had been done before, under this Idempotency-Key; nothing was done now. "
        "Absent: it was done now.";
    (*schemas)["JobCommanded"] = std::move(commanded);
    Json part = (*schemas)["Job"];
    part.erase("required");
    part["description"] = "A job in a list that was asked for with fields: it has those members.";
    (*schemas)["JobPart"] = std::move(part);
    describe_states((*schemas)["JobState"]);
    Json& kinds = (*schemas)["Event"]["properties"]["kind"]["enum"];
    for (std::size_t kind = 0; kind < kEventKinds; ++kind) {
        kinds.push_back(to_string(static_cast<EventKind>(kind)));
    }
    document["components"]["schemas"] = std::move(*schemas);
    Json& bearer = document["components"]["securitySchemes"]["bearer"];
    bearer["type"] = "http";
    bearer["scheme"] = "bearer";
    Json& cookie = document["components"]["securitySchemes"]["session"];
    cookie["type"] = "apiKey";
    cookie["in"] = "cookie";
    cookie["name"] = "lockstep_session";
    cookie["description"] =
        "The web page's, from POST /v1/session; its name ends in _ and the port of the Host "
        "header, "
        "if that has one. Every write with it needs the header X-Lockstep-Request: 1.";
    return dump_json(document);
}

}  // namespace lockstep
