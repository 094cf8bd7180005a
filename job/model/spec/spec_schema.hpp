// The job specification described as data: JSON Schema (draft 2020-12) of POST /v1/jobs, one entry
// per field with its type, default, choices, bounds and a description with its unit. The OpenAPI
// document takes the schemas as they are; `lockstep explain` reads the list of fields.
// tests/unit/model/spec_schema_test.cpp feeds every default, choice and bound to the parser, so the
// two cannot drift apart. Pure; any thread.
#pragma once

#include "job/base/json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One field as a person would ask for it.
struct SpecField {
    // Keys with dots: resources.nodes. "roles[].count": of every item; "environment.*": any key.
    std::string path;
    std::string type;         // string | integer | number | boolean | object | array of …
    std::string description;  // one or two sentences; units included
    Json schema;              // its JSON Schema: default, enum, minimum, maximum, pattern, examples
    bool required = false;    // within its object
};

// The schemas by name, as text of a JSON object's members without the braces: JobSpec and what it
// refers to by #/components/schemas/<name>. The choices of the trainer are not in it: their rows
// are in train_choices.hpp.
std::string_view spec_schema_text();
// The same, parsed; built once.
const Json& spec_schemas();
// Every field, parents before children, in the order of the schema; built once.
const std::vector<SpecField>& spec_fields();

}  // namespace lockstep
