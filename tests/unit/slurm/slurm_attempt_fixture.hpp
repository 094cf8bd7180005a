// What the tests of an attempt share: its request, Slurm's rows and replies.
#pragma once

#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include <string>
#include <utility>

namespace lockstep {

using namespace std::chrono_literals;

inline const SteadyTime kStart{std::chrono::hours{1000}};
inline const SlurmPatience kPatience{360s, 5s};

inline AttemptRequest request(UnixMillis intent_at = 0, bool fresh = false, std::string id = "",
                              std::string allocation = "") {
    AttemptRequest out;
    out.job = JobId{"ls-01J0000000000000000000000A"};
    out.attempt = 1;
    out.name = "First";
    out.directory = "/runs/x/a1";
    out.intent_at = intent_at;
    out.intent_is_fresh = fresh;
    out.scheduler_id = std::move(id);
    out.allocation = std::move(allocation);
    return out;
}

inline SlurmJob row(std::int64_t id, const char* state, const char* reason = "") {
    SlurmJob out;
    out.id = id;
    out.name = "first-01j0000000000000000000000a-a1";
    out.state = parse_slurm_state(state);
    out.reason = reason;
    return out;
}

inline SubmitReply reply(SubmitReply::Kind kind, std::int64_t id = 0, std::string message = "") {
    SubmitReply out;
    out.kind = kind;
    out.id = id;
    out.message = std::move(message);
    return out;
}

inline SlurmAttempt sent(SubmitReply::Kind kind, std::int64_t id = 0) {
    SlurmAttempt out = take_up(request(), kStart);
    out.request.intent_at = 1;
    out.stage = SlurmAttempt::Stage::sending;
    take_reply(out, reply(kind, id, "Socket timed out"), kStart);
    return out;
}

// Slurm itself ended it as it gave it nodes.
inline SlurmJob ended_at_its_start(std::int64_t id, const char* state = "CANCELLED") {
    SlurmJob out = row(id, state);
    out.submitted_at = 900 + id;
    out.started_at = 1'000;
    out.ended_at = 1'001;
    out.nodes = "n1";
    return out;
}

}  // namespace lockstep
