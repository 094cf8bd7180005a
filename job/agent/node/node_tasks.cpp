// The ranks of a node that srun starts (launch task): what each task becomes.
#include "job/agent/machine/start_cause.hpp"
#include "job/agent/node/node.hpp"
#include "job/model/state.hpp"

#include <string>
#include <utility>

namespace lockstep {

RankTasks::Handlers Node::task_handlers() {
    RankTasks::Handlers out;
    out.plan = [this](const task_wire::Hello& hello) { return plan_task(hello); };
    out.all_here = [this](std::int32_t generation, std::vector<wire::StartedRank> ranks) {
        take(node_input::RanksStarted{generation, std::move(ranks)});
    };
    out.missing = [this](std::string why) {
        if (!machine_.stopping()) {
            fault(-1, CauseClass::scheduler, std::move(why));
            group_.stop(config_.timing.grace);
        }
    };
    return out;
}

void Node::expect_tasks() {
    const Status expected =
        rank_tasks_.expect(job_.spec(), here_->world.generation, std::exchange(here_->plans, {}),
                           here_->world.node_rank == 0);
    if (!expected) {
        take(node_input::RanksNotStarted{cause_of_start(expected.error()),
                                         environment_.masked(expected.error().message),
                                         group_.running()});
    }
}

std::optional<task_wire::Plan> Node::plan_task(const task_wire::Hello& hello) const {
    task_wire::Plan out;
    const bool prepared = machine_.ranks_ready() || machine_.ranks_run();
    if (!here_ || !prepared || hello.generation != here_->world.generation ||
        hello.local_rank >= here_->world.local_ranks ||
        hello.rank != here_->world.first_rank + hello.local_rank) {
        out.refused = "rank " + std::to_string(hello.rank) + " of generation " +
                      std::to_string(hello.generation) + " is not expected on this node";
        return out;
    }
    if (machine_.ranks_ready()) {
        return std::nullopt;
    }
    if (job_.spec().framework == Framework::mpi && !has_process_manager(hello.environment)) {
        out.refused =
            "srun gives its tasks no PMI here: name one that the MPI library knows, with "
            "SLURM_MPI_TYPE (pmix, pmi2) in /environment";
        return out;
    }
    auto plan = planner().plan_of(hello.local_rank, here_->directory,
                                  environment_.of_task(hello.environment));
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
