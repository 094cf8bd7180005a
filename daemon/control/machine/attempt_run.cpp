#include "daemon/control/machine/attempt_run.hpp"

#include <algorithm>

namespace lockstep {
namespace {

Rendezvous rendezvous_of(const Job& job) {
    const Resources& resources = job.spec.resources;
    Rendezvous out{resources.nodes, resources.allocated_nodes(), resources.least_nodes()};
    if (job.attempt() != nullptr && job.attempt()->finished_at == 0) {
        for (const auto& [slot, cause] : job.attempt()->lost) {
            out.lost(slot);
        }
    }
    if (const Generation* live = job.live_generation()) {
        out.fixed(live->number, live->slots);
    }
    return out;
}

void send_answers(Effects& out, const AttemptRun& run,
                  const std::vector<KvStore::Answer>& answers) {
    for (const auto& answer : answers) {
        if (const auto link = run.links.find(answer.node_rank); link != run.links.end()) {
            out.send(link->second, answer.reply);
        }
    }
}

}  // namespace

bool is_current(const Job& job, const Agent& link, std::int32_t generation) {
    const Generation* now = job.live_generation();
    return job.attempt() != nullptr && link.attempt() == job.attempt()->number && now != nullptr &&
           now->number == generation;
}

AttemptRun::AttemptRun(const Job& job) : rendezvous(rendezvous_of(job)), generation(job) {}

void AttemptRun::disconnected(std::int32_t slot, Time now) {
    gone[slot] = now;
    rendezvous.disconnected(slot);
    preflight.gone(slot);
    pairs.gone(slot);
    nccl_pairs.gone(slot);
    links.erase(slot);
}

bool AttemptRun::pairs_wanted(const Job& job, PairState::Kind kind) {
    const PreflightSpec& spec = job.spec.preflight;
    const bool asked = kind == PairState::Kind::nccl
                           ? spec.nccl_test && job.spec.resources.gpus_per_node > 0
                           : spec.pair_test;
    return wants_preflight(job) && asked && job.attempt() != nullptr &&
           job.attempt()->generations.empty();
}

// A node of the newest generation has been looked at, whether or not this daemon was there.
void AttemptRun::expect_facts(const Job& job, const Agent& link, bool capable, Time now) {
    const Generation* newest = job.generation();
    const bool wanted = wants_preflight(job);
    if (capable && wanted) {
        preflight.expect(link.node_rank, link.node, now);
    }
    const bool lost = job.attempt() != nullptr && job.attempt()->lost.contains(link.node_rank);
    if (!capable || !wanted ||
        (newest != nullptr && newest->node_rank_of(link.node_rank) >= 0 && !lost)) {
        preflight.exempt(link.node_rank);
    }
}

void AttemptRun::answer_key_request(Effects& out, const Job& job, const AgentPtr& link,
                                    const wire::KeyRequest& request, const Surroundings& at) {
    if (!is_current(job, *link, request.generation) || request.rank < 0 ||
        job.live_generation()->slot_of(request.rank / job.spec.ranks_per_node()) !=
            link->node_rank) {
        wire::KeyReply refusal;
        refusal.id = request.id;
        refusal.error = to_string(Errc::conflict);
        refusal.message = "fenced: not a rank of the current generation";
        out.send(link, refusal);
        return;
    }
    std::optional<KvStore>& store = generation.keys;
    if (!store) {
        store.emplace(job.world_size(), at.wall);
    }
    send_answers(out, *this, store->request(link->node_rank, request, at.steady));
}

void AttemptRun::expire_keys(Effects& out, Time now) {
    if (generation.keys) {
        send_answers(out, *this, generation.keys->expire(now));
    }
}

bool AttemptRun::may_start(std::int32_t slot) const {
    return !stopping && !generation.abort_sent && generation.released &&
           rendezvous.is_member(slot) && rendezvous.phase(slot) == Rendezvous::Phase::ready;
}

// A node that has joined says that none of them lives there; it may have had none yet.
bool AttemptRun::may_have_ranks(const Job& job, std::int32_t node) const {
    const std::int32_t slot = job.live_generation()->slot_of(node);
    return rendezvous.phase(slot) != Rendezvous::Phase::joined &&
           !job.attempt()->lost.contains(slot) && !node_ended(job, node);
}

bool AttemptRun::ranks_are_left(const Job& job) const {
    for (std::int32_t node = 0; node < job.nodes(); ++node) {
        if (may_have_ranks(job, node)) {
            return true;
        }
    }
    return false;
}

// Proven, else as in the generation before (this daemon may have been restarted since), else as its
// agent says.
std::string AttemptRun::address_of(const Job& job, std::int32_t slot) const {
    std::string said = links.at(slot)->join.address;
    if (std::string proven = preflight.proven(slot); !proven.empty()) {
        return proven;
    }
    const NodeFacts* facts = preflight.facts(slot);
    const Generation* last = job.generation();
    const std::int32_t node = last == nullptr ? -1 : last->node_rank_of(slot);
    if (facts == nullptr || node < 0 || static_cast<std::size_t>(node) >= last->addresses.size()) {
        return said;
    }
    const std::string& before = last->addresses[static_cast<std::size_t>(node)];
    const bool still = std::any_of(facts->addresses.begin(), facts->addresses.end(),
                                   [&](const AddressFact& one) { return one.address == before; });
    return still ? before : said;
}

std::int64_t AttemptRun::newest_checkpoint(const Job& job) const {
    const bool told = checkpoint && checkpoint->attempt == job.attempt()->number;
    return std::max(job.checkpoint_step, told ? checkpoint->step : -1);
}

}  // namespace lockstep
