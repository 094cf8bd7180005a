// How far the pre-flight of an attempt is: whose facts are there, who has been asked to connect to
// whom, and who may be a node of a generation. No I/O, no messages: the caller says what came and
// at what time, and asks what follows. It lives as long as the daemon; after a restart the agents
// say their facts again. Control thread only.
//
//   expected ──CHECKED──▶ unjudged ──a round──▶ passed
//      └── too late: judged without facts       └─ or failed: the caller gives the node up
//
// A round judges all that are unjudged at its start; nodes that have passed take part as their
// peers. Of a job with one node it has no connections and is over at once. What comes of every node
// costs O(log nodes); only the beginning and the end of a round look at all of them.
#pragma once

#include "job/model/preflight/preflight.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class PreflightState {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Round {
        std::int32_t number = 0;
        std::map<std::int32_t, std::vector<ProbePeer>> probes;  // by slot that is to connect
    };
    struct Judgement {
        std::set<std::int32_t> slots;
        // As many as the ranks need, and none had passed before: what all of these have, every node
        // has.
        bool every_node = false;
        std::vector<PreflightFinding> findings;
    };

    // An agent was accepted that will say CHECKED.
    void expect(std::int32_t slot, std::string node, Time now);
    // It needs none: an agent that knows no pre-flight, a node whose ranks ran before.
    void exempt(std::int32_t slot);
    void checked(std::int32_t slot, NodeFacts facts, const JobSpec& spec, Time now);
    void probed(std::int32_t slot, std::int32_t round, std::vector<ProbeResult> results);
    // Its connection is gone; what was not judged begins anew with the next one.
    void gone(std::int32_t slot);
    void lost(std::int32_t slot);
    // A lost node that is there again: to be expected and judged as a new one.
    void returned(std::int32_t slot) { lost_.erase(slot); }
    // Another test has found it bad: it has not passed, until it is given up.
    void refuse(std::int32_t slot);

    bool passed(std::int32_t slot) const;
    // Where its peers reached it; "" = nobody has tried.
    std::string proven(std::int32_t slot) const;
    const NodeFacts* facts(std::int32_t slot) const;
    // active_ports() of these nodes' facts.
    std::map<std::int32_t, std::vector<std::string>> active_ports(
        const std::vector<std::int32_t>& slots) const;

    // A round that may begin now: to be sent. `slots`: of the allocation, spares included.
    std::optional<Round> begin(const JobSpec& spec, Time now);
    // The round is over, or what can be judged without: once. What did not fail has passed.
    std::optional<Judgement> judge(const JobSpec& spec, Time now);
    // Nothing is left to be done for any node of the allocation.
    bool all_passed(const JobSpec& spec) const;
    // Somebody is still to be judged.
    bool busy() const { return running_ || unjudged_ > 0; }
    // Nor is somebody there who has not said what he found.
    bool settled() const { return !busy() && expected_ == 0; }

  private:
    enum class Phase : std::uint8_t { expected, unjudged, passed };
    struct Node {
        std::string name;
        Phase phase = Phase::expected;
        bool here = false;
        Time since{};
        std::optional<NodeFacts> facts;
        std::string proven;
    };
    bool late(const Node& node, const JobSpec& spec, Time now) const;
    void move(Node& node, bool here, Phase phase);
    void count(const Node& node, std::int32_t more);
    bool ready(const JobSpec& spec, Time now);
    // The facts of all that are here are lent to the judgement: a copy of thousands is slow.
    std::vector<PreflightNode> lend_facts();
    void take_back(std::vector<PreflightNode> lent);

    std::map<std::int32_t, Node> nodes_;
    std::set<std::int32_t> lost_;
    std::int32_t unjudged_ = 0;
    std::int32_t passed_ = 0;
    std::int32_t expected_ = 0;  // of those that are here
    std::int32_t late_ = 0;      // of those, at the last look
    Time next_look_{};
    std::int32_t round_ = 0;
    bool running_ = false;
    Time began_{};
    std::optional<Time> enough_since_;  // but for spares
    std::optional<Time> failed_since_;  // a node fails by itself, the others are waited for
    std::set<std::int32_t> judged_;     // of the round
    std::set<std::int32_t> awaited_;    // that have not said PROBED
    std::set<std::int32_t> left_;       // while it ran, whether or not they are back
    std::vector<ProbeResult> results_;
};

}  // namespace lockstep
