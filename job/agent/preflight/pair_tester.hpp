// This node's part in the pre-flight's tests in pairs: runs lockstep-train, or lockstep-nccl-test,
// on the task that the daemon gives, and says how it went. The program ends within
// limits::kPairTestTimeout (kNcclTestTimeout) or is killed with what it started. Agent thread; must
// outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/preflight/held_port.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/model/preflight/pair_outcome.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class PairTester {
  public:
    using Say = std::function<void(wire::PairTested)>;
    struct Programs {
        std::string train;
        std::string nccl_test;
    };
    // `environment`: the agent's own.
    PairTester(TaskGroup& tasks, Programs programs, std::map<std::string, std::string> environment,
               Say say);
    // Of the test with NCCL: that of the job's ranks.
    void set_nccl_environment(std::map<std::string, std::string> environment) {
        nccl_environment_ = std::move(environment);
    }

    // Holds a port where this node's program can be met; 0: there is none.
    std::int32_t hold(const std::string& address);
    // A task that still runs is given up for it.
    void run(const wire::PairTest& test);
    void stop();

  private:
    Task<void> test(wire::PairTest test, std::int64_t turn);
    ProcessCommand command_of(const Json& task) const;

    TaskGroup& tasks_;
    ProcessRunner runner_;
    Programs programs_;
    std::map<std::string, std::string> environment_;
    std::map<std::string, std::string> nccl_environment_;
    Say say_;
    std::string address_;
    std::optional<HeldPort> port_;
    std::int64_t turn_ = 0;
    bool stopped_ = false;
};

}  // namespace lockstep
