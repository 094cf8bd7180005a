// What a submission would run: argv, environment and warnings, with a hash over all of it. Pure but
// for the scheduler's admission. Control thread only.
#pragma once

#include "job/base/json.hpp"
#include "job/model/spec/spec.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// {scheduler, nodes, ranks, command, environment, script, warnings, render_hash}: command and
// environment of rank 0, with <angle brackets> where only the attempt will know. `script` is there
// if the scheduler runs one: byte for byte what will be submitted, but for the job's id, which is
// kTemplateJob, also as part of the attempt's directory and in lower case of the scheduler's name
// for it. The hash covers the canonical spec and all of the answer, so equal hashes run the same
// thing. invalid: the scheduler can make no script of it, with the pointer of the field to change.
Result<Json> render_json(const JobSpec& spec, const Scheduler& scheduler,
                         const std::filesystem::path& runs_dir,
                         const std::vector<std::string>& warnings);

}  // namespace lockstep
