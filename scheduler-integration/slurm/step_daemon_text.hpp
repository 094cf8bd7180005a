// Lines that Slurm's step daemon, slurmstepd, leaves in a job's logs among the program's own. Pure;
// any thread.
#pragma once

#include <string_view>

namespace lockstep {

// "slurmstepd: error: …" and "slurmstepd-n1: error: …"; since Slurm 25.05, and before where a site
// has LogTimeFormat=format_stderr, "[TIME] error: …", whose time is in the site's format
// (src/common/log.c).
inline bool is_step_daemon_line(std::string_view line) {
    const auto close = line.find(']');
    return line.starts_with("slurmstepd") ||
           (line.starts_with('[') && close != std::string_view::npos &&
            line.substr(close).starts_with("] error: "));
}

}  // namespace lockstep
