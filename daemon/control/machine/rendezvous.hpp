// How the nodes of an allocation meet, generation by generation: who has joined, who is ready, who
// has started, and whether that is enough for the next step. No I/O, no clock, no messages: the
// caller tells it what came and asks what follows. What must outlive the daemon (which generation
// is live, which nodes it has, which are lost) is the job's, and is told to it after each restart.
//
//   away ──HELLO──▶ connected ──JOIN──▶ joined ──READY──▶ ready ──STARTED──▶ started
//     ▲                  ▲                                                      │
//     └── disconnected   └────────── (reconnected) ◀────────────────────────────┘
//
// Safe because of three rules: a generation is fixed only by nodes that have joined, and a node
// joins only when none of its ranks lives; a node that is lost does not count, unless it is told
// here that it has returned, by a JOIN that is younger than its loss; what is said of another
// generation than the live one changes nothing.
//
// An elastic job's generation may have fewer nodes than are wanted, down to `least`. Which nodes
// the next one has, and in which places, is generation/next_generation.cpp's to say.
//
// "Slot": a node of the allocation, 0..slots-1; "node rank": a node of a generation. Without spares
// they are the same. Every call is O(1) but fixed() and everybody_joined(). Control thread only.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class Rendezvous {
  public:
    enum class Phase : std::uint8_t { away, connected, joined, ready, started };

    // `nodes` wanted for a generation, `slots` of the allocation (≥ nodes), `least` that are enough
    // (1..nodes; 0: nodes). Everybody is away.
    Rendezvous(std::int32_t nodes, std::int32_t slots, std::int32_t least = 0);

    // The generation that is live from now on, and its slots by node rank; empty: node rank = slot.
    void fixed(std::int32_t generation, const std::vector<std::int32_t>& members);
    // It has ended.
    void over() { live_ = 0; }
    std::int32_t live() const { return live_; }  // 0 = none
    void lost(std::int32_t slot);
    // A lost one that has said JOIN since; to be followed by joined().
    void returned(std::int32_t slot);

    void connected(std::int32_t slot);
    void disconnected(std::int32_t slot);
    // `left`: the newest generation that is over on that node; 0 = none was there. True: the live
    // generation has this node, and it has not heard of it. Changes nothing if the node is further:
    // what it said of the live generation may have overtaken its JOIN.
    bool joined(std::int32_t slot, std::int32_t left);
    // False: not of the live generation, or not a node of it.
    bool ready(std::int32_t slot, std::int32_t generation);
    bool started(std::int32_t slot, std::int32_t generation);

    bool enough_joined() const { return joined_ >= least_; }
    std::int32_t wanted() const { return nodes_; }  // of a generation
    std::int32_t least() const { return least_; }   // that are enough for one
    std::int32_t slots() const { return static_cast<std::int32_t>(slots_.size()); }
    bool is_lost(std::int32_t slot) const { return at(slot).lost; }
    bool has_joined(std::int32_t slot) const {
        return at(slot).phase == Phase::joined && !at(slot).lost;
    }
    // Every node that is not lost has joined.
    bool everybody_joined() const;
    // Every member is ready (or has started: the daemon may have been restarted half way).
    bool all_ready() const { return live_ != 0 && ready_ + started_ == members_; }
    bool all_started() const { return live_ != 0 && started_ == members_; }
    bool is_member(std::int32_t slot) const;
    // One that has joined, is not lost and has no part in the live generation.
    bool is_spare(std::int32_t slot) const;
    Phase phase(std::int32_t slot) const { return at(slot).phase; }

  private:
    struct Node {
        Phase phase = Phase::away;
        std::int32_t generation = 0;  // that READY or STARTED was said of
        std::int32_t member_of = 0;   // the newest generation it is a node of
        bool lost = false;
    };
    Node& at(std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)]; }
    const Node& at(std::int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }
    void move(Node& node, Phase phase, std::int32_t generation);
    void count(const Node& node, std::int32_t more);

    std::int32_t nodes_;
    std::int32_t least_;
    std::int32_t members_;  // of the live generation, or the newest
    std::vector<Node> slots_;
    std::int32_t live_ = 0;
    // Of the nodes that are not lost: how many have joined; how many are ready, have started in the
    // live generation.
    std::int32_t joined_ = 0;
    std::int32_t ready_ = 0;
    std::int32_t started_ = 0;
};

}  // namespace lockstep
