// Starting a rank: posix_spawn of this program as a shim that makes sure the rank dies with the
// agent, then becomes the user's program. Blocking only for the time of a fork; agent thread.
#pragma once

#include "job/agent/ranks/binding.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SpawnRequest {
    std::string agent_program;      // holds the shim
    std::string program;            // absolute path, from find_program()
    std::vector<std::string> argv;  // argv[0] as the user wrote it
    std::map<std::string, std::string> environment;
    std::string directory;
    int output = -1;  // becomes stdout and stderr
    // Become 3, 4 … of the process; 10 or more each, so that none takes another's place.
    std::vector<int> handed{};
    RankBinding binding{};
};
struct SpawnedProcess {
    pid_t pid = -1;  // also the id of its process group
    UniqueFd pidfd;  // readable once it has ended
};

// One that has been started before it was asked for (standbys.hpp).
struct WarmProcess {
    SpawnedProcess process;
    UniqueFd output;  // the reading end of what it prints, non-blocking
};

// The program a shell would start: `name` with a slash relative to `directory`, otherwise the first
// executable file of that name in `path` (PATH's form). not_found: "command not found: name";
// denied: it is there but cannot be executed.
Result<std::string> find_program(const std::string& name, std::string_view path,
                                 const std::string& directory);

// With the limits that this program was started with (start_limits.hpp): programs that use
// select(2) break above 1024 files.
Result<SpawnedProcess> spawn_rank(const SpawnRequest& request);

// The shim's main: argv after the word "exec". Only returns if it fails, with the exit code (126).
int run_exec_shim(int argc, char** argv);

}  // namespace lockstep
