// What becomes of a job once it is durable, and what its driver asks of it.
#include "daemon/control/machine/job_machine.hpp"

#include "daemon/control/machine/commands.hpp"
#include "daemon/control/machine/generation/world.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {
namespace {

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};

// In which the attempt ran; "": in none that is known.
std::string allocation_of(const Job& job, std::int32_t attempt) {
    for (const Attempt& one : job.attempts) {
        if (one.number == attempt) {
            return one.allocation;
        }
    }
    return "";
}

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
           !work_done(job) && !run.stopping && !run.was_over &&
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
                   [&](LookInput& one) { hear(draft, one); },
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
        std::visit([&](const auto& what) { become(what, out, at); }, one);
    }
    return out;
}

Effects JobMachine::pass(const Surroundings& at) {
    Effects out;
    if (run_.generation.keys) {
        run_.send_answers(out, run_.generation.keys->expire(at.steady));
    }
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
        out.send(input.link,
                 wire::Stop{why, 0,
                            newest ? what_it_came_to() : std::string{to_string(JobState::failed)}});
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

void JobMachine::become(const after::Claim& one, Effects& out, const Surroundings& at) {
    AgentAdmission::accept(out, job_, run_, one, at);
}

void JobMachine::become(const after::Revisit& one, Effects& out, const Surroundings& at) {
    AgentAdmission::accept_lost(out, job_, run_, one, at);
}

void JobMachine::become(const after::Return& one, Effects& out, const Surroundings&) {
    AgentAdmission::accept_return(out, job_, run_, one);
}

void JobMachine::become(const after::Done& one, Effects&, const Surroundings&) {
    one.link->done = true;
}

void JobMachine::become(const after::Keys& one, Effects& out, const Surroundings& at) {
    const wire::KeyRequest& request = one.request;
    const AgentPtr& link = one.link;
    if (!is_current(job_, *link, request.generation) || request.rank < 0 ||
        job_.live_generation()->slot_of(request.rank / job_.spec.ranks_per_node()) !=
            link->node_rank) {
        wire::KeyReply refusal;
        refusal.id = request.id;
        refusal.error = to_string(Errc::conflict);
        refusal.message = "fenced: not a rank of the current generation";
        out.send(link, refusal);
        return;
    }
    std::optional<KvStore>& keys = run_.generation.keys;
    if (!keys) {
        keys.emplace(job_.world_size(), at.wall);
    }
    run_.send_answers(out, keys->request(link->node_rank, request, at.steady));
}

void JobMachine::become(const after::GiveUp& one, Effects& out, const Surroundings&) {
    let_go(out, job_, run_, one);
}

void JobMachine::become(const after::Form& one, Effects& out, const Surroundings& at) {
    anomalies_.begin(at.series);
    begin_generation(out, job_, run_, one.slots);
}

void JobMachine::become(const after::Release& one, Effects& out, const Surroundings&) {
    send_start(out, run_, one.generation);
}

void JobMachine::become(const after::StartAgain& one, Effects& out, const Surroundings&) {
    send_start_again(out, run_, one.link);
}

void JobMachine::become(const after::GenerationOver&, Effects&, const Surroundings&) {
    forget_generation(run_);
}

void JobMachine::become(const after::SendWorld& one, Effects& out, const Surroundings&) {
    send_world_again(out, job_, run_, one.link);
}

void JobMachine::become(const after::EvidenceUsed& one, Effects&, const Surroundings&) {
    std::optional<EvidenceRun>& evidence = run_.generation.evidence;
    if (one.acted_on && evidence) {
        evidence->kept = true;
    } else {
        evidence.reset();
    }
}

void JobMachine::become(const after::ProfileTold&, Effects&, const Surroundings&) {
    run_.generation.profile.reset();
}

void JobMachine::become(const after::TimeLimitTold& one, Effects&, const Surroundings&) {
    run_.generation.time_limit_told = true;
    run_.generation.deaf_told += one.deaf ? 1 : 0;
}

void JobMachine::become(const after::OrderSave& one, Effects& out, const Surroundings&) {
    for (const auto& [slot, link] : run_.links) {
        out.send(link, wire::Save{one.generation});
    }
}

void JobMachine::become(const after::AttemptEnded& one, Effects& out, const Surroundings&) {
    log::info("attempt is over, another one follows",
              {{"job", job_.id.value}, {"attempt", one.attempt}});
    out.add(effect::AttemptOver{one.attempt});
    for (const auto& [slot, link] : run_.links) {
        out.add(effect::Close{link, "the attempt is over"});
    }
    run_ = AttemptRun{job_};
}

}  // namespace lockstep
