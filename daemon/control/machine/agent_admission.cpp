#include "daemon/control/machine/agent_admission.hpp"

#include "daemon/control/machine/loss_watch.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

// As a fence, for one that has just called in; its job's events say so.
void refuse(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Hello& hello,
            std::string why) {
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    const Attempt* attempt = draft.job().attempt();
    if (hello.node_rank >= 0 && hello.node_rank < draft.job().spec.resources.allocated_nodes()) {
        run.refused[hello.node_rank] = why;
    }
    if (attempt != nullptr && attempt->refused < limits::kRefusalEvents) {
        event::AgentRefused refused;
        refused.attempt = attempt->number;
        refused.node_rank = hello.node_rank;
        refused.node = link->node;
        refused.reason = why;
        draft.add(std::move(refused));  // a finished job takes no events: then the log has it
    }
    draft.fence(link, std::move(why));
}

// Why an agent cannot be had; "" if it can.
std::string unwelcome(const Draft& draft, PendingReason& pending, const Agent& link,
                      const wire::Hello& hello) {
    const Job& job = draft.job();
    const Attempt* attempt = job.attempt();
    if (hello.protocol != wire::kProtocol) {
        return "this daemon speaks protocol " + std::to_string(wire::kProtocol);
    }
    if (attempt == nullptr || attempt->number != link.attempt() || attempt->finished_at != 0 ||
        hello.node_rank < 0 || hello.node_rank >= job.spec.resources.allocated_nodes() ||
        hello.incarnation.empty() || hello.incarnation.size() > limits::kTextBytes ||
        hello.allocation.size() > limits::kTextBytes) {
        return "not a node of the current attempt";
    }
    if (std::string why = why_given_up(*attempt, hello.node_rank); !why.empty()) {
        return why;
    }
    // Ranks that train already are not stopped for it.
    const UnixMillis now = draft.at.wall;
    const UnixMillis behind = now - std::clamp<UnixMillis>(hello.time, 0, 2 * now);
    if (hello.time != 0 && !hello.ranks_running && std::abs(behind) > limits::kClockTolerance) {
        pending.set("the clock of " + printable(hello.node) + " is " +
                    std::to_string(std::abs(behind) / 1000) + " s " +
                    (behind > 0 ? "behind" : "ahead"));
        return pending.words;
    }
    return "";
}

// The agent as it has said that it is.
void introduce(Agent& link, const wire::Hello& hello) {
    link.node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    link.incarnation = hello.incarnation;
    link.pid = hello.pid;
    link.profiles = hello.profiles;
}

// HELLO of an elastic job's node that is lost, or is by this: its agent is another one, which has
// the lock of the one before (claim.hpp), so that one is dead. False: it is none of these.
bool welcome_back(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Hello& hello) {
    const Job& job = draft.job();
    if (!job.spec.resources.is_elastic()) {
        return false;
    }
    const std::int32_t slot = hello.node_rank;
    const auto claim = job.attempt()->claims.find(slot);
    const bool another =
        claim != job.attempt()->claims.end() && claim->second.incarnation != hello.incarnation;
    if (another && !job.attempt()->lost.contains(slot)) {
        event::FaultSeen ended;
        ended.node = claim->second.node;
        ended.cause_class = CauseClass::node_lost;
        ended.message = "the agent of " + ended.node + " ended and was started again";
        ended.may_return = true;
        lose_node(draft, slot, std::move(ended));
        if (!draft.job().attempt()->may_return(slot)) {
            refuse(draft, run, link, hello, "this node was lost for the second time");
            return true;
        }
    }
    if (!draft.job().attempt()->lost.contains(slot)) {
        return false;
    }
    introduce(*link, hello);
    link->generation = std::max(hello.generation, 0);
    link->hello_pending = true;
    draft.after.emplace_back(after::Revisit{link, hello.preflight});
    return true;
}

// HELLO is durable: it is the agent of its node from now on.
void take_in(Effects& out, const Job& job, AttemptRun& run, const AgentPtr& link, bool capable,
             const Surroundings& at) {
    AgentPtr& place = run.links[link->node_rank];
    if (place && place != link) {
        out.add(effect::Close{place, "another connection of the same agent"});
    }
    place = link;
    run.gone.erase(link->node_rank);
    run.refused.erase(link->node_rank);
    link->accepted = true;
    link->since = at.steady;
    link->place.reset();
    run.unheard.erase(link->node_rank);
    run.rendezvous.connected(link->node_rank);
    run.expect_facts(job, *link, capable, at.steady);
}

}  // namespace

std::string AgentAdmission::why_anothers(const Attempt& attempt, const wire::Hello& hello) const {
    if (!attempt.claims.empty() && attempt.allocation != hello.allocation) {
        // A second copy of the attempt: the scheduler took it twice. The first claim has it.
        return "attempt " + std::to_string(attempt.number) + " runs in allocation " +
               attempt.allocation + ", this is " + printable(hello.allocation);
    }
    if (attempt.claims.empty() && !hello.allocation.empty() &&
        !may_claim_(attempt.number, hello.allocation)) {
        return "allocation " + printable(hello.allocation) + " is a second copy of attempt " +
               std::to_string(attempt.number) + " and is being ended";
    }
    return "";
}

void AgentAdmission::hello(Draft& draft, AttemptRun& run, PendingReason& pending,
                           const AgentPtr& link, const wire::Hello& hello) const {
    if (std::string why = unwelcome(draft, pending, *link, hello); !why.empty()) {
        refuse(draft, run, link, hello, std::move(why));
        return;
    }
    const Attempt* attempt = draft.job().attempt();
    if (std::string why = why_anothers(*attempt, hello); !why.empty()) {
        refuse(draft, run, link, hello, std::move(why));
        return;
    }
    if (draft.job().state == JobState::queued || draft.job().state == JobState::held) {
        // The scheduler has started it and we hear of it from the agent first.
        event::AttemptPlaced placed;
        placed.attempt = attempt->number;
        placed.scheduler_id = !hello.allocation.empty() ? hello.allocation
                                                        : std::string{draft.at.scheduler} + "-" +
                                                              draft.before().id.value + "-a" +
                                                              std::to_string(attempt->number);
        draft.add(std::move(placed));
    }
    if (welcome_back(draft, run, link, hello)) {
        return;
    }
    attempt = draft.job().attempt();
    const auto claim = attempt->claims.find(hello.node_rank);
    if (claim != attempt->claims.end() && claim->second.incarnation != hello.incarnation) {
        refuse(draft, run, link, hello,
               "node " + std::to_string(hello.node_rank) + " was claimed by another agent");
        return;
    }
    introduce(*link, hello);
    const std::int32_t number = attempt->number;
    if (claim == attempt->claims.end()) {
        event::AgentClaimed claimed;
        claimed.attempt = number;
        claimed.node_rank = hello.node_rank;
        claimed.node = link->node;
        claimed.incarnation = hello.incarnation;
        claimed.pid = hello.pid;
        claimed.allocation = hello.allocation;
        if (!draft.add(std::move(claimed))) {
            refuse(draft, run, link, hello, "the job is not waiting for agents");
            return;
        }
    }
    link->hello_pending = true;
    draft.after.emplace_back(after::Claim{link, number, hello.ranks_running ? hello.generation : 0,
                                          hello.preflight, hello.allocation});
}

void AgentAdmission::accept(Effects& out, const Job& job, AttemptRun& run,
                            const after::Claim& claim, const Surroundings& at) {
    if (!claim.allocation.empty()) {
        out.add(effect::Claimed{claim.attempt, claim.allocation});
    }
    const AgentPtr& link = claim.link;
    link->hello_pending = false;
    if (!link->open()) {
        return;
    }
    take_in(out, job, run, link, claim.capable, at);
    if (claim.running != 0 && run.rendezvous.started(link->node_rank, claim.running)) {
        out.add(effect::LookAgain{});  // it may be the last that was not ready
    }
    out.add(effect::Greet{link});
    if (run.stopping || run.generation.abort_sent) {
        link->abort_sent.reset();
        run.generation.abort_due = true;
        out.add(effect::LookAgain{});
    }
}

void AgentAdmission::accept_lost(Effects& out, const Job& job, AttemptRun& run,
                                 const after::Revisit& visit, const Surroundings& at) {
    const AgentPtr& link = visit.link;
    link->hello_pending = false;
    if (!link->open()) {
        return;
    }
    run.left.erase(link->node_rank);
    run.preflight.returned(link->node_rank);
    take_in(out, job, run, link, visit.capable, at);
    log::info("a lost node has called in again", {{"job", job.id.value}, {"node", link->node}});
    out.add(effect::Greet{link});
    if (link->generation > 0) {
        wire::Abort abort;
        abort.generation = link->generation;
        abort.reason = "this node was given up; it may take part again without these ranks";
        abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
        out.send(link, abort);
    }
}

void AgentAdmission::come_back(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                               const wire::Join& join) {
    if (join.generation < link->generation) {
        return;  // ABORT is on its way to it
    }
    if (run.stopping) {
        return;  // STOP is: nothing that it could take part in follows in this allocation
    }
    event::NodeReturned back;
    back.attempt = draft.job().attempt()->number;
    back.slot = link->node_rank;
    back.node = link->node;
    back.incarnation = link->incarnation;
    back.pid = link->pid;
    if (draft.add(std::move(back))) {
        draft.after.emplace_back(after::Return{link, join});
    }
}

void AgentAdmission::accept_return(Effects& out, const Job& job, AttemptRun& run,
                                   const after::Return& back) {
    run.rendezvous.returned(back.link->node_rank);
    log::info("a lost node is back", {{"job", job.id.value}, {"node", back.link->node}});
    out.add(effect::HearAgain{AgentInput{back.link, back.join}});
}

}  // namespace lockstep
