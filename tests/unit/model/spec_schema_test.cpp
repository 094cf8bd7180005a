// size: one document for each field, in which the field has an effect
// The schema that /openapi.json and `lockstep explain` show against the parser that decides: every
// default, choice, bound, length and field of the one is fed to the other.
#include "job/model/spec/spec_schema.hpp"

#include "job/model/spec/spec.hpp"
#include "job/model/spec/spec_slurm.hpp"
#include "job/model/spec/sweep.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace lockstep {
namespace {

// What the parser makes of a document: canonical JSON, or its errors.
struct SchemaVerdict {
    bool good = false;
    Json canonical;
    std::vector<FieldError> errors;
    std::string text() const {
        std::string out = good ? "accepted" : "refused:";
        for (const auto& error : errors) {
            out += " " + error.pointer + ": " + error.message + ";";
        }
        return out;
    }
    std::string message_at(const std::string& pointer) const {
        for (const auto& error : errors) {
            if (error.pointer.starts_with(pointer)) {
                return error.message;
            }
        }
        return "";
    }
};

SchemaVerdict verdict_of(const Json& document) {
    SchemaVerdict out;
    if (has_sweep(document)) {
        auto sweep = parse_sweep(document);
        out.good = sweep.has_value();
        out.canonical = out.good ? Json{sweep->max_parallel} : Json{};
        out.errors = out.good ? std::vector<FieldError>{} : sweep.error().fields;
        return out;
    }
    auto spec = parse_spec(document);
    out.good = spec.has_value();
    out.canonical = out.good ? to_json(*spec) : Json{};
    out.errors = out.good ? std::vector<FieldError>{} : spec.error().fields;
    return out;
}

Json parsed(const std::string& text) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.has_value()) << text;
    return json ? *json : Json{};
}

// A document in which the field has an effect, without the field itself.
Json schema_base(const std::string& path) {
    static const std::map<std::string, const char*> kSpecial{
        {"framework", R"({"name":"a","command":["true"]})"},
        {"name", R"({"framework":"command","command":["true"]})"},
        {"command", R"({"name":"a","framework":"command"})"},
        {"train.dataset.augment",
         R"({"name":"a","framework":"native","train":{"dataset":{"name":"images","path":"p"}}})"},
        {"train.momentum", R"({"name":"a","framework":"native","train":{"optimizer":"sgd"}})"},
        {"train.update", R"({"name":"a","framework":"native","resources":{"ranks_per_node":2},
            "roles":[{"name":"ps","count":1},{"name":"worker","count":1}],
            "train":{"strategy":"parameter_server"}})"},
        {"train.context", R"({"name":"a","framework":"native",
            "train":{"model":"gpt","dataset":{"name":"text","path":"/t"}}})"},
        {"train.stages", R"({"name":"a","framework":"native","resources":{"ranks_per_node":22},
            "train":{"model":"mobilenet_v2","strategy":"pipeline"}})"},
        {"train.micro_batches", R"({"name":"a","framework":"native",
            "train":{"strategy":"pipeline","batch_size":65536}})"},
        {"train.dataset.name",
         R"({"name":"a","framework":"native","train":{"dataset":{"path":"/data"}}})"},
        {"container.runtime",
         R"({"name":"a","framework":"command","command":["true"],"container":{"image":"a.sif"}})"},
        {"container.image", R"({"name":"a","framework":"command","command":["true"],
            "container":{"runtime":"apptainer"}})"},
        {"sweep.parameters",
         R"({"name":"a","framework":"command","command":["true"],"sweep":{"max_parallel":1}})"},
        {"recorded_environment",
         R"({"name":"a","framework":"command","command":["true"],"inherit_environment":true})"},
        {"resources.gpu_type", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"gpus_per_node":4}})"},
        {"resources.min_nodes", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"nodes":16384},"recovery":{}})"},
        {"recovery.grow_after_seconds", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"nodes":2,"min_nodes":1},"recovery":{}})"},
        {"resources.ranks_per_gpu", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"gpus_per_node":4}})"},
        {"roles[].name", R"({"name":"a","framework":"command","command":["true"],
            "roles":[{"count":1}]})"},
        // Of a framework whose ranks are not told each other's addresses.
        {"roles[].count", R"({"name":"a","framework":"pytorch","command":["true"],
            "resources":{"nodes":128,"ranks_per_node":1024},"roles":[{"name":"worker"}]})"},
        {"roles[].gpus", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"gpus_per_node":64},"roles":[{"name":"a","count":1}]})"},
        {"roles[].ends_job", R"({"name":"a","framework":"command","command":["true"],
            "resources":{"ranks_per_node":2},
            "roles":[{"name":"a","count":1},{"name":"b","count":1}]})"},
    };
    if (const auto found = kSpecial.find(path); found != kSpecial.end()) {
        return parsed(found->second);
    }
    if (path.starts_with("train")) {
        return parsed(R"({"name":"a","framework":"native","train":{"dataset":{}}})");
    }
    if (path.starts_with("container.")) {
        return parsed(R"({"name":"a","framework":"command","command":["true"],
            "container":{"runtime":"apptainer","image":"a.sif"}})");
    }
    if (path.starts_with("sweep.")) {
        return parsed(R"({"name":"a","framework":"command","command":["true"],
            "sweep":{"parameters":{"environment.A":["1"]}}})");
    }
    Json out = parsed(R"({"name":"a","framework":"command","command":["true"]})");
    if (const auto dot = path.find('.'); dot != std::string::npos) {
        out[path.substr(0, dot)] = Json::object();
    }
    return out;
}

// "/roles/0/name" of "roles[].name".
std::string field_pointer(const std::string& path) {
    std::string out = "/";
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (path.compare(i, 2, "[]") == 0) {
            out += "/0";
            ++i;
        } else {
            out += path[i] == '.' ? '/' : path[i];
        }
    }
    return out;
}

Json with_field(const std::string& path, const Json& value) {
    Json out = schema_base(path);
    out[nlohmann::ordered_json::json_pointer{field_pointer(path)}] = value;
    if (path == "framework" && value == "native") {
        out.erase("command");
    } else if (path == "train.strategy" && value == "parameter_server") {
        out["resources"]["ranks_per_node"] = 2;
        out["roles"] = parsed(R"([{"name":"ps","count":1},{"name":"worker","count":1}])");
    } else if ((path == "train.precision" && value == "fp16") ||
               (path == "train.devices" && value == "gpu")) {
        out["resources"]["gpus_per_node"] = 1;
    } else if (path == "train.model" && value == "gpt") {
        out["train"]["dataset"] = parsed(R"({"name":"text","path":"/t"})");
    } else if (path == "train.dataset.name" && value == "text") {
        out["train"]["model"] = "gpt";
    } else if (path == "train.model" && value == "seq2seq") {
        out["train"]["dataset"] = parsed(R"({"name":"pairs","path":"/t"})");
    } else if (path == "train.dataset.name" && value == "pairs") {
        out["train"]["model"] = "seq2seq";
    } else if (path == "train.dataset.name" && value == "table") {
        out["train"]["model"] = "linear";
    } else if (path == "train.loss" && value != "cross_entropy") {
        out["train"]["model"] = "linear";
        out["train"]["dataset"] = parsed(R"({"name":"table","path":"/t"})");
    } else if (path == "roles[].count" && value == 1) {
        out.erase("resources");  // the counts add up to the ranks
    }
    return out;
}

void expect_accepted(const std::string& path, const Json& value) {
    const auto verdict = verdict_of(with_field(path, value));
    EXPECT_TRUE(verdict.good) << path << " = " << dump_json(value).substr(0, 200) << " "
                              << verdict.text();
}

void expect_refused(const std::string& path, const Json& value) {
    const auto verdict = verdict_of(with_field(path, value));
    EXPECT_FALSE(verdict.good) << path << " = " << dump_json(value).substr(0, 200);
    EXPECT_NE(verdict.message_at(field_pointer(path)), "") << path << " " << verdict.text();
}

// Objects of which only the listed keys are taken, with the field that holds each.
std::map<std::string, const Json*> closed_objects() {
    std::map<std::string, const Json*> out;
    out[""] = &spec_schemas().at("JobSpec");
    for (const SpecField& field : spec_fields()) {
        if (field.schema.contains("properties")) {
            out[field.path] = &field.schema;
        }
    }
    out["roles[]"] = &spec_schemas().at("Role");
    return out;
}

TEST(SpecSchema, EveryFieldHasATypeAndADescription) {
    std::set<std::string> seen;
    for (const SpecField& field : spec_fields()) {
        EXPECT_FALSE(field.type.empty()) << field.path;
        EXPECT_GE(field.description.size(), 15U) << field.path;
        EXPECT_TRUE(field.description.ends_with('.')) << field.path << ": " << field.description;
        EXPECT_TRUE(seen.insert(field.path).second) << field.path << " is there twice";
    }
    EXPECT_TRUE(seen.contains("resources.nodes"));
    EXPECT_TRUE(seen.contains("roles[].count"));
}

// Both ways: a field that one has and the other has not is found here.
TEST(SpecSchema, ObjectsHaveTheFieldsThatTheParserKnows) {
    for (const auto& [path, schema] : closed_objects()) {
        std::vector<std::string> documented;
        for (const auto& [key, value] : schema->at("properties").items()) {
            documented.push_back(key);
        }
        std::sort(documented.begin(), documented.end());
        const std::string at = path.empty() ? "zzz" : path + ".zzz";
        Json document = schema_base(at);
        if (path == "roles[]") {
            document["roles"] = parsed(R"([{"name":"a","count":1}])");
        }
        document[nlohmann::ordered_json::json_pointer{field_pointer(at)}] = 1;
        const auto verdict = verdict_of(document);
        const auto found =
            std::find_if(verdict.errors.begin(), verdict.errors.end(),
                         [&](const auto& error) { return error.pointer == field_pointer(at); });
        ASSERT_NE(found, verdict.errors.end()) << at << ": " << verdict.text();
        EXPECT_EQ(found->message, "unknown field") << at;
        EXPECT_EQ(found->known, documented) << "of /" << path;
    }
}

TEST(SpecSchema, RequiredFieldsAreRequired) {
    for (const SpecField& field : spec_fields()) {
        const Json without = schema_base(field.path);
        const bool absent =
            !without.contains(nlohmann::ordered_json::json_pointer{field_pointer(field.path)});
        if (field.required) {
            ASSERT_TRUE(absent) << field.path << ": the test's document has it";
            const auto verdict = verdict_of(without);
            EXPECT_NE(verdict.message_at(field_pointer(field.path)), "") << field.path;
        }
    }
}

// Saying the default is saying nothing; saying something else is not, so the comparison can fail.
TEST(SpecSchema, DefaultsAreWhatTheParserFillsIn) {
    // With one value, or whose other value means the same.
    const std::set<std::string> indifferent{"train.devices"};
    std::size_t defaults = 0;
    for (const SpecField& field : spec_fields()) {
        if (!field.schema.contains("default")) {
            continue;
        }
        ++defaults;
        const Json& value = field.schema["default"];
        const auto absent = verdict_of(schema_base(field.path));
        const auto said = verdict_of(with_field(field.path, value));
        ASSERT_TRUE(absent.good) << field.path << " " << absent.text();
        ASSERT_TRUE(said.good) << field.path << " " << said.text();
        EXPECT_EQ(said.canonical, absent.canonical) << field.path;
        std::vector<Json> others;
        if (field.type == "boolean") {
            others = {!value.get<bool>()};
        }
        for (const char* key : {"minimum", "maximum"}) {
            if (field.schema.contains(key)) {
                others.push_back(field.schema[key]);
            }
        }
        if (field.schema.contains("enum")) {
            others = field.schema["enum"].get<std::vector<Json>>();
        }
        const bool differs = std::any_of(others.begin(), others.end(), [&](const Json& other) {
            return verdict_of(with_field(field.path, other)).canonical != absent.canonical;
        });
        EXPECT_EQ(differs, !indifferent.contains(field.path)) << field.path;
    }
    EXPECT_GE(defaults, 35U);
}

TEST(SpecSchema, ChoicesAreAcceptedAndAreAllThatIsOffered) {
    for (const SpecField& field : spec_fields()) {
        const bool list = field.schema.contains("items");
        const Json& schema = list ? field.schema["items"] : field.schema;
        if (!schema.contains("enum")) {
            continue;
        }
        const auto wrapped = [&](const Json& word) { return list ? Json::array({word}) : word; };
        std::string offered;
        for (const Json& word : schema["enum"]) {
            expect_accepted(field.path, wrapped(word));
            offered += (offered.empty() ? "" : ", ") + word.get<std::string>();
            expect_refused(field.path, wrapped(word.get<std::string>() + "x"));
        }
        const auto refused = verdict_of(with_field(field.path, wrapped("zzz")));
        const std::string message = refused.message_at(field_pointer(field.path));
        EXPECT_TRUE(message.ends_with("must be one of: " + offered))
            << field.path << ": " << message << "\nschema: " << offered;
    }
}

TEST(SpecSchema, BoundsAreTheParsers) {
    for (const SpecField& field : spec_fields()) {
        for (const auto& [key, step] : {std::pair{"minimum", -1}, {"maximum", 1}}) {
            if (!field.schema.contains(key)) {
                EXPECT_TRUE(field.type != "integer" && field.type != "number")
                    << field.path << " has no " << key;
                continue;
            }
            const Json& bound = field.schema[key];
            expect_accepted(field.path, bound);
            if (field.type == "number") {
                const double value = bound.get<double>();
                expect_refused(field.path, value + step * (value == 0 ? 0.001 : value * 0.01));
            } else if (const auto value = bound.get<std::int64_t>(); value != INT64_MAX) {
                expect_refused(field.path, value + step);
            }
        }
    }
}

TEST(SpecSchema, LengthsAreTheParsers) {
    const auto text_of = [](const std::string& path, std::size_t size) {
        const bool a_path = path.ends_with("directory") || path.ends_with("path");
        std::string text = path == "capture.loss" ? "(?P<loss>[0-9]+)" : a_path ? "/" : "";
        return text + std::string(size - text.size(), 'a');
    };
    for (const SpecField& field : spec_fields()) {
        if (field.schema.contains("maxLength")) {
            const auto most = field.schema["maxLength"].get<std::size_t>();
            expect_accepted(field.path, text_of(field.path, most));
            expect_refused(field.path, text_of(field.path, most + 1));
        }
        if (field.schema.contains("maxProperties") &&
            field.schema.contains("additionalProperties")) {
            const auto most = field.schema["maxProperties"].get<std::size_t>();
            Json value = Json::object();
            const bool sweep = field.path == "sweep.parameters";
            for (std::size_t i = 0; i <= most; ++i) {
                if (i == most) {
                    expect_accepted(field.path, value);
                }
                const std::string key = "A" + std::to_string(i);
                value[sweep ? "environment." + key : key] = sweep ? Json::array({"1"}) : Json("1");
            }
            expect_refused(field.path, value);
        }
        if (field.schema.contains("maxItems") && field.path != "roles") {
            const auto most = field.schema["maxItems"].get<std::size_t>();
            Json value = Json::array();
            for (std::size_t i = 0; i <= most; ++i) {
                if (i == most) {
                    expect_accepted(field.path, value);
                }
                const std::string id = "0123456789ABCDEFGHJKMNPQ" + std::to_string(10 + i);
                value.push_back(field.path == "after"     ? "ls-" + id
                                : field.path == "notify"  ? "mail:a" + std::to_string(i)
                                : field.path == "secrets" ? "S" + std::to_string(i)
                                : field.path == "recovery.warm_standby"
                                    ? "module" + std::to_string(i)
                                    : "/a:/b");
            }
            expect_refused(field.path, value);
        }
    }
}

TEST(SpecSchema, ExamplesAreAccepted) {
    for (const SpecField& field : spec_fields()) {
        if (field.schema.contains("examples")) {
            for (const Json& example : field.schema["examples"]) {
                const Json document = field.path == "sweep.parameters"
                                          ? parsed(R"({"name":"a","framework":"native","sweep":{
                                                "parameters":)" +
                                                   dump_json(example) + "}}")
                                          : with_field(field.path, example);
                EXPECT_TRUE(verdict_of(document).good)
                    << field.path << " " << verdict_of(document).text();
            }
        }
    }
}

TEST(SpecSchema, AnotherTypeIsRefused) {
    for (const SpecField& field : spec_fields()) {
        const bool object = field.type == "object";
        expect_refused(field.path, object ? Json("text") : Json::object({{"zzz", 1}}));
        if (field.type == "integer") {
            expect_refused(field.path, 1.5);
        }
        if (field.type == "boolean" || field.type == "integer" || field.type == "number") {
            expect_refused(field.path, "1");
        } else {
            expect_refused(field.path, 1);
        }
    }
}

TEST(SpecSchema, TextsWithAPatternAreNotAnything) {
    for (const SpecField& field : spec_fields()) {
        const bool list = field.schema.contains("items");
        const Json& schema = list ? field.schema["items"] : field.schema;
        if (schema.contains("pattern")) {
            expect_refused(field.path, list ? Json::array({"a b\n"}) : Json("a b\n"));
        }
    }
}

TEST(SpecSchema, NamesTheDirectivesThatAreTaken) {
    const Json& names =
        spec_schemas().at("SlurmOptions")["properties"]["directives"]["propertyNames"]["enum"];
    std::vector<std::string> taken;
    for (const auto option : slurm_directives()) {
        taken.emplace_back(option);
    }
    EXPECT_EQ(names.get<std::vector<std::string>>(), taken);
}

}  // namespace
}  // namespace lockstep
