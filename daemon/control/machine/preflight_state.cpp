#include "daemon/control/machine/preflight_state.hpp"

#include "job/base/limits.hpp"
#include "job/model/preflight/preflight_devices.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool fails(const PreflightFinding& finding) {
    return finding.fails;
}

// Of `count` nodes those that a round concerns, by index: the judged ones, and those that are to
// connect to them. Probing is the same seen from the other end of the ring.
std::set<std::int32_t> concerned(const std::vector<bool>& judged) {
    const auto count = static_cast<std::int32_t>(judged.size());
    std::set<std::int32_t> out;
    for (std::int32_t i = 0; i < count; ++i) {
        if (judged[static_cast<std::size_t>(i)]) {
            out.insert(i);
            for (const std::int32_t mirrored : probe_peers(count - 1 - i, count)) {
                out.insert(count - 1 - mirrored);
            }
        }
    }
    return out;
}

}  // namespace

void PreflightState::count(const Node& node, std::int32_t more) {
    unjudged_ += node.phase == Phase::unjudged ? more : 0;
    passed_ += node.phase == Phase::passed ? more : 0;
    expected_ += node.phase == Phase::expected && node.here ? more : 0;
}

void PreflightState::move(Node& node, bool here, Phase phase) {
    count(node, -1);
    node.here = here;
    node.phase = phase;
    count(node, 1);
}

void PreflightState::expect(std::int32_t slot, std::string node, Time now) {
    Node& one = nodes_[slot];  // not here: counted nowhere yet
    one.name = std::move(node);
    move(one, true, one.phase);
    one.since = now;
}

void PreflightState::exempt(std::int32_t slot) {
    move(nodes_[slot], true, Phase::passed);
}

void PreflightState::checked(std::int32_t slot, NodeFacts facts, const JobSpec& spec, Time now) {
    const auto found = nodes_.find(slot);
    if (found == nodes_.end() || lost_.contains(slot)) {
        return;
    }
    Node& one = found->second;
    one.facts = std::move(facts);
    if (one.phase == Phase::expected) {
        move(one, one.here, Phase::unjudged);
        one.since = now;
        const auto alone = check_node({slot, one.name, *one.facts}, spec);
        if (!failed_since_ && std::any_of(alone.begin(), alone.end(), fails)) {
            failed_since_ = now;
        }
    }
}

void PreflightState::probed(std::int32_t slot, std::int32_t round,
                            std::vector<ProbeResult> results) {
    if (!running_ || round != round_ || awaited_.erase(slot) == 0) {
        return;
    }
    results_.insert(results_.end(), std::make_move_iterator(results.begin()),
                    std::make_move_iterator(results.end()));
}

void PreflightState::gone(std::int32_t slot) {
    if (running_) {
        left_.insert(slot);
    }
    const auto found = nodes_.find(slot);
    if (found == nodes_.end()) {
        return;
    }
    const Phase phase = found->second.phase;
    move(found->second, false, phase == Phase::unjudged ? Phase::expected : phase);
    awaited_.erase(slot);
    judged_.erase(slot);
}

void PreflightState::lost(std::int32_t slot) {
    gone(slot);
    if (const auto found = nodes_.find(slot); found != nodes_.end()) {
        count(found->second, -1);
        nodes_.erase(found);
    }
    lost_.insert(slot);
}

void PreflightState::refuse(std::int32_t slot) {
    if (const auto found = nodes_.find(slot); found != nodes_.end()) {
        move(found->second, found->second.here, Phase::unjudged);
    }
}

bool PreflightState::passed(std::int32_t slot) const {
    const auto found = nodes_.find(slot);
    return found != nodes_.end() && found->second.phase == Phase::passed;
}

std::string PreflightState::proven(std::int32_t slot) const {
    const auto found = nodes_.find(slot);
    return found == nodes_.end() ? std::string{} : found->second.proven;
}

const NodeFacts* PreflightState::facts(std::int32_t slot) const {
    const auto found = nodes_.find(slot);
    if (found == nodes_.end()) {
        return nullptr;
    }
    const std::optional<NodeFacts>& facts = found->second.facts;
    return facts ? &*facts : nullptr;
}

std::map<std::int32_t, std::vector<std::string>> PreflightState::active_ports(
    const std::vector<std::int32_t>& slots) const {
    std::map<std::int32_t, const NodeFacts*> nodes;
    for (const std::int32_t slot : slots) {
        nodes[slot] = facts(slot);
    }
    return lockstep::active_ports(nodes);
}

bool PreflightState::late(const Node& node, const JobSpec& spec, Time now) const {
    std::chrono::milliseconds patience = limits::kFactsPatience;
    if (spec.preflight.cpu_test) {
        patience += limits::kCpuTestTimeout;
    }
    if (spec.preflight.gpu_test) {
        patience += limits::kGpuTestTimeout;
    }
    return node.here && node.phase == Phase::expected && now - node.since >= patience;
}

bool PreflightState::all_passed(const JobSpec& spec) const {
    return passed_ >= spec.resources.least_nodes();
}

// Whether a round is worth its while now. Whoever comes later than that gets one of his own.
bool PreflightState::ready(const JobSpec& spec, Time now) {
    if (now >= next_look_) {
        next_look_ = now + std::chrono::seconds{1};
        late_ = static_cast<std::int32_t>(
            std::count_if(nodes_.begin(), nodes_.end(),
                          [&](const auto& one) { return late(one.second, spec, now); }));
    }
    const std::int32_t judgeable = unjudged_ + late_;
    if (judgeable == 0) {
        return false;
    }
    const bool waits = expected_ > late_;
    const std::int32_t known = judgeable + passed_;
    const auto lost = static_cast<std::int32_t>(lost_.size());
    // Spares come a moment later, if they come: of two nodes that do not reach each other they tell
    // which it is that nobody reaches.
    const bool enough = known >= spec.resources.least_nodes() && !waits;
    enough_since_ = !enough ? std::nullopt : std::optional{enough_since_.value_or(now)};
    return passed_ > 0 || known + lost >= spec.resources.allocated_nodes() ||
           (enough && now - *enough_since_ >= limits::kSparePatience) ||
           (failed_since_ && now - *failed_since_ >= limits::kOthersPatience);
}

std::vector<PreflightNode> PreflightState::lend_facts() {
    std::vector<PreflightNode> out;
    out.reserve(nodes_.size());
    for (auto& [slot, node] : nodes_) {
        if (node.facts && node.here) {
            out.push_back({slot, node.name, std::move(*node.facts)});
        }
    }
    return out;
}

void PreflightState::take_back(std::vector<PreflightNode> lent) {
    for (PreflightNode& one : lent) {
        nodes_.at(one.slot).facts = std::move(one.facts);
    }
}

std::optional<PreflightState::Round> PreflightState::begin(const JobSpec& spec, Time now) {
    if (running_) {
        return std::nullopt;
    }
    if (!ready(spec, now)) {
        return std::nullopt;
    }
    running_ = true;
    began_ = now;
    failed_since_.reset();
    late_ = 0;
    results_.clear();
    judged_.clear();
    awaited_.clear();
    left_.clear();
    std::vector<std::int32_t> there;
    std::vector<const NodeFacts*> known;  // of those, as below
    std::vector<bool> judged;
    for (const auto& [slot, node] : nodes_) {
        if (node.phase == Phase::unjudged || late(node, spec, now)) {
            judged_.insert(slot);
        }
        if (node.facts && node.here && node.facts->probe_port != 0) {
            there.push_back(slot);
            known.push_back(&*node.facts);
            judged.push_back(judged_.contains(slot));
        }
    }
    Round out;
    out.number = ++round_;
    const auto count = static_cast<std::int32_t>(there.size());
    for (const std::int32_t i : concerned(judged)) {
        const std::int32_t from = there[static_cast<std::size_t>(i)];
        for (const std::int32_t j : probe_peers(i, count)) {
            if (!judged[static_cast<std::size_t>(i)] && !judged[static_cast<std::size_t>(j)]) {
                continue;
            }
            const std::int32_t to = there[static_cast<std::size_t>(j)];
            const NodeFacts& facts = *known[static_cast<std::size_t>(j)];
            ProbePeer peer{to, facts.probe_port, {}};
            for (const AddressFact& one : facts.addresses) {
                peer.addresses.push_back(one.address);
            }
            out.probes[from].push_back(std::move(peer));
            awaited_.insert(from);
        }
    }
    return out;
}

std::optional<PreflightState::Judgement> PreflightState::judge(const JobSpec& spec, Time now) {
    if (!running_ || (!awaited_.empty() && now - began_ < limits::kProbePatience)) {
        return std::nullopt;
    }
    running_ = false;
    Judgement out;
    out.every_node =
        passed_ == 0 && judged_.size() >= static_cast<std::size_t>(spec.resources.least_nodes());
    // That a node was away meanwhile is no fault of those who did not reach it, nor do they answer
    // for what it did not reach. That it is back by now changes nothing: it gets another round.
    std::erase_if(results_, [&](const ProbeResult& one) {
        return left_.contains(one.to) || left_.contains(one.from);
    });
    auto nodes = lend_facts();
    const auto take = [&](std::vector<PreflightFinding> found) {
        for (PreflightFinding& one : found) {
            if (judged_.contains(one.slot)) {
                out.findings.push_back(std::move(one));
            }
        }
    };
    for (const PreflightNode& node : nodes) {
        if (judged_.contains(node.slot)) {
            take(check_node(node, spec));
        }
    }
    take(compare_nodes(nodes, spec));
    Connections connections = judge_connections(nodes, judged_, results_);
    take(std::move(connections.findings));
    take_back(std::move(nodes));
    for (const std::int32_t slot : judged_) {
        Node& node = nodes_.at(slot);
        if (!node.facts) {
            take({{slot, node.name, "answer", "its agent has not said what it found", "an answer",
                   false}});
        } else if (awaited_.contains(slot)) {
            take({{slot, node.name, "answer", "its agent has not said whom it reached", "an answer",
                   false}});
        }
        const auto proven = connections.proven.find(slot);
        node.proven = proven == connections.proven.end() ? "" : proven->second;
        move(node, node.here, Phase::passed);
    }
    for (const PreflightFinding& one : out.findings) {
        if (one.fails) {
            Node& node = nodes_.at(one.slot);
            move(node, node.here, Phase::unjudged);  // until it is given up
        }
    }
    out.slots = judged_;
    return out;
}

}  // namespace lockstep
