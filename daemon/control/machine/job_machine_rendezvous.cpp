// How the agents of a job meet: JOIN, WORLD, READY, START, STARTED, and ABORT to whoever is late.
// The rules are rendezvous.hpp's; here they get their messages and their events.
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/control/machine/size_words.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {

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
    // Of an elastic job nobody waits for a newcomer that is still being looked at.
    const bool elastic = job_.spec.resources.is_elastic();
    auto members = run_.rendezvous.next(
        before, over, [&](std::int32_t slot) { return !elastic || run_.preflight.passed(slot); });
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

// Without what each node is told for itself.
wire::World JobMachine::world() const {
    const Generation& generation = *job_.live_generation();
    wire::World out;
    out.generation = generation.number;
    out.world_size = job_.world_size();
    out.local_ranks = job_.spec.ranks_per_node();
    out.master_address = generation.master_address;
    out.master_port = generation.master_port;
    out.nodes = generation.nodes;
    out.table = run_.generation.table_digest;
    if (out.table.empty()) {
        wire::Table table = table_of(job_);
        out.hosts = std::move(table.hosts);
        out.addresses = std::move(table.addresses);
        out.ports = std::move(table.ports);
    }
    out.resume_step = generation.resumed_from_step;
    return out;
}

// Where connections of the generation's ranks may come from; empty if that is not known of all of
// its nodes.
std::vector<std::string> JobMachine::admitted() const {
    const Generation& generation = *job_.live_generation();
    std::set<std::string> out;
    std::size_t bytes = 0;
    const auto take = [&](const std::string& address) {
        bytes += !address.empty() && out.insert(address).second ? address.size() + 3 : 0;
    };
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        const auto link = run_.links.find(generation.slot_of(node));
        if (link == run_.links.end() || link->second->join.addresses.empty() ||
            bytes > limits::kAdmittedBytes) {
            return {};
        }
        const auto index = static_cast<std::size_t>(node);
        take(index < generation.addresses.size() ? generation.addresses[index] : "");
        take(link->second->join.address);
        take(link->second->remote());
        std::for_each(link->second->join.addresses.begin(), link->second->join.addresses.end(),
                      take);
    }
    return {out.begin(), out.end()};
}

void JobMachine::send_table(Draft& draft, const AgentPtr& link, const wire::TableRequest& request) {
    if (is_current(job_, *link, request.generation) && run_.generation.table != nullptr) {
        draft.at_once.add(effect::SendShared{link, run_.generation.table});
        draft.answered = true;
    } else {
        abort_if_over(draft, link, request.generation);
    }
}

// The node's own address if it is another one than it gave; "" = that one.
std::string JobMachine::own_address(const Agent& link, std::int32_t node_rank) const {
    const auto& addresses = job_.live_generation()->addresses;
    const auto index = static_cast<std::size_t>(node_rank);
    return index < addresses.size() && addresses[index] != link.join.address ? addresses[index]
                                                                             : std::string{};
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
