// The pre-flight's test in pairs (preflight.pair_test): PAIR_TEST, PAIR_TESTED and the verdict. The
// rules are pair_state.hpp's and job/model/pair_test.hpp's.
#include "daemon/control/job_actor.hpp"
#include "job/base/ids.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

// Before the first generation of an attempt only: ranks that ran have tested their nodes.
bool JobActor::pairs_wanted(const Job& job) const {
    return wants_preflight() && job.spec.preflight.pair_test && job.attempt() != nullptr &&
           job.attempt()->generations.empty();
}

bool JobActor::pairs_done(const Job& job) const {
    return !pairs_wanted(job) || pairs_.done();
}

void JobActor::pair_tested(Draft& draft, const std::shared_ptr<AgentLink>& link,
                           const wire::PairTested& tested) {
    pairs_.tested(link->node_rank, tested.round, {tested.ms, tested.problem, tested.absent});
    look_at_preflight(draft);
    form_generation(draft);
}

// Once as many nodes as the ranks need have passed everything else: they and the spares that are
// there. Whoever comes later is not tested.
void JobActor::look_at_pairs(Draft& draft) {
    if (!pairs_wanted(draft.job()) || pairs_.done()) {
        return;
    }
    const auto now = context_.clock.steady();
    if (!pairs_.begun()) {
        if (preflight_.busy() || !preflight_.all_passed(draft.job().spec)) {
            return;
        }
        std::map<std::int32_t, std::string> names;
        for (const auto& [slot, link] : links_) {
            const NodeFacts* facts = preflight_.facts(slot);
            if (preflight_.passed(slot) && facts != nullptr && facts->pair_port != 0) {
                names[slot] = link->node;
            }
        }
        send_pairs(pairs_.begin(std::move(names), now));
    }
    if (const auto* groups = pairs_.next(now)) {
        send_pairs(*groups);
    }
    if (const auto findings = pairs_.judge(now)) {
        PreflightState::Judgement judgement;
        judgement.findings = *findings;
        for (const auto& [slot, name] : pairs_.names()) {
            judgement.slots.insert(slot);
        }
        for (const PreflightFinding& one : *findings) {
            if (one.fails) {
                preflight_.refuse(one.slot);
            }
        }
        take_judgement(draft, judgement);
    }
}

void JobActor::send_pairs(const PairState::Groups& groups) {
    const auto address = [this](std::int32_t slot, const NodeFacts& facts) {
        const std::string proven = preflight_.proven(slot);
        return proven.empty() && !facts.addresses.empty() ? facts.addresses.front().address
                                                          : proven;
    };
    for (const auto& group : groups) {
        const NodeFacts* leader = preflight_.facts(group.front());
        const std::string token = random_secret();
        for (const std::int32_t slot : group) {
            const auto link = links_.find(slot);
            const NodeFacts* facts = preflight_.facts(slot);
            if (link == links_.end() || facts == nullptr || leader == nullptr) {
                pairs_.gone(slot);
                continue;
            }
            PairTask task;
            task.alone = group.size() == 1;
            task.lead = slot == group.front();
            task.token = token;
            task.address = address(slot, *facts);
            task.peers = {address(group.front(), *leader)};
            task.port = leader->pair_port;
            if (!task.alone) {
                task.partner = pairs_.names().at(task.lead ? group.back() : group.front());
            }
            wire::PairTest test;
            test.round = pairs_.round();
            test.task = to_json(task);
            link->second->send(test);
        }
    }
}

}  // namespace lockstep
