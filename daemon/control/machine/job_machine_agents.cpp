// What agents say to their job, and what the job answers.
#include "daemon/control/machine/agent_words.hpp"
#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/commands.hpp"
#include "daemon/control/machine/desync.hpp"
#include "daemon/control/machine/generation/world.hpp"
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/preflight_run.hpp"
#include "daemon/control/machine/profile_run.hpp"

namespace lockstep {

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
    if (const auto* m = std::get_if<wire::Join>(&input.message)) {
        hear_join(draft, run_, waits_, link, *m);
    } else if (const auto* m1 = std::get_if<wire::Ready>(&input.message)) {
        hear_ready(draft, run_, link, *m1);
    } else if (const auto* m2 = std::get_if<wire::Started>(&input.message)) {
        hear_started(draft, run_, link, *m2);
    } else if (const auto* m3 = std::get_if<wire::Exited>(&input.message)) {
        hear_exit(draft, run_, link, *m3);
    } else if (const auto* m4 = std::get_if<wire::Fault>(&input.message)) {
        hear_fault(draft, link, *m4);
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
        hear_gpu_error(draft, run_, link, *m9);
    } else if (const auto* m10 = std::get_if<wire::EvidenceSaved>(&input.message)) {
        evidence_saved(draft, run_, link, *m10);
    } else if (const auto* m11 = std::get_if<wire::TableRequest>(&input.message)) {
        if (!send_table(draft, run_, link, *m11)) {
            abort_if_over(draft, link, m11->generation);
        }
    } else if (const auto* m12 = std::get_if<wire::Bye>(&input.message)) {
        hear_bye(draft, run_, link, *m12);
    } else if (const auto* m13 = std::get_if<wire::Checked>(&input.message)) {
        if (checked(draft, run_, link, *m13)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* m14 = std::get_if<wire::Probed>(&input.message)) {
        if (probed(draft, run_, link, *m14)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* m15 = std::get_if<wire::PairTested>(&input.message)) {
        if (pair_tested(draft, run_, link, *m15)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* m18 = std::get_if<wire::Warned>(&input.message)) {
        hear_warning(draft, link, *m18);
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

// What a node says that is lost and has called in again: nothing of it counts but that it joins.
void JobMachine::hear_lost(Draft& draft, const AgentPtr& link, const wire::AgentMessage& message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) {
        AgentAdmission::come_back(draft, run_, link, *join);
    } else if (const auto* m1 = std::get_if<wire::Checked>(&message)) {
        if (checked(draft, run_, link, *m1)) {
            form_generation(draft, run_, waits_);
        }
    } else if (const auto* m2 = std::get_if<wire::Probed>(&message)) {
        if (probed(draft, run_, link, *m2)) {
            form_generation(draft, run_, waits_);
        }
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

void JobMachine::hear(Draft& draft, LookInput&) {
    save_.look(draft);
    release_if_ready(draft, run_, nullptr);
}

}  // namespace lockstep
