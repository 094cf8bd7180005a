// Ranks that srun starts (launch task): the agent of the first node runs srun, on every node the
// tasks come in by the gate and become ranks like others.
// Agent thread only; must outlive the TaskGroup's coroutines, `config` and the group it.
#pragma once

#include "job/agent/node/node_config.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/agent/ranks/task_gate.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RankTasks {
  public:
    struct Handlers {
        // What a task is to become, or why it may not; nothing: not before START.
        std::function<std::optional<task_wire::Plan>(const task_wire::Hello& hello)> plan;
        // Every expected rank of this node is there.
        std::function<void(std::int32_t generation, std::vector<wire::StartedRank> ranks)> all_here;
        // srun has ended before they were, in words.
        std::function<void(std::string why)> missing;
    };
    RankTasks(TaskGroup& tasks, const NodeConfig& config, RankGroup& group, Handlers handlers);

    // Tasks find the gate, a socket of this path.
    Status open(const std::string& path);
    // These ranks of the generation are tasks that come from now on. `first`: this node runs srun.
    Status expect(const JobSpec& spec, std::int32_t generation,
                  std::vector<RankGroup::RankPlan> plans, bool first);
    // Tasks that wait for START are asked for again: it has come, or their generation is over.
    void look_again();
    // No task comes any more; srun is killed.
    void close();

  private:
    void on_task(TaskGate::Started task);
    Task<void> run_srun(ProcessCommand command, std::int32_t generation);
    void on_srun_ended(std::int32_t generation, const Result<ProcessResult>& result);
    Result<ProcessCommand> srun_command(const JobSpec& spec, std::int32_t generation) const;

    TaskGroup& tasks_;
    const NodeConfig& config_;
    RankGroup& group_;
    Handlers handlers_;
    ProcessRunner runner_;
    std::unique_ptr<TaskGate> gate_;
    // Of the generation that was expected last.
    std::int32_t generation_ = 0;
    std::size_t expected_ = 0;
    std::vector<wire::StartedRank> here_;
};

// Whether srun has given the task PMI or PMIx: without it every rank of an MPI program believes
// that it is alone.
bool has_process_manager(const std::map<std::string, std::string>& environment);

}  // namespace lockstep
