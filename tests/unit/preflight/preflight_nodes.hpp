// Nodes with facts that give no reason for a finding.
#pragma once

#include "job/model/preflight/preflight.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace lockstep::test {

inline NodeFacts good_facts(std::int32_t slot) {
    NodeFacts out;
    out.versions = {{"nccl", "2.19.3"}, {"torch", "2.1.0"}, {"driver", "535.104.05"}};
    out.open_files = 65'536;
    out.memlock_kb = 64;
    out.somaxconn = 4096;
    out.hostname = "n" + std::to_string(slot);
    out.hostname_addresses = {"10.0.0." + std::to_string(slot)};
    out.addresses = {{"eth0", "10.0.0." + std::to_string(slot)}};
    out.probe_port = 5000 + slot;
    out.clock_known = true;
    return out;
}

inline std::vector<PreflightNode> good_nodes(std::int32_t count) {
    std::vector<PreflightNode> out;
    for (std::int32_t slot = 0; slot < count; ++slot) {
        out.push_back({slot, "n" + std::to_string(slot), good_facts(slot)});
    }
    return out;
}

inline JobSpec spec_of(std::int32_t nodes, std::int32_t spares = 0) {
    JobSpec out;
    out.resources.nodes = nodes;
    out.resources.spares = spares;
    return out;
}

// "n1 versions fail: its NCCL is 2.18.1"
inline std::vector<std::string> lines(const std::vector<PreflightFinding>& findings) {
    std::vector<std::string> out;
    for (const PreflightFinding& one : findings) {
        out.push_back(one.node + " " + one.check + (one.fails ? " fail: " : " warn: ") + one.found);
    }
    return out;
}

}  // namespace lockstep::test
