// What a job does next while its nodes gather, while its ranks run, while they are stopped, and
// from one generation or attempt to the next.
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "daemon/control/machine/verdict.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Steps are the ranks' own word; differences of them must not overflow.
constexpr std::int64_t kStepMost = std::int64_t{1} << 53U;

// The highest step that a rank has reported in the live generation; -1 = none.
std::int64_t last_step(const Draft& draft) {
    const Job& job = draft.before();
    if (draft.at.series == nullptr) {
        return -1;
    }
    // By its number: when something came says nothing, one generation may begin in the very
    // millisecond in which the last batch of the one before was taken.
    const auto* report =
        draft.at.series->report_of(job.attempt()->number, job.live_generation()->number);
    return report == nullptr ? -1 : std::min(report->last_step, kStepMost);
}

}  // namespace

void JobMachine::tell_missing(const Surroundings& at) {
    if (auto reason = run_.missing.look(job_, run_, at.steady)) {
        set_pending_reason(std::move(*reason));
    }
}

void JobMachine::look(Draft& draft, const Observation& seen, bool nodes_too) {
    const bool paused = seen.kind == Observation::Kind::state && seen.paused;
    if (paused || run_.was_paused) {
        set_pending_reason(paused ? seen.message : "");
        run_.forgive_silence(draft.at.steady);  // agents that stand still say nothing
        run_.was_paused = paused;
    }
    const bool over = allocation_ended(seen);
    if (over) {
        look_at_outlived(draft, run_, seen);
    }
    if (nodes_too && seen.kind != Observation::Kind::unreachable) {
        loss_.read_results(draft, run_, seen);
    }
    if (!paused) {
        if (nodes_too) {
            loss_.note_silent(draft, run_);
        }
        look_for_hang(draft, run_);
        look_at_profile(draft, run_, false);
        anomalies_.look(draft, run_.generation);
        look_at_growth(draft);
    }
    if (nodes_too && job_.state == JobState::restarting && somebody_left()) {
        draft.at_once.add(effect::ExpectEnd{job_.attempt()->number});
    }
    tell_checkpoint(draft, false);
    look_at_preflight(draft, run_);
    form_generation(draft);
    if (!paused) {
        tell_missing(draft.at);
    }
}

bool JobMachine::somebody_left() const {
    const Generation* newest = job_.generation();
    for (std::int32_t node = 0; newest != nullptr && node < job_.nodes(); ++node) {
        const std::int32_t slot = newest->slot_of(node);
        if (!run_.links.contains(slot) && !job_.attempt()->lost.contains(slot)) {
            return true;
        }
    }
    return false;
}

// The generation has ended once none of its ranks lives, or their node is lost. No rank of the next
// one starts before: two generations never write at a time.
Effects JobMachine::abort(const Cause& cause, const Surroundings& at) {
    GenerationRun& run = run_.generation;
    if (!run.abort_sent) {
        run.abort_sent = at.steady;
        run.abort_due = true;
        log::info("generation is over, its ranks are being stopped",
                  {{"job", job_.id.value},
                   {"generation", job_.live_generation()->number},
                   {"class", to_string(cause.kind)},
                   {"why", cause.message}});
    }
    Effects out;
    if (!std::exchange(run.abort_due, false)) {
        return out;
    }
    wire::Abort abort;
    abort.generation = job_.live_generation()->number;
    abort.reason = cause.message;
    abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
    std::shared_ptr<const std::string> encoded;
    for (const auto& [slot, link] : run_.links) {
        if (!link->abort_sent && run_.rendezvous.is_member(slot)) {
            if (encoded == nullptr) {
                encoded =
                    std::make_shared<const std::string>(wire::encode(wire::DaemonMessage{abort}));
            }
            link->abort_sent = at.steady;
            out.add(effect::SendShared{link, encoded});
        }
    }
    return out;
}

void JobMachine::look_while_aborting(Draft& draft, const Observation& seen, bool nodes_too) {
    if (!nodes_too && !allocation_ended(seen)) {
        return;
    }
    if (seen.kind != Observation::Kind::unreachable) {
        loss_.read_results(draft, run_, seen);
    }
    loss_.note_silent(draft, run_);
    LossWatch::lose_stuck(draft, run_);
}

Effects JobMachine::stop(const Cause& cause, const Surroundings& at) {
    if (!run_.stopping) {
        run_.stopping.emplace();
        run_.stopping->since = at.steady;
        log::info(
            "stopping job",
            {{"job", job_.id.value}, {"class", to_string(cause.kind)}, {"why", cause.message}});
    }
    return say_stop(cause.message);
}

Effects JobMachine::say_stop(const std::string& reason) {
    const std::chrono::milliseconds grace = limits::kStopGrace;
    Effects out;
    for (const auto& [slot, link] : run_.links) {
        if (!std::exchange(link->stop_sent, true)) {
            out.send(link, wire::Stop{reason, grace.count()});
        }
    }
    return out;
}

void JobMachine::read_end(Draft& draft, const Observation& seen) {
    loss_.read_results(draft, run_, seen);
    add_verdict(draft, run_, seen);
}

bool JobMachine::add_generation_end(Draft& draft, const Cause& cause) {
    const Generation* live = job_.live_generation();
    if (live == nullptr) {
        return false;
    }
    anomalies_.look(draft, run_.generation, true);
    look_at_profile(draft, run_, true);
    tell_checkpoint(draft, true);
    event::GenerationEnded ended;
    ended.attempt = job_.attempt()->number;
    ended.generation = live->number;
    ended.cause = with_others(job_, cause);
    ended.step = last_step(draft);
    return draft.add(std::move(ended));
}

// The next one is fixed in the same append if all nodes that it needs have joined, as most have by
// then: the ranks wait for one write to the disk less.
bool JobMachine::end_generation(Draft& draft, const Cause& cause, AfterEnd after) {
    if (!add_generation_end(draft, cause)) {
        return false;
    }
    draft.after.emplace_back(after::GenerationOver{});
    if (after == AfterEnd::next_generation) {
        form_generation(draft);
    }
    return true;
}

void JobMachine::end_attempt(Draft& draft, const Cause& cause) {
    add_generation_end(draft, cause);
    event::AttemptEnded ended;
    ended.attempt = job_.attempt()->number;
    ended.cause = cause;
    draft.add(std::move(ended));
}

void JobMachine::next_attempt(Draft& draft, const Cause& cause) {
    const std::int32_t number = job_.attempt()->number;
    end_attempt(draft, cause);
    draft.after.emplace_back(after::AttemptEnded{number});
}

}  // namespace lockstep
