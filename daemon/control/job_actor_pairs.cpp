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
    return !pairs_wanted(job) || run_.pairs.done();
}

void JobActor::pair_tested(Draft& draft, const std::shared_ptr<AgentLink>& link,
                           const wire::PairTested& tested) {
    run_.pairs.tested(link->node_rank, tested.round, {tested.ms, tested.problem, tested.absent});
    look_at_preflight(draft);
    form_generation(draft);
}

// Once as many nodes as the ranks need have passed everything else: they and the spares that are
// there. Whoever comes later is not tested.
void JobActor::look_at_pairs(Draft& draft) {
    if (!pairs_wanted(draft.job()) || run_.pairs.done()) {
        return;
    }
    const auto now = context_.clock.steady();
    if (!run_.pairs.begun()) {
        if (run_.preflight.busy() || !run_.preflight.all_passed(draft.job().spec)) {
            return;
        }
        std::map<std::int32_t, std::string> names;
        for (const auto& [slot, link] : run_.links) {
            const NodeFacts* facts = run_.preflight.facts(slot);
            if (run_.preflight.passed(slot) && facts != nullptr && facts->pair_port != 0) {
                names[slot] = link->node;
            }
        }
        send_pairs(run_.pairs.begin(std::move(names), now));
    }
    if (const auto* groups = run_.pairs.next(now)) {
        send_pairs(*groups);
    }
    if (const auto findings = run_.pairs.judge(now)) {
        PreflightState::Judgement judgement;
        judgement.findings = *findings;
        for (const auto& [slot, name] : run_.pairs.names()) {
            judgement.slots.insert(slot);
        }
        for (const PreflightFinding& one : *findings) {
            if (one.fails) {
                run_.preflight.refuse(one.slot);
            }
        }
        take_judgement(draft, judgement);
    }
}

void JobActor::send_pairs(const PairState::Groups& groups) {
    const auto address = [this](std::int32_t slot, const NodeFacts& facts) {
        const std::string proven = run_.preflight.proven(slot);
        return proven.empty() && !facts.addresses.empty() ? facts.addresses.front().address
                                                          : proven;
    };
    for (const auto& group : groups) {
        const NodeFacts* leader = run_.preflight.facts(group.front());
        const std::string token = random_secret();
        for (const std::int32_t slot : group) {
            const auto link = run_.links.find(slot);
            const NodeFacts* facts = run_.preflight.facts(slot);
            if (link == run_.links.end() || facts == nullptr || leader == nullptr) {
                run_.pairs.gone(slot);
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
                task.partner = run_.pairs.names().at(task.lead ? group.back() : group.front());
            }
            wire::PairTest test;
            test.round = run_.pairs.round();
            test.task = to_json(task);
            link->second->send(test);
        }
    }
}

}  // namespace lockstep
