// Who reached whom, and what follows: which node is cut off, which interface leads nowhere.
#include "job/model/preflight.hpp"

#include <algorithm>

namespace lockstep {
namespace {

using Slots = std::set<std::int32_t>;

// What the nodes said of each other. A pair is bad if none of the addresses worked.
struct Picture {
    std::map<std::int32_t, std::string> names;
    std::map<std::int32_t, std::vector<const ProbeResult*>> said;  // by slot that was to be reached
    std::map<std::int32_t, Slots> bad_to;    // by slot that tried: whom it did not reach
    std::map<std::int32_t, Slots> bad_from;  // by slot: who did not reach it
    Slots blamed;

    std::string list(const Slots& slots) const {
        constexpr std::size_t kMost = 4;
        std::string out;
        std::size_t count = 0;
        for (const std::int32_t slot : slots) {
            if (count++ < kMost) {
                const auto name = names.find(slot);
                out += (out.empty() ? "" : ", ") +
                       (name == names.end() ? "node " + std::to_string(slot) : name->second);
            }
        }
        return count > kMost ? out + " and " + std::to_string(count - kMost) + " more" : out;
    }
};

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
    return out;
}

// The fewest nodes without which the others reach each other, nearly: again and again the one with
// the most bad pairs. Of several the one that fewer reach, then the one with the higher number.
void blame(Picture& picture, const Slots& judged) {
    auto bad_to = picture.bad_to;
    auto bad_from = picture.bad_from;
    for (;;) {
        std::int32_t worst = -1;
        std::pair<std::size_t, std::size_t> most{0, 0};
        for (const std::int32_t slot : judged) {
            const std::pair count{bad_to[slot].size() + bad_from[slot].size(),
                                  bad_from[slot].size()};
            if (count.first > 0 && count >= most) {
                worst = slot;
                most = count;
            }
        }
        if (worst < 0) {
            return;
        }
        picture.blamed.insert(worst);
        for (const std::int32_t to : bad_to[worst]) {
            bad_from[to].erase(worst);
        }
        for (const std::int32_t from : bad_from[worst]) {
            bad_to[from].erase(worst);
        }
        bad_to[worst].clear();
        bad_from[worst].clear();
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

Missed missed(const Picture& picture, std::int32_t slot, const std::string& address,
              const Slots& without) {
    Missed out;
    const auto said = picture.said.find(slot);
    if (said == picture.said.end()) {
        return out;
    }
    for (const ProbeResult* one : said->second) {
        if (one->address != address || without.contains(one->from)) {
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

PreflightFinding cut_off(const PreflightNode& node, const Picture& picture) {
    const auto of = [&](const std::map<std::int32_t, Slots>& all) {
        const auto found = all.find(node.slot);
        return found == all.end() ? Slots{} : found->second;
    };
    const Slots from = of(picture.bad_from);
    const Slots to = of(picture.bad_to);
    std::string found;
    if (!from.empty()) {
        found = picture.list(from) + " cannot connect to it at";
        for (const AddressFact& fact : node.facts.addresses) {
            const Missed one = missed(picture, node.slot, fact.address, {});
            found +=
                " " + interface_words(fact) + (one.error.empty() ? "" : " (" + one.error + ")");
        }
    }
    if (!to.empty()) {
        found += (found.empty() ? "it" : ", and it") + std::string{" cannot connect to "} +
                 picture.list(to);
    }
    return {node.slot, node.node, "reachable", found, "connections with all of its peers", true};
}

void judge_node(const PreflightNode& node, const Picture& picture, Connections& out) {
    std::vector<PreflightFinding> partly;
    std::string tries;
    bool asked = false;
    for (const AddressFact& fact : node.facts.addresses) {
        const Missed one = missed(picture, node.slot, fact.address, picture.blamed);
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
            out.findings.push_back(cut_off(node, picture));
        } else if (judged.contains(node.slot)) {
            judge_node(node, picture, out);
        }
    }
    return out;
}

}  // namespace lockstep
