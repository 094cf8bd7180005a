// A job as the API shows it (Job of /openapi.json). Pure; any thread. Absent means unknown, never
// 0.
#pragma once

#include "job/model/job.hpp"
#include "job/model/spans.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// What is known beside the events while the job lives.
struct LiveView {
    std::optional<std::int64_t> step;
    std::optional<std::int64_t> total_steps;
    UnixMillis now = 0;  // 0: nothing is said of where the time went (spans.hpp)
    std::vector<GenerationReport> reports;
    std::string pending_reason;     // plain words; "" = not waiting
    UnixMillis expected_start = 0;  // the scheduler's estimate; 0 = unknown
};

Json job_json(const Job& job, const LiveView& live);
// One rank as GET /v1/jobs/{id}/ranks shows it, without what telemetry knows.
Json rank_json(const Job& job, std::int32_t rank);

}  // namespace lockstep
