// What a job does next while its nodes gather, while its ranks run, when they are stopped, to begin
// anew or for good, and from one attempt to the next.
#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/generation/growth.hpp"
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "daemon/control/machine/verdict.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <utility>

namespace lockstep {

void JobMachine::tell_missing(const Surroundings& at) {
    if (auto reason = run_.missing.look(job_, run_, at.steady)) {
        set_pending_reason(std::move(*reason));
    }
}

namespace {

// As long as the scheduler is not heard it stays as it was.
void note_suspension(Draft& draft, const Observation& seen) {
    const Attempt& attempt = *draft.job().attempt();
    // Nor does one that has just been taken up, and is not seen yet, go on.
    if (seen.kind != Observation::Kind::state || seen.state != AllocationState::running ||
        seen.paused == attempt.suspended() ||
        (seen.paused && attempt.suspensions.size() >= limits::kSuspensions)) {
        return;
    }
    event::Suspended out;
    out.attempt = attempt.number;
    out.over = !seen.paused;
    out.message = seen.paused ? seen.message : "it is not suspended any more";
    draft.add(std::move(out));
}

}  // namespace

bool JobMachine::look_whether_paused(Draft& draft, const Observation& seen) {
    const bool paused = seen.kind == Observation::Kind::state && seen.paused;
    note_suspension(draft, seen);
    if (paused || run_.was_paused) {
        set_pending_reason(paused ? seen.message : "");
        run_.restart_silence_timers(draft.at.steady);  // agents that stand still say nothing
        run_.was_paused = paused;
        // Nor do ranks that stand still end: their time to do so begins anew.
        if (run_.generation.abort_sent) {
            run_.generation.abort_sent = draft.at.steady;
        }
        for (const auto& [slot, link] : run_.links) {
            if (link->abort_sent) {
                link->abort_sent = draft.at.steady;
            }
        }
    }
    return paused;
}

void JobMachine::look(Draft& draft, const Observation& seen, bool nodes_too) {
    const bool paused = look_whether_paused(draft, seen);
    const bool ending = seen.kind == Observation::Kind::state && !seen.ending.empty();
    if (ending || run_.was_ending) {
        set_pending_reason(ending ? seen.message : "");
        run_.was_ending = ending;
    }
    const bool over = allocation_ended(seen);
    run_.was_over = over;
    if (over) {
        look_at_outlived(draft, run_, seen);
    }
    if (nodes_too && seen.kind != Observation::Kind::unreachable) {
        loss_.read_results(draft, run_, seen);
    }
    if (!paused) {
        if (nodes_too) {
            loss_.note_silent(draft, run_, seen);
        }
        look_for_hang(draft, run_);
        look_at_profile(draft, run_, false);
        anomalies_.look(draft, run_.generation);
        look_at_growth(draft, run_, save_);
    }
    if (nodes_too && job_.state == JobState::restarting && somebody_left()) {
        draft.at_once.add(effect::ExpectEnd{job_.attempt()->number});
    }
    tell_checkpoint(draft, run_, false);
    look_at_preflight(draft, run_);
    form_generation(draft, run_, waits_);
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

Effects JobMachine::abort(const Cause& cause, const Surroundings& at) {
    return send_abort(job_, run_, cause, at);
}

std::optional<AfterEnd> JobMachine::look_while_aborting(Draft& draft, const Observation& seen,
                                                        bool nodes_too) {
    const bool over = allocation_ended(seen);
    const bool paused = look_whether_paused(draft, seen);
    if (nodes_too || over) {
        if (seen.kind != Observation::Kind::unreachable) {
            loss_.read_results(draft, run_, seen);
        }
        if (!paused) {
            loss_.note_silent(draft, run_, seen);
            LossWatch::lose_stuck(draft, run_);
        }
    }
    return may_end(draft, run_, over);
}

// The next one is fixed in the same append if all nodes that it needs have joined, as most have by
// then: the ranks wait for one write to the disk less.
bool JobMachine::end_generation(Draft& draft, const Cause& cause, AfterEnd after) {
    if (!add_generation_end(draft, run_, anomalies_, cause)) {
        return false;
    }
    draft.after.emplace_back(after::GenerationOver{});
    if (after == AfterEnd::next_generation) {
        form_generation(draft, run_, waits_);
    }
    return true;
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

std::string JobMachine::what_it_came_to() const {
    return std::string{to_string(is_final(job_.state) ? job_.state : outcome(job_).state)};
}

Effects JobMachine::say_stop(const std::string& reason) {
    const std::chrono::milliseconds grace = limits::kStopGrace;
    const wire::Stop stop{reason, grace.count(), what_it_came_to()};  // a walk over all nodes
    Effects out;
    for (const auto& [slot, link] : run_.links) {
        if (!std::exchange(link->stop_sent, true)) {
            out.send(link, stop);
        }
    }
    return out;
}

void JobMachine::read_end(Draft& draft, const Observation& seen) {
    loss_.read_results(draft, run_, seen);
    add_verdict(draft, run_, seen);
}

void JobMachine::end_attempt(Draft& draft, const Cause& cause) {
    add_generation_end(draft, run_, anomalies_, cause);
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
