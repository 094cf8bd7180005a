#include "job/model/launch/rank_env.hpp"

#include "job/base/text.hpp"
#include "job/model/launch/framework_env.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/gpu_view.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

bool starts_with_any(std::string_view name, const auto& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The variables of a step's tasks. With launch node they describe the agents, and several launchers
// take them for the ranks'.
bool is_slurm_task(std::string_view name) {
    constexpr std::array<std::string_view, 15> kNames{"SLURM_NTASKS",
                                                      "SLURM_NPROCS",
                                                      "SLURM_STEP_NUM_TASKS",
                                                      "SLURM_PROCID",
                                                      "SLURM_LOCALID",
                                                      "SLURM_NODEID",
                                                      "SLURM_NTASKS_PER_NODE",
                                                      "SLURM_NNODES",
                                                      "SLURM_STEP_NUM_NODES",
                                                      "SLURM_TASKS_PER_NODE",
                                                      "SLURM_STEP_TASKS_PER_NODE",
                                                      "SLURM_NODELIST",
                                                      "SLURM_STEP_NODELIST",
                                                      "SLURM_STEP_ID",
                                                      "SLURM_STEPID"};
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// What belongs to the process that started the agent and would mislead a rank: another launcher's
// process manager (a forked rank cannot join it) and our own variables. A task of srun's keeps its
// process manager.
bool is_foreign(Launch launch, std::string_view name) {
    constexpr std::array<std::string_view, 8> kPrefixes{
        "PMI_", "PMI2_", "PMIX_", "OMPI_", "SLURM_PMI", "MV2_COMM_WORLD_", "MPI_LOCAL", "JSM_"};
    constexpr std::array<std::string_view, 2> kNames{"SLURM_GTIDS", "SLURM_TASK_PID"};
    if (name.starts_with("LOCKSTEP_") || is_launchers(name)) {
        return true;
    }
    if (launch == Launch::task) {
        return false;
    }
    return starts_with_any(name, kPrefixes) ||
           std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
           (launch == Launch::node && is_slurm_task(name));
}

// The variables of torchrun, local_elastic_agent.py. With USE_AGENT_STORE every rank is a client of
// the agent's store (tcp_store.hpp), otherwise rank 0 hosts one. NODE_RANK and NNODES are not
// torchrun's, but scripts read them.
void add_torchrun(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const RankRole role = spec.role_of(place.rank);
    const std::string rank = std::to_string(place.rank);
    const std::string world = std::to_string(place.world_size);
    const std::string node_rank = std::to_string(place.node_rank);
    const std::string nodes = std::to_string(place.nodes);
    out["RANK"] = rank;
    out["WORLD_SIZE"] = world;
    // What scripts take as the number of their GPU: of ranks that share one it is the same.
    out["LOCAL_RANK"] = std::to_string(device_of_rank(spec, place.local_rank));
    out["LOCAL_WORLD_SIZE"] = std::to_string(place.local_world_size);
    out["GROUP_RANK"] = node_rank;
    out["GROUP_WORLD_SIZE"] = nodes;
    out["NODE_RANK"] = node_rank;
    out["NNODES"] = nodes;
    out["ROLE_NAME"] = spec.roles.empty() ? "default" : role.name;
    out["ROLE_RANK"] = std::to_string(role.index);
    out["ROLE_WORLD_SIZE"] = std::to_string(role.count);
    out["MASTER_ADDR"] = place.master_addr;
    out["MASTER_PORT"] = std::to_string(place.master_port);
    out["TORCHELASTIC_USE_AGENT_STORE"] =
        traits_of(spec.framework).meets_at_store ? "True" : "False";
    // Where a script has another port by the time it meets, it meets somewhere else, and hosts that
    // store itself (job/rank/python/hooks/_lockstep_ranks.py).
    out["LOCKSTEP_MASTER_PORT"] = out["MASTER_PORT"];
    out["TORCHELASTIC_RUN_ID"] = place.job_id;
    out["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.generation - 1);
    out["TORCHELASTIC_MAX_RESTARTS"] = "0";
    if (!place.error_file.empty()) {
        out["TORCHELASTIC_ERROR_FILE"] = place.error_file;
    }
    out.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");  // as torchrun: the caller's counts
}

// Inside a Slurm step the agent's own SLURM_* describe the agents (one task per node). Some
// frameworks prefer them to RANK and would train as several wrong worlds, so they are rewritten
// until every source agrees. Names: srun(1) "OUTPUT ENVIRONMENT VARIABLES".
void rewrite_slurm(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const auto found = out.lower_bound("SLURM_");
    if (found == out.end() || !found->first.starts_with("SLURM_")) {
        return;
    }
    const std::string world = std::to_string(place.world_size);
    const std::string per_node = std::to_string(place.local_world_size);
    const std::string nodes = std::to_string(place.nodes);
    const std::string tasks = place.nodes > 1 ? per_node + "(x" + nodes + ")" : per_node;
    for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"}) {
        out[name] = world;
    }
    out["SLURM_PROCID"] = std::to_string(place.rank);
    out["SLURM_LOCALID"] = std::to_string(place.local_rank);
    out["SLURM_NODEID"] = std::to_string(place.node_rank);
    out["SLURM_NTASKS_PER_NODE"] = per_node;
    for (const char* name : {"SLURM_NNODES", "SLURM_STEP_NUM_NODES"}) {
        out[name] = nodes;
    }
    for (const char* name : {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"}) {
        out[name] = tasks;
    }
    // The agent has all CPUs of its node.
    if (const auto cpus = out.find("SLURM_CPUS_PER_TASK"); cpus != out.end()) {
        cpus->second = std::to_string(spec.resources.cpus_per_rank);
    }
    out.erase("SLURM_TRES_PER_TASK");
    for (const char* name : {"SLURM_NODELIST", "SLURM_STEP_NODELIST"}) {
        if (!place.hosts.empty()) {  // of a large world Slurm's own, shorter, list stays
            out[name] = comma_joined(place.hosts);
        }
    }
}

// The allocation has the spares as well, and the nodes that are lost: scripts take it for the
// world.
void rewrite_allocation(Variables& out, const RankPlace& place) {
    if (const auto nodes = out.find("SLURM_JOB_NUM_NODES"); nodes != out.end()) {
        nodes->second = std::to_string(place.nodes);
    }
    if (const auto list = out.find("SLURM_JOB_NODELIST");
        list != out.end() && !place.hosts.empty()) {
        list->second = comma_joined(place.hosts);
    }
}

void add_lockstep(Variables& out, const JobSpec& spec, const RankPlace& place) {
    out["LOCKSTEP_JOB_ID"] = place.job_id;
    out["LOCKSTEP_JOB_NAME"] = spec.name;
    out["LOCKSTEP_ATTEMPT"] = std::to_string(place.attempt);
    out["LOCKSTEP_GENERATION"] = std::to_string(place.generation);
    out["LOCKSTEP_RANK"] = std::to_string(place.rank);
    out["LOCKSTEP_LOCAL_RANK"] = std::to_string(place.local_rank);
    out["LOCKSTEP_NODE_RANK"] = std::to_string(place.node_rank);
    out["LOCKSTEP_WORLD_SIZE"] = std::to_string(place.world_size);
    out["LOCKSTEP_LOCAL_WORLD_SIZE"] = std::to_string(place.local_world_size);
    out["LOCKSTEP_NODES"] = std::to_string(place.nodes);
    if (!place.hosts.empty()) {
        out["LOCKSTEP_HOSTS"] = comma_joined(place.hosts);
    }
    out["LOCKSTEP_ADDRESS"] = place.address;
    out["LOCKSTEP_SOCKET"] = place.socket_path;
    out["LOCKSTEP_CHECKPOINT_DIR"] = place.checkpoint_directory;
    out["LOCKSTEP_CHECKPOINT_SIGNAL"] = spec.checkpoint.signal;
    out["LOCKSTEP_AGENT"] = place.agent_program;
    const RankRole role = spec.role_of(place.rank);
    out["LOCKSTEP_ROLE"] = role.name;
    out["LOCKSTEP_ROLE_RANK"] = std::to_string(role.index);
    out["LOCKSTEP_ROLE_SIZE"] = std::to_string(role.count);
    if (spec.framework == Framework::native) {
        out["LOCKSTEP_TRAIN_CONFIG"] = place.train_config_file;
    }
}

// The host of host:port, as no_proxy names it: an address of IPv6 without its brackets.
std::string host_of(const std::string& endpoint) {
    const std::string host = endpoint.substr(0, endpoint.rfind(':'));
    return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// Linux gives one variable 128 KiB, its name included, and starts no rank with a longer one.
constexpr std::size_t kProxyList = 127U << 10U;

std::string with_hosts(std::string list, const std::vector<std::string>& hosts) {
    const std::vector<std::string> given = split(list, ',');
    std::set<std::string_view> known{given.begin(), given.end()};
    for (const std::string& host : hosts) {
        const bool fits = list.size() + 1 + host.size() <= kProxyList;
        if (!host.empty() && fits && known.insert(host).second) {
            list += list.empty() ? "" : ",";
            list += host;
        }
    }
    return list;
}

// Ranks talk to each other, never through a proxy (gRPC and HTTP rendezvous would otherwise). gRPC
// reads no_grpc_proxy, where it is set, and not no_proxy.
void extend_no_proxy(Variables& out, const RankPlace& place) {
    constexpr std::array kProxies{"http_proxy",  "https_proxy", "all_proxy", "HTTP_PROXY",
                                  "HTTPS_PROXY", "ALL_PROXY",   "grpc_proxy"};
    const auto is_set = [&](const char* name) { return out.count(name) != 0; };
    if (!std::any_of(kProxies.begin(), kProxies.end(), is_set)) {
        return;
    }
    std::vector<std::string> hosts{"localhost", "127.0.0.1", place.address, place.master_addr};
    // First what the ranks are told to connect to: of many nodes the names may not fit.
    for (const std::string& endpoint : place.endpoints) {
        hosts.push_back(host_of(endpoint));
    }
    hosts.insert(hosts.end(), place.hosts.begin(), place.hosts.end());
    out["no_proxy"] =
        with_hosts(out.count("no_proxy") != 0 ? out["no_proxy"] : out["NO_PROXY"], hosts);
    out["NO_PROXY"] = out["no_proxy"];
    if (const auto grpc = out.find("no_grpc_proxy"); grpc != out.end()) {
        grpc->second = with_hosts(grpc->second, hosts);
    }
}

}  // namespace

std::map<std::string, std::string> rank_environment(
    const JobSpec& spec, const RankPlace& place,
    const std::map<std::string, std::string>& inherited) {
    Variables out;
    for (const auto& [name, value] : inherited) {
        if (!is_foreign(spec.launch, name)) {
            out.emplace(name, value);
        }
    }
    if (spec.launch == Launch::rank) {
        rewrite_slurm(out, spec, place);
    }
    if (spec.launch != Launch::task) {
        rewrite_allocation(out, place);
    }
    if (spec.launch == Launch::node) {
        add_node_launch(out, spec, place);
    } else {
        add_torchrun(out, spec, place);
        add_framework(out, spec, place);
    }
    if (const auto slice = gpu_slice(spec, place.rank)) {
        const auto visible = out.find("CUDA_VISIBLE_DEVICES");
        out["CUDA_VISIBLE_DEVICES"] =
            visible_devices(*slice, visible == out.end() ? "" : visible->second);
    }
    out["PYTHONUNBUFFERED"] = "1";  // or a rank's last lines before a crash never reach its log
    // The caller's own choice, or that of `setup`, counts; what the agent happens to have does not.
    const std::string threads = std::to_string(spec.resources.cpus_per_rank);
    if (spec.inherit_environment || !spec.setup.empty()) {
        out.try_emplace("OMP_NUM_THREADS", threads);
    } else {
        out["OMP_NUM_THREADS"] = threads;
    }
    for (const auto& [name, value] : spec.environment) {
        if (!std::string_view{name}.starts_with("LOCKSTEP_") || name == kPythonHooks) {
            out[name] = value;
        }
    }
    add_evidence_defaults(out, spec, place);
    add_nccl_inspector(out, place);
    add_lockstep(out, spec, place);
    if (spec.launch == Launch::node) {
        // The ranks inherit what their launcher is told, and these would be a lie of all but one.
        for (const char* name : {"LOCKSTEP_RANK", "LOCKSTEP_LOCAL_RANK", "LOCKSTEP_ROLE_RANK"}) {
            out.erase(name);
        }
    }
    if (!place.python_path.empty()) {
        // Last, so that nothing of the user's is hidden by a module of ours.
        std::string& path = out["PYTHONPATH"];
        path += path.empty() ? place.python_path : ":" + place.python_path;
        // First, and it hides nothing: its sitecustomize runs the one that it stands before.
        const auto hooks = out.find(std::string{kPythonHooks});
        if (hooks == out.end() || hooks->second != "off") {
            path = place.python_path + "/hooks:" + path;
        }
    }
    extend_no_proxy(out, place);
    return out;
}

namespace {

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// apptainer(1) exec: the environment goes in as it is, signals reach the program.
std::vector<std::string> apptainer_words(const JobSpec& spec, const RankPlace& place) {
    std::vector<std::string> out{"apptainer", "exec"};
    if (spec.resources.gpus_per_node > 0) {
        out.emplace_back("--nv");
    }
    std::vector<std::string> binds{place.attempt_directory, folder_of(place.socket_path),
                                   place.checkpoint_directory};
    if (!spec.working_directory.empty()) {
        binds.push_back(spec.working_directory);
    }
    if (!place.python_path.empty()) {
        binds.push_back(place.python_path + ":" + place.python_path + ":ro");
    }
    binds.insert(binds.end(), spec.container.mounts.begin(), spec.container.mounts.end());
    for (const std::string& bind : binds) {
        if (!bind.empty()) {
            out.emplace_back("--bind");
            out.push_back(bind);
        }
    }
    out.emplace_back("--pwd");
    out.push_back(spec.working_directory.empty() ? place.attempt_directory
                                                 : spec.working_directory);
    out.push_back(spec.container.image);
    return out;
}

}  // namespace

std::vector<std::string> rank_command(const JobSpec& spec, const RankPlace& place,
                                      const std::string& train_program) {
    if (spec.framework == Framework::native) {
        return {train_program};
    }
    const Placeholders values{place.rank,       place.local_rank,  place.node_rank,  place.nodes,
                              place.world_size, place.master_addr, place.master_port};
    std::vector<std::string> out;
    if (spec.container.runtime == ContainerRuntime::apptainer) {
        out = apptainer_words(spec, place);
    }
    out.reserve(out.size() + spec.command.size() + 4);
    if (const auto before = traits_of(spec.framework).before_command) {
        const auto words = before(expand_placeholders(spec.command.front(), values));
        out.insert(out.end(), words.begin(), words.end());
    }
    for (const auto& argument : spec.command) {
        out.push_back(expand_placeholders(argument, values));
    }
    return out;
}

}  // namespace lockstep
