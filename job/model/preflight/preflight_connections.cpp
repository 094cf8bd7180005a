// Who reached whom, and what follows: which node is cut off, which interface leads nowhere.
#include "job/model/limits/model_limits.hpp"
#include "job/model/preflight/preflight.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

using Slots = std::set<std::int32_t>;

// What the nodes said of each other. A pair is bad if none of the addresses worked.
struct Picture {
    std::map<std::int32_t, std::string> names;
    std::map<std::int32_t, std::vector<const ProbeResult*>> said;  // by slot that was to be reached
    std::map<std::int32_t, Slots> bad_to;    // by slot that tried: whom it did not reach
    std::map<std::int32_t, Slots> bad_from;  // by slot: who did not reach it
    std::map<std::int32_t, Slots> met;       // by slot: its peers that it has no bad pair with
    Slots blamed;
    std::map<std::int32_t, Slots> doubted;  // by slot that is warned of: whom it does not meet

    // What `from` says of `slot` counts.
    bool counts(std::int32_t slot, std::int32_t from) const {
        const auto doubts = doubted.find(slot);
        return !blamed.contains(from) &&
               (doubts == doubted.end() || !doubts->second.contains(from));
    }

    std::string list(const Slots& slots) const {
        std::string out;
        std::size_t count = 0;
        for (const std::int32_t slot : slots) {
            if (count++ < limits::kPreflightNodesNamed) {
                const auto name = names.find(slot);
                out += (out.empty() ? "" : ", ") +
                       (name == names.end() ? "node " + std::to_string(slot) : name->second);
            }
        }
        return count > limits::kPreflightNodesNamed
                   ? out + " and " + std::to_string(count - limits::kPreflightNodesNamed) + " more"
                   : out;
    }
};

bool is_bad(const std::map<std::int32_t, Slots>& bad_to, std::int32_t from, std::int32_t to) {
    const auto found = bad_to.find(from);
    return found != bad_to.end() && found->second.contains(to);
}

Picture draw(const std::vector<PreflightNode>& nodes, const std::vector<ProbeResult>& results) {
    Picture out;
    for (const PreflightNode& node : nodes) {
        out.names[node.slot] = node.node;
    }
    std::set<std::pair<std::int32_t, std::int32_t>> good;
    for (const ProbeResult& one : results) {
        out.said[one.to].push_back(&one);
        if (one.error.empty()) {
            good.emplace(one.from, one.to);
        }
    }
    for (const ProbeResult& one : results) {
        if (!good.contains({one.from, one.to})) {
            out.bad_to[one.from].insert(one.to);
            out.bad_from[one.to].insert(one.from);
        }
    }
    for (const auto& [from, to] : good) {
        if (!is_bad(out.bad_to, to, from) && !is_bad(out.bad_to, from, to)) {
            out.met[from].insert(to);
            out.met[to].insert(from);
        }
    }
    return out;
}

// Of `from` to `to`: something else went wrong than that no answer came in time.
bool refused(const Picture& picture, std::int32_t from, std::int32_t to) {
    const auto said = picture.said.find(to);
    return said != picture.said.end() &&
           std::any_of(said->second.begin(), said->second.end(), [&](const ProbeResult* one) {
               return one->from == from && !one->error.empty() && !one->timed_out();
           });
}

// All the node's bad pairs are with nodes that had passed, and as many peers meet it: one of those
// that train may have been too busy to answer in time, and a spare is not given up for that.
bool only_warned(const Picture& picture, const Slots& judged, std::int32_t slot, const Slots& bad) {
    if (std::any_of(bad.begin(), bad.end(), [&](std::int32_t one) {
            return judged.contains(one) || refused(picture, slot, one) ||
                   refused(picture, one, slot);
        })) {
        return false;
    }
    const auto met = picture.met.find(slot);
    return met != picture.met.end() && met->second.size() >= bad.size();
}

// The fewest nodes without which the others reach each other, nearly: again and again the one with
// the most bad pairs. Of several the one that fewer reach, then the one with the higher number.
void blame(Picture& picture, const Slots& judged) {
    using Rank = std::tuple<std::size_t, std::size_t, std::int32_t>;
    auto bad_to = picture.bad_to;
    auto bad_from = picture.bad_from;
    const auto rank = [&](std::int32_t slot) {
        return Rank{bad_to[slot].size() + bad_from[slot].size(), bad_from[slot].size(), slot};
    };
    std::set<Rank> bad;  // the worst is the last
    for (const std::int32_t slot : judged) {
        if (const Rank one = rank(slot); std::get<0>(one) > 0) {
            bad.insert(one);
        }
    }
    const auto without = [&](std::map<std::int32_t, Slots>& pairs, std::int32_t slot,
                             std::int32_t other) {
        const bool ranked = bad.erase(rank(slot)) > 0;
        pairs[slot].erase(other);
        if (const Rank left = rank(slot); ranked && std::get<0>(left) > 0) {
            bad.insert(left);
        }
    };
    while (!bad.empty()) {
        const std::int32_t worst = std::get<2>(*bad.rbegin());
        bad.erase(std::prev(bad.end()));
        const Slots to = std::exchange(bad_to[worst], {});
        const Slots from = std::exchange(bad_from[worst], {});
        Slots peers = to;
        peers.insert(from.begin(), from.end());
        if (only_warned(picture, judged, worst, peers)) {
            picture.doubted.emplace(worst, std::move(peers));
            continue;
        }
        picture.blamed.insert(worst);
        for (const std::int32_t other : to) {
            without(bad_from, other, worst);
        }
        for (const std::int32_t other : from) {
            without(bad_to, other, worst);
        }
    }
}

std::string interface_words(const AddressFact& fact) {
    return fact.interface.empty() ? fact.address : fact.interface + " " + fact.address;
}

// Of one address: who did not reach it, and why.
struct Missed {
    Slots by;
    std::string error;
    bool asked = false;
};

// `counts`: whose word does.
template <class F>
Missed missed(const Picture& picture, std::int32_t slot, const std::string& address,
              const F& counts) {
    Missed out;
    const auto said = picture.said.find(slot);
    if (said == picture.said.end()) {
        return out;
    }
    for (const ProbeResult* one : said->second) {
        if (one->address != address || !counts(one->from)) {
            continue;
        }
        out.asked = true;
        if (!one->error.empty()) {
            out.by.insert(one->from);
            out.error = out.error.empty() ? one->error : out.error;
        }
    }
    return out;
}

// `those`: the peers it is about; nullptr = all.
PreflightFinding cut_off(const PreflightNode& node, const Picture& picture, const Slots* those) {
    const auto about = [&](std::int32_t peer) { return those == nullptr || those->contains(peer); };
    const auto of = [&](const std::map<std::int32_t, Slots>& all) {
        const auto found = all.find(node.slot);
        Slots out = found == all.end() ? Slots{} : found->second;
        std::erase_if(out, [&](std::int32_t peer) { return !about(peer); });
        return out;
    };
    const Slots from = of(picture.bad_from);
    const Slots to = of(picture.bad_to);
    std::string found;
    if (!from.empty()) {
        found = picture.list(from) + " cannot connect to it at";
        for (const AddressFact& fact : node.facts.addresses) {
            const Missed one = missed(picture, node.slot, fact.address, about);
            found +=
                " " + interface_words(fact) + (one.error.empty() ? "" : " (" + one.error + ")");
        }
    }
    if (!to.empty()) {
        found += (found.empty() ? "it" : ", and it") + std::string{" cannot connect to "} +
                 picture.list(to);
    }
    return {node.slot,       node.node, "reachable", found, "connections with all of its peers",
            those == nullptr};
}

void judge_node(const PreflightNode& node, const Picture& picture, Connections& out) {
    if (const auto doubts = picture.doubted.find(node.slot); doubts != picture.doubted.end()) {
        out.findings.push_back(cut_off(node, picture, &doubts->second));
    }
    const auto counts = [&](std::int32_t from) { return picture.counts(node.slot, from); };
    std::vector<PreflightFinding> partly;
    std::string tries;
    bool asked = false;
    for (const AddressFact& fact : node.facts.addresses) {
        const Missed one = missed(picture, node.slot, fact.address, counts);
        asked = asked || one.asked;
        if (one.asked && one.by.empty()) {
            out.proven.try_emplace(node.slot, fact.address);
        } else if (one.asked) {
            const std::string by = picture.list(one.by);
            tries += (tries.empty() ? "" : "; ") + interface_words(fact) + " not by " + by + " (" +
                     one.error + ")";
            partly.push_back({node.slot, node.node, "interface",
                              interface_words(fact) + " is not reached by " + by + ": " + one.error,
                              "a connection from " + by, false});
        }
    }
    if (out.proven.contains(node.slot)) {
        out.findings.insert(out.findings.end(), partly.begin(), partly.end());
    } else if (asked) {
        out.findings.push_back({node.slot, node.node, "reachable",
                                "no address of it is reached by all of its peers: " + tries,
                                "one address that all of its peers reach", true});
    }
}

}  // namespace

std::vector<std::int32_t> probe_peers(std::int32_t index, std::int32_t count) {
    Slots out;
    for (std::int64_t step = 1; step < count; step *= 2) {
        out.insert(static_cast<std::int32_t>((index + step) % count));
    }
    if (count > 1) {
        out.insert((index + count - 1) % count);
    }
    out.erase(index);
    return {out.begin(), out.end()};
}

Connections judge_connections(const std::vector<PreflightNode>& nodes,
                              const std::set<std::int32_t>& judged,
                              const std::vector<ProbeResult>& results) {
    Connections out;
    Picture picture = draw(nodes, results);
    blame(picture, judged);
    for (const PreflightNode& node : nodes) {
        if (picture.blamed.contains(node.slot)) {
            out.findings.push_back(cut_off(node, picture, nullptr));
        } else if (judged.contains(node.slot)) {
            judge_node(node, picture, out);
        }
    }
    return out;
}

}  // namespace lockstep
