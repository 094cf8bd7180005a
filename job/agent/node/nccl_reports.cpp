#include "job/agent/node/nccl_reports.hpp"

#include "job/model/spec/own_variables.hpp"

#include <utility>
#include <vector>

namespace lockstep {

NcclReports::NcclReports(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
                         Outbox& outbox, Handlers handlers)
    : config_(config),
      machine_(machine),
      outbox_(outbox),
      handlers_(std::move(handlers)),
      ras_(tasks, ras_handlers(), {}),
      inspector_(tasks, {handlers_.seen, handlers_.warn}) {}

RasWatch::Handlers NcclReports::ras_handlers() {
    RasWatch::Handlers out;
    out.seen = handlers_.seen;
    out.waited_for = [this](wire::Desync desync) {
        const bool there = machine_.connected();  // by the time the daemon is back it is old
        if (there) {
            outbox_.control(desync);
            handlers_.wake();
        }
        return there;
    };
    out.warn = handlers_.warn;
    return out;
}

void NcclReports::expect(const JobSpec& spec, const wire::World& world) {
    if (!plugin_) {
        std::string problem;
        plugin_ = find_inspector(spec, config_.inherited, config_.own_libraries, problem);
        if (!problem.empty()) {
            handlers_.warn(std::string{"NCCL's Inspector is not used: "} + problem + " (" +
                           std::string{kNcclInspector} + ")");
        }
    }
    inspector_.expect(*plugin_, world.first_rank, world.local_ranks);
}

// Without GPUs there is no NCCL to look for in all processes; but who says where it listens means
// it.
void NcclReports::follow(const JobSpec& spec, const wire::World& world) {
    constexpr const char* kRasAddress = "NCCL_RAS_ADDR";
    if (spec.resources.gpus_per_node > 0 || spec.environment.contains(kRasAddress) ||
        config_.inherited.contains(kRasAddress)) {
        ras_.follow(world,
                    machine_.ranks_run() ? machine_.started() : std::vector<wire::StartedRank>{});
    }
}

std::string NcclReports::words_of(std::int32_t rank) const {
    const std::string counts = ras_.words();
    const std::string bandwidths = inspector_.words_of(rank);
    return counts + (counts.empty() || bandwidths.empty() ? "" : "\n") + bandwidths;
}

void NcclReports::stop() {
    ras_.stop();
    inspector_.stop();
}

}  // namespace lockstep
