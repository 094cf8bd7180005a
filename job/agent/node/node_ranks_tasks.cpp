// The ranks of a node that srun starts (launch task): what each task becomes.
#include "job/agent/node/node_ranks.hpp"
#include "job/model/state.hpp"

#include <string>
#include <utility>

namespace lockstep {

RankTasks::Handlers NodeRanks::task_handlers() {
    RankTasks::Handlers out;
    out.plan = [this](const task_wire::Hello& hello) { return plan_task(hello); };
    out.all_here = [this](std::int32_t generation, std::vector<wire::StartedRank> ranks) {
        handlers_.take(node_input::RanksStarted{generation, std::move(ranks)});
    };
    out.missing = [this](std::string why) {
        if (!parts_.machine.stopping()) {
            handlers_.fault(-1, CauseClass::scheduler, std::move(why));
            group_.stop(parts_.config.timing.grace);
        }
    };
    return out;
}

void NodeRanks::expect_tasks() {
    const Status expected =
        rank_tasks_.expect(spec(), here_->world.generation, std::exchange(here_->plans, {}),
                           here_->world.node_rank == 0);
    if (!expected) {
        not_started(expected.error());
    }
}

std::optional<task_wire::Plan> NodeRanks::plan_task(const task_wire::Hello& hello) const {
    task_wire::Plan out;
    const NodeMachine& machine = parts_.machine;
    const bool prepared = machine.ranks_ready() || machine.ranks_run();
    if (!here_ || !prepared || hello.generation != here_->world.generation ||
        hello.local_rank >= here_->world.local_ranks ||
        hello.rank != here_->world.first_rank + hello.local_rank) {
        out.refused = "rank " + std::to_string(hello.rank) + " of generation " +
                      std::to_string(hello.generation) + " is not expected on this node";
        return out;
    }
    if (machine.ranks_ready()) {
        return std::nullopt;
    }
    if (spec().framework == Framework::mpi && !has_process_manager(hello.environment)) {
        out.refused =
            "srun gives its tasks no PMI here: name one that the MPI library knows, with "
            "SLURM_MPI_TYPE (pmix, pmi2) in /environment";
        return out;
    }
    auto plan = planner().plan_of(hello.local_rank, here_->directory,
                                  parts_.environment.of_task(hello.environment));
    if (!plan) {
        out.refused = plan.error().message;
        return out;
    }
    out.program = std::move(plan->process.program);
    out.argv = std::move(plan->process.argv);
    out.directory = std::move(plan->process.directory);
    out.environment = std::move(plan->process.environment);
    return out;
}

}  // namespace lockstep
