// The users whose signatures lockstepd holds, each signature in a file of its own with mode 0600:
// <folder>/<user>/<SHA-256 of the statement>.json; spare.json is the newest of those that no job
// needs any more, for what is asked about a user without jobs. A credential is worth nothing to
// whoever finds it: only lockstep-exec takes it, from lockstepd alone, and only for the job it was
// made for; all the same it is in no event, answer or log. lockstep-exec checks them. Control
// thread, but for open(), kept() and ask().
#pragma once

#include "job/async/on_thread.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/signatures.hpp"
#include "scheduler-integration/slurm/exec_client.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class SlurmSigners final : public Signatures {
  public:
    struct Kept {
        std::string credential;
        std::string statement;
    };

    // Asks lockstep-exec what it is. unavailable, denied: it does not answer, or refuses.
    // `open_patience`: what open() has for a file; when one has taken that, others fail at once for
    // some seconds (timed_out).
    static Result<std::unique_ptr<SlurmSigners>> begin(
        std::shared_ptr<ExecClient> client, std::filesystem::path folder, bool gpus_as_gres,
        std::chrono::milliseconds open_patience = limits::kSignerPatience);

    const Signing& signing() const override { return signing_; }
    Task<Result<std::string>> take(std::string user, Signature signature, std::string statement,
                                   std::string document) override;
    Result<std::string> document(const std::string& user, const std::string& name) const override;
    Status forget(const std::string& user, const std::string& name) override;
    std::filesystem::path folder(const std::string& user, const JobId& job,
                                 std::int32_t attempt) const override;
    Result<UniqueFd> open(const std::filesystem::path& path) const override;
    const std::filesystem::path& runs() const override { return runs_; }

    ExecClient& client() const { return *client_; }
    // As lockstep-exec's configuration says: what its scripts begin with.
    const std::string& agent() const { return agent_; }
    const std::string& slurm_bin() const { return slurm_bin_; }
    std::vector<std::string> users() const;
    // Blocking. not_found: there is none of that name.
    Result<Kept> kept(const std::string& user, const std::string& name) const;
    // What any of the user's signatures allows, with the newest that lockstep-exec still takes.
    // Blocking. As ExecClient::call; unavailable, too: there is none.
    Result<ExecReply> ask(const std::string& user, ExecOrder order,
                          std::chrono::milliseconds patience) const;

  private:
    struct Named {
        std::string name;  // of its file
        Kept signature;
    };

    SlurmSigners(std::shared_ptr<ExecClient> client, std::filesystem::path folder,
                 std::chrono::milliseconds open_patience)
        : client_(std::move(client)), folder_(std::move(folder)), open_patience_(open_patience) {}

    Result<Kept> read(const std::string& user, const std::string& name) const;
    Result<Named> newest_of(const std::string& user) const;
    bool is_taken(const std::string& user, const Kept& signature) const;
    void set_aside(const std::string& user, const std::string& name) const;

    std::shared_ptr<ExecClient> client_;
    std::filesystem::path folder_;
    std::chrono::milliseconds open_patience_;
    std::filesystem::path runs_;
    std::string agent_;
    std::string slurm_bin_;
    Signing signing_;
    net::thread_pool files_{2};
    mutable std::mutex mutex_;                     // guards those below
    mutable std::map<std::string, Named> newest_;  // by user
    mutable std::map<std::string, std::set<std::string>> refused_;
    mutable std::chrono::steady_clock::time_point open_again_{};  // not before
};

// What lockstep-exec says when it does not do what it was asked.
Error exec_error(const ExecReply& reply);

}  // namespace lockstep
