// Slurm for several people: each job is handed in, followed and ended in its own user's name, with
// the user's own Slurm token, by a SlurmScheduler for each user. lockstepd itself has no rights in
// Slurm, and an expired token of one user does not delay others. Control thread only. Call stop()
// and let it finish before the object goes.
#pragma once

#include "scheduler-integration/slurm/slurm_driver.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"
#include "scheduler-integration/slurm/slurm_signers.hpp"
#include "scheduler-integration/slurm/slurm_tokens.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

class SlurmUsers final : public SlurmDriver, public Identities {
  public:
    using Token = std::function<std::string()>;  // "" = there is none now
    // What speaks to Slurm as `user`, with what `token` gives at each request.
    using MakeBackend =
        std::function<std::unique_ptr<SlurmBackend>(const std::string& user, Token token)>;

    SlurmUsers(net::io_context& io, const Clock& clock, MakeBackend make_backend,
               SlurmScheduler::Options options, std::filesystem::path token_folder);

    // By signatures instead of tokens: lockstep-exec acts, the token is "".
    SlurmUsers(net::io_context& io, const Clock& clock, MakeBackend make_backend,
               SlurmScheduler::Options options, std::shared_ptr<SlurmSigners> signers);

    Task<Status> begin() override;
    Task<void> stop() override;
    void agents_moved() override;
    void on_change(Changed changed) override { changed_ = std::move(changed); }
    void know_ends(EndOf end_of) override;
    std::string_view name() const override { return signers_ ? "slurm" : "slurmrestd"; }
    Result<Admission> admit(const JobSpec& spec) const override;
    Status admit_user(const std::string& user) const override;
    Task<Handover> submit(AttemptRequest request) override;
    Task<Result<bool>> adopt(AttemptRequest request) override;
    Task<Observation> poll(JobId job, std::int32_t attempt) override;
    bool may_claim(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void claimed(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void expect_end(const JobId& job, std::int32_t attempt, bool done) override;
    void over(const JobId& job, std::int32_t attempt) override;
    std::optional<std::string> leaving(const JobId& job) const override;
    Task<Status> cancel(JobId job, std::int32_t attempt) override;
    Cluster cluster() override;
    Task<Status> ping() override;
    Result<std::optional<std::string>> script(const AttemptRequest& request) const override;
    Identities* identities() override { return signers_ ? nullptr : this; }
    Signatures* signatures() override { return signers_.get(); }

    Status put(const std::string& user, const std::string& credential) override;
    std::optional<UnixMillis> good_until(const std::string& user) const override;
    Status forget(const std::string& user) override;

    SlurmCounters counters();  // of all users together

  private:
    struct User {
        std::unique_ptr<SlurmScheduler> scheduler;
        std::unique_ptr<net::steady_timer> retry;  // begin() is tried again
        bool begun = false;
        std::string problem;  // why not
    };
    struct Followed {
        std::string user;
        bool told = false;  // the user's scheduler knows of it: its word counts
    };
    User& user_of(const std::string& name);
    User* find(const JobId& job);
    const SlurmScheduler& representative() const;
    Status usable(const std::string& user) const;
    Task<void> begin_user(User& user, std::string name);
    std::unique_ptr<SlurmScheduler> make(const std::string& name);

    net::io_context& io_;
    const Clock& clock_;
    MakeBackend make_backend_;
    SlurmScheduler::Options options_;
    SlurmTokens tokens_;
    std::shared_ptr<SlurmSigners> signers_;  // nullptr: tokens
    Changed changed_;
    EndOf end_of_;
    std::map<std::string, User> users_;     // by name; never erased
    std::map<std::string, Followed> jobs_;  // by id
    // Answers what needs no Slurm until one has answered; never begun.
    std::unique_ptr<SlurmScheduler> nobody_;
    bool stopped_ = false;
    TaskGroup tasks_;
};

}  // namespace lockstep
