#include "job/agent/node/rank_looks.hpp"

#include "job/agent/ranks/rank_state.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::string path_of(const std::map<std::string, std::string>& environment) {
    const auto found = environment.find("PATH");
    return found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
}

}  // namespace

RankLooks::RankLooks(TaskGroup& tasks, Parts parts, Handlers handlers)
    : parts_(parts),
      wake_(std::move(handlers.wake)),
      evidence_(tasks, parts.config.attempt_directory, path_of(parts.config.inherited)),
      profiles_(tasks) {
    evidence_.on_measured([this](std::int32_t rank) { return parts_.nccl.words_of(rank); });
    evidence_.on_found(std::move(handlers.found));
}

void RankLooks::perform(const node_effect::Examine& examine) {
    wire::Examined examined = examine.examined;
    for (wire::RankState& rank : examined.ranks) {
        if (rank.state.empty()) {
            rank = look_at_rank(rank.rank, rank.pid);
        }
    }
    parts_.outbox.control(examined);
    std::vector<wire::StartedRank> ranks = examine.living;
    const auto& first = examine.asked.first;
    const auto wanted = [&](const wire::StartedRank& one) {
        const std::int32_t local = one.rank - parts_.ranks.world()->first_rank;
        return std::find(first.begin(), first.end(), local) != first.end();
    };
    sort_stably(ranks, [&](const wire::StartedRank& a, const wire::StartedRank& b) {
        return wanted(a) && !wanted(b);
    });
    const bool begun = evidence_.take(
        examine.asked.generation, std::move(ranks),
        [this](wire::EvidenceSaved saved) {
            log::info("evidence is written", {{"generation", saved.generation}});
            parts_.outbox.control(std::move(saved));
            wake_();
        },
        examine.asked.gentle);
    if (!begun) {
        log::info("evidence is being taken already", {{"generation", examine.asked.generation}});
    }
}

void RankLooks::perform(const node_effect::Profile& profile) {
    ProfileQuestion question;
    question.sockets = parts_.sockets.path();
    question.folder = parts_.config.attempt_directory;
    question.generation = profile.asked.generation;
    question.number = profile.asked.number;
    question.seconds = std::clamp<std::int64_t>(profile.asked.seconds, 1, limits::kProfileSeconds);
    question.living = profile.living;
    for (const std::int32_t local : profile.asked.ranks) {
        question.wanted.push_back(parts_.ranks.world()->first_rank + local);
    }
    ProfileTaker::Collectives collectives;
    if (parts_.nccl.inspector().begin_tables(question.wanted)) {
        collectives = [this](std::int32_t rank) -> std::optional<PostedCollectives> {
            InspectorWatch& inspector = parts_.nccl.inspector();
            auto text = inspector.end_table(rank);
            if (!text) {
                return std::nullopt;
            }
            return PostedCollectives{std::move(*text), !inspector.words_of(rank).empty()};
        };
    }
    profiles_.take(std::move(question), std::move(collectives), [this](wire::Profiled profiled) {
        parts_.outbox.control(std::move(profiled));
        wake_();
    });
}

void RankLooks::stop() {
    evidence_.stop();
    profiles_.stop();
    parts_.nccl.inspector().begin_tables({});  // nobody reads what is posted from now on
}

}  // namespace lockstep
