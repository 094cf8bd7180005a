#include "job/agent/node/rank_planner.hpp"

#include "job/agent/diagnostics/nccl_conf.hpp"
#include "job/agent/preflight/held_port.hpp"
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/model/launch/framework_env.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

std::string numbered(const char* format, std::int32_t number) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, number);
    return text.data();
}

// NCCL takes a name for a prefix unless = stands before it. A site that has chosen in NCCL's own
// files is not overruled: variables would go before these.
void choose_for_nccl(const char* variable, const std::string& names, const JobSpec& spec,
                     std::map<std::string, std::string>& inherited) {
    auto all = spec.environment;  // the job's own go before what is inherited
    all.insert(inherited.begin(), inherited.end());
    if (!nccl_conf_names(variable, all)) {
        inherited.try_emplace(variable, "=" + names);
    }
}

// Whether it is the path that cannot be used: it is the same on every node. Of what else fails
// there (a stale handle, a file server that does not answer) only the node can tell.
bool blames_path(int number) {
    return number == ENOENT || number == ENOTDIR || number == EACCES || number == EPERM ||
           number == ELOOP || number == ENAMETOOLONG;
}

tl::unexpected<Error> no_directory(const std::string& directory, int number) {
    if (number == ENOENT || number == ENOTDIR) {
        return fail(Errc::not_found, "working directory does not exist: " + printable(directory));
    }
    Error error = errno_error("working directory cannot be used: " + printable(directory), number);
    error.code = blames_path(number) ? Errc::denied : Errc::unavailable;
    return fail(std::move(error));
}

// What people install with Python in an environment of their own and mean by its name alone.
bool is_of_an_environment(std::string_view program) {
    constexpr std::array<std::string_view, 5> kPrograms{"torchrun", "accelerate", "deepspeed",
                                                        "horovodrun", "ray"};
    return program.find('/') == std::string_view::npos &&
           (program.starts_with("python") ||
            std::find(kPrograms.begin(), kPrograms.end(), program) != kPrograms.end());
}

}  // namespace

RankPlace RankPlanner::place_of(std::int32_t local_rank) const {
    RankPlace place;
    place.job_id = welcome.job_id;
    place.attempt = welcome.attempt;
    place.generation = world.generation;
    place.rank = world.first_rank + local_rank;
    place.local_rank = local_rank;
    place.node_rank = world.node_rank;
    place.world_size = world.world_size;
    place.local_world_size = world.local_ranks;
    place.nodes = std::max(world.nodes, static_cast<std::int32_t>(world.hosts.size()));
    place.master_addr = world.master_address;
    place.master_port = world.master_port;
    place.hosts = world.hosts;
    for (std::size_t rank = 0; rank < world.ports.size(); ++rank) {
        const std::size_t node = rank / static_cast<std::size_t>(world.local_ranks);
        place.endpoints.push_back(host_and_port(world.addresses.at(node), world.ports[rank]));
    }
    place.address = address;
    place.socket_path = sockets.socket_path(local_rank);
    place.error_file =
        (config.attempt_directory / numbered("rank-%05d.error.json", place.rank)).string();
    place.attempt_directory = config.attempt_directory.string();
    place.checkpoint_directory = welcome.checkpoint_directory;
    place.train_config_file =
        (config.attempt_directory / numbered("train-%05d.json", config.node_rank)).string();
    place.agent_program = config.agent_program;
    place.python_path = config.python_path;
    place.ras_port = ras_port;
    if (inspector != nullptr) {
        place.inspector = inspector->place_of(local_rank);
    }
    return place;
}

// The folders and files the ranks count on; the working directory.
Result<std::string> RankPlanner::prepare_folders() const {
    std::string directory = config.attempt_directory.string();
    if (!spec.working_directory.empty()) {
        directory = (config.attempt_directory / spec.working_directory).string();
        struct stat info{};
        if (::stat(directory.c_str(), &info) != 0) {
            return no_directory(directory, errno);
        }
        if (!S_ISDIR(info.st_mode) || ::access(directory.c_str(), X_OK) != 0) {
            return !S_ISDIR(info.st_mode) || blames_path(errno)
                       ? fail(Errc::denied,
                              "working directory cannot be entered: " + printable(directory))
                       : no_directory(directory, errno);
        }
    }
    if (!welcome.checkpoint_directory.empty()) {
        if (auto made = make_private_directories(welcome.checkpoint_directory); !made) {
            Error error = made.error().in("checkpoint directory");
            struct stat info{};
            if (error.code == Errc::internal &&
                ::stat(welcome.checkpoint_directory.c_str(), &info) != 0 && errno != ENOENT &&
                blames_path(errno)) {
                error.code = Errc::invalid;
            }
            return fail(std::move(error));
        }
    }
    if (spec.framework == Framework::native && spec.train) {
        const auto written = write_file_atomic(place_of(0).train_config_file,
                                               dump_json_pretty(to_json(*spec.train)) + "\n");
        if (!written) {
            return fail(written.error().in("train configuration"));
        }
    }
    return directory;
}

Result<RankGroup::RankPlan> RankPlanner::plan_of(
    std::int32_t local_rank, const std::string& directory,
    std::map<std::string, std::string> inherited) const {
    RankPlace place = place_of(local_rank);
    RankGroup::RankPlan plan;
    plan.rank = place.rank;
    plan.log = config.attempt_directory / wire::rank_log_name(place.rank);
    plan.mask = environment.mask();
    plan.process.agent_program = config.agent_program;
    plan.process.directory = directory;
    plan.process.argv = rank_command(spec, place, config.train_program);
    // Gloo and TensorPipe (torch.distributed.rpc) listen on what this machine's name resolves to,
    // and a node's name need not resolve; the interface of the address that reached the daemon is
    // known to work.
    if (const auto name = interface_of(address); !name.empty()) {
        inherited.try_emplace("GLOO_SOCKET_IFNAME", name);
        inherited.try_emplace("TP_SOCKET_IFNAME", name);
        choose_for_nccl("NCCL_SOCKET_IFNAME", name, spec, inherited);
    }
    if (!world.rdma_ports.empty()) {
        choose_for_nccl("NCCL_IB_HCA", comma_joined(world.rdma_ports), spec, inherited);
    }
    if (!place.inspector.plugin.empty()) {
        auto all = spec.environment;
        all.insert(inherited.begin(), inherited.end());
        if (nccl_conf_names("NCCL_PROFILER_PLUGIN", all)) {
            place.inspector = {};
        }
    }
    environment.add_secrets(inherited);
    plan.process.environment = rank_environment(spec, place, inherited);
    const auto path = plan.process.environment.find("PATH");
    const std::string search =
        path == plan.process.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
    if (plan.process.argv.empty()) {
        return fail(Errc::invalid, "the command is empty");
    }
    auto program = find_program(plan.process.argv.front(), search, directory);
    if (!program && program.error().code == Errc::not_found && !spec.inherit_environment &&
        is_of_an_environment(plan.process.argv.front())) {
        program.error().message +=
            " (the job has the node's own environment; inherit_environment: true, as lockstep run "
            "sets it, gives it yours, with the virtual or conda environment that is active)";
    }
    LOCKSTEP_TRY(program);
    plan.process.program = std::move(*program);
    plan.launcher = spec.launch == Launch::node;
    // The native trainer reports every step; its lines are for people.
    if (spec.framework != Framework::native && !plan.launcher &&
        (spec.capture.preset != "none" || !spec.capture.loss.empty())) {
        plan.capture.emplace(spec.capture.preset, spec.capture.loss);
        plan.world_size = world.world_size;
        plan.one_world = spec.roles.empty();  // servers and workers may meet by themselves
    }
    return plan;
}

}  // namespace lockstep
