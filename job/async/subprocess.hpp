// Runs another program to its end without a shell: its output, how it ended, and a deadline after
// which it and its children are killed. A program never outlives this process (PR_SET_PDEATHSIG).
// Its resource limits and umask are those this process was started with (start_limits.hpp): sbatch
// and srun hand theirs to every rank, so nothing here may be bounded by a limit of the program.
// Call from the io_context's thread, which must be the process's main thread: the kernel ties a
// child's death signal to the thread that forked it.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessCommand {
    std::vector<std::string> argv;         // argv[0] is the absolute path of the program
    std::vector<std::string> environment;  // NAME=value; nothing else is passed on
    std::string directory = "/";
    std::string input{};                        // its standard input
    std::chrono::milliseconds timeout{10'000};  // from its start
    std::size_t output_bytes = 16U << 20U;      // kept of each of out and err; more kills it
    bool drop_excess = false;                   // … or is read and dropped
    // After the timeout's kill what still has not ended is waited for so long and then left to
    // itself: in the kernel, in a driver that hangs, no signal reaches it. 0: for ever.
    std::chrono::milliseconds give_up{0};
    // What it leaves in the background when it ends by itself goes on; otherwise that is killed.
    bool leave_children = false;
};

struct ProcessResult {
    std::optional<int> exit_status;
    std::optional<int> signal;  // that ended it
    bool timed_out = false;
    bool abandoned = false;   // it was left to itself; neither of the above is known
    bool overflowed = false;  // killed because it printed more than output_bytes
    std::string out;
    std::string err;
    std::chrono::nanoseconds took{0};
};

class ProcessRunner {
  public:
    explicit ProcessRunner(net::io_context& io) : io_(io) {}
    ProcessRunner(const ProcessRunner&) = delete;
    ProcessRunner& operator=(const ProcessRunner&) = delete;

    // not_found, denied or internal: it could not be started at all.
    Task<Result<ProcessResult>> run(ProcessCommand command);
    // SIGTERM to what runs: shell code of a user's may have locks of its own to give back.
    void terminate_all();
    // Kills what runs; every run() in flight then returns with the signal.
    void kill_all();
    std::size_t running() const { return groups_.size(); }

  private:
    net::io_context& io_;
    std::set<pid_t> groups_;  // process group = pid of each program in flight
};

}  // namespace lockstep
