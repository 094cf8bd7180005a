// Where the ranks of one generation meet, if this agent serves it: torch's store or Horovod's
// rendezvous, on the master port that is held. Its keys end with the object. Agent thread only.
#pragma once

#include "job/agent/horovod/horovod_rendezvous.hpp"
#include "job/agent/preflight/held_port.hpp"
#include "job/agent/torch_store/tcp_store.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

class MeetingPlace {
  public:
    // Rank 0 serves it itself, or a launcher does, or it is on another node.
    MeetingPlace() = default;

    // What the ranks' environment tells them of, if it does: their job's own word (`environment` of
    // the specification) counts. conflict: the master port is not held. `refused`: a connection of
    // somebody who is none of the world's nodes was, in words.
    static Result<MeetingPlace> open(TaskGroup& tasks, const wire::World& world,
                                     const std::map<std::string, std::string>& environment,
                                     const HeldPort* master, const std::string& own_address,
                                     std::function<void(std::string)> refused);

    bool serves() const { return store_ != nullptr || rendezvous_ != nullptr; }

  private:
    std::unique_ptr<TcpStore> store_;
    std::unique_ptr<HorovodRendezvous> rendezvous_;
};

}  // namespace lockstep
