// The local scheduler: runs attempts on this machine, one lockstep-agent process per node. Agents
// are processes of their own session: they outlive the daemon, and the next daemon's submit() of
// the same attempt adopts them by their claim files. Which attempts exist is the store's truth;
// this keeps only what runs and what waits. Control thread only. Call stop() and let it finish
// before the object goes, unless the io_context has been stopped for good; agents keep running
// either way.
#pragma once

#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/local/agent_process.hpp"
#include "scheduler-integration/local/ledger.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class LocalScheduler final : public Scheduler {
  public:
    struct Options {
        std::string agent_program;                 // absolute path of lockstep-agent
        std::vector<std::string> agent_arguments;  // further ones of `lockstep-agent run`
        std::optional<Machine> capacity;           // default: read_machine()
        // SIGTERM to SIGKILL of an agent: its ranks' grace and time to say so.
        std::chrono::milliseconds kill_after = limits::kStopGrace + std::chrono::seconds{5};
    };
    LocalScheduler(net::io_context& io, Options options);
    ~LocalScheduler() override;

    std::string_view name() const override { return "local"; }
    std::string_view title() const override { return "the local scheduler"; }
    bool is_one_machine() const override { return true; }
    Result<Admission> admit(const JobSpec& spec) const override;
    void taking_up() override;
    Task<Handover> submit(AttemptRequest request) override;
    Task<Result<bool>> adopt(AttemptRequest request) override;
    Task<Observation> poll(JobId job, std::int32_t attempt) override;
    Task<Status> cancel(JobId job, std::int32_t attempt) override;
    Task<Status> ping() override;
    Cluster cluster() override;  // this machine

    // Called soon after an attempt started or one of its agents ended; poll() tells what it is.
    void on_change(Changed changed) override { changed_ = std::move(changed); }
    // Stops watching. The agents go on.
    Task<void> stop() override;

  private:
    struct Agent;
    struct Attempt;
    using AttemptPointer = std::shared_ptr<Attempt>;

    AttemptPointer find(const JobId& job, std::int32_t attempt) const;
    std::pair<AttemptPointer, std::vector<ClaimState>> make(AttemptRequest request);
    void take_up(Attempt& attempt, const std::vector<ClaimState>& claims, bool start_missing);
    void start(Attempt& attempt);
    void start_node(Attempt& attempt, std::int32_t node_rank);
    void watch_process(Attempt& attempt, std::int32_t node_rank, AgentProcess process, bool child);
    void start_waiting();
    void agent_ended(Attempt& attempt, std::int32_t node_rank, const std::string& how);
    void check_locks(Attempt& attempt);
    void end_if_over(Attempt& attempt);
    void end(Attempt& attempt, std::string message);
    void announce(const Attempt& attempt);
    void signal_all(Attempt& attempt, int number);
    Task<void> watch(AttemptPointer attempt, std::int32_t node_rank);
    Task<void> enforce(AttemptPointer attempt);

    net::io_context& io_;
    Options options_;
    Ledger ledger_;
    std::string host_;
    Changed changed_;
    std::map<std::string, AttemptPointer> attempts_;  // by scheduler id
    std::deque<std::string> ended_;                   // ids of the ended ones, oldest first
    bool stopped_ = false;
    bool taking_up_ = false;
    TaskGroup tasks_;
};

}  // namespace lockstep
