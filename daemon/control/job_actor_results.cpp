// What becomes of agents that are not heard any more, and what they left behind.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/machine/rank_exit.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// After BYE: with a spare at hand, and without. Agents of an allocation that ends say it one after
// another, and the scheduler's word on that is worth waiting for.
constexpr auto kFarewellSoon = std::chrono::milliseconds{500};
constexpr auto kFarewell = std::chrono::seconds{3};

// Finds the links of slots that are asked for in their order, side by side with them: a tick looks
// at every node of a job.
class LinkWalk {
  public:
    using Links = std::map<std::int32_t, std::shared_ptr<AgentLink>>;
    explicit LinkWalk(const Links& links) : next_(links.begin()), end_(links.end()) {}
    const AgentLink* at(std::int32_t slot) {
        while (next_ != end_ && next_->first < slot) {
            ++next_;
        }
        return next_ != end_ && next_->first == slot ? next_->second.get() : nullptr;
    }

  private:
    Links::const_iterator next_;
    Links::const_iterator end_;
};

// Whether a rank of this node was stopped before it was done.
bool was_stopped(const Job& job, std::int32_t node_rank) {
    const auto first = job.generation()->stopped.lower_bound(node_rank * job.spec.ranks_per_node());
    return first != job.generation()->stopped.end() &&
           *first < (node_rank + 1) * job.spec.ranks_per_node();
}

}  // namespace

// An agent that has just lost its connection comes back and tells what happened, with the telemetry
// that goes before it; only after that its files speak for it.
bool JobActor::gone_for_good(std::int32_t node_rank) const {
    const auto since = run_.gone.find(node_rank);
    return since != run_.gone.end() &&
           context_.clock.steady() - since->second >= limits::kAgentLost;
}

// When an agent was last heard; nothing: it has not been here in this daemon's life.
std::optional<std::chrono::steady_clock::time_point> JobActor::heard(std::int32_t slot) const {
    if (const auto link = run_.links.find(slot); link != run_.links.end()) {
        return link->second->last_heard;
    }
    const auto gone = run_.gone.find(slot);
    return gone == run_.gone.end() ? std::nullopt : std::optional{gone->second};
}

// Nobody could be heard (this daemon stood still, the job was suspended): all patience starts anew.
void JobActor::forgive_silence() {
    const auto now = context_.clock.steady();
    for (auto& [slot, since] : run_.gone) {
        since = now;
    }
    for (const auto& [slot, link] : run_.links) {
        link->last_heard = now;
    }
    run_.generation.hang_watch.reset();
}

// Nodes that wait as spares and were heard a moment ago.
std::int32_t JobActor::spares_at_hand() const {
    const auto now = context_.clock.steady();
    std::int32_t count = 0;
    for (const auto& [slot, link] : run_.links) {
        count += run_.rendezvous.is_spare(slot) && run_.preflight.passed(slot) &&
                         now - link->last_heard < limits::kAgentSilence / 2
                     ? 1
                     : 0;
    }
    return count;
}

// Nodes of the live generation that it could go on without.
std::int32_t JobActor::nodes_to_spare(const Job& job) const {
    const Generation& live = *job.live_generation();
    std::int32_t left = -job.spec.resources.least_nodes();
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        left += job.attempt()->lost.contains(live.slot_of(node)) ? 0 : 1;
    }
    return std::max(left, 0);
}

// Whether a node whose ranks are not done has been silent since before that time. Slurm ends all of
// a job that lost a node: those that leave then are its victims, and the silent one, which says
// nothing, is the node that was lost.
bool JobActor::silent_before(const Job& job, std::chrono::steady_clock::time_point time) const {
    const auto now = context_.clock.steady();
    const Attempt& attempt = *job.attempt();
    const Generation* live = job.live_generation();
    for (const auto& [slot, claim] : attempt.claims) {
        const auto last = heard(slot);
        const std::int32_t node = live == nullptr ? slot : live->node_rank_of(slot);
        if (last && *last <= time && now - *last >= limits::kAgentSilence &&
            !run_.left.contains(slot) && !attempt.lost.contains(slot) && node >= 0 &&
            (live == nullptr || !node_ended(job, node))) {
            return true;
        }
    }
    return false;
}

// A node whose agent has been silent for too long is lost, whatever the scheduler says. Soon, if
// another one waits to take its place; else its connection may well come back.
void JobActor::note_lost_agents(Draft& draft) {
    // The timer's own clock: whether this daemon could hear anything.
    const auto looked = std::exchange(looked_, std::chrono::steady_clock::now());
    if (looked && *looked_ - *looked >= context_.settings.deaf) {
        forgive_silence();
        return;
    }
    const auto now = context_.clock.steady();
    const Generation* running = draft.job().live_generation();
    const Resources& resources = draft.job().spec.resources;
    std::int32_t soon =
        draft.job().spec.recovery.has(RecoveryTrigger::node_failure) && running != nullptr
            ? spares_at_hand() + nodes_to_spare(draft.job())
            : 0;
    std::vector<std::int32_t> silent;
    LinkWalk walk{run_.links};
    for (const auto& [slot, claim] : draft.job().attempt()->claims) {
        const AgentLink* link = walk.at(slot);
        const auto last = link != nullptr ? std::optional{link->last_heard} : heard(slot);
        if (!last) {
            run_.gone[slot] = now;  // the daemon was restarted: the patience starts now
            run_.unheard.insert(slot);
            continue;
        }
        if (const auto left = run_.left.find(slot); left != run_.left.end()) {
            const auto gone = now - left->second.at;
            if (!draft.job().attempt()->lost.contains(slot) &&
                gone >= (soon > 0 ? kFarewellSoon : std::chrono::milliseconds{kFarewell}) &&
                (gone >= limits::kAgentLost || !silent_before(draft.job(), left->second.at))) {
                silent.push_back(slot);
            }
            continue;
        }
        const bool early =
            soon > 0 && !run_.unheard.contains(slot) && run_.rendezvous.is_member(slot);
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
        const auto left = run_.left.find(slot);
        if (live != nullptr && node >= 0 && node_ended(draft.job(), node) &&
            (left == run_.left.end() || !was_stopped(draft.job(), node))) {
            continue;  // its ranks have ended: it may leave
        }
        if (left != run_.left.end()) {
            event::FaultSeen gone;
            gone.node = draft.job().attempt()->claims.at(slot).node;
            gone.cause_class = to_string(CauseClass::node_lost);
            gone.message = "the agent of " + gone.node + " left: " + left->second.reason;
            lose(draft, slot, std::move(gone));
            continue;
        }
        const auto silence =
            std::chrono::duration_cast<std::chrono::seconds>(now - *heard(slot)).count();
        event::FaultSeen lost;
        lost.node = draft.job().attempt()->claims.at(slot).node;
        lost.cause_class = to_string(CauseClass::node_lost);
        lost.message = "the agent of " + lost.node + " has not been heard for " +
                       std::to_string(silence) + " s";
        lost.may_return = resources.is_elastic();
        lose(draft, slot, std::move(lost));
    }
}

// It does not come back; the scheduler, which may have told it to go, is asked why soon.
void JobActor::bye(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Bye& bye) {
    const std::string reason =
        printable(std::string_view{bye.reason}.substr(0, limits::kTextBytes));
    draft.heard.emplace_back(link, bye.event);  // the loss of its node is stored later
    draft.effects.push_back([this, link, reason] {
        run_.left.emplace(link->node_rank, Farewell{reason, context_.clock.steady()});
        run_.rendezvous.disconnected(link->node_rank);
        context_.scheduler.expect_end(job_.id, job_.attempt()->number);
        log::info("agent leaves", {{"job", job_.id.value}, {"node", link->node}, {"why", reason}});
    });
}

// Completes and appends the fault of a node that is not to be used any more.
void JobActor::lose(Draft& draft, std::int32_t slot, event::FaultSeen fault) {
    fault.attempt = draft.job().attempt()->number;
    fault.generation =
        draft.job().live_generation() != nullptr ? draft.job().live_generation()->number : 0;
    fault.slot = slot;
    fault.at = context_.clock.wall();
    const bool may_return = fault.may_return;
    if (add(draft, std::move(fault))) {
        give_up(draft, slot, may_return);
    }
}

// Whatever the agent of the node still says does not count from now on. One that may come back is
// not told to go: what it would be told may reach it when it is heard again.
void JobActor::give_up(Draft& draft, std::int32_t slot, bool may_return) {
    draft.effects.push_back([this, slot, may_return] {
        run_.rendezvous.lost(slot);
        run_.preflight.lost(slot);
        if (const auto found = run_.links.find(slot); found != run_.links.end()) {
            const auto link = found->second;
            if (may_return) {
                link->close("this node was given up; it may come back");
            } else {
                fence(link, "this node was given up");
            }
        }
    });
}

// What the scheduler says of the attempt, agents having called in or not. An end that it names
// nobody for is a person's once a rank may have run, and its own accident before: the same border
// as recovery's, and what is said of an accident ("before its ranks had started") is true there.
Task<Observation> JobActor::allocation() {
    Observation seen = co_await context_.scheduler.poll(job_.id, job_.attempt()->number);
    learn_nodes(seen);
    if (seen.accident && unstarted(*job_.attempt())) {
        seen.cause = *seen.accident;
        seen.message = seen.cause.message;
    }
    co_return seen;
}

// Agents that are gone cannot be asked any more: what their ranks did is in their result files.
void JobActor::read_results(Draft& draft, const Observation& seen) {
    // A scheduler that has forgotten the attempt proves no loss, but what lies there is true.
    const bool absent = seen.kind == Observation::Kind::absent;
    const bool over = !absent && seen.state == AllocationState::ended;
    LinkWalk walk{run_.links};
    for (std::int32_t slot = 0; slot < job_.spec.resources.allocated_nodes(); ++slot) {
        if (walk.at(slot) != nullptr) {
            continue;
        }
        const bool lost = std::find(seen.lost_nodes.begin(), seen.lost_nodes.end(), slot) !=
                          seen.lost_nodes.end();
        if ((!over && !absent && !lost && !gone_for_good(slot)) ||
            draft.job().attempt()->lost.contains(slot)) {
            continue;
        }
        read_result_of(draft, slot);
        const Generation* live = draft.job().live_generation();
        const std::int32_t node = live == nullptr ? slot : live->node_rank_of(slot);
        const bool left_in_peace = live != nullptr && node >= 0 && node_ended(draft.job(), node);
        if ((!over && !lost) || left_in_peace || run_.stopping) {
            continue;
        }
        const bool known =
            live != nullptr ? live->first_failure.has_value() : draft.job().generation() != nullptr;
        if (over && known) {
            continue;  // why it failed is known; that nobody is there any more follows from it
        }
        event::FaultSeen fault = how_it_was_lost(draft.job(), slot, seen);
        // With the whole allocation gone it need not be this node's fault.
        const auto nodes = static_cast<std::size_t>(job_.spec.resources.allocated_nodes());
        const bool alone = nodes == 1 ? seen.cause.kind == CauseClass::node_lost
                                      : lost && seen.lost_nodes.size() < nodes;
        if (alone || !over) {
            fault.may_return = !over && job_.spec.resources.is_elastic();
            lose(draft, slot, std::move(fault));
            continue;
        }
        fault.attempt = draft.job().attempt()->number;
        fault.generation = live != nullptr ? live->number : 0;
        fault.at = context_.clock.wall();
        add(draft, std::move(fault));
        return;
    }
    // Whatever its nodes say, there is no allocation any more.
    if (over && !run_.stopping && draft.job().live_generation() == nullptr &&
        draft.job().generation() != nullptr) {
        event::FaultSeen fault;
        fault.attempt = draft.job().attempt()->number;
        fault.cause_class = to_string(seen.cause.kind == CauseClass::none ? CauseClass::node_lost
                                                                          : seen.cause.kind);
        fault.message = seen.cause.message.empty()
                            ? "the allocation ended between two generations: " + seen.message
                            : seen.cause.message;
        fault.node = seen.cause.node;
        fault.at = context_.clock.wall();
        add(draft, std::move(fault));
    }
}

void JobActor::read_result_of(Draft& draft, std::int32_t slot) {
    const Attempt& attempt = *draft.job().attempt();
    const Generation* live = draft.job().live_generation();
    const auto result = read_result(attempt.directory, slot);
    if (!result || live == nullptr || result->generation != live->number) {
        return;
    }
    const auto claim = attempt.claims.find(slot);
    const std::string name =
        claim == attempt.claims.end() ? "node " + std::to_string(slot) : claim->second.node;
    const std::int32_t number = attempt.number;
    for (const auto& exit : result->exits) {
        event::RankExited out = rank_exited(exit);
        out.attempt = number;
        out.node = name;
        add(draft, std::move(out));
    }
}

event::FaultSeen JobActor::how_it_was_lost(const Job& job, std::int32_t slot,
                                           const Observation& seen) const {
    const Attempt& attempt = *job.attempt();
    const auto claim = attempt.claims.find(slot);
    const bool claimed = claim != attempt.claims.end();
    const auto words =
        read_gave_up(attempt.directory, slot, claimed ? claim->second.incarnation : std::string{});
    event::FaultSeen fault;
    fault.node = words     ? words->node
                 : claimed ? claim->second.node
                           : "node " + std::to_string(slot);
    fault.cause_class = to_string(CauseClass::node_lost);
    fault.message = "the agent of " + fault.node + " ended without a result";
    for (const std::string& why : {words ? words->reason : std::string{}, seen.message}) {
        fault.message += why.empty() ? "" : ": " + why;
    }
    if (!attempt.allocation.empty()) {
        blame_memory(attempt, fault);
    }
    return fault;
}

// Slurm ends all of a job that passes its memory and calls it failed; only its logs say of what.
void JobActor::blame_memory(const Attempt& attempt, event::FaultSeen& fault) const {
    const auto found =
        find_memory_evidence(attempt.directory, job_.spec.resources.allocated_nodes());
    if (!found) {
        return;
    }
    fault.cause_class = to_string(CauseClass::oom);
    fault.message = "Slurm ended the job for its memory: " + found->line;
    const auto claim = attempt.claims.find(found->node_rank);
    if (claim != attempt.claims.end()) {
        fault.node = claim->second.node;
        fault.rank = job_.spec.ranks_per_node() == 1 ? found->node_rank : -1;
    }
}

}  // namespace lockstep
