#include "daemon/control/machine/generation/size_words.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t kNodesNamed = 4;

std::string name_of(const Attempt& attempt, std::int32_t slot) {
    const auto claim = attempt.claims.find(slot);
    return claim == attempt.claims.end() ? "node " + std::to_string(slot) : claim->second.node;
}

const char* are(std::size_t count) {
    return count == 1 ? " is " : " are ";
}

}  // namespace

std::string node_names(const Attempt& attempt, const std::vector<std::int32_t>& slots) {
    std::string out;
    for (std::size_t i = 0; i < std::min(slots.size(), kNodesNamed); ++i) {
        out += (i == 0 ? "" : ", ") + name_of(attempt, slots[i]);
    }
    if (slots.size() > kNodesNamed) {
        out += " and " + std::to_string(slots.size() - kNodesNamed) + " more";
    }
    return out;
}

std::string size_words(const Job& job, const std::vector<std::int32_t>& members) {
    const Attempt& attempt = *job.attempt();
    const Generation* last = job.generation();
    const auto count = static_cast<std::int32_t>(members.size());
    const std::int32_t wanted = job.spec.resources.nodes;
    const std::int32_t before = last == nullptr ? wanted : last->nodes;
    const std::string of = std::to_string(count) + " of " + std::to_string(wanted) + " nodes";
    if (count == wanted) {
        return before < wanted ? of + " again" : "";
    }
    if (last != nullptr && count == before) {
        return "";
    }
    std::vector<std::int32_t> lost;
    std::vector<std::int32_t> late;
    for (std::int32_t slot = 0; slot < job.spec.resources.allocated_nodes(); ++slot) {
        const bool member = std::find(members.begin(), members.end(), slot) != members.end();
        if (!member && attempt.lost.contains(slot)) {
            lost.push_back(slot);
        } else if (!member) {
            late.push_back(slot);
        }
    }
    std::string out = (last == nullptr ? "starts with " : "goes on with ") + of;
    std::string why;
    if (!lost.empty()) {
        why = node_names(attempt, lost) + are(lost.size()) + "lost";
    }
    if (!late.empty()) {
        why += (why.empty() ? "" : ", ") + node_names(attempt, late) + are(late.size()) +
               "not there yet";
    }
    return why.empty() ? out : out + ": " + why;
}

std::string growth_words(const Job& job, const std::vector<std::int32_t>& more,
                         std::int32_t nodes) {
    return node_names(*job.attempt(), more) + are(more.size()) +
           "there: the ranks are started again on " + std::to_string(nodes) + " of " +
           std::to_string(job.spec.resources.nodes) + " nodes";
}

}  // namespace lockstep
