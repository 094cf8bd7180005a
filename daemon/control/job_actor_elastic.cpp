// Elastic jobs (resources.min_nodes): generations that go on with fewer nodes, nodes that were lost
// and come back, and when the ranks are started again because there are more.
//
//   silent, or its agent ended ──▶ lost, may return ──HELLO──▶ ABORT of what still runs there
//   ──JOIN, no rank lives──▶ node_returned: a spare ──a checkpoint, or a deadline──▶ next
//   generation
//
// A node may return once in an attempt (limits::kReturns): one that is lost again stays out.
#include "daemon/control/job_actor.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kNodesNamed = 4;
// Nodes that a switch gives back come one after the other: they share one restart.
constexpr auto kSettle = std::chrono::seconds{2};

std::string name_of(const Attempt& attempt, std::int32_t slot) {
    const auto claim = attempt.claims.find(slot);
    return claim == attempt.claims.end() ? "node " + std::to_string(slot) : claim->second.node;
}

std::string names_of(const Attempt& attempt, const std::vector<std::int32_t>& slots) {
    std::string out;
    for (std::size_t i = 0; i < std::min(slots.size(), kNodesNamed); ++i) {
        out += (i == 0 ? "" : ", ") + name_of(attempt, slots[i]);
    }
    if (slots.size() > kNodesNamed) {
        out += " and " + std::to_string(slots.size() - kNodesNamed) + " more";
    }
    return out;
}

const char* are(std::size_t count) {
    return count == 1 ? " is " : " are ";
}

}  // namespace

// HELLO of an elastic job's node that is lost, or is by this: its agent is another one, which has
// the lock of the one before (claim.hpp), so that one is dead. False: it is none of these.
bool JobActor::welcome_back(Draft& draft, const std::shared_ptr<AgentLink>& link,
                            const wire::Hello& hello) {
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
        ended.cause_class = to_string(CauseClass::node_lost);
        ended.message = "the agent of " + ended.node + " ended and was started again";
        ended.may_return = true;
        lose(draft, slot, std::move(ended));
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
    link->generation = std::max(hello.generation, 0);
    link->hello_pending = true;
    draft.effects.push_back([this, link, capable = hello.preflight] {
        link->hello_pending = false;
        if (!link->open()) {
            return;
        }
        run_.left.erase(link->node_rank);
        run_.preflight.returned(link->node_rank);
        accept(link, capable);
        log::info("a lost node has called in again",
                  {{"job", job_.id.value}, {"node", link->node}});
        link->send_text(welcome(*link));
        if (link->generation > 0) {
            wire::Abort abort;
            abort.generation = link->generation;
            abort.reason = "this node was given up; it may take part again without these ranks";
            abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
            link->send(abort);
        }
    });
    return true;
}

// What a node says that is lost and has called in again: nothing of it counts but that it joins.
void JobActor::hear_lost(Draft& draft, const std::shared_ptr<AgentLink>& link,
                         const wire::AgentMessage& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) {
        come_back(draft, link, *join);
    } else if (const auto* checked = std::get_if<wire::Checked>(&message)) {
        this->checked(draft, link, *checked);
    } else if (const auto* probed = std::get_if<wire::Probed>(&message)) {
        this->probed(draft, link, *probed);
    } else if (const auto* request = std::get_if<wire::KeyRequest>(&message)) {
        draft.effects.push_back([this, link, asked = *request] { keys(link, asked); });
    }
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.event; }) {
                draft.heard.emplace_back(link, one.event);
            }
        },
        message);
}

// It joins, and what it knew of when it called in is over there: no rank lives. Nothing newer can
// have reached it, for a lost node is sent no WORLD.
void JobActor::come_back(Draft& draft, const std::shared_ptr<AgentLink>& link,
                         const wire::Join& join) {
    const Attempt& attempt = *draft.job().attempt();
    const std::int32_t slot = link->node_rank;
    if (join.generation < link->generation) {
        return;  // ABORT is on its way to it
    }
    event::NodeReturned back;
    back.attempt = attempt.number;
    back.slot = slot;
    back.node = link->node;
    back.incarnation = link->incarnation;
    back.pid = link->pid;
    if (!add(draft, std::move(back))) {
        return;
    }
    draft.effects.push_back([this, link, join] {
        run_.rendezvous.returned(link->node_rank);
        log::info("a lost node is back", {{"job", job_.id.value}, {"node", link->node}});
        inputs_.emplace_front(AgentInput{link, join});
    });
}

// Fewer nodes than are wanted could begin; whether more are on their way.
bool JobActor::waits_for_more(const Job& job, const std::vector<std::int32_t>& members) const {
    if (static_cast<std::int32_t>(members.size()) == job.spec.resources.nodes) {
        return false;
    }
    const auto now = context_.clock.steady();
    if (job.generation() == nullptr) {
        const bool all = run_.rendezvous.everybody_joined() && run_.preflight.settled();
        return !all && run_.joined_at && now - *run_.joined_at < limits::kLateNodes;
    }
    return std::any_of(run_.links.begin(), run_.links.end(), [&](const auto& entry) {
        const bool member = std::find(members.begin(), members.end(), entry.first) != members.end();
        return !member && now - entry.second->since < limits::kReturnPatience;
    });
}

// What is special about the number of nodes of the generation that begins; "" = nothing.
std::string JobActor::size_words(const Job& job, const std::vector<std::int32_t>& members) const {
    const Attempt& attempt = *job.attempt();
    const Generation* last = job.generation();
    const auto count = static_cast<std::int32_t>(members.size());
    const std::int32_t wanted = job.spec.resources.nodes;
    const std::int32_t before = last == nullptr ? wanted : last->nodes;
    const std::string of = std::to_string(count) + " of " + std::to_string(wanted) + " nodes";
    if (count == wanted) {
        return before < wanted ? of + " again" : "";
    }
    if (last != nullptr && count == before) {
        return "";
    }
    std::vector<std::int32_t> lost;
    std::vector<std::int32_t> late;
    for (std::int32_t slot = 0; slot < job.spec.resources.allocated_nodes(); ++slot) {
        const bool member = std::find(members.begin(), members.end(), slot) != members.end();
        if (!member && attempt.lost.contains(slot)) {
            lost.push_back(slot);
        } else if (!member) {
            late.push_back(slot);
        }
    }
    std::string out = (last == nullptr ? "starts with " : "goes on with ") + of;
    std::string why;
    if (!lost.empty()) {
        why = names_of(attempt, lost) + are(lost.size()) + "lost";
    }
    if (!late.empty()) {
        why += (why.empty() ? "" : ", ") + names_of(attempt, late) + are(late.size()) +
               "not there yet";
    }
    return why.empty() ? out : out + ": " + why;
}

// Nodes that could be taken into a larger generation, lowest first.
std::vector<std::int32_t> JobActor::more_nodes(const Job& job) const {
    std::vector<std::int32_t> out;
    const auto now = context_.clock.steady();
    for (const auto& [slot, link] : run_.links) {
        if (run_.rendezvous.is_spare(slot) && run_.preflight.passed(slot) &&
            !job.attempt()->lost.contains(slot) && now - link->since >= kSettle &&
            now - link->last_heard < limits::kAgentSilence / 2) {
            out.push_back(slot);
        }
    }
    return out;
}

std::int64_t JobActor::newest_checkpoint(const Job& job) const {
    const bool heard = run_.checkpoint && run_.checkpoint->attempt == job.attempt()->number;
    return std::max(job.checkpoint_step, heard ? run_.checkpoint->step : -1);
}

// A larger generation costs a restart, so it comes when that loses the least: right after a
// checkpoint, which the ranks are asked for if all of them catch the signal. Some say nothing of
// their checkpoints; after grow_after_seconds nobody waits any more. A generation that has begun to
// end is left alone.
void JobActor::look_at_growth(Draft& draft) {
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    const Resources& resources = job.spec.resources;
    const bool runs = resources.is_elastic() && live != nullptr && live->running_at != 0 &&
                      live->nodes < resources.nodes && !live->first_failure &&
                      live->exited_count == 0 && job.restart_requested_by.empty() &&
                      job.cancel_requested_at == 0 && !run_.stopping && !run_.generation.abort_sent;
    const std::vector<std::int32_t> more = runs ? more_nodes(job) : std::vector<std::int32_t>{};
    if (more.empty()) {
        run_.generation.growth.reset();
        return;
    }
    const auto now = context_.clock.steady();
    const std::chrono::seconds patience{
        job.spec.recovery.grow_after_seconds.value_or(kGrowAfterSeconds)};
    const std::string names = names_of(*job.attempt(), more);
    if (!run_.generation.growth) {
        run_.generation.growth = GrowthWait{now, newest_checkpoint(job)};
        log::info("more nodes are there; the next checkpoint is waited for",
                  {{"job", job_.id.value}, {"nodes", names}, {"seconds", patience.count()}});
        if (patience.count() > 0) {
            SaveInput save;
            save.by = "lockstep";
            save.done = [id = job_.id.value](const Status& asked) {
                if (!asked) {
                    log::info("the ranks cannot be asked for a checkpoint",
                              {{"job", id}, {"why", asked.error().message}});
                }
            };
            take(draft, save);
        }
    }
    if (newest_checkpoint(job) <= run_.generation.growth->checkpoint &&
        now - run_.generation.growth->since < patience) {
        return;
    }
    const auto count =
        std::min(live->nodes + static_cast<std::int32_t>(more.size()), resources.nodes);
    event::RestartRequested grow;
    grow.attempt = job.attempt()->number;
    grow.generation = live->number;
    grow.by = "lockstep";
    grow.reason = names + are(more.size()) + "there: the ranks are started again on " +
                  std::to_string(count) + " of " + std::to_string(resources.nodes) + " nodes";
    add(draft, std::move(grow));
}

}  // namespace lockstep
