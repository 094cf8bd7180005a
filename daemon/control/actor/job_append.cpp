#include "daemon/control/actor/job_append.hpp"

#include "daemon/store/job_records.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

bool begins_generation(const std::vector<Event>& events) {
    return std::any_of(events.begin(), events.end(), [](const Event& one) {
        return std::holds_alternative<event::GenerationStarted>(one.data);
    });
}

}  // namespace

void JobAppend::prepare(Draft& draft) {
    for (const auto& [promise, event] : draft.broken) {
        report_broken(promise, event);
    }
    draft.broken.clear();
    parts_.effects.perform(std::move(draft.at_once));
}

void JobAppend::report_broken(Invariant invariant, const Event& event) {
    const auto index = static_cast<std::size_t>(invariant);
    if (!std::exchange(broken_reported_[index], true)) {
        parts_.context.metrics.invariant_broken(index);
        log::error("a step was not taken: it would break a promise",
                   {{"job", job().id.value},
                    {"invariant", kInvariantNames[index]},
                    {"event", to_string(event.kind())},
                    {"data", encode_event_data(event.data)}});
    }
}

Task<bool> JobAppend::commit(Draft& draft, std::chrono::microseconds& spent) {
    prepare(draft);
    NodeNotes later;
    OwedNotices owed;
    if (!draft.events.empty()) {
        Append append;
        {
            const RoundTime time{spent};
            for (Event& event : draft.events) {
                event.seq = parts_.context.store.next_seq();
            }
            draft.own().last_seq = draft.events.back().seq;
            append.events = draft.events;
            append.row = parts_.face.row(draft.job());
            append.notes = parts_.placement.vouched_notes(draft, later);
            owed = parts_.hooks.notices_of(draft.job(), draft.events);
            append.notices = owed.rows;
        }
        const Status stored = co_await parts_.context.store.append(std::move(append));
        if (!stored) {
            log::error("cannot store what happened to a job",
                       {{"job", job().id.value}, {"what", stored.error().message}});
            for (const auto& answer : draft.answers) {
                answer(stored);
            }
            parts_.machine.not_stored(draft);
            co_return false;
        }
    }
    settle(draft, std::move(later), std::move(owed));
    co_return true;
}

// Its events are durable: tells and does what follows.
void JobAppend::settle(Draft& draft, NodeNotes later, OwedNotices owed) {
    const bool was_waiting = job().attempt() == nullptr || job().attempt()->placed_at == 0;
    if (begins_generation(draft.events)) {
        if (auto* known = parts_.context.series.at(job().id.value)) {
            known->have_ranks(static_cast<std::size_t>(draft.job().world_size()));
        }
    }
    Effects effects = parts_.machine.stored(draft, steps_.now());
    if (!draft.events.empty()) {
        parts_.placement.keep(std::move(later));
        parts_.face.forget();
        if (was_waiting && job().attempt() != nullptr && job().attempt()->placed_at != 0) {
            parts_.placement.left_queue();
        }
        parts_.hooks.on_events(actor_, draft.events);
        parts_.hooks.on_notices(std::move(owed));
    }
    for (const auto& [link, event] : draft.heard) {
        link_of(link).heard(event);
    }
    for (const auto& [link, event] : draft.heard) {
        link_of(link).acknowledge();
    }
    parts_.effects.perform(std::move(effects));
    for (const auto& answer : draft.answers) {
        answer({});
    }
}

Task<bool> JobAppend::append_end(std::chrono::microseconds& spent) {
    JobMachine& machine = parts_.machine;
    co_await steps_.flush_telemetry();
    Draft next = machine.draft(steps_.now());
    event::Finished end = outcome(job());
    machine.run().generation.stats.reset();  // the last reports may be younger
    if (const auto* stats = machine.stats(steps_.now()); stats != nullptr && stats->step) {
        end.step = *stats->step;
    }
    const Attempt* attempt = job().attempt();
    if (attempt != nullptr && attempt->finished_at == 0) {
        machine.end_attempt(next, end.cause);
    }
    machine.set_pending_reason("");
    const bool added = next.add(end);
    prepare(next);
    if (!added) {
        // Silence is no end: somebody has to look at it, or to cancel it.
        machine.set_pending_reason("it seems to have ended, and nothing says how");
        co_await steps_.rest();
        co_return false;
    }
    const bool stored = co_await commit(next, spent);
    if (!stored) {
        co_await steps_.rest();
        co_return false;
    }
    co_return true;
}

}  // namespace lockstep
