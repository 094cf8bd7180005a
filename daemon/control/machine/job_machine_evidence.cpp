// What the ranks are doing, asked of their agents and kept with the job: on a hang before anything
// is ended, or because somebody wants to know.
#include "daemon/control/machine/evidence.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>

namespace lockstep {

// EXAMINE to every node of the live generation.
void JobMachine::ask_for_evidence(Draft& draft, HangWatch::Verdict verdict, std::string reason,
                                  bool hang, bool gentle) {
    const Generation& live = *job_.live_generation();
    const std::int32_t per_node = job_.spec.ranks_per_node();
    run_.generation.evidence.emplace();
    run_.generation.evidence->kept = false;
    run_.generation.evidence->verdict = std::move(verdict);
    run_.generation.evidence->hang = hang;
    run_.generation.evidence->gentle = gentle;
    run_.generation.evidence->reason = std::move(reason);
    run_.generation.evidence->since = draft.at.steady;
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        const std::int32_t slot = live.slot_of(node);
        const auto link = run_.links.find(slot);
        if (link == run_.links.end() || !run_.rendezvous.is_member(slot)) {
            continue;
        }
        run_.generation.evidence->awaited.insert(slot);
        run_.generation.evidence->unsaved.insert(slot);
        wire::Examine examine;
        examine.generation = live.number;
        examine.reason = run_.generation.evidence->reason;
        examine.gentle = gentle;
        examine.first =
            local_ranks(run_.generation.evidence->verdict.behind, node * per_node, per_node);
        draft.at_once.send(link->second, examine);
    }
}

void JobMachine::examined(Draft& draft, const AgentPtr& link, const wire::Examined& examined) {
    if (run_.generation.evidence && current(*link, examined.generation) &&
        examined.ranks.size() <= static_cast<std::size_t>(job_.spec.ranks_per_node()) &&
        run_.generation.evidence->awaited.erase(link->node_rank) == 1) {
        run_.generation.evidence->ranks.insert(run_.generation.evidence->ranks.end(),
                                               examined.ranks.begin(), examined.ranks.end());
        draft.at_once.add(effect::LookAgain{});
    }
}

void JobMachine::evidence_saved(Draft& draft, const AgentPtr& link,
                                const wire::EvidenceSaved& saved) {
    if (run_.generation.evidence && current(*link, saved.generation) &&
        saved.ranks.size() <= static_cast<std::size_t>(job_.spec.ranks_per_node()) &&
        run_.generation.evidence->unsaved.erase(link->node_rank) == 1) {
        for (const wire::RankEvidence& one : saved.ranks) {
            if (one.rank >= 0 && job_.live_generation()->slot_of(
                                     one.rank / job_.spec.ranks_per_node()) == link->node_rank) {
                run_.generation.evidence->saved.push_back(cleaned(one));
            }
        }
        draft.at_once.add(effect::LookAgain{});
    }
}

void JobMachine::add_evidence(Draft& draft) {
    const auto* series = draft.at.series;
    const std::int32_t world = job_.world_size();
    std::vector<RankFinding> findings(static_cast<std::size_t>(world));
    for (std::int32_t rank = 0; rank < world; ++rank) {
        RankFinding& one = findings[static_cast<std::size_t>(rank)];
        one.rank = rank;
        if (const NodeClaim* claim = job_.claim_of_node(rank / job_.spec.ranks_per_node())) {
            one.node = claim->node;
        }
        if (series != nullptr && static_cast<std::size_t>(rank) < series->world_size()) {
            one.step = series->rank(static_cast<std::size_t>(rank)).last_step();
        }
    }
    const auto at = [&](std::int32_t rank) {
        return rank < 0 || rank >= world ? nullptr : &findings[static_cast<std::size_t>(rank)];
    };
    for (const std::int32_t rank : run_.generation.evidence->verdict.behind) {
        if (RankFinding* one = at(rank)) {
            one->behind = true;
        }
    }
    for (const wire::RankState& state : run_.generation.evidence->ranks) {
        if (RankFinding* one = at(state.rank)) {
            one->process = state;
            one->told = true;
        }
    }
    for (const wire::RankEvidence& saved : run_.generation.evidence->saved) {
        if (RankFinding* one = at(saved.rank)) {
            one->evidence = saved;
            one->saved = true;
        }
    }
    event::EvidenceTaken taken;
    taken.attempt = job_.attempt()->number;
    taken.generation = job_.live_generation()->number;
    taken.reason = run_.generation.evidence->reason;
    taken.message = findings_words(findings);
    taken.step = run_.generation.evidence->verdict.step;
    taken.ranks = findings_json(findings, lagging_first(findings));
    log::info("evidence", {{"job", job_.id.value}, {"what", taken.message}});
    draft.add(std::move(taken));
}

void JobMachine::hear(Draft& draft, EvidenceInput& input) {
    const Generation* live = draft.job().live_generation();
    Status answer;
    if (live == nullptr || draft.job().state != JobState::running ||
        job_.live_generation() == nullptr) {
        answer = fail(Errc::conflict, "no rank runs that could be looked at: the job is " +
                                          std::string{to_string(draft.job().state)});
    } else if (!run_.generation.evidence && live->looks + 1 >= limits::kEvidenceEvents) {
        answer = fail(Errc::conflict, "the ranks of this generation have been looked at " +
                                          std::to_string(live->looks) +
                                          " times; one look more is kept for a hang");
    } else if (!run_.generation.evidence) {  // what is under way already answers this too
        HangWatch::Verdict standing;
        if (const auto* series = draft.at.series) {
            standing = HangWatch::standing(*series);
        }
        ask_for_evidence(draft, std::move(standing), "asked for by " + input.by, false);
    }
    draft.answers.push_back([done = input.done, answer](Status stored) {
        done(stored && !answer ? answer : std::move(stored));
    });
}

}  // namespace lockstep
