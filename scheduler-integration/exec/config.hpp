// The configuration of lockstep-exec: a file that only root can have written. There is no default
// that allows anything: without the file, or with a mistake in it, everything is refused.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::exec {

inline constexpr char kConfigPath[] = "/etc/lockstep/exec.conf";

struct Config {
    std::vector<uid_t> callers;        // who may ask: lockstepd's user
    uid_t minimum_uid = 1000;          // in whose name is asked, at least
    std::vector<std::string> users{};  // and none but these; empty = all from the minimum on
    std::string audience;              // what signatures must be made for: this cluster
    std::string slurm_bin;             // folder of sbatch, squeue, scancel, sacct, scontrol
    std::string slurm_conf{};          // SLURM_CONF; "" = Slurm's own default
    std::string runs;                  // folder of everybody's attempts, which the nodes see too
    std::string agent;                 // lockstep-agent as the nodes see it
    std::string state;                 // root's: how often each signature has been used
    std::string munge_socket{};        // "" = munge's own
    long max_days = 30;                // a signature is good for so long
    long submissions = 64;             // and for so many submissions of each of its jobs
};

// The text of the file. "", or what is wrong with it.
std::string read_config(const std::string& text, Config& out);
// Opens the file or folder after a look at every folder above it: root's, and nobody else may write
// there (a folder that all may write to must be sticky); no link anywhere. `out` is a descriptor.
// "", or what is wrong. An absolute path without . and .. in it.
std::string open_checked(const std::string& path, bool folder, int& out);
// Reads the file, and looks at every path in it in that way. "", or what is wrong.
std::string load_config(const std::string& path, Config& out);

}  // namespace lockstep::exec
