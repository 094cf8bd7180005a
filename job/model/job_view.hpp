// A job as the API shows it (design §5). Pure; any thread. Absent means unknown, never 0.
#pragma once

#include "job/model/job.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// What is known beside the events while the job lives.
struct LiveView {
    std::optional<std::int64_t> step;
    std::optional<std::int64_t> total_steps;
    std::optional<double> ettr;     // productive time / wall time since start, 0..1
    std::string pending_reason;     // plain words; "" = not waiting
    UnixMillis expected_start = 0;  // the scheduler's estimate; 0 = unknown
};

Json job_json(const Job& job, const LiveView& live);
// One rank as GET /v1/jobs/{id}/ranks shows it, without what telemetry knows.
Json rank_json(const Job& job, std::int32_t rank);

}  // namespace lockstep
