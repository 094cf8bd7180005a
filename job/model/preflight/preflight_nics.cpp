// What is made of the states of a node's network interfaces and RDMA ports.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/preflight_devices.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kActive = "ACTIVE";

void add(const PreflightNode& node, std::string found, std::string expected, bool fails,
         std::vector<PreflightFinding>& out) {
    out.push_back({node.slot, node.node, "nic", std::move(found), std::move(expected), fails});
}

}  // namespace

bool nccl_takes_port(std::string_view setting, std::string_view device, std::int32_t port) {
    const bool not_these = setting.starts_with('^');
    setting.remove_prefix(not_these ? 1 : 0);
    const bool whole = setting.starts_with('=');
    setting.remove_prefix(whole ? 1 : 0);
    bool any = false;
    bool found = false;
    for (const std::string& item : split(setting, ',')) {
        const auto colon = item.find(':');
        const std::string name = item.substr(0, colon);
        if (name.empty()) {
            continue;
        }
        any = true;
        const bool named = whole ? device == name : device.starts_with(name);
        const auto number =
            colon == std::string::npos ? std::nullopt : to_int(item.substr(colon + 1));
        found = found || (named && (!number || *number == port));
    }
    return !any || found != not_these;
}

void check_nics(const PreflightNode& node, const JobSpec& spec,
                std::vector<PreflightFinding>& out) {
    for (const NicFact& nic : node.facts.nics) {
        if (!nic.rdma) {
            // Whether its peers reach it is another check, and that one fails the node.
            if (nic.state != "up" && nic.state != "unknown") {
                add(node,
                    "interface " + nic.name +
                        (nic.under.empty() ? "" : ", a part of " + nic.under + ",") + " is " +
                        nic.state,
                    "up", false, out);
            }
        } else if (nic.named && nic.state != kActive) {
            add(node, "port " + nic.name + " is " + nic.state, "ACTIVE, as NCCL_IB_HCA takes it",
                spec.resources.gpus_per_node > 0, out);
        }
    }
}

std::map<std::int32_t, std::vector<std::string>> active_ports(
    const std::map<std::int32_t, const NodeFacts*>& nodes) {
    std::map<std::int32_t, std::vector<std::string>> own;
    std::map<std::string, std::size_t> count;
    for (const auto& [slot, facts] : nodes) {
        // Of a list that was cut off nobody knows what is missing.
        if (facts == nullptr || facts->nics.size() >= limits::kNics) {
            return {};
        }
        for (const NicFact& nic : facts->nics) {
            if (nic.rdma && nic.state == kActive) {
                own[slot].push_back(nic.name);
                ++count[nic.name];
            }
        }
    }
    if (own.size() != nodes.size()) {
        return {};
    }
    const auto everywhere = [&](const std::string& name) { return count[name] == nodes.size(); };
    if (std::any_of(count.begin(), count.end(),
                    [&](const auto& one) { return one.second == nodes.size(); })) {
        for (auto& [slot, names] : own) {
            std::erase_if(names, [&](const std::string& name) { return !everywhere(name); });
        }
    }
    return own;
}

// One that is down on every node has probably never been plugged in.
void compare_nics(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                  std::vector<PreflightFinding>& out) {
    std::map<std::string, std::pair<std::size_t, std::size_t>> ports;  // name → active, all
    for (const PreflightNode& node : nodes) {
        for (const NicFact& nic : node.facts.nics) {
            if (nic.rdma) {
                auto& [active, all] = ports[nic.name];
                active += nic.state == kActive ? 1 : 0;
                ++all;
            }
        }
    }
    for (const PreflightNode& node : nodes) {
        for (const NicFact& nic : node.facts.nics) {
            if (!nic.rdma || nic.named || nic.state == kActive) {
                continue;
            }
            const auto [active, all] = ports.at(nic.name);
            if (active > 0) {
                add(node, "port " + nic.name + " is " + nic.state,
                    "ACTIVE, as on " + std::to_string(active) + " of " + std::to_string(all) +
                        " nodes that have it",
                    spec.resources.gpus_per_node > 0 && active * 2 > all, out);
            }
        }
    }
}

}  // namespace lockstep
