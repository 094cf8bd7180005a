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
#include "job/base/text.hpp"
#include "job/model/find_attempt.hpp"

#include <utility>

namespace lockstep {
namespace {

// Of the newest attempt, that is over or about to be, for STOP: a final state's word.
std::string what_it_came_to(const Job& job) {
    return std::string{to_string(is_final(job.state) ? job.state : outcome(job).state)};
}

// In which the attempt ran; "": in none that is known.
std::string allocation_of(const Job& job, std::int32_t attempt) {
    const Attempt* found = find_attempt(job, attempt);
    return found != nullptr ? found->allocation : "";
}

}  // namespace

void JobMachine::look(Draft& draft, const Observation& seen, bool nodes_too) {
    const bool paused = run_.allocation.look_whether_paused(draft, run_, pending_, seen);
    run_.allocation.look_whether_ending(pending_, seen);
    if (run_.allocation.over()) {
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
        if (auto reason = run_.missing.look(job_, run_, draft.at.steady)) {
            pending_.set(std::move(*reason));
        }
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
    const bool paused = run_.allocation.look_whether_paused(draft, run_, pending_, seen);
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

Effects JobMachine::say_stop(const std::string& reason) {
    const std::chrono::milliseconds grace = limits::kStopGrace;
    const wire::Stop stop{reason, grace.count(), what_it_came_to(job_)};  // a walk over all nodes
    Effects out;
    for (const auto& [slot, link] : run_.links) {
        if (!std::exchange(link->stop_sent, true)) {
            out.send(link, stop);
        }
    }
    return out;
}

Effects JobMachine::acknowledge_late(const AgentInput& input, const std::string& why) const {
    Effects out;
    if (const auto* hello = std::get_if<wire::Hello>(&input.message)) {
        input.link->node = printable(std::string_view{hello->node}.substr(0, limits::kTextBytes));
        const std::string had = allocation_of(job_, input.link->attempt());
        if (!had.empty() && had != hello->allocation) {
            // A copy of the attempt's script that starts only now. Told to stop, its agents would
            // end as the job did, and the scheduler might call completed what has run nothing.
            fence(out, job_, input.link,
                  why + "; it ran in allocation " + had + ", this is " +
                      printable(std::string_view{hello->allocation}.substr(0, limits::kTextBytes)));
            return out;
        }
        out.add(effect::Greet{input.link});
        const bool newest =
            job_.attempt() != nullptr && input.link->attempt() == job_.attempt()->number;
        out.send(input.link, wire::Stop{why, 0,
                                        newest ? what_it_came_to(job_)
                                               : std::string{to_string(JobState::failed)}});
    }
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.event; }) {
                out.add(effect::Acknowledge{input.link, one.event});
            }
        },
        input.message);
    return out;
}

void JobMachine::read_left_behind(Draft& draft, const Observation& seen) const {
    loss_.read_results(draft, run_, seen);
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
