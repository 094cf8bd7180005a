// What is said of a specification before anything is submitted. A pure function; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"
#include "scheduler-integration/cluster.hpp"
#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <vector>

namespace lockstep {

// `facts`: nullptr while Slurm has not answered. `nodes`: those that are known. invalid: errors by
// field, for what Slurm would refuse or could never start.
Result<Admission> admit_to_slurm(const JobSpec& spec, const SlurmFacts* facts,
                                 const std::vector<ClusterNode>& nodes,
                                 const slurm::BatchSite& site);

}  // namespace lockstep
