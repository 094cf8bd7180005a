// The pre-flight of an attempt's nodes: CHECKED, PROBE, PROBED, and what is made of them. The rules
// are preflight_state.hpp's and job/model/preflight.hpp's; here they get their messages and events.
#include "daemon/control/job_actor.hpp"
#include "daemon/control/node_notes.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/sort.hpp"

#include <algorithm>

namespace lockstep {

bool JobActor::wants_preflight() const {
    return job_.spec.preflight.mode != PreflightMode::off;
}

// One that has just been accepted. A node of the newest generation has been looked at, whether or
// not this daemon was there.
void JobActor::expect_facts(const AgentLink& link, bool capable) {
    const Generation* newest = job_.generation();
    if (capable && wants_preflight()) {
        run_.preflight.expect(link.node_rank, link.node, context_.clock.steady());
    }
    const bool lost = job_.attempt() != nullptr && job_.attempt()->lost.contains(link.node_rank);
    if (!capable || !wants_preflight() ||
        (newest != nullptr && newest->node_rank_of(link.node_rank) >= 0 && !lost)) {
        run_.preflight.exempt(link.node_rank);
    }
}

void JobActor::checked(Draft& draft, const std::shared_ptr<AgentLink>& link,
                       const wire::Checked& checked) {
    auto facts = parse_node_facts(checked.facts);
    if (!facts) {
        fence(link, "CHECKED was not understood: " + facts.error().message);
        return;
    }
    run_.preflight.checked(link->node_rank, std::move(*facts), job_.spec, context_.clock.steady());
    look_at_preflight(draft);
    form_generation(draft);
}

void JobActor::probed(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Probed& probed) {
    auto results = parse_probe_results(probed.results, link->node_rank);
    if (!results) {
        fence(link, "PROBED was not understood: " + results.error().message);
        return;
    }
    run_.preflight.probed(link->node_rank, probed.round, std::move(*results));
    look_at_preflight(draft);
    form_generation(draft);
}

// To be called with everything that may have moved it, and from time to time: it has deadlines.
void JobActor::look_at_preflight(Draft& draft) {
    if (run_.stopping || !wants_preflight() || draft.job().attempt() == nullptr ||
        draft.job().attempt()->preflight_passed) {
        return;
    }
    const auto now = context_.clock.steady();
    if (const auto round = run_.preflight.begin(draft.job().spec, now)) {
        for (const auto& [slot, peers] : round->probes) {
            wire::Probe probe;
            probe.round = round->number;
            probe.peers = to_json(peers);
            if (const auto link = run_.links.find(slot); link != run_.links.end()) {
                link->second->send(probe);
            }
        }
    }
    if (const auto judgement = run_.preflight.judge(draft.job().spec, now)) {
        take_judgement(draft, *judgement);
    }
    look_at_pairs(draft);
    const bool only = draft.job().spec.preflight.mode == PreflightMode::only;
    if (only && draft.job().attempt()->lost.empty() && !draft.job().attempt()->fault &&
        run_.preflight.all_passed(draft.job().spec) && pairs_done(draft.job())) {
        // It is asked what was found of each node, so it is told what was not looked at.
        std::vector<PreflightFinding> unasked;
        for (const auto& [slot, claim] : draft.job().attempt()->claims) {
            if (run_.preflight.facts(slot) == nullptr) {
                unasked.push_back({slot, claim.node, "answer",
                                   "its agent has not said what it found: nothing was looked at",
                                   "an agent that knows the pre-flight", false});
            }
        }
        tell_findings(draft, unasked);
        event::PreflightSeen passed;
        passed.attempt = draft.job().attempt()->number;
        passed.severity = kPreflightPassed;
        add(draft, std::move(passed));
    }
}

// An event and a line in the log per finding, as far as there is room. What is only warned of
// leaves half of it to what fails: recovery looks for that.
void JobActor::tell_findings(Draft& draft, const std::vector<PreflightFinding>& findings) {
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
        log::warn(one.fails ? "pre-flight failed" : "pre-flight warns",
                  {{"job", job_.id.value}, {"check", one.check}, {"what", words_of(one)}});
        event::PreflightSeen seen;
        seen.attempt = draft.job().attempt()->number;
        seen.slot = one.slot;
        seen.node = one.node;
        seen.severity = one.fails ? kPreflightFail : kPreflightWarn;
        seen.check = one.check;
        seen.found = one.found;
        seen.expected = one.expected;
        add(draft, std::move(seen));
    }
    if (more > 0) {
        log::warn("pre-flight found more",
                  {{"job", job_.id.value}, {"findings", std::to_string(more)}});
    }
}

// Failures are told first; then what fails is given up.
void JobActor::take_judgement(Draft& draft, const PreflightState::Judgement& judgement) {
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
        fault.message = std::string{kPreflightWords} + words_of(first);
        if (list.size() > 1) {
            fault.message += " (and " + std::to_string(list.size() - 1) + " more)";
        }
        if (fault.cause_class == to_string(CauseClass::user_error)) {
            // No other node would be better.
            fault.attempt = draft.job().attempt()->number;
            fault.at = context_.clock.wall();
            add(draft, std::move(fault));
            return;
        }
        lose(draft, slot, std::move(fault));
    }
}

// Where the node's ranks are to be found: proven, else as in the generation before (this daemon may
// have been restarted since), else as its agent says.
std::string JobActor::address_of(const Job& job, std::int32_t slot) const {
    const std::string said = run_.links.at(slot)->join.address;
    if (const std::string proven = run_.preflight.proven(slot); !proven.empty()) {
        return proven;
    }
    const NodeFacts* facts = run_.preflight.facts(slot);
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

}  // namespace lockstep
