// How the agents of a job meet: JOIN, WORLD, READY, START, STARTED, and ABORT to whoever is late.
// The rules are rendezvous.hpp's; here they get their messages and their events.
#include "daemon/control/job_actor.hpp"
#include "job/base/digest.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {
namespace {

wire::Table table_of(const Job& job) {
    wire::Table out;
    const Generation& generation = *job.live_generation();
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        out.hosts.push_back(job.claim_of_node(node)->node);
    }
    if (!generation.ports.empty()) {
        out.addresses = generation.addresses;
        out.ports = generation.ports;
    }
    return out;
}

}  // namespace

void JobActor::join(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Join& join) {
    const std::int32_t ports = needs_endpoints(job_.spec) ? job_.spec.ranks_per_node() : 0;
    if (join.ports.size() != static_cast<std::size_t>(ports)) {
        fence(link, "JOIN with " + std::to_string(join.ports.size()) + " ports, not " +
                        std::to_string(ports));
        return;
    }
    link->join = join;
    joined_at_ = context_.clock.steady();
    if (join.addresses.size() > limits::kNodeAddresses ||
        std::any_of(join.addresses.begin(), join.addresses.end(),
                    [](const std::string& one) { return one.size() > limits::kTextBytes; })) {
        link->join.addresses.clear();
    }
    if (rendezvous_.joined(link->node_rank, join.generation)) {
        // Fixed before: this agent had not heard of it, or the daemon was restarted in between. Not
        // before the append: it may have been fixed in this very draft.
        draft.effects.push_back([this, link] { send_world(link); });
        return;
    }
    form_generation(draft);
}

// Once every node that is needed has joined: the ranks, the master and the number of the generation
// are fixed and on disk before anybody hears of them.
void JobActor::form_generation(Draft& draft) {
    const Attempt* attempt = draft.job().attempt();
    if (stop_sent_ || !rendezvous_.enough_joined() || !preflight_.all_passed(job_.spec) ||
        !pairs_done(draft.job()) || draft.job().live_generation() != nullptr ||
        due(draft.job(), context_.clock.wall()).kind != ActionKind::gather) {
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
    auto members = rendezvous_.next(
        before, over, [&](std::int32_t slot) { return !elastic || preflight_.passed(slot); });
    const bool passed = members && draft.job().spec.preflight.mode != PreflightMode::only &&
                        std::all_of(members->begin(), members->end(),
                                    [this](std::int32_t slot) { return preflight_.passed(slot); });
    if (!passed || waits_for_more(draft.job(), *members)) {
        return;
    }
    event::GenerationStarted started;
    started.attempt = attempt->number;
    started.generation = attempt->generations.empty() ? 1 : attempt->generations.back().number + 1;
    started.master_address = address_of(draft.job(), members->front());
    started.master_port = links_.at(members->front())->join.port;
    for (const std::int32_t slot : *members) {
        const wire::Join& join = links_.at(slot)->join;
        started.addresses.push_back(address_of(draft.job(), slot));
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
    if (!add(draft, std::move(started))) {
        return;
    }
    draft.effects.push_back([this, slots = std::move(*members)] {
        begin_generation();
        wire::World told = world();
        for (std::size_t node = 0; node < slots.size(); ++node) {
            if (const auto link = links_.find(slots[node]); link != links_.end()) {
                told.node_rank = static_cast<std::int32_t>(node);
                told.first_rank = told.node_rank * told.local_ranks;
                told.address = own_address(*link->second, told.node_rank);
                told.admitted = node == 0 ? admitted() : std::vector<std::string>{};
                link->second->send(told);
            }
        }
    });
}

// What only lives while the daemon does, for the generation that has just been fixed.
void JobActor::begin_generation() {
    const Generation& live = *job_.live_generation();
    rendezvous_.fixed(live.number, live.slots);
    released_ = 0;
    make_table();
    exchange_.reset();
    processes_.clear();
    evidence_.reset();
    hang_watch_.reset();
    growth_.reset();
    if (auto* known = context_.series.at(job_.id.value)) {
        known->have_ranks(static_cast<std::size_t>(job_.world_size()));
    }
    if (!live.message.empty()) {
        log::info("another number of nodes", {{"job", job_.id.value}, {"what", live.message}});
    }
    if (const auto* series = context_.series.find(job_.id.value); series != nullptr && resumed_) {
        anomaly_watch_.resume(*series);  // what the generations before had is not told once more
    }
    resumed_ = false;
    anomaly_watch_.restart();
    anomalies_before_ = job_.anomalies;
    abort_sent_.reset();
    for (const auto& [slot, link] : links_) {
        link->abort_sent.reset();
    }
}

// Without what each node is told for itself.
wire::World JobActor::world() const {
    const Generation& generation = *job_.live_generation();
    wire::World out;
    out.generation = generation.number;
    out.world_size = job_.world_size();
    out.local_ranks = job_.spec.ranks_per_node();
    out.master_address = generation.master_address;
    out.master_port = generation.master_port;
    out.nodes = generation.nodes;
    out.table = table_digest_;
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
std::vector<std::string> JobActor::admitted() const {
    const Generation& generation = *job_.live_generation();
    std::set<std::string> out;
    std::size_t bytes = 0;
    const auto take = [&](const std::string& address) {
        bytes += !address.empty() && out.insert(address).second ? address.size() + 3 : 0;
    };
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        const auto link = links_.find(generation.slot_of(node));
        if (link == links_.end() || link->second->join.addresses.empty() ||
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

// Of a large world, once for all who will ask.
void JobActor::make_table() {
    table_.reset();
    table_digest_.clear();
    if (job_.live_generation() == nullptr || job_.nodes() <= limits::kWorldHosts) {
        return;
    }
    wire::Table table = table_of(job_);
    const std::string content = wire::encode(wire::DaemonMessage{table});
    table.digest = sha256_hex(content).substr(0, 32);
    table_digest_ = table.digest;
    table_ = std::make_shared<const std::string>(wire::encode(wire::DaemonMessage{table}));
}

void JobActor::send_table(const std::shared_ptr<AgentLink>& link,
                          const wire::TableRequest& request) {
    if (current(*link, request.generation) && table_ != nullptr) {
        link->send_encoded(table_);
    } else {
        abort_if_over(link, request.generation);
    }
}

// The node's own address if it is another one than it gave; "" = that one.
std::string JobActor::own_address(const AgentLink& link, std::int32_t node_rank) const {
    const auto& addresses = job_.live_generation()->addresses;
    const auto index = static_cast<std::size_t>(node_rank);
    return index < addresses.size() && addresses[index] != link.join.address ? addresses[index]
                                                                             : std::string{};
}

void JobActor::send_world(const std::shared_ptr<AgentLink>& link) {
    const Generation* generation = job_.live_generation();
    const std::int32_t node_rank =
        generation == nullptr ? -1 : generation->node_rank_of(link->node_rank);
    if (node_rank < 0 || stop_sent_ || abort_sent_) {
        return;
    }
    wire::World told = world();
    told.node_rank = node_rank;
    told.first_rank = node_rank * told.local_ranks;
    told.address = own_address(*link, node_rank);
    if (node_rank == 0) {
        told.admitted = admitted();
    }
    link->send(told);
}

// A generation that is over, and the agent does not know it: ABORT once more. True if it was that.
bool JobActor::abort_if_over(const std::shared_ptr<AgentLink>& link, std::int32_t generation) {
    const Generation* newest = job_.generation();
    if (newest == nullptr || link->attempt() != job_.attempt()->number || generation < 1 ||
        generation > newest->number || (generation == newest->number && newest->open())) {
        return false;
    }
    wire::Abort abort;
    abort.generation = generation;
    abort.reason = "generation " + std::to_string(generation) + " is over";
    link->send(abort);
    return true;
}

void JobActor::ready(Draft& draft, const std::shared_ptr<AgentLink>& link,
                     const wire::Ready& ready) {
    if (abort_if_over(link, ready.generation)) {
        return;
    }
    if (!rendezvous_.ready(link->node_rank, ready.generation)) {
        fence(link, "READY of another generation");
        return;
    }
    release_if_ready(draft, link);
}

// START leaves once every node is ready (or has started: the daemon may have been restarted half
// way), and once that is on disk: of what was not released no rank has run. It goes to thousands of
// nodes, but only once to all; `link` is the node that was heard just now, or nullptr.
void JobActor::release_if_ready(Draft& draft, const std::shared_ptr<AgentLink>& link) {
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || !rendezvous_.all_ready() || stop_sent_ || abort_sent_) {
        return;
    }
    if (released_ == live->number) {
        if (link != nullptr) {  // it says READY again: START was lost
            draft.effects.push_back([this, link] {
                if (may_start(link->node_rank)) {
                    link->send(wire::Start{released_});
                }
            });
        }
        return;
    }
    if (live->released_at == 0) {
        event::RanksReleased released;
        released.attempt = draft.job().attempt()->number;
        released.generation = live->number;
        if (!add(draft, released)) {
            return;
        }
    } else if (job_.live_generation() == nullptr || job_.live_generation()->released_at == 0) {
        return;  // in this very draft: it is told with the others
    }
    // After a restart of the daemon everybody's news comes at once: one walk over all is enough.
    if (std::exchange(draft.starts, true)) {
        return;
    }
    draft.effects.push_back([this, generation = live->number] {
        if (released_ == generation) {
            return;
        }
        released_ = generation;
        const auto start = std::make_shared<const std::string>(
            wire::encode(wire::DaemonMessage{wire::Start{generation}}));
        for (const auto& [slot, one] : links_) {
            if (may_start(slot)) {
                one->send_encoded(start);
            }
        }
    });
}

bool JobActor::may_start(std::int32_t slot) const {
    return !stop_sent_ && !abort_sent_ && released_ == rendezvous_.live() &&
           rendezvous_.is_member(slot) && rendezvous_.phase(slot) == Rendezvous::Phase::ready;
}

void JobActor::node_started(Draft& draft, const std::shared_ptr<AgentLink>& link,
                            const wire::Started& started) {
    if (abort_if_over(link, started.generation)) {
        return;
    }
    if (!rendezvous_.started(link->node_rank, started.generation)) {
        fence(link, "STARTED of another generation");
        return;
    }
    release_if_ready(draft, link);  // it may have been the last one that had not been heard
    processes_.resize(static_cast<std::size_t>(job_.world_size()));
    for (const auto& rank : started.ranks) {
        if (rank.rank >= 0 && static_cast<std::size_t>(rank.rank) < processes_.size()) {
            processes_[static_cast<std::size_t>(rank.rank)] = rank;
        }
    }
    const Generation* live = draft.job().live_generation();
    if (rendezvous_.all_started() && live != nullptr && live->running_at == 0) {
        event::RanksStarted all;
        all.attempt = draft.job().attempt()->number;
        all.generation = started.generation;
        all.warm = std::count_if(processes_.begin(), processes_.end(),
                                 [](const wire::StartedRank& one) { return one.warm; });
        add(draft, all);
    }
}

}  // namespace lockstep
