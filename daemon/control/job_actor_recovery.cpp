// From one generation to the next, from one attempt to the next.
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

}  // namespace

// Whether ranks may still run on that node of the live generation, as far as was heard. A node that
// has joined says that none of them lives there; it may have had none yet.
bool JobActor::may_have_ranks(std::int32_t node) const {
    const std::int32_t slot = job_.live_generation()->slot_of(node);
    return run_.rendezvous.phase(slot) != Rendezvous::Phase::joined &&
           !job_.attempt()->lost.contains(slot) && !node_ended(job_, node);
}

bool JobActor::ranks_are_left() const {
    for (std::int32_t node = 0; node < job_.nodes(); ++node) {
        if (may_have_ranks(node)) {
            return true;
        }
    }
    return false;
}

void JobActor::lose_stuck_nodes(Draft& draft) {
    const auto now = context_.clock.steady();
    if (!run_.generation.abort_sent || now - *run_.generation.abort_sent < kAbortPatience) {
        return;
    }
    for (std::int32_t node = 0; node < job_.nodes(); ++node) {
        const std::int32_t slot = job_.live_generation()->slot_of(node);
        const auto link = run_.links.find(slot);
        if (!may_have_ranks(node) || link == run_.links.end() || !link->second->abort_sent ||
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
    if (!std::exchange(run_.generation.abort_due, false)) {
        return;
    }
    wire::Abort abort;
    abort.generation = job_.live_generation()->number;
    abort.reason = reason;
    abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
    std::shared_ptr<const std::string> encoded;
    for (const auto& [slot, link] : run_.links) {
        if (!link->abort_sent && run_.rendezvous.is_member(slot)) {
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
    if (!run_.generation.abort_sent) {
        run_.generation.abort_sent = context_.clock.steady();
        run_.generation.abort_due = true;
        log::info("generation is over, its ranks are being stopped",
                  {{"job", job_.id.value},
                   {"generation", job_.live_generation()->number},
                   {"class", to_string(cause.kind)},
                   {"why", cause.message}});
    }
    send_abort(cause.message);
    if (!run_.submitted) {  // the daemon was restarted meanwhile
        const auto adopted = co_await context_.scheduler.adopt(request());
        run_.submitted = adopted.has_value();
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
    for (std::int32_t node = 0; newest != nullptr && node < job_.nodes(); ++node) {
        const std::int32_t slot = newest->slot_of(node);
        if (!run_.links.contains(slot) && !job_.attempt()->lost.contains(slot)) {
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
    look_for_anomalies(draft, true);
    tell_checkpoint(draft, true);
    event::GenerationEnded ended;
    ended.attempt = job_.attempt()->number;
    ended.generation = live->number;
    ended.cause = with_others(job_, cause);
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
        run_.rendezvous.over();
        run_.generation = GenerationRun{};
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
    for (const auto& [slot, link] : run_.links) {
        link->close("the attempt is over");
    }
    run_ = AttemptRun{job_};
}

}  // namespace lockstep
