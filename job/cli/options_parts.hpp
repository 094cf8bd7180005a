// Parts of declare() (options.hpp), a file for each group of verbs. `options` must outlive the app;
// the main thread.
#pragma once

#include "job/cli/options.hpp"

#include <string>

namespace lockstep::cli {

CLI::App* verb(CLI::App& app, const std::string& name, const std::string& help);
// One that is about a job, whose name or id comes first.
CLI::App* job_verb(CLI::App& app, Options& options, const std::string& name,
                   const std::string& help);
// After the verbs: options of `token create` and the like are refused with the verb's other
// actions.
void keep_to_actions(CLI::App& app, const Options& options);
// What shows a job, or is done to it.
void declare_one_job(CLI::App& app, Options& options);
// Tokens, secrets, login.
void declare_identity(CLI::App& app, Options& options);

}  // namespace lockstep::cli
