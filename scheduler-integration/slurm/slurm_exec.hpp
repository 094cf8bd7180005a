// Slurm in a user's name by lockstep-exec: what changes something, and what is asked about the
// user's jobs, goes that way with a signature of the user's. What anybody may ask (partitions,
// nodes) lockstepd asks itself. Control thread.
#pragma once

#include "job/async/on_thread.hpp"
#include "scheduler-integration/slurm/slurm_cli.hpp"
#include "scheduler-integration/slurm/slurm_signers.hpp"

#include <memory>
#include <string>

namespace lockstep {

class SlurmExec final : public SlurmBackend {
  public:
    // `user` "" : of nobody's, for what anybody may ask.
    SlurmExec(net::io_context& io, SlurmCli::Options cli, SlurmCli::Called called,
              std::shared_ptr<SlurmSigners> signers, std::string user);

    std::string_view name() const override { return "slurm"; }
    Task<Result<SlurmFacts>> probe() override { return cli_.probe(); }
    Task<Result<NodeTable>> nodes() override { return cli_.nodes(); }
    Task<Status> ping() override { return cli_.ping(); }
    bool writes_scripts() const override { return false; }
    Task<void> took_up(AttemptRequest request) override;
    Task<SubmitReply> submit_attempt(AttemptRequest request, slurm::BatchSite site) override;
    Task<SubmitReply> submit(std::string path) override;
    Task<Result<JobTable>> jobs() override;
    Task<Result<JobTable>> history(std::string job_name, std::int64_t since) override;
    Task<Status> cancel(std::int64_t id, std::string name) override;
    Task<Result<SlurmJobDetail>> detail(std::int64_t id, std::string name) override;
    void stop() override;

  private:
    // `request`: with the signature and the ticket of that attempt; else with any of the user's.
    Task<Result<ExecReply>> call(ExecOrder order, std::string what,
                                 std::shared_ptr<const AttemptRequest> request = nullptr);

    SlurmCli cli_;
    SlurmCli::Options options_;
    SlurmCli::Called called_;
    std::shared_ptr<SlurmSigners> signers_;
    std::string user_;
    net::thread_pool calls_{4};
};

}  // namespace lockstep
