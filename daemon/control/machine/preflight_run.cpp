#include "daemon/control/machine/preflight_run.hpp"

#include "daemon/control/machine/loss_watch.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// An event and a line in the log per finding, as far as there is room. What is only warned of
// leaves half of it to what fails: recovery looks for that.
void tell_findings(Draft& draft, const std::vector<PreflightFinding>& findings) {
    const auto said = draft.job().attempt()->preflight;  // by this daemon or the one before it
    auto warnings = static_cast<std::size_t>(
        std::count_if(said.begin(), said.end(), [](const auto& one) { return !one.fails; }));
    std::size_t more = 0;
    for (const PreflightFinding& one : findings) {
        const bool known = std::any_of(said.begin(), said.end(), [&](const auto& other) {
            return other.slot == one.slot && other.check == one.check && other.fails == one.fails;
        });
        if (known) {
            continue;
        }
        if (draft.job().attempt()->preflight.size() >= limits::kPreflightEvents ||
            (!one.fails && warnings >= limits::kPreflightEvents / 2)) {
            ++more;
            continue;
        }
        warnings += one.fails ? 0 : 1;
        log::warn(
            one.fails ? "pre-flight failed" : "pre-flight warns",
            {{"job", draft.before().id.value}, {"check", one.check}, {"what", words_of(one)}});
        event::PreflightSeen seen;
        seen.attempt = draft.job().attempt()->number;
        seen.slot = one.slot;
        seen.node = one.node;
        seen.severity = one.fails ? kPreflightFail : kPreflightWarn;
        seen.check = one.check;
        seen.found = one.found;
        seen.expected = one.expected;
        draft.add(std::move(seen));
    }
    if (more > 0) {
        log::warn("pre-flight found more",
                  {{"job", draft.before().id.value}, {"findings", std::to_string(more)}});
    }
}

// Failures are told first; then what fails is given up.
void take_judgement(Draft& draft, const PreflightState::Judgement& judgement) {
    std::vector<PreflightFinding> findings = judgement.findings;
    sort_stably(findings, [](const PreflightFinding& a, const PreflightFinding& b) {
        return a.fails && !b.fails;
    });
    tell_findings(draft, findings);
    std::map<std::int32_t, std::vector<const PreflightFinding*>> failed;
    std::map<std::string, std::set<std::int32_t>> by_check;
    for (const PreflightFinding& one : findings) {
        if (one.fails) {
            failed[one.slot].push_back(&one);
            by_check[one.check].insert(one.slot);
        }
    }
    for (const auto& [slot, list] : failed) {
        const PreflightFinding& first = *list.front();
        event::FaultSeen fault;
        fault.node = first.node;
        const bool all = by_check.at(first.check).size() == judgement.slots.size();
        fault.cause_class = preflight_cause(first, judgement.every_node && all);
        fault.check = first.check;
        fault.message = "pre-flight: " + words_of(first);
        if (list.size() > 1) {
            fault.message += " (and " + std::to_string(list.size() - 1) + " more)";
        }
        if (fault.cause_class == CauseClass::user_error) {
            // No other node would be better.
            fault.attempt = draft.job().attempt()->number;
            fault.at = draft.at.wall;
            draft.add(std::move(fault));
            return;
        }
        lose_node(draft, slot, std::move(fault));
    }
}

bool is_nccl(const PairState& pairs) {
    return pairs.kind() == PairState::Kind::nccl;
}

std::int32_t port_of(const PairState& pairs, const NodeFacts& facts) {
    return is_nccl(pairs) ? facts.nccl_port : facts.pair_port;
}

void send_pairs(Draft& draft, AttemptRun& run, PairState& pairs, const PairState::Groups& groups) {
    const auto address = [&run](std::int32_t slot, const NodeFacts& facts) {
        const std::string proven = run.preflight.proven(slot);
        return proven.empty() && !facts.addresses.empty() ? facts.addresses.front().address
                                                          : proven;
    };
    for (const auto& group : groups) {
        const NodeFacts* leader = run.preflight.facts(group.front());
        const std::string token = random_secret();
        for (const std::int32_t slot : group) {
            const auto link = run.links.find(slot);
            const NodeFacts* facts = run.preflight.facts(slot);
            if (link == run.links.end() || facts == nullptr || leader == nullptr) {
                pairs.gone(slot);
                continue;
            }
            PairTask task;
            task.alone = group.size() == 1;
            task.lead = slot == group.front();
            task.token = token;
            task.address = address(slot, *facts);
            task.peers = {address(group.front(), *leader)};
            task.port = port_of(pairs, *leader);
            task.nccl = is_nccl(pairs);
            task.gpus = task.nccl ? draft.job().spec.resources.gpus_per_node : 0;
            if (!task.alone) {
                task.partner = pairs.names().at(task.lead ? group.back() : group.front());
            }
            wire::PairTest test;
            test.round = pairs.round();
            test.task = to_json(task);
            draft.at_once.send(link->second, test);
        }
    }
}

// Nodes that could take no part: an agent of another version, or without a port.
void add_untested(const AttemptRun& run, std::vector<PreflightFinding>& out) {
    for (const auto& [slot, link] : run.links) {
        const NodeFacts* facts = run.preflight.facts(slot);
        if (run.preflight.passed(slot) && (facts == nullptr || facts->nccl_port == 0)) {
            out.push_back({slot, link->node, std::string{kNcclTest},
                           "NCCL was not tested: its agent does not know the test, or found no "
                           "free port for it",
                           "an agent of this version", false});
        }
    }
}

// Once as many nodes as the ranks need have passed everything else: they and the spares that are
// there. Whoever comes later is not tested.
void look_at_pairs(Draft& draft, AttemptRun& run, PairState& pairs) {
    if (!run.pairs_wanted(draft.job(), pairs.kind()) || pairs.done()) {
        return;
    }
    const auto now = draft.at.steady;
    if (!pairs.begun()) {
        if (run.preflight.busy() || !run.preflight.all_passed(draft.job().spec)) {
            return;
        }
        std::map<std::int32_t, std::string> names;
        for (const auto& [slot, link] : run.links) {
            const NodeFacts* facts = run.preflight.facts(slot);
            if (run.preflight.passed(slot) && facts != nullptr && port_of(pairs, *facts) != 0) {
                names[slot] = link->node;
            }
        }
        send_pairs(draft, run, pairs, pairs.begin(std::move(names), now));
    }
    if (const auto* groups = pairs.next(now)) {
        send_pairs(draft, run, pairs, *groups);
    }
    if (const auto findings = pairs.judge(now)) {
        PreflightState::Judgement judgement;
        judgement.findings = *findings;
        if (is_nccl(pairs)) {
            add_untested(run, judgement.findings);
        }
        for (const auto& [slot, name] : pairs.names()) {
            judgement.slots.insert(slot);
        }
        for (const PreflightFinding& one : *findings) {
            if (one.fails) {
                run.preflight.refuse(one.slot);
            }
        }
        take_judgement(draft, judgement);
    }
}

}  // namespace

// To be called with everything that may have moved it, and from time to time: it has deadlines.
void look_at_preflight(Draft& draft, AttemptRun& run) {
    if (run.stopping || !run.wants_preflight(draft.before()) || draft.job().attempt() == nullptr ||
        draft.job().attempt()->preflight_passed) {
        return;
    }
    const auto now = draft.at.steady;
    const std::size_t from = draft.events.size();
    if (const auto round = run.preflight.begin(draft.job().spec, now)) {
        for (const auto& [slot, peers] : round->probes) {
            wire::Probe probe;
            probe.round = round->number;
            probe.peers = to_json(peers);
            if (const auto link = run.links.find(slot); link != run.links.end()) {
                draft.at_once.send(link->second, probe);
            }
        }
    }
    if (const auto judgement = run.preflight.judge(draft.job().spec, now)) {
        take_judgement(draft, *judgement);
    }
    look_at_pairs(draft, run, run.pairs);
    if (!run.pairs_wanted(draft.job(), PairState::Kind::cpus) || run.pairs.done()) {
        look_at_pairs(draft, run, run.nccl_pairs);
    }
    const bool only = draft.job().spec.preflight.mode == PreflightMode::only;
    if (only && draft.job().attempt()->lost.empty() && !draft.job().attempt()->fault &&
        run.preflight.all_passed(draft.job().spec) && run.pairs_done(draft.job())) {
        // It is asked what was found of each node, so it is told what was not looked at.
        std::vector<PreflightFinding> unasked;
        for (const auto& [slot, claim] : draft.job().attempt()->claims) {
            if (run.preflight.facts(slot) == nullptr) {
                unasked.push_back({slot, claim.node, "answer",
                                   "its agent has not said what it found: nothing was looked at",
                                   "an agent that knows the pre-flight", false});
            }
        }
        tell_findings(draft, unasked);
        event::PreflightSeen passed;
        passed.attempt = draft.job().attempt()->number;
        passed.severity = kPreflightPassed;
        draft.add(std::move(passed));
    }
    draft.found_once(from);  // a judgement is made once
}

bool checked(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Checked& checked) {
    auto facts = parse_node_facts(checked.facts);
    if (!facts) {
        draft.fence(link, "CHECKED was not understood: " + facts.error().message);
        return false;
    }
    run.preflight.checked(link->node_rank, std::move(*facts), draft.before().spec, draft.at.steady);
    look_at_preflight(draft, run);
    return true;
}

bool probed(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Probed& probed) {
    auto results = parse_probe_results(probed.results, link->node_rank);
    if (!results) {
        draft.fence(link, "PROBED was not understood: " + results.error().message);
        return false;
    }
    run.preflight.probed(link->node_rank, probed.round, std::move(*results));
    look_at_preflight(draft, run);
    return true;
}

bool pair_tested(Draft& draft, AttemptRun& run, const AgentPtr& link,
                 const wire::PairTested& tested) {
    PairOutcome outcome{tested.ms, tested.problem, tested.absent};
    if (!tested.nccl.is_null()) {
        auto nccl = parse_nccl_test_fact(tested.nccl);
        if (!nccl) {
            draft.fence(link, "PAIR_TESTED was not understood: " + nccl.error().message);
            return false;
        }
        outcome.nccl = std::move(*nccl);
    }
    run.pairs.tested(link->node_rank, tested.round, outcome);
    run.nccl_pairs.tested(link->node_rank, tested.round, std::move(outcome));
    look_at_preflight(draft, run);
    return true;
}

}  // namespace lockstep
