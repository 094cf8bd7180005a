// Which agents a job takes: HELLO, and nodes that were lost and call in again.
//
//   silent, or its agent ended ──▶ lost, may return ──HELLO──▶ ABORT of what still runs there
//   ──JOIN, no rank lives──▶ node_returned: a spare ──a checkpoint, or a deadline──▶ next
//   generation
//
// A node may return once in an attempt (limits::kReturns): one that is lost again stays out.
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace lockstep {
void JobMachine::refuse(Draft& draft, const AgentPtr& link, const wire::Hello& hello,
                        std::string why) {
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    const Attempt* attempt = draft.job().attempt();
    if (hello.node_rank >= 0 && hello.node_rank < draft.job().spec.resources.allocated_nodes()) {
        run_.refused[hello.node_rank] = why;
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
std::string JobMachine::unwelcome(const Draft& draft, const Agent& link, const wire::Hello& hello) {
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
        set_pending_reason("the clock of " + printable(hello.node) + " is " +
                           std::to_string(std::abs(behind) / 1000) + " s " +
                           (behind > 0 ? "behind" : "ahead"));
        return pending_reason_;
    }
    return "";
}

void JobMachine::hello(Draft& draft, const AgentPtr& link, const wire::Hello& hello) {
    if (std::string why = unwelcome(draft, *link, hello); !why.empty()) {
        refuse(draft, link, hello, std::move(why));
        return;
    }
    const Attempt* attempt = draft.job().attempt();
    if (!attempt->claims.empty() && attempt->allocation != hello.allocation) {
        // A second copy of the attempt: the scheduler took it twice. The first claim has it.
        refuse(draft, link, hello,
               "attempt " + std::to_string(attempt->number) + " runs in allocation " +
                   attempt->allocation + ", this is " + printable(hello.allocation));
        return;
    }
    if (attempt->claims.empty() && !hello.allocation.empty() &&
        !may_claim_(attempt->number, hello.allocation)) {
        refuse(draft, link, hello,
               "allocation " + printable(hello.allocation) + " is a second copy of attempt " +
                   std::to_string(attempt->number) + " and is being ended");
        return;
    }
    if (draft.job().state == JobState::queued || draft.job().state == JobState::held) {
        // The scheduler has started it and we hear of it from the agent first.
        event::AttemptPlaced placed;
        placed.attempt = attempt->number;
        placed.scheduler_id = !hello.allocation.empty()
                                  ? hello.allocation
                                  : std::string{draft.at.scheduler} + "-" + job_.id.value + "-a" +
                                        std::to_string(attempt->number);
        draft.add(std::move(placed));
    }
    if (welcome_back(draft, link, hello)) {
        return;
    }
    attempt = draft.job().attempt();
    const auto claim = attempt->claims.find(hello.node_rank);
    if (claim != attempt->claims.end() && claim->second.incarnation != hello.incarnation) {
        refuse(draft, link, hello,
               "node " + std::to_string(hello.node_rank) + " was claimed by another agent");
        return;
    }
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    link->incarnation = hello.incarnation;
    link->pid = hello.pid;
    link->profiles = hello.profiles;
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
            refuse(draft, link, hello, "the job is not waiting for agents");
            return;
        }
    }
    link->hello_pending = true;
    draft.after.emplace_back(after::Claim{link, number, hello.ranks_running ? hello.generation : 0,
                                          hello.preflight, hello.allocation});
}

// HELLO is durable: this is the agent of its node from now on.
void JobMachine::accept(Effects& out, const AgentPtr& link, bool capable, const Surroundings& at) {
    AgentPtr& place = run_.links[link->node_rank];
    if (place && place != link) {
        out.add(effect::Close{place, "another connection of the same agent"});
    }
    place = link;
    run_.gone.erase(link->node_rank);
    run_.refused.erase(link->node_rank);
    link->accepted = true;
    link->since = at.steady;
    link->place.reset();
    run_.unheard.erase(link->node_rank);
    run_.rendezvous.connected(link->node_rank);
    run_.expect_facts(job_, *link, capable, at.steady);
}

// HELLO of an elastic job's node that is lost, or is by this: its agent is another one, which has
// the lock of the one before (claim.hpp), so that one is dead. False: it is none of these.
bool JobMachine::welcome_back(Draft& draft, const AgentPtr& link, const wire::Hello& hello) {
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
            refuse(draft, link, hello, "this node was lost for the second time");
            return true;
        }
    }
    if (!draft.job().attempt()->lost.contains(slot)) {
        return false;
    }
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    link->incarnation = hello.incarnation;
    link->pid = hello.pid;
    link->profiles = hello.profiles;
    link->generation = std::max(hello.generation, 0);
    link->hello_pending = true;
    draft.after.emplace_back(after::Revisit{link, hello.preflight});
    return true;
}

// What a node says that is lost and has called in again: nothing of it counts but that it joins.
void JobMachine::hear_lost(Draft& draft, const AgentPtr& link, const wire::AgentMessage& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) {
        come_back(draft, link, *join);
    } else if (const auto* checked = std::get_if<wire::Checked>(&message)) {
        if (lockstep::checked(draft, run_, link, *checked)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* probed = std::get_if<wire::Probed>(&message)) {
        if (lockstep::probed(draft, run_, link, *probed)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* request = std::get_if<wire::KeyRequest>(&message)) {
        draft.after.emplace_back(after::Keys{link, *request});
    }
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.event; }) {
                draft.hear(link, one.event);
            }
        },
        message);
}

// It joins, and what it knew of when it called in is over there: no rank lives. Nothing newer can
// have reached it, for a lost node is sent no WORLD.
void JobMachine::come_back(Draft& draft, const AgentPtr& link, const wire::Join& join) {
    if (join.generation < link->generation) {
        return;  // ABORT is on its way to it
    }
    if (run_.stopping) {
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

}  // namespace lockstep
