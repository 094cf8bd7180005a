#include "daemon/control/machine/profile_run.hpp"

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/rank_findings.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/profile.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

Json rank_json(const wire::RankEvidence& one, const Job& job) {
    Json out = Json::object();
    out["rank"] = one.rank;
    const NodeClaim* claim = job.claim_of_node(one.rank / job.spec.ranks_per_node());
    out["node"] = claim != nullptr ? claim->node : "";
    add_captures(out, one);
    return out;
}

// "stacks of 4 ranks, traces of 3; rank 1: no trace: …"
std::string words_of(const std::vector<wire::RankEvidence>& ranks) {
    std::size_t stacks = 0;
    std::size_t traces = 0;
    std::string gap;
    for (const wire::RankEvidence& one : ranks) {
        const auto has = [&](std::string_view name) {
            return std::any_of(one.files.begin(), one.files.end(), [&](const auto& file) {
                return std::string_view{file.name}.ends_with(name);
            });
        };
        stacks += has(kProfileStacks) ? 1 : 0;
        traces += has(kProfileTrace) ? 1 : 0;
        const auto first =
            std::find_if(one.missing.begin(), one.missing.end(), [](const wire::EvidenceGap& each) {
                return each.what != kProfileCollectives || each.why != kNoCollectivesEver;
            });
        if (gap.empty() && first != one.missing.end()) {
            gap = "; rank " + std::to_string(one.rank) + ": no " + first->what + ": " + first->why;
        }
    }
    return "stacks of " + std::to_string(stacks) + " of " + std::to_string(ranks.size()) +
           " ranks, traces of " + std::to_string(traces) + gap;
}

void add_profile(Draft& draft, const ProfileRun& profile, bool last) {
    std::map<std::int32_t, wire::RankEvidence> ranks;
    for (const std::int32_t rank : profile.wanted) {
        ranks[rank].rank = rank;
        ranks[rank].missing = {{"all", last ? "the generation ended before it was done"
                                            : "its agent did not answer in time"}};
    }
    for (const wire::RankEvidence& one : profile.ranks) {
        ranks[one.rank] = one;
    }
    std::vector<wire::RankEvidence> all;
    event::ProfileTaken taken;
    for (auto& [rank, one] : ranks) {
        taken.ranks.push_back(rank_json(one, draft.before()));
        all.push_back(std::move(one));
    }
    taken.attempt = draft.before().attempt()->number;
    taken.generation = draft.before().live_generation()->number;
    taken.number = profile.number;
    taken.by = profile.by;
    taken.seconds = profile.seconds;
    taken.message = words_of(all);
    log::info("profile", {{"job", draft.before().id.value}, {"what", taken.message}});
    draft.add(std::move(taken));
}

Status may_profile(const Draft& draft, const AttemptRun& run) {
    const Generation* live = draft.before().live_generation();
    if (live == nullptr || draft.job().live_generation() == nullptr ||
        draft.job().state != JobState::running || draft.job().cancel_requested_at != 0) {
        return fail(Errc::conflict, "no rank runs that could be profiled: the job is " +
                                        std::string{to_string(draft.job().state)});
    }
    if (run.generation.profile) {
        return fail(Errc::conflict, "a profile that " + run.generation.profile->by +
                                        " has asked for is under way; one at a time");
    }
    if (live->profiles >= limits::kProfileEvents) {
        return fail(Errc::conflict,
                    "this generation has had its " + std::to_string(live->profiles) + " profiles");
    }
    return {};
}

}  // namespace

std::chrono::seconds ProfileRun::patience() const {
    return std::chrono::seconds{2 * seconds} + limits::kProfileMore + limits::kProfileCopy;
}

bool ProfileRun::is_in(std::chrono::steady_clock::time_point now) const {
    return awaited.empty() || now - since >= patience();
}

Status ask_for_profile(Draft& draft, AttemptRun& run, ProfileInput& input) {
    if (run.generation.profile && run.generation.profile->asked == input.asked) {
        return {};  // heard again, because an append has failed: the agents have been asked
    }
    if (const Status may = may_profile(draft, run); !may) {
        return may;
    }
    const Job& job = draft.before();
    const Generation& live = *job.live_generation();
    ProfileRun profile;
    profile.number = live.profiles + 1;
    profile.by = input.by;
    profile.seconds = input.seconds;
    profile.since = draft.at.steady;
    profile.wanted = input.ranks;
    const std::int32_t world = job.world_size();
    if (profile.wanted.empty()) {
        const auto usual = static_cast<std::int32_t>(limits::kProfileRanksUsual);
        for (std::int32_t rank = 0; rank < std::min(world, usual); ++rank) {
            profile.wanted.push_back(rank);
        }
    }
    std::map<std::int32_t, wire::Profile> asked;  // by slot
    for (const std::int32_t rank : profile.wanted) {
        if (rank < 0 || rank >= world) {
            return fail(Errc::invalid, "ranks: the job has 0-" + std::to_string(world - 1));
        }
        const std::int32_t per_node = job.spec.ranks_per_node();
        const std::int32_t slot = live.slot_of(rank / per_node);
        const auto link = run.links.find(slot);
        if (link == run.links.end() || !link->second->open() || !run.rendezvous.is_member(slot)) {
            profile.ranks.push_back({rank, "", {}, {{"all", "its agent is not connected"}}});
        } else if (!link->second->profiles) {
            profile.ranks.push_back(
                {rank, "", {}, {{"all", "its agent is older than this lockstepd"}}});
        } else {
            asked[slot].ranks.push_back(rank % per_node);
        }
    }
    for (auto& [slot, message] : asked) {
        message.generation = live.number;
        message.number = profile.number;
        message.seconds = profile.seconds;
        profile.awaited.insert(slot);
        draft.at_once.send(run.links.at(slot), message);
    }
    input.asked->attempt = job.attempt()->number;
    input.asked->generation = live.number;
    input.asked->number = profile.number;
    input.asked->ranks = profile.wanted;
    input.asked->patience = profile.patience();
    profile.asked = input.asked;
    run.generation.profile = std::move(profile);
    draft.at_once.add(effect::LookAgain{});  // where nobody could be asked it is over already
    return {};
}

void profiled(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Profiled& profiled) {
    std::optional<ProfileRun>& profile = run.generation.profile;
    if (!profile || !is_current(draft.before(), *link, profiled.generation) ||
        profiled.number != profile->number || profile->awaited.erase(link->node_rank) == 0) {
        return;
    }
    const Job& job = draft.before();
    for (const wire::RankEvidence& one : profiled.ranks) {
        const bool wanted = std::find(profile->wanted.begin(), profile->wanted.end(), one.rank) !=
                            profile->wanted.end();
        if (wanted && job.live_generation()->slot_of(one.rank / job.spec.ranks_per_node()) ==
                          link->node_rank) {
            profile->ranks.push_back(
                cleaned_captures(one, is_profile_name, limits::kProfileFileBytes));
        }
    }
    draft.at_once.add(effect::LookAgain{});
}

void look_at_profile(Draft& draft, const AttemptRun& run, bool last) {
    const std::optional<ProfileRun>& profile = run.generation.profile;
    const Generation* live = draft.job().live_generation();
    const bool told = std::any_of(draft.after.begin(), draft.after.end(), [](const After& one) {
        return std::holds_alternative<after::ProfileTold>(one);
    });
    if (!profile || told || live == nullptr || draft.before().live_generation() == nullptr ||
        (!last && !profile->is_in(draft.at.steady))) {
        return;
    }
    add_profile(draft, *profile, last);
    draft.after.emplace_back(after::ProfileTold{});
}

}  // namespace lockstep
