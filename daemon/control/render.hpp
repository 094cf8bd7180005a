// What a submission would run: argv, environment and warnings, with a hash over all of it. Pure but
// for the scheduler's admission. Control thread only.
#pragma once

#include "job/base/json.hpp"
#include "job/model/spec.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <string>
#include <vector>

namespace lockstep {

// {scheduler, nodes, command, environment, warnings, render_hash}: command and environment of rank
// 0, with <angle brackets> where only the attempt will know. The hash covers the canonical spec and
// all of the answer, so equal hashes run the same thing.
Json render_json(const JobSpec& spec, const Scheduler& scheduler,
                 const std::vector<std::string>& warnings);

}  // namespace lockstep
