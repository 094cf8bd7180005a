// The text of a batch script, from parts that have been decided elsewhere. The standard library and
// nothing else, and no exceptions: lockstepd makes its scripts with it (batch_script.hpp), and so
// does the privileged lockstep-exec (../exec). Pure; any thread.
#pragma once

#include "job/base/limits.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::slurm {

// Exit status of a script that Slurm started once more (requeue): EX_TEMPFAIL of sysexits.h.
inline constexpr int kRestartedExit = 75;
// … and of one whose node has no lockstep-agent: the shell's own for a command that is not there.
inline constexpr int kNoAgentExit = 127;
// Of one that was sent SIGTERM: as a shell says it. Slurm tells the state of a job that it ends
// itself, so with FAILED it was somebody else.
inline constexpr int kToldToEndExit = 143;

struct BatchText {
    std::string title;        // "job ls-…, attempt 1", for the reader
    std::string name;         // Slurm's name of the job
    std::string directory;    // of the attempt, absolute
    std::string agent_path;   // as the nodes see it
    std::string slurm_bin;    // directory of srun on the nodes; "" = system's
    std::string agent_words;  // for the agent, behind --attempt-dir; "" or with a blank in front
    // What the specification asks for (job/model/spec/sbatch_options.hpp).
    std::vector<std::pair<std::string, std::string>> sbatch;
    std::vector<std::pair<std::string, std::string>> srun;
    std::string ranks_per_node;  // for the reader
    std::string excluded;        // nodes, with commas, besides the specification's `exclude`
    std::string time;            // of a job that states none
    bool has_nil = true;         // sbatch takes --export=NIL
};

// Whether `text` is letters, digits and characters of `also`.
bool only_of(std::string_view text, std::string_view also);
// Needs no quotes in bash nor in an #SBATCH line, and is no pattern of sbatch's (%j).
bool is_plain_path(std::string_view path);

// <job's name>-<ulid>-a<attempt> in lower case, [a-z0-9._-], at most limits::kSlurmJobNameBytes:
// squeue's -n matches without case and takes commas for a list.
std::string batch_job_name(std::string_view name, std::string_view job_id, long attempt);

// Makes `out`. False: a value cannot stand in a script, and `out` says which.
bool make_batch_text(const BatchText& parts, std::string& out);

}  // namespace lockstep::slurm
