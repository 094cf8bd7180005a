// Where the tasks that srun starts on this node come in: the agent tells each what to become, and
// gets its output and its end. Protocol: task_wire.hpp. Agent thread; the handlers are called until
// close(), also by coroutines that unwind.
#pragma once

#include "job/agent/ranks/task_wire.hpp"
#include "job/async/task_group.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class TaskGate {
  public:
    struct Started {
        task_wire::Hello hello;
        std::int64_t pid = 0;
        UniqueFd socket;
        task_wire::Reader reader;  // what has arrived after the pid
        UniqueFd output;
    };
    struct Handlers {
        // Nothing: it is too early to say, the task waits for look_again().
        std::function<std::optional<task_wire::Plan>(const task_wire::Hello&)> plan;
        std::function<void(Started)> started;
    };
    static Result<std::unique_ptr<TaskGate>> open(TaskGroup& tasks, const std::string& path,
                                                  Handlers handlers);
    ~TaskGate();
    // What a task waits for may have come, or will not come any more: soon, not in here, each that
    // waits is planned again.
    void look_again();
    TaskGate(const TaskGate&) = delete;
    TaskGate& operator=(const TaskGate&) = delete;

  private:
    struct State;
    explicit TaskGate(std::shared_ptr<State> state) : state_(std::move(state)) {}
    static Task<void> listen(std::shared_ptr<State> state);
    static Task<void> serve(std::shared_ptr<State> state, std::shared_ptr<struct TaskPeer> peer);
    static Task<std::optional<task_wire::Plan>> wait_for_plan(std::shared_ptr<State> state,
                                                              std::shared_ptr<struct TaskPeer> peer,
                                                              const task_wire::Hello& hello);
    std::shared_ptr<State> state_;
};

}  // namespace lockstep
