// `lockstep-agent task`: what srun starts for every rank with launch task. Asks the agent of its
// node what to become, starts that as its child with everything srun has given it (PMI's descriptor
// and variables), and tells the agent how it ended. Blocking; part of the program, not of the
// library.
#pragma once

#include <filesystem>

namespace lockstep {

// The rank's exit code (128 + signal); 125 if it was not started.
int run_task(const std::filesystem::path& attempt_directory);

// Where the agent that runs srun says of which generation the tasks are.
inline constexpr const char* kTaskGeneration = "LOCKSTEP_TASK_GENERATION";

}  // namespace lockstep
