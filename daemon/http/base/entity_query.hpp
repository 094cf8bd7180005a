// The parameters that say whose history is asked for: ranks, or with entity=gpu the job's GPUs.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/base/router.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Reads entity, gpus and ranks; `most`: ranks or GPUs that may be named. A metric that was not
// given becomes `metric_of_gpus` where it is about GPUs. What is wrong is an error of `in`.
void take_entities(QueryReader& in, EntityQuery& query, std::vector<std::int32_t>& ranks,
                   std::size_t most, std::string& metric);

inline constexpr const char* kGpuMetricIfNone = "gpu_utilization_ratio";

// How the routes say it.
ParameterDoc entity_parameter();
ParameterDoc gpus_parameter();

}  // namespace lockstep
