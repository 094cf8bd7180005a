// The verbs. Each does its requests, prints and says how the program ends. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"

#include <string>

namespace lockstep::cli {

// The newest look at a job's ranks. All of them are megabytes, and --now asks four times a second.
inline constexpr const char* kNewestEvidence = "/evidence?limit=1";
// All of a file that is answered in pieces; `target` has a query already.
Result<std::string> whole_file(Context& context, const std::string& target);

// Runs the verb named on the command line; completion and manual are main()'s.
Exit run_verb(Context& context, const std::string& verb);

// The id of the job that `text` means; which one it took of several is said on standard error.
Result<std::string> named_job(Context& context, const std::string& text, bool acting);

Exit submit(Context& context);
Exit open_page(Context& context);
Exit run_job(Context& context);
Exit logs(Context& context, const std::string& id);
// Rank 0's output as it comes, until the job has ended; then as follow_job().
Exit follow_logs(Context& context, const std::string& id);
Exit evidence(Context& context, const std::string& id);
Exit profile(Context& context, const std::string& id);
Exit cancel(Context& context, const std::string& id);
Exit restart(Context& context, const std::string& id);
Exit checkpoint(Context& context, const std::string& id);
Exit export_samples(Context& context, const std::string& id);
Exit series(Context& context, const std::string& id);
Exit top(Context& context, const std::string& id);
Exit token(Context& context);
// nodes check
Exit check_nodes(Context& context);
Exit secret(Context& context);
Exit slurm_token(Context& context);
Exit whoami(Context& context);

}  // namespace lockstep::cli
