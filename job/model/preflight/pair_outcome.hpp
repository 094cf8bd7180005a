// The test of nodes in pairs (preflight.pair_test): who is tested with whom, and which node is bad.
// After DLRover: in two rounds two nodes each run a short computation and exchange data; for the
// second round what was slow or failed is paired with what was fast. A node that is slow or fails
// with both of its partners is named, for the partners were not. Pure values and functions; any
// thread; O(n log n) over the nodes.
#pragma once

#include "job/model/preflight/nccl_test.hpp"
#include "job/model/preflight/preflight.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Of a PreflightFinding.
inline constexpr std::string_view kPairTest = "pair_test";
inline constexpr std::string_view kNcclTest = "nccl_test";

// What a node says of its test in one round.
struct PairOutcome {
    std::int64_t ms = -1;  // the computation and the exchange, without start and connection
    std::string problem;   // "" = it ended well
    bool absent = false;   // the program that tests is not installed: nothing was looked at
    NcclTestFact nccl{};   // of the test with NCCL; `ms` orders its nodes, faster links first
    bool operator==(const PairOutcome&) const = default;
};

// Of one round.
struct PairRound {
    std::vector<std::vector<std::int32_t>>
        groups;                                    // slots: two each; with an odd number the last 1
    std::map<std::int32_t, PairOutcome> outcomes;  // by slot; who has not said one is late
    // By slot the other one of its group; -1: it is alone.
    std::map<std::int32_t, std::int32_t> partners() const;
};

// Neighbours. `slots`: each once.
std::vector<std::vector<std::int32_t>> first_pairs(std::vector<std::int32_t> slots);
// The best with the worst of the round, none with the same partner again unless there are only
// two. With an odd number one that has passed stays alone, if it can be one that was not before.
std::vector<std::vector<std::int32_t>> second_pairs(const PairRound& first);

// `names`: by slot, of all that were tested. If most are bad it is not the nodes: they are only
// warned of, as is who had the same partner twice.
std::vector<PreflightFinding> judge_pairs(const std::map<std::int32_t, std::string>& names,
                                          const PairRound& first, const PairRound& second);

// The same of the test with NCCL. A node fails that in each of its rounds with a partner has
// failed, or had less than half of the median bandwidth of all groups of as many ranks and nodes,
// if the partner is not to blame: it blames itself, or has failed with another one, too. Of two
// nodes that only met each other both fail, but for slowness, which has nothing then to be compared
// with. Where NCCL does not load on most nodes nothing was tested, and that is only warned of.
std::vector<PreflightFinding> judge_nccl(const std::map<std::int32_t, std::string>& names,
                                         const PairRound& first, const PairRound& second);

// What a node is to do in one round; the follower connects to the leader's port.
struct PairTask {
    bool alone = false;
    bool lead = false;
    std::string token;               // both say it first
    std::string address;             // of this node, for the exchange
    std::vector<std::string> peers;  // addresses of the leader
    std::int32_t port = 0;           // of the leader
    std::string partner;             // its name
    bool nccl = false;               // the test with NCCL
    std::int32_t gpus = 0;           // of it: at most so many of each node
};
Json to_json(const PairTask& task);
// invalid: not what to_json() makes, or over the limits.
Result<PairTask> parse_pair_task(const Json& json);

}  // namespace lockstep
