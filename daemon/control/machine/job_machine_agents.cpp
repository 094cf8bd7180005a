// What agents say to their job, and what the job answers.
#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/command_once.hpp"
#include "daemon/control/machine/desync.hpp"
#include "daemon/control/machine/gpu_blame.hpp"
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "daemon/control/machine/rank_exit.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "daemon/control/machine/world.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

void answer_when_stored(Draft& draft, std::function<void(Status)> done, const Status& answer) {
    draft.answers.push_back([done = std::move(done), answer](const Status& stored) {
        done(stored && !answer ? answer : stored);
    });
}

// What a node says stands, but not under the number of a rank of another one.
std::int32_t own_rank(const Job& job, const Agent& link, std::int32_t generation,
                      std::int32_t rank) {
    const bool own = runs_rank(find_generation(job, link.attempt(), generation),
                               job.spec.ranks_per_node(), link.node_rank, rank);
    return own ? rank : -1;
}

}  // namespace

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
        hello(draft, link, *message);
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
    if (const auto* m = std::get_if<wire::Join>(&input.message)) {
        join(draft, link, *m);
    } else if (const auto* m1 = std::get_if<wire::Ready>(&input.message)) {
        ready(draft, link, *m1);
    } else if (const auto* m2 = std::get_if<wire::Started>(&input.message)) {
        node_started(draft, link, *m2);
    } else if (const auto* m3 = std::get_if<wire::Exited>(&input.message)) {
        exited(draft, link, *m3);
    } else if (const auto* m4 = std::get_if<wire::Fault>(&input.message)) {
        fault(draft, link, *m4);
    } else if (const auto* m5 = std::get_if<wire::CheckpointSaved>(&input.message)) {
        checkpoint_saved(draft, run_, link, *m5);
    } else if (const auto* m6 = std::get_if<wire::Done>(&input.message)) {
        draft.hear(link, m6->event);
        draft.after.emplace_back(after::Done{link});
    } else if (const auto* m7 = std::get_if<wire::KeyRequest>(&input.message)) {
        // Not before the append: an add() must not count twice when that is tried again.
        draft.after.emplace_back(after::Keys{link, *m7});
    } else if (const auto* m8 = std::get_if<wire::Examined>(&input.message)) {
        examined(draft, run_, link, *m8);
    } else if (const auto* m9 = std::get_if<wire::GpuXid>(&input.message)) {
        gpu_xid(draft, link, *m9);
    } else if (const auto* m10 = std::get_if<wire::EvidenceSaved>(&input.message)) {
        evidence_saved(draft, run_, link, *m10);
    } else if (const auto* m11 = std::get_if<wire::TableRequest>(&input.message)) {
        if (!send_table(draft, run_, link, *m11)) {
            abort_if_over(draft, link, m11->generation);
        }
    } else if (const auto* m12 = std::get_if<wire::Bye>(&input.message)) {
        bye(draft, link, *m12);
    } else if (const auto* m13 = std::get_if<wire::Checked>(&input.message)) {
        checked(draft, link, *m13);
    } else if (const auto* m14 = std::get_if<wire::Probed>(&input.message)) {
        probed(draft, link, *m14);
    } else if (const auto* m15 = std::get_if<wire::PairTested>(&input.message)) {
        pair_tested(draft, link, *m15);
    } else if (const auto* m18 = std::get_if<wire::Warned>(&input.message)) {
        warned(draft, link, *m18);
    } else if (const auto* m19 = std::get_if<wire::Desync>(&input.message)) {
        desync_seen(draft, run_, *m19);
    } else if (const auto* m16 = std::get_if<wire::CanSave>(&input.message)) {
        save_.answer(draft, *link, *m16);
    } else if (const auto* m17 = std::get_if<wire::SaveAsked>(&input.message)) {
        save_asked(draft, run_, link, *m17);
    } else if (const auto* m20 = std::get_if<wire::Profiled>(&input.message)) {
        profiled(draft, run_, link, *m20);
    }
}

void JobMachine::hear(Draft& draft, AgentGoneInput& input) {
    const auto known = run_.links.find(input.link->node_rank);
    if (known != run_.links.end() && known->second == input.link) {
        run_.disconnected(known->first, draft.at.steady);
    }
}

void JobMachine::hear(Draft& draft, CancelInput& input) {
    if (!is_final(draft.job().state) && draft.job().cancel_requested_at == 0) {
        event::CancelRequested cancel;
        cancel.by = input.by;
        draft.add(std::move(cancel));
    }
    draft.answers.push_back(input.done);
}

namespace {

// The ranks are being started again already, or will be in another attempt.
bool is_being_recovered(const Job& job) {
    if (job.cancel_requested_at != 0) {
        return false;
    }
    const Generation* live = job.live_generation();
    if (live == nullptr || !live->first_failure) {
        return job.state == JobState::restarting || job.state == JobState::requeued;
    }
    const auto reason = reason_to_stop(job);
    return reason && plan_recovery(job, *reason).kind != Recovery::none;
}

std::string why_not_restarted(const Job& job) {
    const Generation* live = job.live_generation();
    if (live != nullptr && live->first_failure) {
        return "its ranks have failed and the job is ending";
    }
    return "nothing runs that could be started again: the job is " +
           std::string{to_string(job.state)};
}

}  // namespace

void JobMachine::hear(Draft& draft, RestartInput& input) {
    if (answer_known(draft, input, Command::restart)) {
        return;
    }
    if (save_.holds(input.by, input.key)) {
        draft.answers.push_back([done = input.done](const Status& stored) {
            done(stored ? Status{fail(key_reused(Command::checkpoint))} : stored);
        });
        return;
    }
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    const bool may_begin = live != nullptr && !live->first_failure && job.cancel_requested_at == 0;
    const bool between = is_being_recovered(job);
    const bool joins = between || !job.restart_requested_by.empty();
    Status answer;
    if (!may_begin && !between) {
        answer = fail(Errc::conflict, why_not_restarted(job));
    } else if (joins && !input.key.empty() && job.keys_joining >= limits::kCommandKeysJoining) {
        answer = fail(too_many_keys());
    } else if (!joins || !input.key.empty()) {
        event::RestartRequested restart;
        restart.attempt = job.attempt()->number;
        restart.generation = job.generation() != nullptr ? job.generation()->number : 0;
        restart.by = input.by;
        restart.key = input.key;
        draft.add(std::move(restart));
    }
    answer_when_stored(draft, input.done, answer);
}

void JobMachine::hear(Draft& draft, DependencyInput& input) {
    event::DependencyFailed failed;
    failed.after = input.after;
    failed.message = input.after + ", which it was to run after, has not succeeded";
    draft.add(std::move(failed));
}

void JobMachine::hear(Draft& draft, LookInput&) {
    save_.look(draft);
    release_if_ready(draft, nullptr);
}

void JobMachine::hear(Draft& draft, EvidenceInput& input) {
    const Generation* live = draft.job().live_generation();
    Status answer;
    if (live == nullptr || draft.job().state != JobState::running ||
        job_.live_generation() == nullptr) {
        answer = fail(Errc::conflict, "no rank runs that could be looked at: the job is " +
                                          std::string{to_string(draft.job().state)});
    } else if (!run_.generation.evidence && live->looks + 1 >= limits::kEvidenceEvents) {
        answer = fail(Errc::conflict, "the ranks of this generation have been looked at " +
                                          std::to_string(live->looks) +
                                          " times; one look more is kept for a hang");
    } else if (!run_.generation.evidence) {  // what is under way already answers this too
        HangWatch::Verdict standing;
        if (const auto* series = draft.at.series) {
            standing = HangWatch::standing(*series);
        }
        ask_for_evidence(draft, run_, std::move(standing), "asked for by " + input.by, false);
    }
    answer_when_stored(draft, input.done, answer);
}

void JobMachine::hear(Draft& draft, SaveInput& input) {
    save_.want(draft, run_, input);
}

void JobMachine::hear(Draft& draft, ProfileInput& input) {
    const Status answer = ask_for_profile(draft, run_, input);
    answer_when_stored(draft, input.done, answer);
}

void JobMachine::exited(Draft& draft, const AgentPtr& link, const wire::Exited& exited) {
    draft.hear(link, exited.event);
    const Generation* generation = draft.job().generation();
    if (generation != nullptr && exited.generation > 0 &&
        (exited.generation < generation->number ||
         (exited.generation == generation->number && !generation->open()))) {
        return;  // of a generation that is over
    }
    const std::int32_t per_node = job_.spec.ranks_per_node();
    const bool mine = generation != nullptr && generation->number == exited.generation &&
                      runs_rank(generation, per_node, link->node_rank, exited.rank);
    if (!mine) {
        draft.fence(link, "EXITED of a rank that is not this agent's");
        return;
    }
    const bool new_here = static_cast<std::size_t>(exited.rank) < generation->exited.size() &&
                          !generation->exited[static_cast<std::size_t>(exited.rank)];
    if (new_here) {
        event::RankExited out = rank_exited(exited);
        out.attempt = draft.job().attempt()->number;
        out.node = link->node;
        if (draft.add(std::move(out))) {
            look_for_gpu_error(draft, run_, exited.rank);
        }
    }
}

void JobMachine::fault(Draft& draft, const AgentPtr& link, const wire::Fault& fault) {
    event::FaultSeen seen;
    seen.attempt = draft.job().attempt()->number;
    seen.generation = fault.generation;
    seen.rank = fault.rank;
    seen.node = link->node;
    const auto kind = parse_cause_class(fault.cause_class);
    const bool persons = kind == CauseClass::restart_requested ||
                         kind == CauseClass::cancelled_by_user || kind == CauseClass::none;
    seen.cause_class = kind && !persons ? *kind : CauseClass::internal;
    seen.message = printable(std::string_view{fault.message}.substr(0, limits::kLogTailBytes));
    seen.at = std::max<UnixMillis>(fault.time, 0);
    if (seen.cause_class == CauseClass::node_lost) {
        seen.slot = link->node_rank;  // its agent says so itself: a rank there cannot be ended
    }
    const std::int32_t slot = seen.slot;
    // The first ends the generation, or the attempt; a node is lost once.
    const Attempt& attempt = *draft.job().attempt();
    const Generation* live = draft.job().live_generation();
    const bool of_live = live != nullptr && live->number == seen.generation;
    const bool ends_attempt =
        !of_live && !attempt.fault && (seen.generation == 0 || attempt.generations.empty());
    const bool too_many = slot < 0 && !ends_attempt &&
                          (of_live ? live->faults : attempt.stray_faults) >= limits::kFaultEvents;
    if (!too_many && draft.add(std::move(seen)) && slot >= 0) {
        draft.give_up(slot);
    }
    draft.hear(link, fault.event);
}

void JobMachine::warned(Draft& draft, const AgentPtr& link, const wire::Warned& warned) {
    event::WarningGiven out;
    out.attempt = draft.job().attempt()->number;
    out.generation = warned.generation;
    out.rank = own_rank(draft.job(), *link, warned.generation, warned.rank);
    out.node = link->node;
    out.message = printable(std::string_view{warned.message}.substr(0, limits::kWarningBytes));
    draft.add(std::move(out));
    draft.hear(link, warned.event);
}

void JobMachine::gpu_xid(Draft& draft, const AgentPtr& link, const wire::GpuXid& xid) {
    event::GpuXid out;
    out.attempt = draft.job().attempt()->number;
    out.generation = xid.generation;
    out.rank = own_rank(draft.job(), *link, xid.generation, xid.rank);
    out.node = link->node;
    out.gpu = xid.gpu;
    out.xid = xid.xid;
    out.at = std::max<UnixMillis>(xid.time, 0);
    const event::GpuXid seen = out;
    if (draft.add(std::move(out))) {
        gpu_error_seen(draft, run_, seen);
    }
    draft.hear(link, xid.event);
}

// It does not come back; the scheduler, which may have told it to go, is asked why soon. All that
// at once: the end of its connection, which may share the append, is known at once too, and if that
// fails nobody is there any more whose BYE could be heard again.
void JobMachine::bye(Draft& draft, const AgentPtr& link, const wire::Bye& bye) {
    const std::string reason =
        printable(std::string_view{bye.reason}.substr(0, limits::kTextBytes));
    draft.hear(link, bye.event);  // the loss of its node is stored later
    // Also of one that is heard again: a JOIN before it was, too.
    run_.rendezvous.disconnected(link->node_rank);
    if (!run_.left.emplace(link->node_rank, Farewell{reason, draft.at.steady}).second) {
        return;
    }
    draft.at_once.add(effect::ExpectEnd{link->attempt()});
    log::info("agent leaves", {{"job", job_.id.value}, {"node", link->node}, {"why", reason}});
}

void JobMachine::checked(Draft& draft, const AgentPtr& link, const wire::Checked& checked) {
    auto facts = parse_node_facts(checked.facts);
    if (!facts) {
        draft.fence(link, "CHECKED was not understood: " + facts.error().message);
        return;
    }
    run_.preflight.checked(link->node_rank, std::move(*facts), job_.spec, draft.at.steady);
    look_at_preflight(draft, run_);
    form_generation(draft);
}

void JobMachine::probed(Draft& draft, const AgentPtr& link, const wire::Probed& probed) {
    auto results = parse_probe_results(probed.results, link->node_rank);
    if (!results) {
        draft.fence(link, "PROBED was not understood: " + results.error().message);
        return;
    }
    run_.preflight.probed(link->node_rank, probed.round, std::move(*results));
    look_at_preflight(draft, run_);
    form_generation(draft);
}

void JobMachine::pair_tested(Draft& draft, const AgentPtr& link, const wire::PairTested& tested) {
    PairOutcome outcome{tested.ms, tested.problem, tested.absent};
    if (!tested.nccl.is_null()) {
        auto nccl = parse_nccl_test_fact(tested.nccl);
        if (!nccl) {
            draft.fence(link, "PAIR_TESTED was not understood: " + nccl.error().message);
            return;
        }
        outcome.nccl = std::move(*nccl);
    }
    run_.pairs.tested(link->node_rank, tested.round, outcome);
    run_.nccl_pairs.tested(link->node_rank, tested.round, std::move(outcome));
    look_at_preflight(draft, run_);
    form_generation(draft);
}

}  // namespace lockstep
