#include "daemon/control/machine/agent_words.hpp"

#include "daemon/control/machine/gpu_blame.hpp"
#include "daemon/control/machine/rank_exit.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

void hear_exit(Draft& draft, const AttemptRun& run, const AgentPtr& link,
               const wire::Exited& exited) {
    draft.hear(link, exited.event);
    const Generation* generation = draft.job().generation();
    if (generation != nullptr && exited.generation > 0 &&
        (exited.generation < generation->number ||
         (exited.generation == generation->number && !generation->open()))) {
        return;  // of a generation that is over
    }
    const std::int32_t per_node = draft.before().spec.ranks_per_node();
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
            look_for_gpu_error(draft, run, exited.rank);
        }
    }
}

void hear_fault(Draft& draft, const AgentPtr& link, const wire::Fault& fault) {
    event::FaultSeen seen;
    seen.attempt = draft.job().attempt()->number;
    seen.generation = fault.generation;
    seen.rank = own_rank(draft.job(), *link, fault.generation, fault.rank);
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

void hear_warning(Draft& draft, const AgentPtr& link, const wire::Warned& warned) {
    event::WarningGiven out;
    out.attempt = draft.job().attempt()->number;
    out.generation = warned.generation;
    out.rank = own_rank(draft.job(), *link, warned.generation, warned.rank);
    out.node = link->node;
    out.message = printable(std::string_view{warned.message}.substr(0, limits::kWarningBytes));
    draft.add(std::move(out));
    draft.hear(link, warned.event);
}

void hear_gpu_error(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                    const wire::GpuXid& xid) {
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
        gpu_error_seen(draft, run, seen);
    }
    draft.hear(link, xid.event);
}

void hear_bye(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Bye& bye) {
    const std::string reason =
        printable(std::string_view{bye.reason}.substr(0, limits::kTextBytes));
    draft.hear(link, bye.event);  // the loss of its node is stored later
    // Also of one that is heard again: a JOIN before it was, too.
    run.rendezvous.disconnected(link->node_rank);
    if (!run.left.emplace(link->node_rank, Farewell{reason, draft.at.steady}).second) {
        return;
    }
    draft.at_once.add(effect::ExpectEnd{link->attempt()});
    log::info("agent leaves",
              {{"job", draft.before().id.value}, {"node", link->node}, {"why", reason}});
}

}  // namespace lockstep
