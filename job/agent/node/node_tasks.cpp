// Ranks that srun starts (launch task): the agent of the first node runs srun, on every node the
// tasks come in by the gate and become ranks like others.
#include "job/agent/node/node.hpp"
#include "job/agent/ranks/task_shim.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/state.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kSrunWords = 2000;  // of what it printed, the last

// PMI's or PMIx's: without it every rank of an MPI program believes that it is alone.
bool has_process_manager(const std::map<std::string, std::string>& environment) {
    constexpr std::array kNames{"PMI_RANK", "PMI_FD", "PMI2_RANK", "PMIX_RANK", "PMIX_NAMESPACE"};
    return std::any_of(kNames.begin(), kNames.end(),
                       [&](const char* name) { return environment.contains(name); });
}

}  // namespace

Status Node::open_gate() {
    if (spec_->launch != Launch::task) {
        return {};
    }
    if (!gate_) {
        auto gate =
            TaskGate::open(tasks_, sockets_.task_path(),
                           {[this](const task_wire::Hello& hello) { return plan_task(hello); },
                            [this](TaskGate::Started task) { on_task(std::move(task)); }});
        if (!gate) {
            return fail(gate.error());
        }
        gate_ = std::move(*gate);
    }
    return write_file_atomic(config_.attempt_directory / task_wire::file_name(config_.node_rank),
                             sockets_.task_path(), 0600);
}

void Node::expect_tasks() {
    tasks_here_.clear();
    const Status expected = group_.expect(world_->generation, std::exchange(plans_, {}));
    if (!expected) {
        take(node_input::RanksNotStarted{CauseClass::internal, masked(expected.error().message),
                                         group_.running()});
        return;
    }
    if (world_->node_rank == 0) {
        tasks_.spawn("srun", run_srun(world_->generation));
    }
}

task_wire::Plan Node::plan_task(const task_wire::Hello& hello) const {
    task_wire::Plan out;
    if (!world_ || !machine_.ranks_run() || hello.generation != world_->generation ||
        hello.local_rank >= world_->local_ranks ||
        hello.rank != world_->first_rank + hello.local_rank) {
        out.refused = "rank " + std::to_string(hello.rank) + " of generation " +
                      std::to_string(hello.generation) + " is not expected on this node";
        return out;
    }
    if (spec_->framework == Framework::mpi && !has_process_manager(hello.environment)) {
        out.refused =
            "srun gives its tasks no PMI here: name one that the MPI library knows, with "
            "SLURM_MPI_TYPE (pmix, pmi2) in /environment";
        return out;
    }
    auto plan = plan_of(hello.local_rank, directory_, environment_of(hello.environment));
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

void Node::on_task(TaskGate::Started task) {
    const wire::StartedRank started{task.hello.rank, task.pid};
    if (!group_.adopt(std::move(task))) {
        return;
    }
    tasks_here_.push_back(started);
    if (tasks_here_.size() == static_cast<std::size_t>(world_->local_ranks)) {
        take(node_input::RanksStarted{tasks_here_});
    }
}

// Of the agent's own environment only what srun needs: what else Slurm has told it is about the
// agents' step, and srun would take it for its options (srun(1), INPUT ENVIRONMENT VARIABLES).
Result<ProcessCommand> Node::srun_command(std::int32_t generation) const {
    ProcessCommand out;
    const auto own = [&](const char* name) {
        const auto found = config_.inherited.find(name);
        return found == config_.inherited.end() ? std::string{} : found->second;
    };
    auto program = find_program("srun", own("PATH"), "/");
    if (!program) {
        return fail(program.error());
    }
    for (const auto& [name, value] : config_.inherited) {
        const bool slurms = name.starts_with("SLURM") || name.starts_with("LOCKSTEP_");
        if (!slurms || name == "SLURM_CONF" || name == "SLURM_JOB_ID") {
            out.environment.push_back(name + "=" + value);
        }
    }
    if (const auto type = spec_->environment.find("SLURM_MPI_TYPE");
        type != spec_->environment.end()) {
        out.environment.push_back("SLURM_MPI_TYPE=" + type->second);
    }
    out.environment.push_back(std::string{kTaskGeneration} + "=" + std::to_string(generation));
    const Resources& resources = spec_->resources;
    const std::string per_node = std::to_string(resources.ranks_per_node);
    out.argv = {std::move(*program),
                "--overlap",
                "--nodes=" + std::to_string(resources.nodes),
                "--ntasks=" + std::to_string(resources.world_size()),
                "--ntasks-per-node=" + per_node,
                "--cpus-per-task=" + std::to_string(resources.cpus_per_rank),
                "--distribution=block:block",
                "--kill-on-bad-exit=0",
                "--wait=0",
                "--input=none",
                "--export=ALL"};
    if (resources.gpus_per_node > 0) {
        out.argv.emplace_back("--gpu-bind=none");
    }
    out.argv.insert(out.argv.end(), {config_.agent_program, "task", "--attempt-dir",
                                     config_.attempt_directory.string()});
    out.directory = config_.attempt_directory.string();
    out.timeout = std::chrono::hours{24 * 3650};
    out.drop_excess = true;  // the tasks' own output does not come this way
    return out;
}

Task<void> Node::run_srun(std::int32_t generation) {
    auto command = srun_command(generation);
    if (!command) {
        on_srun_ended(generation, fail(command.error()));
        co_return;
    }
    log::info("starting the ranks with srun", {{"generation", generation}});
    ProcessCommand given = std::move(*command);
    const auto result = co_await runner_.run(std::move(given));
    on_srun_ended(generation, result);
}

void Node::on_srun_ended(std::int32_t generation, const Result<ProcessResult>& result) {
    std::string words = result ? result->err : result.error().message;
    words = printable(words.substr(words.size() - std::min(words.size(), kSrunWords)));
    const std::size_t missing = group_.missing();
    log::info("srun has ended",
              {{"generation", generation}, {"missing", missing}, {"said", words}});
    const bool ours = world_ && world_->generation == generation && group_.running();
    if (machine_.stopping() || !ours || missing == 0) {
        return;  // the ranks' own ends are on their way
    }
    fault(-1, CauseClass::scheduler, "srun did not start the ranks: " + words);
    group_.stop(config_.timing.grace);
}

}  // namespace lockstep
