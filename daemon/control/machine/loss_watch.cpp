#include "daemon/control/machine/loss_watch.hpp"

#include "daemon/control/machine/rank_exit.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Finds the links of slots that are asked for in their order, side by side with them: a tick looks
// at every node of a job.
class LinkWalk {
  public:
    using Links = std::map<std::int32_t, AgentPtr>;
    explicit LinkWalk(const Links& links) : next_(links.begin()), end_(links.end()) {}
    const Agent* at(std::int32_t slot) {
        while (next_ != end_ && next_->first < slot) {
            ++next_;
        }
        return next_ != end_ && next_->first == slot ? next_->second.get() : nullptr;
    }

  private:
    Links::const_iterator next_;
    Links::const_iterator end_;
};

// Of what a scheduler says of all its agents, "the agent of n0 …; the agent of n1 …", the part that
// is this one's; "" if it says nothing of single ones.
std::string part_of(const std::string& message, const std::string& start) {
    constexpr std::string_view kJoint = "; ";
    std::string_view rest = message;
    while (!rest.empty()) {
        const auto end = std::min(rest.find(kJoint), rest.size());
        if (rest.substr(0, end).starts_with(start + " ")) {
            return std::string{rest.substr(0, end)};
        }
        rest.remove_prefix(std::min(end + kJoint.size(), rest.size()));
    }
    return "";
}

// Whether a rank of this node was stopped before it was done.
bool was_stopped(const Job& job, std::int32_t node_rank) {
    const auto first = job.generation()->stopped.lower_bound(node_rank * job.spec.ranks_per_node());
    return first != job.generation()->stopped.end() &&
           *first < (node_rank + 1) * job.spec.ranks_per_node();
}

}  // namespace

void lose_node(Draft& draft, std::int32_t slot, event::FaultSeen fault) {
    const Generation* live = draft.job().live_generation();
    fault.attempt = draft.job().attempt()->number;
    fault.generation = live != nullptr ? live->number : 0;
    fault.slot = slot;
    fault.at = draft.at.wall;
    const bool may_return = fault.may_return;
    if (draft.add(std::move(fault))) {
        draft.give_up(slot, may_return);
    }
}

// Another node may have its ranks by now: what it still does must not count.
std::string why_given_up(const Attempt& attempt, std::int32_t slot) {
    const auto lost = attempt.lost.find(slot);
    if (lost == attempt.lost.end() || attempt.may_return(slot)) {
        return "";
    }
    return "this node was given up: " + lost->second.message;
}

void let_go(Effects& out, const Job& job, AttemptRun& run, const after::GiveUp& lost) {
    run.rendezvous.lost(lost.slot);
    run.preflight.lost(lost.slot);
    const auto found = run.links.find(lost.slot);
    if (found == run.links.end()) {
        return;
    }
    if (lost.may_return) {
        out.add(effect::Close{found->second, "this node was given up; it may come back"});
    } else {
        fence(out, job, found->second, "this node was given up");
    }
}

// A node whose agent has been silent for too long is lost, whatever the scheduler says. Soon, if
// another one waits to take its place; else its connection may well come back.
void LossWatch::note_silent(Draft& draft, AttemptRun& run, const Observation& seen) {
    // The timer's own clock: whether this daemon could hear anything.
    const auto looked = std::exchange(looked_, draft.at.timers);
    if (looked && draft.at.timers - *looked >= draft.at.deaf) {
        run.restart_silence_timers(draft.at.steady);
        return;
    }
    const auto now = draft.at.steady;
    const Generation* running = draft.job().live_generation();
    const Resources& resources = draft.job().spec.resources;
    std::int32_t soon =
        draft.job().spec.recovery.has(RecoveryTrigger::node_failure) && running != nullptr
            ? run.spares_at_hand(now) + AttemptRun::nodes_to_spare(draft.job())
            : 0;
    std::vector<std::int32_t> silent;
    LinkWalk walk{run.links};
    for (const auto& [slot, claim] : draft.job().attempt()->claims) {
        const Agent* link = walk.at(slot);
        const auto last = link != nullptr ? std::optional{link->last_heard} : run.heard(slot);
        if (!last) {
            run.gone[slot] = now;  // the daemon was restarted: the patience starts now
            run.unheard.insert(slot);
            continue;
        }
        if (const auto left = run.left.find(slot); left != run.left.end()) {
            const auto gone = now - left->second.at;
            if (!draft.job().attempt()->lost.contains(slot) &&
                gone >= (soon > 0 ? limits::kByePatienceWithSpare
                                  : std::chrono::milliseconds{limits::kByePatience}) &&
                (gone >= limits::kAgentLost ||
                 !run.silent_before(draft.job(), left->second.at, now))) {
                silent.push_back(slot);
            }
            continue;
        }
        const bool early =
            soon > 0 && !run.unheard.contains(slot) && run.rendezvous.is_member(slot);
        if (draft.job().attempt()->lost.contains(slot) ||
            now - *last < (early ? std::chrono::seconds{limits::kAgentSilence}
                                 : std::chrono::seconds{limits::kAgentLost})) {
            continue;
        }
        soon -= now - *last < limits::kAgentLost ? 1 : 0;
        silent.push_back(slot);
    }
    for (const std::int32_t slot : silent) {
        const Generation* live = draft.job().live_generation();
        const std::int32_t node = live == nullptr ? slot : live->node_rank_of(slot);
        const auto left = run.left.find(slot);
        if (live != nullptr && node >= 0 && node_ended(draft.job(), node) &&
            (left == run.left.end() || !was_stopped(draft.job(), node))) {
            continue;  // its ranks have ended: it may leave
        }
        if (left != run.left.end()) {
            event::FaultSeen gone;
            gone.node = draft.job().attempt()->claims.at(slot).node;
            gone.cause_class = CauseClass::node_lost;
            gone.message = "the agent of " + gone.node + " left: " + left->second.reason;
            lose_node(draft, slot, std::move(gone));
            continue;
        }
        const auto silence =
            std::chrono::duration_cast<std::chrono::seconds>(now - run.heard(slot).value_or(now))
                .count();
        event::FaultSeen lost;
        lost.node = draft.job().attempt()->claims.at(slot).node;
        lost.cause_class = CauseClass::node_lost;
        lost.message = "the agent of " + lost.node + " has not been heard for " +
                       std::to_string(silence) + " s";
        if (seen.kind == Observation::Kind::absent && !seen.message.empty()) {
            lost.message += "; " + seen.message;  // and may have had it ended
        }
        lost.may_return = resources.is_elastic();
        lose_node(draft, slot, std::move(lost));
    }
}

// Agents that are gone cannot be asked any more: what their ranks did is in their result files.
void LossWatch::read_results(Draft& draft, const AttemptRun& run, const Observation& seen) const {
    // A scheduler that has forgotten the attempt proves no loss, but what lies there is true.
    const bool absent = seen.kind == Observation::Kind::absent;
    const bool over = allocation_ended(seen);
    bool awaited = false;
    MemoryWords memory;
    LinkWalk walk{run.links};
    for (std::int32_t slot = 0; slot < draft.before().spec.resources.allocated_nodes(); ++slot) {
        if (walk.at(slot) != nullptr) {
            continue;
        }
        const bool lost = std::find(seen.lost_nodes.begin(), seen.lost_nodes.end(), slot) !=
                          seen.lost_nodes.end();
        if ((!over && !absent && !lost && !run.gone_for_good(slot, draft.at.steady)) ||
            draft.job().attempt()->lost.contains(slot)) {
            continue;
        }
        const bool seen_now = read_result_of(draft, slot);
        const Generation* live = draft.job().live_generation();
        const std::int32_t node = live == nullptr ? slot : live->node_rank_of(slot);
        const bool left_in_peace = live != nullptr && node >= 0 && node_ended(draft.job(), node);
        if ((!over && !lost) || left_in_peace || run.stopping) {
            continue;
        }
        const bool known =
            live != nullptr ? live->first_failure.has_value() : draft.job().generation() != nullptr;
        if (over && (run.may_still_come(*draft.job().attempt(), slot, draft.at.steady) ||
                     (!seen_now && !run.gone_for_good(slot, draft.at.steady)))) {
            // A scheduler that was killed may not know any more what it had started, and what a
            // node has left may be seen a moment later.
            awaited = true;
            continue;
        }
        if (over && known) {
            continue;  // why it failed is known; that nobody is there any more follows from it
        }
        event::FaultSeen fault = how_it_was_lost(draft.job(), slot, seen, memory);
        // With the whole allocation gone it need not be this node's fault.
        const auto nodes =
            static_cast<std::size_t>(draft.before().spec.resources.allocated_nodes());
        const bool alone = nodes == 1 ? seen.cause.kind == CauseClass::node_lost
                                      : lost && seen.lost_nodes.size() < nodes;
        if (alone || !over) {
            fault.may_return = !over && draft.before().spec.resources.is_elastic();
            lose_node(draft, slot, std::move(fault));
            continue;
        }
        fault.attempt = draft.job().attempt()->number;
        fault.generation = live != nullptr ? live->number : 0;
        fault.at = draft.at.wall;
        // No node's fault, whichever was missed first: it would end the same way again.
        if (seen.cause.kind == CauseClass::user_error) {
            fault.cause_class = seen.cause.kind;
            fault.message = seen.cause.message;
            fault.node.clear();
        }
        draft.add(std::move(fault));
        return;
    }
    // Whatever its nodes say, there is no allocation any more.
    if (over && !awaited && !run.stopping && draft.job().live_generation() == nullptr &&
        draft.job().generation() != nullptr) {
        event::FaultSeen fault;
        fault.attempt = draft.job().attempt()->number;
        fault.cause_class =
            seen.cause.kind == CauseClass::none ? CauseClass::node_lost : seen.cause.kind;
        fault.message = seen.cause.message.empty()
                            ? "the allocation ended between two generations: " + seen.message
                            : seen.cause.message;
        fault.node = seen.cause.node;
        fault.at = draft.at.wall;
        draft.add(std::move(fault));
    }
}

bool LossWatch::read_result_of(Draft& draft, std::int32_t slot) const {
    const Attempt& attempt = *draft.job().attempt();
    const Generation* live = draft.job().live_generation();
    // Where nothing in it can be news it is not read: with lockstep-exec each file takes a process.
    const std::int32_t node = live == nullptr ? -1 : live->node_rank_of(slot);
    if (node < 0 || node_ended(draft.job(), node)) {
        return true;
    }
    const auto read = files_.result(attempt, slot);
    if (!read) {
        return false;
    }
    const auto& result = *read;
    if (!result || result->generation != live->number) {
        return true;
    }
    const auto claim = attempt.claims.find(slot);
    const std::string name =
        claim == attempt.claims.end() ? "node " + std::to_string(slot) : claim->second.node;
    const std::int32_t number = attempt.number;
    for (const auto& exit : result->exits) {
        if (!runs_rank(live, draft.job().spec.ranks_per_node(), slot, exit.rank)) {
            continue;  // another node's, whose end is for that one to say
        }
        event::RankExited out = rank_exited(exit);
        out.attempt = number;
        out.node = name;
        draft.add(std::move(out));
    }
    return true;
}

event::FaultSeen LossWatch::how_it_was_lost(const Job& job, std::int32_t slot,
                                            const Observation& seen, MemoryWords& memory) const {
    const Attempt& attempt = *job.attempt();
    const auto claim = attempt.claims.find(slot);
    const bool claimed = claim != attempt.claims.end();
    const auto words =
        files_.gave_up(attempt, slot, claimed ? claim->second.incarnation : std::string{});
    event::FaultSeen fault;
    fault.node = words     ? words->node
                 : claimed ? claim->second.node
                           : "node " + std::to_string(slot);
    fault.cause_class = CauseClass::node_lost;
    const std::string agent = "the agent of " + fault.node;
    const std::string own = part_of(seen.message, agent);
    fault.message = own.empty() ? agent + " ended without a result" : own;
    for (const std::string& why :
         {words ? words->reason : std::string{}, own.empty() ? seen.message : std::string{}}) {
        fault.message += why.empty() ? "" : ": " + why;
    }
    if (!attempt.allocation.empty()) {
        blame_memory(job, fault, memory);
    }
    return fault;
}

// A scheduler may end all of a job that passes its memory and call it failed; only its logs say of
// what.
void LossWatch::blame_memory(const Job& job, event::FaultSeen& fault, MemoryWords& memory) const {
    const Attempt& attempt = *job.attempt();
    if (!std::exchange(memory.asked, true)) {
        memory.found = files_.memory(attempt, job.spec.resources.allocated_nodes());
    }
    const auto& found = memory.found;
    if (!found) {
        return;
    }
    fault.cause_class = CauseClass::oom;
    fault.message = found->by + " ended the job for its memory: " + found->line;
    const auto claim = attempt.claims.find(found->node_rank);
    if (claim != attempt.claims.end()) {
        fault.node = claim->second.node;
        fault.rank = only_rank_of(job.generation(), job.spec.ranks_per_node(), found->node_rank);
    }
}

void LossWatch::lose_stuck(Draft& draft, const AttemptRun& run) {
    const auto now = draft.at.steady;
    if (!run.generation.abort_sent || now - *run.generation.abort_sent < limits::kAbortPatience) {
        return;
    }
    for (std::int32_t node = 0; node < draft.before().nodes(); ++node) {
        const std::int32_t slot = draft.before().live_generation()->slot_of(node);
        const auto link = run.links.find(slot);
        if (!run.may_have_ranks(draft.before(), node) || link == run.links.end()) {
            continue;
        }
        const auto& told = link->second->abort_sent;
        if (!told || now - *told < limits::kAbortPatience) {
            continue;
        }
        event::FaultSeen stuck;
        const auto claim = draft.before().attempt()->claims.find(slot);
        stuck.node = claim == draft.before().attempt()->claims.end() ? "" : claim->second.node;
        stuck.cause_class = CauseClass::node_lost;
        stuck.message = "the ranks of " + stuck.node + " did not end in time";
        lose_node(draft, slot, std::move(stuck));
    }
}

}  // namespace lockstep
