// What slurmrestd answers, v0.0.38 (Slurm 22.05) to v0.0.45 (26.05), and what a user's token says.
// Shapes are recognized by their members, not by the version's number. Nothing here trusts the
// bytes. Pure; any thread.
#pragma once

#include "job/async/http_client.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/slurm/json_fields.hpp"
#include "scheduler-integration/slurm/slurm_info.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rest {

// --- the user's token: a JSON Web Token (RFC 7519) that slurmctld made or a site's issuer --------

struct TokenClaims {
    std::optional<std::int64_t> expires;  // exp, Unix seconds
    std::optional<std::int64_t> issued;   // iat
    std::string user;  // sun, Slurm's user name; "" = the site uses another claim
};
// Reads, does not verify: that is slurmctld's. invalid: no three parts of base64url, or no JSON.
Result<TokenClaims> read_token(std::string_view token);
// Why it must not even be sent: none, of another user, expired. The message names the user whose
// token it is and what to do; always denied.
std::optional<Error> token_problem(std::string_view token, std::string_view user, std::int64_t now);

// --- failures ------------------------------------------------------------------------------------

// An answer with another status than 200, or with `errors` beside it. denied: 401, 403, or Slurm
// says so; not_found: there is no such job; conflict: it is over already; unavailable: the rest.
Error query_failure(std::string_view what, const ClientResponse& response, std::string_view user);
// The elements of the one long array `name` of an answer, each parsed by itself; empty where Slurm
// says "Nothing found". invalid: not JSON, torn, or without the array; else query_failure().
Result<std::vector<Json>> elements_of(const char* name, const ClientResponse& response,
                                      std::string_view user);
// Of a short answer: the parsed document, or the failure.
Result<Json> document_of(std::string_view what, const ClientResponse& response,
                         std::string_view user);

// --- answers -------------------------------------------------------------------------------------

// POST job/submit. The rules are sbatch's (slurm_text.hpp): rejected only for a definite refusal,
// ambiguous for all that is not understood. A job's number means accepted, whatever stands beside
// it.
SubmitReply submit_reply(const ClientResponse& response, std::string_view user);

struct PingAnswer {
    json_fields::Meta meta;
    std::vector<ControllerPing> controllers;
};
Result<PingAnswer> parse_ping_answer(const ClientResponse& response, std::string_view user);

// GET job/{id}: the latest record of that number. not_found: there is none.
struct JobDetail {
    SlurmJob job;
    bool preempted = false;  // preempt_time is set
};
Result<JobDetail> parse_job_detail(const ClientResponse& response, std::string_view user);

// GET slurmdb jobs, cut to one user's since a time. Empty where Slurm says "Nothing found".
Result<JobTable> parse_history(const ClientResponse& response, std::string_view user,
                               std::int64_t since);

// GET partitions. From v0.0.39 on the default one is not marked.
Result<std::vector<SlurmPartition>> parse_partitions(const ClientResponse& response,
                                                     std::string_view user);
// GET nodes.
Result<NodeTable> parse_nodes(const ClientResponse& response, std::string_view user);

}  // namespace lockstep::rest
