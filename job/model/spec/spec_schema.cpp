#include "job/model/spec/spec_schema.hpp"

#include "job/base/check.hpp"
#include "job/model/spec/train_choices.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view kSchemaPrefix = "#/components/schemas/";

std::string schema_word(const Json& schema, const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? std::string{} : found->get<std::string>();
}

// A reference with keys beside it (a description of its own) keeps them.
Json resolve_schema(const Json& schema) {
    const std::string reference = schema_word(schema, "$ref");
    if (reference.empty()) {
        return schema;
    }
    LOCKSTEP_CHECK(reference.starts_with(kSchemaPrefix));
    Json out = spec_schemas().at(reference.substr(kSchemaPrefix.size()));
    for (const auto& [key, value] : schema.items()) {
        if (key != "$ref") {
            out[key] = value;
        }
    }
    return out;
}

std::string type_of_schema(const Json& schema) {
    std::string type = schema_word(schema, "type");
    if (type == "array" && schema.contains("items")) {
        type += " of " + type_of_schema(resolve_schema(schema["items"]));
    }
    return type;
}

bool is_required_in(const Json& object, const std::string& key) {
    const auto list = object.find("required");
    return list != object.end() && std::find(list->begin(), list->end(), key) != list->end();
}

void add_spec_fields(const Json& object, const std::string& prefix, std::vector<SpecField>& out);

void add_spec_field(const Json& raw, std::string path, bool required, std::vector<SpecField>& out) {
    Json schema = resolve_schema(raw);
    SpecField field;
    field.path = std::move(path);
    field.type = type_of_schema(schema);
    field.description = schema_word(schema, "description");
    field.required = required;
    field.schema = schema;
    const std::string at = field.path;
    out.push_back(std::move(field));
    if (schema.contains("items")) {
        add_spec_fields(resolve_schema(schema["items"]), at + "[].", out);
    }
    add_spec_fields(schema, at + ".", out);
}

void add_spec_fields(const Json& object, const std::string& prefix, std::vector<SpecField>& out) {
    const auto properties = object.find("properties");
    if (properties != object.end()) {
        for (const auto& [key, raw] : properties->items()) {
            add_spec_field(raw, prefix + key, is_required_in(object, key), out);
        }
    }
}

Json parsed_schemas() {
    auto json = parse_json("{" + std::string{spec_schema_text()} + "}");
    LOCKSTEP_CHECK(json.has_value());
    describe_train_choices((*json)["TrainConfig"]["properties"]);
    return std::move(*json);
}

std::vector<SpecField> listed_fields() {
    std::vector<SpecField> out;
    add_spec_fields(spec_schemas().at("JobSpec"), "", out);
    return out;
}

}  // namespace

const Json& spec_schemas() {
    static const Json kSchemas = parsed_schemas();
    return kSchemas;
}

const std::vector<SpecField>& spec_fields() {
    static const std::vector<SpecField> kFields = listed_fields();
    return kFields;
}

}  // namespace lockstep
