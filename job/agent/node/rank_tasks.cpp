#include "job/agent/node/rank_tasks.hpp"

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

}  // namespace

RankTasks::RankTasks(TaskGroup& tasks, const NodeConfig& config, RankGroup& group,
                     Handlers handlers)
    : tasks_(tasks),
      config_(config),
      group_(group),
      handlers_(std::move(handlers)),
      runner_(tasks.io()) {}

Status RankTasks::open(const std::string& path) {
    if (!gate_) {
        auto gate = TaskGate::open(tasks_, path, {handlers_.plan, [this](TaskGate::Started task) {
                                                      on_task(std::move(task));
                                                  }});
        LOCKSTEP_TRY(gate);
        gate_ = std::move(*gate);
    }
    return write_file_atomic(config_.attempt_directory / task_wire::file_name(config_.node_rank),
                             path, 0600);
}

Status RankTasks::expect(const JobSpec& spec, std::int32_t generation,
                         std::vector<RankGroup::RankPlan> plans, bool first) {
    here_.clear();
    generation_ = generation;
    expected_ = plans.size();
    const Status expected = group_.expect(generation, std::move(plans));
    look_again();  // also of ranks that cannot come: their tasks are sent away
    LOCKSTEP_TRY(expected);
    if (!first) {
        return {};
    }
    auto command = srun_command(spec, generation);
    if (!command) {
        on_srun_ended(generation, fail(command.error()));
        return {};
    }
    log::info("starting the ranks with srun", {{"generation", generation}});
    tasks_.spawn("srun", run_srun(std::move(*command), generation));
    return {};
}

void RankTasks::look_again() {
    if (gate_) {
        gate_->look_again();
    }
}

void RankTasks::close() {
    gate_.reset();
    runner_.kill_all();
}

void RankTasks::on_task(TaskGate::Started task) {
    const wire::StartedRank started{task.hello.rank, task.pid};
    if (!group_.adopt(std::move(task))) {
        return;
    }
    here_.push_back(started);
    if (here_.size() == expected_) {
        handlers_.all_here(generation_, here_);
    }
}

// Of the agent's own environment only what srun needs: what else Slurm has told it is about the
// agents' step, and srun would take it for its options (srun(1), INPUT ENVIRONMENT VARIABLES).
Result<ProcessCommand> RankTasks::srun_command(const JobSpec& spec, std::int32_t generation) const {
    ProcessCommand out;
    const auto own = [&](const char* name) {
        const auto found = config_.inherited.find(name);
        return found == config_.inherited.end() ? std::string{} : found->second;
    };
    auto program = find_program("srun", own("PATH"), "/");
    LOCKSTEP_TRY(program);
    for (const auto& [name, value] : config_.inherited) {
        const bool slurms = name.starts_with("SLURM") || name.starts_with("LOCKSTEP_");
        if (!slurms || name == "SLURM_CONF" || name == "SLURM_JOB_ID") {
            out.environment.push_back(name + "=" + value);
        }
    }
    if (const auto type = spec.environment.find("SLURM_MPI_TYPE"); type != spec.environment.end()) {
        out.environment.push_back("SLURM_MPI_TYPE=" + type->second);
    }
    out.environment.push_back(std::string{kTaskGeneration} + "=" + std::to_string(generation));
    const Resources& resources = spec.resources;
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

Task<void> RankTasks::run_srun(ProcessCommand command, std::int32_t generation) {
    const auto result = co_await runner_.run(std::move(command));
    on_srun_ended(generation, result);
}

void RankTasks::on_srun_ended(std::int32_t generation, const Result<ProcessResult>& result) {
    std::string words = result ? result->err : result.error().message;
    words = printable(words.substr(words.size() - std::min(words.size(), kSrunWords)));
    const std::size_t missing = group_.missing();
    log::info("srun has ended",
              {{"generation", generation}, {"missing", missing}, {"said", words}});
    // Else the ranks' own ends are on their way.
    if (generation == generation_ && group_.running() && missing > 0) {
        handlers_.missing("srun did not start the ranks: " + words);
    }
}

bool has_process_manager(const std::map<std::string, std::string>& environment) {
    constexpr std::array kNames{"PMI_RANK", "PMI_FD", "PMI2_RANK", "PMIX_RANK", "PMIX_NAMESPACE"};
    return std::any_of(kNames.begin(), kNames.end(),
                       [&](const char* name) { return environment.contains(name); });
}

}  // namespace lockstep
