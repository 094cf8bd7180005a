// Which agents a job takes: HELLO, and nodes that were lost and call in again.
//
//   silent, or its agent ended ──▶ lost, may return ──HELLO──▶ ABORT of what still runs there
//   ──JOIN, no rank lives──▶ node_returned: a spare ──a checkpoint, or a deadline──▶ next
//   generation
//
// A node may return once in an attempt (limits::kReturns): one that is lost again stays out. An
// agent is taken once its claim is durable: then its connection is the node's (AttemptRun::links).
// Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/effect.hpp"
#include "daemon/control/machine/pending_reason.hpp"
#include "daemon/control/machine/surroundings.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace lockstep {

class AgentAdmission {
  public:
    // Whether an agent of this allocation, the first of the attempt to call in, may have it
    // (Scheduler::may_claim).
    using MayClaim = std::function<bool(std::int32_t attempt, const std::string& allocation)>;
    explicit AgentAdmission(MayClaim may_claim) : may_claim_(std::move(may_claim)) {}

    // Its claim is added, or it is fenced, at once, and the job's events say why. If the node's
    // clock is wrong, `pending` says so.
    void hello(Draft& draft, AttemptRun& run, PendingReason& pending, const AgentPtr& link,
               const wire::Hello& hello) const;
    // It is durable: this is the agent of its node from now on.
    static void accept(Effects& out, const Job& job, AttemptRun& run, const after::Claim& claim,
                       const Surroundings& at);
    // The same of a lost node's: what still runs there is ended, and nothing of it counts until it
    // joins.
    static void accept_lost(Effects& out, const Job& job, AttemptRun& run,
                            const after::Revisit& visit, const Surroundings& at);
    // JOIN of a lost node: what it knew of when it called in is over there, no rank lives. Nothing
    // newer can have reached it, for a lost node is sent no WORLD.
    static void come_back(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                          const wire::Join& join);
    // It counts again.
    static void accept_return(Effects& out, const Job& job, AttemptRun& run,
                              const after::Return& back);

  private:
    // Why another allocation has the attempt; "": it is this one's, or may be.
    std::string why_anothers(const Attempt& attempt, const wire::Hello& hello) const;

    MayClaim may_claim_;
};

}  // namespace lockstep
