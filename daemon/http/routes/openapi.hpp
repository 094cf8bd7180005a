// The OpenAPI 3.1 document, generated from the route table. Pure; any thread.
#pragma once

#include "daemon/http/base/router.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string openapi_document(const std::vector<Route>& routes);
// The component schemas as JSON text, members of an object without its braces; all but the job
// specification (job/model/spec/spec_schema.hpp).
std::string_view openapi_schemas();  // of jobs and their telemetry; Rank without kRankMetrics
std::string_view openapi_evidence_schemas();  // of captures of their ranks
std::string_view openapi_gpu_schemas();       // of the history of its GPUs
std::string_view openapi_cluster_schemas();   // of the cluster, tokens, the daemon itself
// A JSON object: an example by name of the schema it is of, or by operation that answers text;
// that of Ranks without kRankMetrics.
std::string_view openapi_examples();

}  // namespace lockstep
