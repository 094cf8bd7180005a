// What happens to a job, and what is durable of it, each given to what it concerns.
#include "daemon/control/machine/job_machine.hpp"

#include "daemon/control/machine/agent_words.hpp"
#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/commands.hpp"
#include "daemon/control/machine/desync.hpp"
#include "daemon/control/machine/generation/world.hpp"
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <utility>
#include <variant>

namespace lockstep {
namespace {

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};

// Only ranks that lost their peers were heard of, and a node may have taken those with it: one that
// has not been heard since the first of them failed. Where the loss of a node is recovered from and
// the failure of a rank is not, that decides whether the job goes on. It takes no longer than the
// patience with a silent node: then it is lost, or heard. As long as the allocation is there: at
// its end the scheduler's word decides.
bool may_be_lost_nodes_echo(const Job& job, const AttemptRun& run,
                            std::chrono::steady_clock::time_point failed) {
    const Generation* live = job.live_generation();
    const RecoverySpec& recovery = job.spec.recovery;
    return live != nullptr && live->first_failure && live->first_failure_kind != FailureKind::own &&
           trigger_of(live->first_failure->kind) == RecoveryTrigger::rank_failure &&
           recovery.has(RecoveryTrigger::node_failure) &&
           !recovery.has(RecoveryTrigger::rank_failure) && job.cancel_requested_at == 0 &&
           !work_done(job) && !run.stopping && !run.allocation.over() &&
           run.somebody_silent_since(job, failed);
}

}  // namespace

JobMachine::JobMachine(Job job, const LeftBehind& files, MayClaim may_claim)
    : admission_(std::move(may_claim)),
      job_(std::move(job)),
      run_(job_),
      loss_(files),
      anomalies_(job_) {}

const wire::StartedRank* JobMachine::process(std::int32_t rank) const {
    const auto index = static_cast<std::size_t>(rank);
    const bool known = rank >= 0 && index < run_.processes.size() && run_.processes[index].pid > 0;
    return known ? &run_.processes[index] : nullptr;
}

Action JobMachine::what_is_due(const Surroundings& at) {
    waits_.look(job_, at);
    const Waited waited = waits_.waited(job_, at.steady);
    Action out = due(job_, waited);
    if (out.kind == ActionKind::stop &&
        may_be_lost_nodes_echo(job_, run_, at.steady - waited.failed)) {
        out = Action{};
        out.kind = ActionKind::watch;
    }
    if (out.fault) {
        out.fault->at = at.wall;
        if (out.fault->cause_class == CauseClass::rendezvous_timeout &&
            job_.generation() == nullptr) {
            out.fault->message += run_.absent_words(job_);
        }
    }
    return out;
}

Draft JobMachine::draft(const Surroundings& at) const {
    Draft out{job_, at};
    for (const EventData& one : unstored_) {
        out.find_again(one);
    }
    return out;
}

void JobMachine::take(Draft& draft, JobInput& input) {
    std::visit(Overloaded{
                   [&](AgentInput& one) { hear(draft, one); },
                   [&](AgentGoneInput& one) { hear(draft, one); },
                   [&](const LookInput&) {
                       save_.look(draft);
                       release_if_ready(draft, run_, nullptr);
                   },
                   [&](const CancelInput& one) { cancel(draft, one); },
                   [&](const RestartInput& one) { restart(draft, save_, one); },
                   [&](const SaveInput& one) { save_.want(draft, run_, one); },
                   [&](const DependencyInput& one) { dependency_failed(draft, one); },
                   [&](const EvidenceInput& one) { look_at_ranks(draft, run_, one); },
                   [&](ProfileInput& one) { profile(draft, run_, one); },
               },
               input);
}

Draft JobMachine::take_all(std::vector<JobInput>& inputs, const Surroundings& at) {
    Draft out = draft(at);
    const std::size_t found = out.events.size();
    const std::size_t follows = out.after.size();
    std::vector<JobInput> left;
    for (JobInput& one : inputs) {
        out.answered = false;
        take(out, one);
        if (!out.answered) {
            left.push_back(std::move(one));
        }
    }
    inputs = std::move(left);
    if (out.events.size() == found) {
        out.put_off(follows);
    }
    return out;
}

Effects JobMachine::stored(Draft& draft, const Surroundings& at) {
    if (!draft.events.empty()) {
        job_ = std::move(draft.own());
        unstored_.clear();  // it began with them
        waits_.look(job_, draft.at);
    }
    Effects out;
    for (const After& one : draft.after) {
        become(one, out, at);
    }
    return out;
}

Effects JobMachine::pass(const Surroundings& at) {
    Effects out;
    run_.expire_keys(out, at.steady);
    if (save_.under_way()) {
        out.add(effect::LookAgain{});
    }
    return out;
}

Effects JobMachine::dismiss(const Status& why) {
    Effects out;
    save_.end(out, why);
    return out;
}

void JobMachine::restart_silence_timers(const Surroundings& at) {
    run_.restart_silence_timers(at.steady);
}

// What is durable: the machine becomes what the draft's events have made of the job.
void JobMachine::become(const After& one, Effects& out, const Surroundings& at) {
    std::visit(
        Overloaded{
            [&](const after::Claim& claim) { AgentAdmission::accept(out, job_, run_, claim, at); },
            [&](const after::Revisit& visit) {
                AgentAdmission::accept_lost(out, job_, run_, visit, at);
            },
            [&](const after::Return& back) {
                AgentAdmission::accept_return(out, job_, run_, back);
            },
            [&](const after::Done& done) { done.link->done = true; },
            [&](const after::Keys& keys) {
                run_.answer_key_request(out, job_, keys.link, keys.request, at);
            },
            [&](const after::GiveUp& lost) { let_go(out, job_, run_, lost); },
            [&](const after::Form& form) {
                anomalies_.begin(at.series);
                begin_generation(out, job_, run_, form.slots);
            },
            [&](const after::SendWorld& behind) { send_world_again(out, job_, run_, behind.link); },
            [&](const after::Release& release) { send_start(out, run_, release.generation); },
            [&](const after::StartAgain& again) { send_start_again(out, run_, again.link); },
            [&](const after::EvidenceUsed& used) { evidence_used(run_, used.acted_on); },
            [&](const after::ProfileTold&) { run_.generation.profile.reset(); },
            [&](const after::OrderSave& order) { SaveRound::send(out, run_, order.generation); },
            [&](const after::TimeLimitTold& told) { time_limit_told(run_, told.deaf); },
            [&](const after::GenerationOver&) { forget_generation(run_); },
            [&](const after::AttemptEnded& ended) { forget_attempt(out, ended.attempt); },
        },
        one);
}

void JobMachine::forget_attempt(Effects& out, std::int32_t number) {
    log::info("attempt is over, another one follows",
              {{"job", job_.id.value}, {"attempt", number}});
    out.add(effect::AttemptOver{number});
    for (const auto& [slot, link] : run_.links) {
        out.add(effect::Close{link, "the attempt is over"});
    }
    run_ = AttemptRun{job_};
}

// `ready`: what the pre-flight has found may let a generation begin.
void JobMachine::form_if(Draft& draft, bool ready) {
    if (ready) {
        form_generation(draft, run_, waits_);
    }
}

void JobMachine::hear(Draft& draft, AgentInput& input) {
    const auto& link = input.link;
    if (!link->open() && !std::holds_alternative<wire::Bye>(input.message)) {
        return;
    }
    if (draft.job().attempt() != nullptr && link->attempt() < draft.job().attempt()->number) {
        // Of an attempt that is over: it delivers what it still has, and goes.
        for (Effect& one : acknowledge_late(input, "the attempt is over").take()) {
            draft.at_once.add(std::move(one));
        }
        draft.answered = true;
        return;
    }
    if (const auto* message = std::get_if<wire::Hello>(&input.message)) {
        admission_.hello(draft, run_, pending_, link, *message);
        return;
    }
    const auto known = run_.links.find(link->node_rank);
    if (known == run_.links.end() || known->second != link) {
        // HELLO is in this draft too (not accepted yet) or was superseded: once more, in order.
        if (link->hello_pending) {
            draft.deferred.emplace_back(input);  // a copy: the draft may be tried again
        }
        return;
    }
    if (draft.job().spec.resources.is_elastic() && draft.job().attempt() != nullptr &&
        draft.job().attempt()->lost.contains(link->node_rank)) {
        hear_lost(draft, link, input.message);
        return;
    }
    std::visit(
        Overloaded{
            [](const wire::Hello&) {},  // see above
            [](const wire::Beat&) {},   // the connection's
            [&](const wire::Join& one) { hear_join(draft, run_, waits_, link, one); },
            [&](const wire::Ready& one) { hear_ready(draft, run_, link, one); },
            [&](const wire::Started& one) { hear_started(draft, run_, link, one); },
            [&](const wire::Exited& one) { hear_exit(draft, run_, link, one); },
            [&](const wire::Fault& one) { hear_fault(draft, link, one); },
            [&](const wire::CheckpointSaved& one) { checkpoint_saved(draft, run_, link, one); },
            [&](const wire::Done& one) {
                draft.hear(link, one.event);
                draft.after.emplace_back(after::Done{link});
            },
            [&](const wire::KeyRequest& one) {
                // Not before the append: an add() must not count twice when that is tried again.
                draft.after.emplace_back(after::Keys{link, one});
            },
            [&](const wire::Examined& one) { examined(draft, run_, link, one); },
            [&](const wire::GpuXid& one) { hear_gpu_error(draft, run_, link, one); },
            [&](const wire::EvidenceSaved& one) { evidence_saved(draft, run_, link, one); },
            [&](const wire::TableRequest& one) {
                if (!send_table(draft, run_, link, one)) {
                    abort_if_over(draft, link, one.generation);
                }
            },
            [&](const wire::Bye& one) { hear_bye(draft, run_, link, one); },
            [&](const wire::Checked& one) { form_if(draft, checked(draft, run_, link, one)); },
            [&](const wire::Probed& one) { form_if(draft, probed(draft, run_, link, one)); },
            [&](const wire::PairTested& one) {
                form_if(draft, pair_tested(draft, run_, link, one));
            },
            [&](const wire::Warned& one) { hear_warning(draft, link, one); },
            [&](const wire::Desync& one) { desync_seen(draft, run_, *link, one); },
            [&](const wire::CanSave& one) { save_.answer(draft, *link, one); },
            [&](const wire::SaveAsked& one) { save_asked(draft, run_, link, one); },
            [&](const wire::Profiled& one) { profiled(draft, run_, link, one); },
        },
        input.message);
}

// What a node says that is lost and has called in again: nothing of it counts but that it joins.
void JobMachine::hear_lost(Draft& draft, const AgentPtr& link, const wire::AgentMessage& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) {
        AgentAdmission::come_back(draft, run_, link, *join);
    } else if (const auto* m1 = std::get_if<wire::Checked>(&message)) {
        form_if(draft, checked(draft, run_, link, *m1));
    } else if (const auto* m2 = std::get_if<wire::Probed>(&message)) {
        form_if(draft, probed(draft, run_, link, *m2));
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

void JobMachine::hear(Draft& draft, AgentGoneInput& input) {
    const auto known = run_.links.find(input.link->node_rank);
    if (known != run_.links.end() && known->second == input.link) {
        run_.disconnected(known->first, draft.at.steady);
    }
}

}  // namespace lockstep
