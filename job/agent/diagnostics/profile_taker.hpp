// Takes a profile of a node's ranks (rank_profiles.hpp) beside the agent's work: on a thread of its
// own, one at a time. Agent thread only; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/diagnostics/rank_profiles.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace lockstep {

class ProfileTaker {
  public:
    explicit ProfileTaker(TaskGroup& tasks)
        : tasks_(tasks), thread_(tasks.io()), timer_(tasks.io()) {}
    ~ProfileTaker() { stop(); }

    using Done = std::function<void(wire::Profiled)>;
    // What NCCL has done in the rank meanwhile, which is not looked at any longer then. Nothing:
    // nobody looks at it. Asked of each wanted rank at the end, which is not before the seconds and
    // limits::kInspectorPost are over, unless the job's file system does not answer; null: of none.
    using Collectives = std::function<std::optional<PostedCollectives>(std::int32_t rank)>;
    // `done` is called once, unless stop() comes before; then neither is. One that is under way is
    // stopped.
    void take(ProfileQuestion question, Collectives collectives, Done done);
    // The ranks are to end, or the agent: nobody waits for it.
    void stop();

  private:
    Task<void> run(std::shared_ptr<const ProfileQuestion> question, Collectives collectives,
                   Done done);

    TaskGroup& tasks_;
    SideThread thread_;
    net::steady_timer timer_;
    std::shared_ptr<std::atomic<bool>> stopped_;  // of the one under way
};

}  // namespace lockstep
