// From one generation to the next, from one attempt to the next, and how a hang is noticed.
#include "daemon/control/job_actor.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Steps are the ranks' own word; differences of them must not overflow.
constexpr std::int64_t kStepMost = std::int64_t{1} << 53U;

// Beyond the grace of ABORT: the agent kills, and gives up what cannot be killed, within 5 s.
constexpr auto kAbortPatience = limits::kStopGrace + std::chrono::seconds{10};

std::string state_words(const std::string& state) {
    if (state == "T" || state == "t") {
        return "its process is stopped";
    }
    if (state == "D") {
        return "its process waits for the disk or a driver and cannot be ended";
    }
    if (state == "Z" || state == "X") {
        return "its process is dead";
    }
    return state == "R" ? "its process is computing" : "its process sleeps";
}

}  // namespace

// Whether ranks may still run on that node of the live generation, as far as was heard. A node that
// has joined says that none of them lives there; it may have had none yet.
bool JobActor::may_have_ranks(std::int32_t node) const {
    const std::int32_t slot = job_.live_generation()->slot_of(node);
    return rendezvous_.phase(slot) != Rendezvous::Phase::joined &&
           !job_.attempt()->lost.contains(slot) && !node_ended(job_, node);
}

bool JobActor::ranks_are_left() const {
    for (std::int32_t node = 0; node < job_.spec.resources.nodes; ++node) {
        if (may_have_ranks(node)) {
            return true;
        }
    }
    return false;
}

void JobActor::lose_stuck_nodes(Draft& draft) {
    const auto now = context_.clock.steady();
    if (!abort_sent_ || now - *abort_sent_ < kAbortPatience) {
        return;
    }
    for (std::int32_t node = 0; node < job_.spec.resources.nodes; ++node) {
        const std::int32_t slot = job_.live_generation()->slot_of(node);
        const auto link = links_.find(slot);
        if (!may_have_ranks(node) || link == links_.end() || !link->second->abort_sent ||
            now - *link->second->abort_sent < kAbortPatience) {
            continue;
        }
        event::FaultSeen stuck;
        const auto claim = job_.attempt()->claims.find(slot);
        stuck.node = claim == job_.attempt()->claims.end() ? "" : claim->second.node;
        stuck.cause_class = to_string(CauseClass::node_lost);
        stuck.message = "the ranks of " + stuck.node + " did not end in time";
        lose(draft, slot, std::move(stuck));
    }
}

// To whoever has not been sent it over this connection.
void JobActor::send_abort(const std::string& reason) {
    if (!std::exchange(abort_due_, false)) {
        return;
    }
    wire::Abort abort;
    abort.generation = job_.live_generation()->number;
    abort.reason = reason;
    abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
    std::shared_ptr<const std::string> encoded;
    for (const auto& [slot, link] : links_) {
        if (!link->abort_sent && rendezvous_.is_member(slot)) {
            if (encoded == nullptr) {
                encoded =
                    std::make_shared<const std::string>(wire::encode(wire::DaemonMessage{abort}));
            }
            link->abort_sent = context_.clock.steady();
            link->send_encoded(encoded);
        }
    }
}

// ABORT to every node; the generation has ended once none of its ranks lives, or their node is
// lost. Called again with every input and tick until then. No rank of the next one starts before:
// two generations never write at a time.
Task<void> JobActor::restart_ranks(Cause cause) {
    if (!abort_sent_) {
        abort_sent_ = context_.clock.steady();
        abort_due_ = true;
        log::info("generation is over, its ranks are being stopped",
                  {{"job", job_.id.value},
                   {"generation", job_.live_generation()->number},
                   {"class", to_string(cause.kind)},
                   {"why", cause.message}});
    }
    send_abort(cause.message);
    if (!submitted_) {  // the daemon was restarted meanwhile
        const auto adopted = co_await context_.scheduler.adopt(request());
        submitted_ = adopted.has_value();
    }
    const bool look = nodes_are_due();
    if (look) {
        expect_end_if_left();
    }
    const Observation seen = co_await allocation();
    const bool allocation_over =
        seen.kind == Observation::Kind::state && seen.state == AllocationState::ended;
    Draft next = draft();
    if (look || allocation_over) {
        if (seen.kind != Observation::Kind::unreachable) {
            read_results(next, seen);
        }
        note_lost_agents(next);
        lose_stuck_nodes(next);
    }
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
        co_return;
    }
    if (allocation_over || !ranks_are_left()) {
        const AfterEnd after = allocation_over ? AfterEnd::look : AfterEnd::next_generation;
        co_await end_generation(std::move(cause), after);
    }
}

// An agent that goes although its ranks are wanted again was told to by the scheduler, perhaps: its
// word on the allocation is wanted soon.
void JobActor::expect_end_if_left() {
    const Generation* newest = job_.generation();
    for (std::int32_t node = 0; newest != nullptr && node < job_.spec.resources.nodes; ++node) {
        const std::int32_t slot = newest->slot_of(node);
        if (!links_.contains(slot) && !job_.attempt()->lost.contains(slot)) {
            context_.scheduler.expect_end(job_.id, job_.attempt()->number);
            return;
        }
    }
}

// The highest step that a rank has reported in the live generation; -1 = none.
std::int64_t JobActor::last_step() const {
    const auto* series = context_.series.find(job_.id.value);
    const Generation* live = job_.live_generation();
    if (series == nullptr || live == nullptr) {
        return -1;
    }
    // By its number: when something came says nothing, one generation may begin in the very
    // millisecond in which the last batch of the one before was taken.
    const auto* report = series->report_of(job_.attempt()->number, live->number);
    return report == nullptr ? -1 : std::min(report->last_step, kStepMost);
}

// That the live generation has ended. False: none lives.
bool JobActor::add_generation_end(Draft& draft, const Cause& cause) {
    const Generation* live = job_.live_generation();
    if (live == nullptr) {
        return false;
    }
    event::GenerationEnded ended;
    ended.attempt = job_.attempt()->number;
    ended.generation = live->number;
    ended.cause = cause;
    ended.step = last_step();
    return add(draft, std::move(ended));
}

// With the generation that lives, if one does.
void JobActor::add_attempt_end(Draft& draft, const Cause& cause) {
    add_generation_end(draft, cause);
    event::AttemptEnded ended;
    ended.attempt = job_.attempt()->number;
    ended.cause = cause;
    add(draft, std::move(ended));
}

// The next one is fixed in the same append if all nodes that it needs have joined, as most have by
// then: the ranks wait for one write to the disk less.
Task<void> JobActor::end_generation(Cause cause, AfterEnd after) {
    co_await hooks_.flush_telemetry();
    Draft next = draft();
    if (!add_generation_end(next, cause)) {
        co_return;
    }
    next.effects.push_back([this] {
        rendezvous_.over();
        exchange_.reset();
        abort_sent_.reset();
        evidence_.reset();
        hang_watch_.reset();
        stats_.reset();
    });
    if (after == AfterEnd::next_generation) {
        form_generation(next);
    }
    co_await commit_and_look(std::move(next));
}

// The allocation is over, another attempt follows.
Task<void> JobActor::end_attempt(Cause cause) {
    co_await hooks_.flush_telemetry();
    const std::int32_t number = job_.attempt()->number;
    Draft next = draft();
    add_attempt_end(next, cause);
    next.effects.push_back([this, number] {
        log::info("attempt is over, another one follows",
                  {{"job", job_.id.value}, {"attempt", number}});
        context_.scheduler.over(job_.id, number);
        forget_attempt();
    });
    co_await commit_and_look(std::move(next));
}

// Nothing that was known of the last attempt's agents and allocation is true of the next.
void JobActor::forget_attempt() {
    for (const auto& [slot, link] : links_) {
        link->close("the attempt is over");
    }
    links_.clear();
    gone_.clear();
    unheard_.clear();
    left_.clear();
    refused_.clear();
    missing_since_.reset();
    pids_.clear();
    exchange_.reset();
    evidence_.reset();
    hang_watch_.reset();
    stats_.reset();
    rendezvous_ = Rendezvous{job_.spec.resources.nodes, job_.spec.resources.allocated_nodes()};
    preflight_ = PreflightState{};
    pairs_ = PairState{};
    submitted_ = false;
    intent_fresh_ = false;
    cancel_sent_ = false;
    was_paused_ = false;
    verdict_since_.reset();
    alone_since_.reset();
    stop_sent_.reset();
    outlived_since_.reset();
    abort_sent_.reset();
}

// Evidence first: what the ranks are doing is asked before anything is ended.
void JobActor::look_for_hang(Draft& draft) {
    watch_for_hang(draft);
    const Generation* live = draft.job().live_generation();
    if (!evidence_ || evidence_->kept || live == nullptr || !evidence_is_in()) {
        return;
    }
    // Once a rank has ended it is no hang any more, or is ended because of that rank; nor if the
    // ranks went on while they were asked (a checkpoint that took long).
    const auto* series = context_.series.find(job_.id.value);
    if (evidence_->hang && live->exited_count == 0 && !live->first_failure && series != nullptr &&
        hang_watch_.still(*series)) {
        event::FaultSeen fault = hang_fault();
        add_evidence(draft);
        add(draft, std::move(fault));
        draft.effects.push_back([this] {
            if (evidence_) {
                evidence_->kept = true;
            }
        });
    } else {
        add_evidence(draft);  // somebody asked, or it ran on; nothing is ended
        draft.effects.push_back([this] { evidence_.reset(); });
    }
}

// Also while somebody else has the ranks looked at: who asks again and again would hide a hang.
void JobActor::watch_for_hang(const Draft& draft) {
    const auto* series = context_.series.find(job_.id.value);
    const Generation* live = draft.job().live_generation();
    const bool watched = draft.job().spec.watch.hang_seconds > 0 ||
                         draft.job().spec.recovery.has(RecoveryTrigger::hang);
    if (!watched || series == nullptr || live == nullptr || live->running_at == 0 ||
        live->exited_count > 0 || live->first_failure || (evidence_ && evidence_->hang)) {
        return;
    }
    const telemetry::JobStats* known = stats();
    const double usual = known != nullptr && known->step_seconds ? known->step_seconds->p99 : 0.0;
    const auto* report = series->report_of(draft.job().attempt()->number, live->number);
    auto verdict = hang_watch_.look(*series, context_.clock.steady(),
                                    hang_limit(draft.job().spec.watch.hang_seconds, usual),
                                    report != nullptr && report->last_step >= 0);
    if (!verdict) {
        return;
    }
    constexpr const char* kReason = "no rank has made a step";
    log::warn("the ranks hang", {{"job", job_.id.value}, {"step", verdict->step}});
    if (!evidence_) {
        ask_for_evidence(std::move(*verdict), kReason, true);
        return;
    }
    // They are being asked already; what they answer is the hang's evidence.
    evidence_->verdict = std::move(*verdict);
    evidence_->reason = kReason;
    evidence_->hang = true;
}

// Who is to blame, in words: the first rank that is behind; if all are at the same step, one whose
// process does not run.
event::FaultSeen JobActor::hang_fault() const {
    const HangWatch::Verdict& verdict = evidence_->verdict;
    const auto state_of = [&](std::int32_t rank) {
        const auto found =
            std::find_if(evidence_->ranks.begin(), evidence_->ranks.end(),
                         [&](const wire::RankState& one) { return one.rank == rank; });
        return found == evidence_->ranks.end() ? std::string{} : found->state;
    };
    event::FaultSeen fault;
    fault.attempt = job_.attempt()->number;
    fault.generation = job_.live_generation()->number;
    fault.cause_class = to_string(CauseClass::hang);
    fault.at = context_.clock.wall();
    fault.message = "no rank has made a step for " + std::to_string(verdict.silence.count()) + " s";
    if (!verdict.behind.empty()) {
        fault.rank = verdict.behind.front();
    } else {
        for (const wire::RankState& one : evidence_->ranks) {
            if (one.state != "S" && one.state != "R" && fault.rank < 0) {
                fault.rank = one.rank;
            }
        }
    }
    if (fault.rank < 0 || fault.rank >= job_.spec.world_size()) {
        fault.rank = -1;
        fault.message += "; all are at step " + std::to_string(verdict.step);
        return fault;
    }
    if (const NodeClaim* claim = job_.claim_of_node(fault.rank / job_.spec.processes_per_node())) {
        fault.node = claim->node;
    }
    fault.message += "; rank " + std::to_string(fault.rank) + " on " + fault.node;
    if (const auto* series = context_.series.find(job_.id.value);
        series != nullptr && !verdict.behind.empty()) {
        const auto rank = static_cast<std::size_t>(fault.rank);
        fault.message += " is behind at step " + std::to_string(series->rank(rank).last_step());
    }
    if (const std::string state = state_of(fault.rank); !state.empty()) {
        fault.message += ", " + state_words(state);
    }
    return fault;
}

}  // namespace lockstep
