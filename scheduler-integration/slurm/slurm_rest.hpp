// Slurm by slurmrestd: HTTP to one server, as ONE user, with that user's own token (a JSON Web
// Token). slurmrestd speaks plain HTTP and checks nothing itself: it belongs on loopback, on a Unix
// socket or behind a proxy. The token is asked for with each request, so a renewed one is used at
// once; it is in no log and in no error. Control thread.
//
// Seen live: slurmrestd 22.05.8 (v0.0.38). v0.0.39 to v0.0.44 by Slurm's sources and documents.
#pragma once

#include "job/async/rest_http.hpp"
#include "job/base/clock.hpp"
#include "scheduler-integration/slurm/rest_text.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class SlurmRest final : public SlurmBackend {
  public:
    struct Options {
        RestAddress address;
        std::string user;  // Slurm's user name: whose jobs, whose token
        std::string home;  // HOME of the batch script; "" = left out
        std::vector<std::pair<std::string, std::string>> limits{};  // rest::JobSite's
        std::function<std::string()> token;                // the user's token now; "" = none
        std::chrono::milliseconds submit_timeout{60'000};  // as MessageTimeout, with room
        std::chrono::milliseconds query_timeout{60'000};
        std::chrono::milliseconds probe_timeout{5'000};
        std::uint64_t answer_bytes = 256ULL << 20U;  // everybody's jobs come in one answer
    };
    // After each request: its route without ids ("job/submit", "job"), how it went, how long it
    // took.
    using Called = std::function<void(std::string_view route, bool good, double seconds)>;

    SlurmRest(net::io_context& io, const Clock& clock, Options options, Called called);

    std::string_view name() const override { return "slurmrestd"; }
    // Of the configuration only this is known: cluster, version, controllers, whether slurmdbd is
    // there, and the credential's lifetime, which is the token's. The rest is Slurm's defaults.
    // denied: no token, one that expired, or one that is refused; invalid: no version we know.
    Task<Result<SlurmFacts>> probe() override;
    // not_submitted also when the token is missing, expired or somebody else's: the message says
    // so.
    Task<SubmitReply> submit(std::string path) override;
    Task<Result<JobTable>> jobs() override;
    Task<Result<JobTable>> history(std::string job_name, std::int64_t since) override;
    // Looks at the name before it cancels; the number may change hands in between, for a moment.
    Task<Status> cancel(std::int64_t id, std::string name) override;
    Task<Result<SlurmJobDetail>> detail(std::int64_t id, std::string name) override;
    Task<Status> ping() override;
    Task<Result<NodeTable>> nodes() override;
    void stop() override { http_.stop(); }

    // The interface's version in use, 38 for v0.0.38; 0 before the first request.
    int parser() const { return parser_; }

  private:
    struct Query {
        std::string method = "GET";
        std::string family = "slurm";  // or slurmdb
        std::string route{};           // "job/17", with its query string
        std::string_view label{};      // "job": what called_ is told
        std::string body{};
        std::chrono::milliseconds timeout{};
    };
    std::int64_t now() const { return clock_.wall() / 1000; }
    Task<RestAnswer> ask(Query query, int parser);
    Task<Result<ClientResponse>> get(std::string route, std::string_view label,
                                     std::chrono::milliseconds timeout);
    Task<Result<int>> find_parser(bool anew = false);
    Task<std::string> accounting(int parser);
    std::int64_t token_lifetime() const;

    const Clock& clock_;
    Options options_;
    Called called_;
    RestHttp http_;
    int parser_ = 0;
    // The longest of the tokens that submissions went out with: how long one of them may still be
    // accepted.
    std::int64_t longest_lifetime_ = 0;
};

}  // namespace lockstep
