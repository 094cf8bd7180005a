// The OpenAPI 3.1 document, generated from the route table. Pure; any thread.
#pragma once

#include "daemon/http/router.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string openapi_document(const std::vector<Route>& routes);
// The component schemas as JSON text, without the job specification (job/model/spec_schema.hpp).
std::string_view openapi_schemas();

}  // namespace lockstep
