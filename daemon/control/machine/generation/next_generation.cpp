#include "daemon/control/machine/generation/next_generation.hpp"

#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/generation/growth.hpp"
#include "daemon/control/machine/generation/size_words.hpp"
#include "daemon/control/machine/generation/world.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/recovery.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

// Who is where in the generation after `before`, slots by node rank (the slots of the one before;
// empty if there was none): everyone keeps its place as long as its node does, and a node that
// joined as a spare takes that of a lost one; whoever is new or back takes one that is free, or
// comes behind; only where places stay empty do those behind move up. `fit`: which nodes that were
// not in `before` may be taken. Nothing: not all that are needed have joined. Fewer than are
// wanted: nobody else can be had now, which is for the caller to wait for or not.
template <class Fit>
std::optional<std::vector<std::int32_t>> take_places(const Rendezvous& nodes,
                                                     const std::vector<std::int32_t>& before,
                                                     const Fit& fit) {
    std::vector<bool> placed(static_cast<std::size_t>(nodes.slots()), false);
    for (const std::int32_t slot : before) {
        placed[static_cast<std::size_t>(slot)] = true;
    }
    std::vector<std::int32_t> free;  // may take a place, the lowest first
    for (std::int32_t slot = 0; slot < nodes.slots(); ++slot) {
        // One that has a place already takes no other, though it was lost and has returned.
        if (!placed[static_cast<std::size_t>(slot)] && nodes.has_joined(slot) && fit(slot)) {
            free.push_back(slot);
        }
    }
    auto spare = free.begin();
    std::vector<std::int32_t> out;
    for (std::int32_t rank = 0; rank < nodes.wanted(); ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        const std::int32_t old = index < before.size() ? before[index] : -1;
        if (old >= 0 && !nodes.is_lost(old)) {
            if (!nodes.has_joined(old)) {
                return std::nullopt;  // it is on its way
            }
            out.push_back(old);
        } else if (spare != free.end()) {
            out.push_back(*spare++);
        }
    }
    if (static_cast<std::int32_t>(out.size()) < nodes.least()) {
        return std::nullopt;
    }
    return out;
}

}  // namespace

Effects send_abort(const Job& job, AttemptRun& run, const Cause& cause, const Surroundings& at) {
    GenerationRun& live = run.generation;
    if (!live.abort_sent) {
        live.abort_sent = at.steady;
        live.abort_due = true;
        log::info("generation is over, its ranks are being stopped",
                  {{"job", job.id.value},
                   {"generation", job.live_generation()->number},
                   {"class", to_string(cause.kind)},
                   {"why", cause.message}});
    }
    Effects out;
    if (!std::exchange(live.abort_due, false)) {
        return out;
    }
    wire::Abort abort;
    abort.generation = job.live_generation()->number;
    abort.reason = cause.message;
    abort.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
    std::shared_ptr<const std::string> encoded;
    for (const auto& [slot, link] : run.links) {
        if (!link->abort_sent && run.rendezvous.is_member(slot)) {
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

std::optional<AfterEnd> may_end(const Draft& draft, const AttemptRun& run, bool over) {
    const Job& job = draft.before();
    if (!draft.events.empty() || (!over && run.ranks_are_left(job)) ||
        (over && run.somebody_may_still_come(job, draft.at.steady))) {
        return std::nullopt;
    }
    return over ? AfterEnd::look : AfterEnd::next_generation;
}

bool add_generation_end(Draft& draft, AttemptRun& run, AnomalyRun& anomalies, const Cause& cause) {
    const Generation* live = draft.before().live_generation();
    if (live == nullptr) {
        return false;
    }
    anomalies.look(draft, run.generation, true);
    look_at_profile(draft, run, true);
    tell_checkpoint(draft, run, true);
    event::GenerationEnded ended;
    ended.attempt = draft.before().attempt()->number;
    ended.generation = live->number;
    ended.cause = with_others(draft.before(), cause);
    ended.step = last_step(draft);
    return draft.add(std::move(ended));
}

void forget_generation(AttemptRun& run) {
    run.rendezvous.over();
    run.generation = GenerationRun{};
}

void hear_join(Draft& draft, AttemptRun& run, const WaitClock& waits, const AgentPtr& link,
               const wire::Join& join) {
    const std::int32_t ports =
        needs_endpoints(draft.before().spec) ? draft.before().spec.ranks_per_node() : 0;
    if (join.ports.size() != static_cast<std::size_t>(ports)) {
        draft.fence(link, "JOIN with " + std::to_string(join.ports.size()) + " ports, not " +
                              std::to_string(ports));
        return;
    }
    link->join = join;
    run.joined_at = draft.at.steady;
    if (join.addresses.size() > limits::kNodeAddresses ||
        std::any_of(join.addresses.begin(), join.addresses.end(),
                    [](const std::string& one) { return one.size() > limits::kTextBytes; })) {
        link->join.addresses.clear();
    }
    if (run.rendezvous.joined(link->node_rank, join.generation)) {
        // Fixed before: this agent had not heard of it, or the daemon was restarted in between. Not
        // before the append: it may have been fixed in this very draft.
        draft.after.emplace_back(after::SendWorld{link});
        return;
    }
    form_generation(draft, run, waits);
}

void form_generation(Draft& draft, const AttemptRun& run, const WaitClock& waits) {
    const Attempt* attempt = draft.job().attempt();
    if (run.stopping || !run.rendezvous.enough_joined() ||
        !run.preflight.all_passed(draft.before().spec) || !run.pairs_done(draft.job()) ||
        draft.job().live_generation() != nullptr ||
        due(draft.job(), waits.waited(draft.job(), draft.at.steady)).kind != ActionKind::gather) {
        return;
    }
    std::vector<std::int32_t> before;
    std::int32_t over = 0;
    if (const Generation* last = draft.job().generation()) {
        over = last->number;
        for (std::int32_t node = 0; node < last->nodes; ++node) {
            before.push_back(last->slot_of(node));
        }
    }
    if (run.rendezvous.live() != 0 && run.rendezvous.live() != over) {
        return;  // it is not the one whose end may be in this very draft
    }
    // Of an elastic job nobody waits for a newcomer that is still being looked at.
    const bool elastic = draft.before().spec.resources.is_elastic();
    const auto fit = [&](std::int32_t slot) { return !elastic || run.preflight.passed(slot); };
    auto members = take_places(run.rendezvous, before, fit);
    const bool passed = members && draft.job().spec.preflight.mode != PreflightMode::only &&
                        std::all_of(members->begin(), members->end(), [&run](std::int32_t slot) {
                            return run.preflight.passed(slot);
                        });
    if (!passed || waits_for_more(draft, run, *members)) {
        return;
    }
    event::GenerationStarted started;
    started.attempt = attempt->number;
    started.generation = attempt->generations.empty() ? 1 : attempt->generations.back().number + 1;
    started.master_address = run.address_of(draft.job(), members->front());
    started.master_port = run.links.at(members->front())->join.port;
    for (const std::int32_t slot : *members) {
        const wire::Join& join = run.links.at(slot)->join;
        started.addresses.push_back(run.address_of(draft.job(), slot));
        started.ports.insert(started.ports.end(), join.ports.begin(), join.ports.end());
    }
    started.resumed_from_step = draft.job().checkpoint_step;
    started.release_told = true;
    if (draft.before().spec.resources.spares > 0 || elastic) {
        started.slots = *members;
    }
    if (elastic) {
        started.nodes = static_cast<std::int64_t>(members->size());
        started.world_size = started.nodes * draft.before().spec.ranks_per_node();
        started.message = size_words(draft.job(), *members);
    }
    if (!draft.add(std::move(started))) {
        return;
    }
    draft.after.emplace_back(after::Form{std::move(*members)});
}

void begin_generation(Effects& out, const Job& job, AttemptRun& run,
                      const std::vector<std::int32_t>& slots) {
    const Generation& live = *job.live_generation();
    run.rendezvous.fixed(live.number, live.slots);
    run.generation = GenerationRun{job};
    run.processes.clear();
    if (!live.message.empty()) {
        log::info("another number of nodes", {{"job", job.id.value}, {"what", live.message}});
    }
    for (const auto& [slot, link] : run.links) {
        link->abort_sent.reset();
    }
    if (slots.size() > 1) {
        run.generation.rdma_ports = run.preflight.active_ports(slots);
    }
    send_world(out, job, run, slots);
}

bool abort_if_over(Draft& draft, const AgentPtr& link, std::int32_t generation) {
    const Generation* newest = draft.before().generation();
    if (newest == nullptr || link->attempt() != draft.before().attempt()->number ||
        generation < 1 || generation > newest->number ||
        (generation == newest->number && newest->open())) {
        return false;
    }
    wire::Abort abort;
    abort.generation = generation;
    abort.reason = "generation " + std::to_string(generation) + " is over";
    draft.at_once.send(link, abort);
    draft.answered = true;
    return true;
}

void hear_ready(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Ready& ready) {
    if (abort_if_over(draft, link, ready.generation)) {
        return;
    }
    if (!run.rendezvous.ready(link->node_rank, ready.generation)) {
        draft.fence(link, "READY of another generation");
        return;
    }
    release_if_ready(draft, run, link);
}

void release_if_ready(Draft& draft, const AttemptRun& run, const AgentPtr& link) {
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || run.stopping || run.generation.abort_sent) {
        return;
    }
    if (run.generation.released) {
        // It says READY again: START was lost. Nor does it wait for one that is away just now,
        // which may have ranks and would not say READY when it is back.
        if (link != nullptr) {
            draft.after.emplace_back(after::StartAgain{link});
        }
        return;
    }
    if (!run.rendezvous.all_ready()) {
        return;
    }
    if (live->released_at == 0) {
        event::RanksReleased released;
        released.attempt = draft.job().attempt()->number;
        released.generation = live->number;
        if (!draft.add(released)) {
            return;
        }
    } else if (draft.before().live_generation() == nullptr ||
               draft.before().live_generation()->released_at == 0) {
        return;  // in this very draft: it is told with the others
    }
    // After a restart of the daemon everybody's news comes at once: one walk over all is enough.
    if (std::exchange(draft.starts, true)) {
        return;
    }
    draft.after.emplace_back(after::Release{live->number});
}

void send_start(Effects& out, AttemptRun& run, std::int32_t generation) {
    if (std::exchange(run.generation.released, true)) {
        return;
    }
    const auto start = std::make_shared<const std::string>(
        wire::encode(wire::DaemonMessage{wire::Start{generation}}));
    for (const auto& [slot, link] : run.links) {
        if (run.may_start(slot)) {
            out.add(effect::SendShared{link, start});
        }
    }
}

void send_start_again(Effects& out, const AttemptRun& run, const AgentPtr& link) {
    if (run.may_start(link->node_rank)) {
        out.send(link, wire::Start{run.rendezvous.live()});
    }
}

void hear_started(Draft& draft, AttemptRun& run, const AgentPtr& link,
                  const wire::Started& started) {
    if (abort_if_over(draft, link, started.generation)) {
        return;
    }
    if (!run.rendezvous.started(link->node_rank, started.generation)) {
        draft.fence(link, "STARTED of another generation");
        return;
    }
    release_if_ready(draft, run, link);  // it may have been the last one that had not been heard
    run.processes.resize(static_cast<std::size_t>(draft.before().world_size()));
    for (const auto& rank : of_own_ranks(draft.job(), *link, started.generation, started.ranks)) {
        if (static_cast<std::size_t>(rank.rank) < run.processes.size()) {
            run.processes[static_cast<std::size_t>(rank.rank)] = rank;
        }
    }
    const Generation* live = draft.job().live_generation();
    if (run.rendezvous.all_started() && live != nullptr && live->running_at == 0) {
        event::RanksStarted all;
        all.attempt = draft.job().attempt()->number;
        all.generation = started.generation;
        all.warm = std::count_if(run.processes.begin(), run.processes.end(),
                                 [](const wire::StartedRank& one) { return one.warm; });
        draft.add(all);
    }
}

}  // namespace lockstep
