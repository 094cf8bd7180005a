// The ports a node holds for its ranks, from JOIN until they start, and again between two
// generations: the daemon knows their numbers, and a next generation may be given them again.
// Agent thread only.
#pragma once

#include "job/agent/preflight/held_port.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class HeldPorts {
  public:
    struct Wanted {
        std::int32_t ranks = 0;  // that have an endpoint each
        bool ras = false;        // NCCL's own port, on this machine only
    };
    // One for the master and those that are wanted; what is held already stays. Without one for
    // NCCL's RAS the ranks go on as NCCL would.
    Status hold(const std::string& address, const Wanted& wanted);
    // The same numbers as before, as far as they are free.
    void hold_again(const std::string& address);
    // The ranks of this world may bind theirs. `served`: the master port stays, somebody listens.
    void release(const wire::World& world, bool served);
    // Whether the endpoints that the daemon gives the ranks of this node are held here. Nothing
    // from the daemon is counted on. `endpoints`: each rank of the job has one.
    Status check(const wire::World& world, bool endpoints) const;

    // Why the last hold() failed; "" = it did not.
    const std::string& problem() const { return problem_; }
    // nullptr: none was ever held.
    const HeldPort* master() const { return master_ ? &*master_ : nullptr; }
    std::int32_t ras() const { return ras_ ? ras_->number() : 0; }
    std::vector<std::int32_t> ranks() const;  // by local rank; empty if they have no endpoints

  private:
    Status hold_wanted(const std::string& address, const Wanted& wanted);
    void hold_ras();

    std::optional<HeldPort> master_;
    std::optional<HeldPort> ras_;
    std::vector<HeldPort> ranks_;
    std::string problem_;
};

}  // namespace lockstep
