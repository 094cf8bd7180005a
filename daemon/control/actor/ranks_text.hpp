// What the API shows of a job's ranks now. Control thread only.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/base/rank_order.hpp"
#include "job/model/job.hpp"

#include <string>

namespace lockstep {

class JobActor;

// {items}: the ranks that are asked for, in that order. Without `series` nothing was reported;
// without `actor` the job is over.
std::string ranks_text(const ControlContext& context, const Job& job,
                       const telemetry::JobSeries* series, const JobActor* actor,
                       const RanksQuery& query);
// The same with {total, ranks_reporting, samples_per_second}: of all ranks, however many are asked
// for.
std::string ranks_answer(const ControlContext& context, const Job& job,
                         const telemetry::JobSeries* series, JobActor* actor,
                         const RanksQuery& query);

}  // namespace lockstep
