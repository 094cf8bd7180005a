// Takes a profile of a node's ranks (rank_profiles.hpp) beside the agent's work: on a thread of its
// own, one at a time. Agent thread only; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/diagnostics/rank_profiles.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <atomic>
#include <functional>
#include <memory>

namespace lockstep {

class ProfileTaker {
  public:
    explicit ProfileTaker(TaskGroup& tasks) : tasks_(tasks), thread_(tasks.io()) {}
    ~ProfileTaker() { stop(); }

    using Done = std::function<void(wire::Profiled)>;
    // `done` is called once, unless stop() comes before. One that is under way is stopped.
    void take(ProfileQuestion question, Done done);
    // The ranks are to end, or the agent: nobody waits for it.
    void stop();

  private:
    Task<void> run(ProfileQuestion question, Done done);

    TaskGroup& tasks_;
    SideThread thread_;
    std::shared_ptr<std::atomic<bool>> stopped_;  // of the one under way
};

}  // namespace lockstep
