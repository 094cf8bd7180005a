// Slurm by its own programs: sbatch, squeue, sacct, scancel, scontrol, sinfo. Each gets its
// arguments as a list, never through a shell, and an environment of our making: SBATCH_* and
// SQUEUE_* variables of lockstepd's own would override the script (sbatch(1), INPUT ENVIRONMENT
// VARIABLES). Control thread.
#pragma once

#include "job/async/subprocess.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Where the program may be run: `given`, if that is not "", else beside the first sbatch on PATH,
// else, as sbatch may be a site's wrapper there, the first folder of PATH that has it. "" =
// nowhere.
std::string folder_of_program(const std::string& program, const std::string& given);

class SlurmCli final : public SlurmBackend {
  public:
    struct Options {
        std::string bin_directory;  // "" = found on PATH at start
        std::string slurm_conf;     // SLURM_CONF; "" = Slurm's own default
        std::string user;           // our login name
        std::int64_t uid = 0;
        std::string home = "/";
        // sbatch itself tries again for up to two minutes when the controller is busy; to kill it
        // sooner makes duplicates.
        std::chrono::milliseconds submit_timeout{180'000};
        std::chrono::milliseconds query_timeout{60'000};
        // Of an estimate: a person waits for it, and slurmctld plans a whole start for it.
        std::chrono::milliseconds estimate_timeout{20'000};
        // Each question of probe(): the daemon's start must not wait for a Slurm that hangs.
        std::chrono::milliseconds probe_timeout{5'000};
    };
    // After each call of a program: its name, how it went, how long it took.
    using Called = std::function<void(std::string_view program, bool good, double seconds)>;

    SlurmCli(net::io_context& io, Options options, Called called);

    std::string_view name() const override { return "slurm"; }
    Task<Result<SlurmFacts>> probe() override;
    Task<SubmitReply> submit(std::string path) override;
    Task<Result<JobTable>> jobs() override;
    Task<Result<JobTable>> history(std::string job_name, std::int64_t since) override;
    Task<Status> cancel(std::int64_t id, std::string name) override;
    Task<Result<SlurmJobDetail>> detail(std::int64_t id, std::string name) override;
    Task<Result<std::optional<TestOnlyReply>>> estimate(std::string script) override;
    Task<Status> ping() override;
    Task<Result<NodeTable>> nodes() override;
    void stop() override { runner_.kill_all(); }

    // Whether every program we need is there and may be run; not_found names the missing one.
    Status find_programs();

  private:
    // The error is only of the start; how the program ended is in the result.
    Task<Result<ProcessResult>> call(std::string program, std::vector<std::string> arguments,
                                     std::chrono::milliseconds timeout);
    // The same with a standard input; `name` is what it is counted as.
    Task<Result<ProcessResult>> run(ProcessCommand command, std::string name);
    std::vector<std::string> environment(bool of_a_job) const;

    Options options_;
    Called called_;
    std::map<std::string, std::string> folders_;  // of each program; "" = nowhere
    ProcessRunner runner_;
};

}  // namespace lockstep
