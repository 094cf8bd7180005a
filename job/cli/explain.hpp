// The job specification explained field by field, from the table that the OpenAPI document is made
// of (job/model/spec/spec_schema.hpp): `lockstep explain` and lockstep-job(5). Needs no daemon.
// Pure but for what it prints; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/cli/terminal.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// A cause of an end by its name (rank_exit), or the field that `path` names (resources.spares,
// roles[].count, labels.*), or with "" the whole specification: what it is, its bounds, and the
// fields below it with a line each. not_found: there is none; with the nearest name.
Result<std::vector<std::string>> explain_field(const Terminal& terminal, const std::string& path);

// The same for programs: {field, type, required, description, schema, fields} with `fields` as
// those below it, without fields and schema; {cause, description}; {fields} of "".
Result<Json> explain_json(const std::string& path);

// lockstep-job(5): roff with the man macros (man(7)).
std::string job_man_page(std::string_view version, std::string_view date);

}  // namespace lockstep::cli
