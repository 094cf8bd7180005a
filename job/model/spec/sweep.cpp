#include "job/model/spec/sweep.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kNotSwept{"sweep", "after", "submission"};

// Fields whose values only the job's owner is shown.
constexpr std::array<std::string_view, 3> kOwnersOnly{"environment", "recorded_environment",
                                                      "notify"};

// What expand_placeholders (spec.hpp) fills in for each rank.
constexpr std::array<std::string_view, 7> kRanksOwn{
    "rank", "local_rank", "node_rank", "num_nodes", "world_size", "master_addr", "master_port"};

struct Parameter {
    std::string path;
    std::vector<std::string> keys;
    Json values;
    bool placeholder = false;  // stands as {path} in the document's texts; no field
    bool secret = false;       // sets one of kOwnersOnly, or a part of it
};

bool is_owners_only(std::string_view path) {
    const std::string_view first = path.substr(0, path.find('.'));
    return std::find(kOwnersOnly.begin(), kOwnersOnly.end(), first) != kOwnersOnly.end();
}

// What a value looks like where it takes a placeholder's place: a text without its quotes.
std::string value_words(const Json& value) {
    return value.is_string() ? value.get<std::string>() : dump_json(value);
}

// Calls `take` with every text in `json`, not with the names of fields. Its depth is that of a
// document which was parsed, so it is bounded.
template <class Document, class Take>
void each_text(Document& json, const Take& take) {
    if (json.is_string()) {
        take(json);
    } else if (json.is_structured()) {
        for (auto& item : json) {
            each_text(item, take);
        }
    }
}

// Recorded shell variables are not filled in: a prompt may well contain {name}.
template <class Document, class Take>
void each_written_text(Document& document, const Take& take) {
    for (auto&& [key, value] : document.items()) {
        if (key != "recorded_environment") {
            each_text(value, take);
        }
    }
}

bool holds(const Json& text, const std::string& placeholder) {
    return text.get_ref<const std::string&>().find(placeholder) != std::string::npos;
}

bool stands_in(const Json& document, const std::string& placeholder) {
    bool found = false;
    each_written_text(document,
                      [&](const Json& text) { found = found || holds(text, placeholder); });
    return found;
}

void fill_in(Json& document, const std::string& placeholder, const std::string& words) {
    each_written_text(document, [&](Json& text) {
        auto& value = text.get_ref<std::string&>();
        for (std::size_t at = value.find(placeholder); at != std::string::npos;
             at = value.find(placeholder, at + words.size())) {
            value.replace(at, placeholder.size(), words);
        }
    });
}

std::optional<std::size_t> index_in(const Json& array, const std::string& key) {
    const auto index = to_int(key);
    if (!index || *index < 0 || static_cast<std::size_t>(*index) >= array.size()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(*index);
}

// "" or why the path leads nowhere.
std::string set(Json& document, const Parameter& parameter, const Json& value) {
    Json* at = &document;
    for (std::size_t i = 0; i + 1 < parameter.keys.size(); ++i) {
        const std::string& key = parameter.keys[i];
        if (at->is_array()) {
            const auto index = index_in(*at, key);
            if (!index) {
                return "has no item " + key;
            }
            at = &(*at)[*index];
        } else {
            Json& next = (*at)[key];
            if (next.is_null()) {
                next = Json::object();
            }
            at = &next;
        }
        if (!at->is_object() && !at->is_array()) {
            return key + " is neither an object nor an array";
        }
    }
    const std::string& last = parameter.keys.back();
    if (at->is_array()) {
        const auto index = index_in(*at, last);
        if (!index) {
            return "has no item " + last;
        }
        (*at)[*index] = value;
    } else {
        (*at)[last] = value;
    }
    return "";
}

std::vector<Parameter> read_parameters(const Json& json, const std::string& pointer,
                                       std::vector<FieldError>& errors) {
    std::vector<Parameter> out;
    if (!json.is_object() || json.empty() || json.size() > limits::kSweepParameters) {
        errors.push_back({pointer, "must be an object of 1.." +
                                       std::to_string(limits::kSweepParameters) +
                                       " arrays of values"});
        return out;
    }
    std::size_t points = 1;
    for (const auto& [path, values] : json.items()) {
        const std::string where = pointer + "/" + pointer_token(path.substr(0, limits::kTextBytes));
        Parameter parameter{path, split(path, '.'), values};
        bool good = path.size() <= limits::kTextBytes;
        for (const std::string& key : parameter.keys) {
            good = good && !key.empty();
        }
        for (const std::string_view own : kNotSwept) {
            if (good && parameter.keys.front() == own) {
                errors.push_back(
                    {where, std::string{own} + " is the same for all jobs of a sweep"});
            }
        }
        if (!good) {
            errors.push_back({where, "must name a field, as in train.learning_rate"});
        } else if (!values.is_array() || values.empty()) {
            errors.push_back({where, "must be an array of values"});
        } else {
            points *= std::min(values.size(), limits::kSweepPoints + 1);
        }
        if (points > limits::kSweepPoints) {
            errors.push_back(
                {pointer, "makes more than " + std::to_string(limits::kSweepPoints) + " jobs"});
            return out;
        }
        out.push_back(std::move(parameter));
    }
    return out;
}

// A name that stands in braces in a text of the document, as {lr} in the command, is filled in
// there; else it is the path of a field.
void note_placeholders(const Json& document, std::vector<Parameter>& parameters,
                       const std::string& pointer, std::vector<FieldError>& errors) {
    for (Parameter& parameter : parameters) {
        parameter.placeholder = stands_in(document, "{" + parameter.path + "}");
        const auto ranks_own = std::find(kRanksOwn.begin(), kRanksOwn.end(), parameter.path);
        if (ranks_own != kRanksOwn.end()) {
            errors.push_back({pointer + "/" + pointer_token(parameter.path),
                              "each rank has its own {" + parameter.path + "}"});
        }
        if (!parameter.values.is_array()) {
            continue;  // said already
        }
        for (const Json& value : parameter.values) {
            if (parameter.placeholder && value.is_structured()) {
                errors.push_back({pointer + "/" + pointer_token(parameter.path),
                                  "stands in a text as {" + parameter.path +
                                      "}: its values must be texts, numbers, true or false"});
                break;
            }
        }
    }
}

// Marks what reaches a field of kOwnersOnly: by its path, in braces in a text of it, or in braces
// in a value of another parameter that reaches one.
void note_secrets(const Json& document, std::vector<Parameter>& parameters) {
    std::vector<Json> places;
    for (const std::string_view field : kOwnersOnly) {
        const auto found = document.find(field);
        if (found != document.end() && field != "recorded_environment") {
            places.push_back(*found);
        }
    }
    bool more = true;
    while (more) {
        more = false;
        for (Parameter& parameter : parameters) {
            if (parameter.secret) {
                continue;
            }
            parameter.secret = is_owners_only(parameter.path);
            for (const Json& place : places) {
                each_text(place, [&parameter](const Json& text) {
                    parameter.secret = parameter.secret || holds(text, "{" + parameter.path + "}");
                });
            }
            if (parameter.secret) {
                places.push_back(parameter.values);
                more = true;
            }
        }
    }
}

std::string describe(const Json& parameters) {
    std::string out;
    for (const auto& [path, value] : parameters.items()) {
        out += (out.empty() ? "" : ", ") + path + " = " + dump_json(value);
    }
    return out.substr(0, limits::kTextBytes);
}

// For a parameter that was meant to be filled in and stands nowhere.
std::string placeholder_hint(const std::vector<Parameter>& parameters, std::string_view pointer) {
    for (const Parameter& parameter : parameters) {
        if (!parameter.placeholder && parameter.keys.size() == 1 &&
            pointer == "/" + parameter.path) {
            return "; {" + parameter.path + "} stands nowhere, as it could in the command";
        }
    }
    return "";
}

// The point whose number it is: the last parameter changes fastest.
Result<SweepPoint> make_point(const Json& base, const std::vector<Parameter>& parameters,
                              std::size_t number) {
    SweepPoint point;
    point.parameters = Json::object();
    point.shown = Json::object();
    Json document = base;
    std::vector<std::size_t> chosen(parameters.size());
    for (std::size_t i = parameters.size(); i-- > 0;) {
        chosen[i] = number % parameters[i].values.size();
        number /= parameters[i].values.size();
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Json& value = parameters[i].values[chosen[i]];
        point.parameters[parameters[i].path] = value;
        point.shown[parameters[i].path] = parameters[i].secret ? Json(kMaskedValue) : value;
        if (parameters[i].placeholder) {
            fill_in(document, "{" + parameters[i].path + "}", value_words(value));
            continue;
        }
        if (std::string why = set(document, parameters[i], value); !why.empty()) {
            return fail(field_errors(
                {{"/sweep/parameters/" + pointer_token(parameters[i].path), std::move(why)}}));
        }
    }
    auto spec = parse_spec(document);
    if (!spec) {
        Error error = std::move(spec.error());
        for (FieldError& field : error.fields) {
            field.message += " (with " + describe(point.parameters) + ")" +
                             placeholder_hint(parameters, field.pointer);
        }
        return fail(std::move(error));
    }
    point.spec = std::move(*spec);
    return point;
}

}  // namespace

void mask_parameters(Json& parameters) {
    if (!parameters.is_object()) {
        return;
    }
    for (auto& [path, value] : parameters.items()) {
        if (is_owners_only(path)) {
            value = std::string{kMaskedValue};
        }
    }
}

std::string masked_view(std::string view) {
    // Few views have such a member: reading all of them would make the lists of jobs slow.
    const bool may_show =
        std::any_of(kOwnersOnly.begin(), kOwnersOnly.end(), [&view](std::string_view field) {
            return view.find("\"" + std::string{field}) != std::string::npos;
        });
    auto json = may_show ? parse_json(view) : Result<Json>{Json()};
    if (!may_show || !json || !json->is_object()) {
        return view;
    }
    const auto sweep = json->find("sweep");
    if (sweep == json->end() || !sweep->is_object() || !sweep->contains("parameters")) {
        return view;
    }
    mask_parameters((*sweep)["parameters"]);
    return dump_json(*json);
}

bool has_sweep(const Json& document) {
    if (!document.is_object()) {
        return false;
    }
    const auto found = document.find("sweep");
    return found != document.end() && !(found->is_object() && found->empty());
}

Result<SweepMaker> SweepMaker::begin(const Json& document) {
    SweepMaker out;
    std::vector<FieldError> errors;
    Json base = document;
    const Json json = base["sweep"];
    base.erase("sweep");
    if (!json.is_object()) {
        return fail(field_errors({{"/sweep", "must be an object"}}));
    }
    ObjectReader in{json, "/sweep", errors};
    std::vector<Parameter> parameters;
    if (const Json* found = in.raw("parameters")) {
        parameters = read_parameters(*found, in.pointer("parameters"), errors);
        note_placeholders(base, parameters, in.pointer("parameters"), errors);
        note_secrets(base, parameters);
    } else {
        in.error("parameters", "is required");
    }
    in.integer("max_parallel", out.made_.max_parallel, 1,
               static_cast<std::int64_t>(limits::kSweepPoints));
    in.finish();
    std::size_t points = 1;
    for (const Parameter& parameter : parameters) {
        points *= parameter.values.is_array() ? parameter.values.size() : 0;
    }
    if (errors.empty() && points * dump_json(document).size() > limits::kSweepBytes) {
        errors.push_back({"/sweep/parameters", "makes jobs of more than " +
                                                   std::to_string(limits::kSweepBytes >> 20U) +
                                                   " MiB in all"});
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    out.made_.points.reserve(points);
    out.size_ = points;
    const auto from = std::make_shared<const std::pair<Json, std::vector<Parameter>>>(
        std::move(base), std::move(parameters));
    out.point_ = [from](std::size_t number) {
        return make_point(from->first, from->second, number);
    };
    return out;
}

Status SweepMaker::next() {
    auto point = point_(made_.points.size());
    LOCKSTEP_TRY(point);
    made_.points.push_back(std::move(*point));
    return {};
}

Result<SweepPoint> SweepMaker::point(std::size_t number) const {
    return number < size_ ? point_(number)
                          : Result<SweepPoint>{fail(Errc::invalid, "the sweep has fewer jobs")};
}

Result<Sweep> parse_sweep(const Json& document) {
    auto maker = SweepMaker::begin(document);
    LOCKSTEP_TRY(maker);
    while (!maker->whole()) {
        LOCKSTEP_TRY(maker->next());
    }
    return maker->take();
}

}  // namespace lockstep
