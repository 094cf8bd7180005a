// Where Slurm places a job and with which of its options, as `run` and `nodes check` take it from
// the command line. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::cli {

// "" = not asked for. sbatch's options of these names, in its own words; lockstepd judges them.
struct Placement {
    std::string account;
    std::string qos;
    std::string constraint;
    std::string reservation;
    std::string nodelist;
    std::string exclude;
};

// Options of `verb`, which `placement` must outlive; `action` ("check: ", or "") is put before each
// line of help, and `group` is their heading, "" the usual one.
void declare_placement(CLI::App& verb, Placement& placement, const std::string& action,
                       const std::string& group);

// The member `slurm` of a specification; null where nothing is asked for.
Json slurm_of(const std::string& partition, const Placement& placement);

// Puts further options of sbatch into it, each OPTION=VALUE, or OPTION where it has no value; "--"
// may be before them. Errc::invalid names one without a name, or given twice.
Status add_directives(Json& slurm, const std::vector<std::string>& options);

// Mebibytes, 1 to limits::kMemoryMbPerNode, rounded up, of "64G" or "1500" as sbatch's --mem reads
// it: K, M (which is meant where nothing is said), G and T count by 1024. Errc::invalid for
// anything else.
Result<std::int64_t> memory_mb(std::string_view text);

}  // namespace lockstep::cli
