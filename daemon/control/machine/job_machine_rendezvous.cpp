// From one generation to the next: ABORT, the end of the ranks, JOIN, who takes which place, WORLD,
// READY, START, STARTED, and ABORT to whoever is late. Who is where is in rendezvous.hpp, what the
// agents are told of a generation in world.hpp.
#include "daemon/control/machine/checkpoints.hpp"
#include "daemon/control/machine/generation/size_words.hpp"
#include "daemon/control/machine/generation/world.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

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

std::optional<JobMachine::AfterEnd> JobMachine::look_while_aborting(Draft& draft,
                                                                    const Observation& seen,
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
    if (!draft.events.empty() || (!over && run_.ranks_are_left(job_)) ||
        (over && run_.somebody_may_still_come(job_, draft.at.steady))) {
        return std::nullopt;
    }
    return over ? AfterEnd::look : AfterEnd::next_generation;
}

bool JobMachine::add_generation_end(Draft& draft, const Cause& cause) {
    const Generation* live = job_.live_generation();
    if (live == nullptr) {
        return false;
    }
    anomalies_.look(draft, run_.generation, true);
    look_at_profile(draft, run_, true);
    tell_checkpoint(draft, run_, true);
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

void JobMachine::become(const after::GenerationOver&, Effects&, const Surroundings&) {
    run_.rendezvous.over();
    run_.generation = GenerationRun{};
}

void JobMachine::join(Draft& draft, const AgentPtr& link, const wire::Join& join) {
    const std::int32_t ports = needs_endpoints(job_.spec) ? job_.spec.ranks_per_node() : 0;
    if (join.ports.size() != static_cast<std::size_t>(ports)) {
        draft.fence(link, "JOIN with " + std::to_string(join.ports.size()) + " ports, not " +
                              std::to_string(ports));
        return;
    }
    link->join = join;
    run_.joined_at = draft.at.steady;
    if (join.addresses.size() > limits::kNodeAddresses ||
        std::any_of(join.addresses.begin(), join.addresses.end(),
                    [](const std::string& one) { return one.size() > limits::kTextBytes; })) {
        link->join.addresses.clear();
    }
    if (run_.rendezvous.joined(link->node_rank, join.generation)) {
        // Fixed before: this agent had not heard of it, or the daemon was restarted in between. Not
        // before the append: it may have been fixed in this very draft.
        draft.after.emplace_back(after::SendWorld{link});
        return;
    }
    form_generation(draft);
}

// Once every node that is needed has joined: the ranks, the master and the number of the generation
// are fixed and on disk before anybody hears of them.
void JobMachine::form_generation(Draft& draft) {
    const Attempt* attempt = draft.job().attempt();
    if (run_.stopping || !run_.rendezvous.enough_joined() ||
        !run_.preflight.all_passed(job_.spec) || !run_.pairs_done(draft.job()) ||
        draft.job().live_generation() != nullptr ||
        due(draft.job(), waits_.waited(draft.job(), draft.at.steady)).kind != ActionKind::gather) {
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
    if (run_.rendezvous.live() != 0 && run_.rendezvous.live() != over) {
        return;  // it is not the one whose end may be in this very draft
    }
    // Of an elastic job nobody waits for a newcomer that is still being looked at.
    const bool elastic = job_.spec.resources.is_elastic();
    const auto fit = [&](std::int32_t slot) { return !elastic || run_.preflight.passed(slot); };
    auto members = take_places(run_.rendezvous, before, fit);
    const bool passed = members && draft.job().spec.preflight.mode != PreflightMode::only &&
                        std::all_of(members->begin(), members->end(), [this](std::int32_t slot) {
                            return run_.preflight.passed(slot);
                        });
    if (!passed || waits_for_more(draft, *members)) {
        return;
    }
    event::GenerationStarted started;
    started.attempt = attempt->number;
    started.generation = attempt->generations.empty() ? 1 : attempt->generations.back().number + 1;
    started.master_address = run_.address_of(draft.job(), members->front());
    started.master_port = run_.links.at(members->front())->join.port;
    for (const std::int32_t slot : *members) {
        const wire::Join& join = run_.links.at(slot)->join;
        started.addresses.push_back(run_.address_of(draft.job(), slot));
        started.ports.insert(started.ports.end(), join.ports.begin(), join.ports.end());
    }
    started.resumed_from_step = draft.job().checkpoint_step;
    started.release_told = true;
    if (job_.spec.resources.spares > 0 || elastic) {
        started.slots = *members;
    }
    if (elastic) {
        started.nodes = static_cast<std::int64_t>(members->size());
        started.world_size = started.nodes * job_.spec.ranks_per_node();
        started.message = size_words(draft.job(), *members);
    }
    if (!draft.add(std::move(started))) {
        return;
    }
    draft.after.emplace_back(after::Form{std::move(*members)});
}

void JobMachine::become(const after::Form& one, Effects& out, const Surroundings& at) {
    begin_generation(at);
    if (one.slots.size() > 1) {
        run_.generation.rdma_ports = run_.preflight.active_ports(one.slots);
    }
    send_world(out, job_, run_, one.slots);
}

// What only lives while the daemon does, for the generation that has just been fixed.
void JobMachine::begin_generation(const Surroundings& at) {
    const Generation& live = *job_.live_generation();
    run_.rendezvous.fixed(live.number, live.slots);
    run_.generation = GenerationRun{job_};
    run_.processes.clear();
    if (!live.message.empty()) {
        log::info("another number of nodes", {{"job", job_.id.value}, {"what", live.message}});
    }
    anomalies_.begin(at.series);
    for (const auto& [slot, link] : run_.links) {
        link->abort_sent.reset();
    }
}

// A generation that is over, and the agent does not know it: ABORT once more. True if it was that.
bool JobMachine::abort_if_over(Draft& draft, const AgentPtr& link, std::int32_t generation) {
    const Generation* newest = job_.generation();
    if (newest == nullptr || link->attempt() != job_.attempt()->number || generation < 1 ||
        generation > newest->number || (generation == newest->number && newest->open())) {
        return false;
    }
    wire::Abort abort;
    abort.generation = generation;
    abort.reason = "generation " + std::to_string(generation) + " is over";
    draft.at_once.send(link, abort);
    draft.answered = true;
    return true;
}

void JobMachine::ready(Draft& draft, const AgentPtr& link, const wire::Ready& ready) {
    if (abort_if_over(draft, link, ready.generation)) {
        return;
    }
    if (!run_.rendezvous.ready(link->node_rank, ready.generation)) {
        draft.fence(link, "READY of another generation");
        return;
    }
    release_if_ready(draft, link);
}

// START leaves once every node is ready (or has started: the daemon may have been restarted half
// way), and once that is on disk: of what was not released no rank has run. It goes to thousands of
// nodes, but only once to all; `link` is the node that was heard just now, or nullptr.
void JobMachine::release_if_ready(Draft& draft, const AgentPtr& link) {
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || run_.stopping || run_.generation.abort_sent) {
        return;
    }
    if (run_.generation.released) {
        // It says READY again: START was lost. Nor does it wait for one that is away just now,
        // which may have ranks and would not say READY when it is back.
        if (link != nullptr) {
            draft.after.emplace_back(after::StartAgain{link});
        }
        return;
    }
    if (!run_.rendezvous.all_ready()) {
        return;
    }
    if (live->released_at == 0) {
        event::RanksReleased released;
        released.attempt = draft.job().attempt()->number;
        released.generation = live->number;
        if (!draft.add(released)) {
            return;
        }
    } else if (job_.live_generation() == nullptr || job_.live_generation()->released_at == 0) {
        return;  // in this very draft: it is told with the others
    }
    // After a restart of the daemon everybody's news comes at once: one walk over all is enough.
    if (std::exchange(draft.starts, true)) {
        return;
    }
    draft.after.emplace_back(after::Release{live->number});
}

void JobMachine::become(const after::Release& one, Effects& out, const Surroundings&) {
    if (std::exchange(run_.generation.released, true)) {
        return;
    }
    const auto start = std::make_shared<const std::string>(
        wire::encode(wire::DaemonMessage{wire::Start{one.generation}}));
    for (const auto& [slot, link] : run_.links) {
        if (run_.may_start(slot)) {
            out.add(effect::SendShared{link, start});
        }
    }
}

void JobMachine::become(const after::StartAgain& one, Effects& out, const Surroundings&) {
    if (run_.may_start(one.link->node_rank)) {
        out.send(one.link, wire::Start{run_.rendezvous.live()});
    }
}

void JobMachine::node_started(Draft& draft, const AgentPtr& link, const wire::Started& started) {
    if (abort_if_over(draft, link, started.generation)) {
        return;
    }
    if (!run_.rendezvous.started(link->node_rank, started.generation)) {
        draft.fence(link, "STARTED of another generation");
        return;
    }
    release_if_ready(draft, link);  // it may have been the last one that had not been heard
    run_.processes.resize(static_cast<std::size_t>(job_.world_size()));
    for (const auto& rank : started.ranks) {
        if (rank.rank >= 0 && static_cast<std::size_t>(rank.rank) < run_.processes.size()) {
            run_.processes[static_cast<std::size_t>(rank.rank)] = rank;
        }
    }
    const Generation* live = draft.job().live_generation();
    if (run_.rendezvous.all_started() && live != nullptr && live->running_at == 0) {
        event::RanksStarted all;
        all.attempt = draft.job().attempt()->number;
        all.generation = started.generation;
        all.warm = std::count_if(run_.processes.begin(), run_.processes.end(),
                                 [](const wire::StartedRank& one) { return one.warm; });
        draft.add(all);
    }
}

}  // namespace lockstep
