#include "job/model/launch/framework_env.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/gpu_view.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

std::string master(const RankPlace& place) {
    return host_and_port(place.master_addr, place.master_port);
}

const std::string& endpoint(const RankPlace& place, std::int32_t rank) {
    static const std::string kNone;
    const auto index = static_cast<std::size_t>(rank);
    return index < place.endpoints.size() ? place.endpoints[index] : kNone;
}

// The endpoints of the ranks of one role, by their number in it.
std::vector<std::string> endpoints_of(const JobSpec& spec, const RankPlace& place,
                                      std::string_view role) {
    std::vector<std::string> out;
    for (std::int32_t rank = 0; rank < place.world_size; ++rank) {
        if (spec.role_of(rank).name == role) {
            out.push_back(endpoint(place, rank));
        }
    }
    return out;
}

bool has_servers(const JobSpec& spec) {
    return std::any_of(spec.roles.begin(), spec.roles.end(),
                       [](const RoleSpec& role) { return role.name == "ps"; });
}

// tfconfig_cluster_resolver.py, multi_worker_util.py. Only where there are several: one process
// that has TF_CONFIG no longer runs MirroredStrategy without complaint.
void add_tensorflow(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const RankRole role = spec.role_of(place.rank);
    Json config = Json::object();
    config["cluster"] = Json::object();
    for (const char* name : {"chief", "worker", "ps", "evaluator"}) {
        if (auto addresses = endpoints_of(spec, place, name); !addresses.empty()) {
            config["cluster"][name] = std::move(addresses);
        }
    }
    config["task"] = Json::object();
    config["task"]["type"] = role.name;
    config["task"]["index"] = role.index;
    config["rpc_layer"] = "grpc";
    out["TF_CONFIG"] = dump_json(config);
    if (role.name == "chief" && has_servers(spec)) {
        out["GRPC_FAIL_FAST"] = "use_caller";  // a worker that is lost is an error, not a wait
    }
}

// launch/controllers/collective.py; parallel.py. PADDLE_MASTER is none of the endpoints: a static
// graph binds those as well.
void add_paddle_collective(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const std::string rank = std::to_string(place.rank);
    const std::string world = std::to_string(place.world_size);
    const std::string local = std::to_string(place.local_rank);
    out["PADDLE_TRAINER_ID"] = rank;
    out["PADDLE_TRAINERS_NUM"] = world;
    out["PADDLE_TRAINER_ENDPOINTS"] = comma_joined(place.endpoints);
    out["PADDLE_CURRENT_ENDPOINT"] = endpoint(place, place.rank);
    out["PADDLE_MASTER"] = master(place);
    out["PADDLE_GLOBAL_RANK"] = rank;
    out["PADDLE_GLOBAL_SIZE"] = world;
    out["PADDLE_LOCAL_RANK"] = local;
    out["PADDLE_LOCAL_SIZE"] = std::to_string(place.local_world_size);
    out["PADDLE_RANK_IN_NODE"] = local;
    out["PADDLE_NNODES"] = std::to_string(place.nodes);
    if (spec.resources.gpus_per_node > 0) {
        // Relative to what is visible; a build with CUDA does not start without it.
        out["FLAGS_selected_gpus"] = gpu_slice(spec, place.rank)
                                         ? "0"
                                         : std::to_string(device_of_rank(spec, place.local_rank));
    } else {
        out["PADDLE_DISTRI_BACKEND"] = "gloo";
    }
}

// launch/controllers/ps.py, fleet/base/role_maker.py: POD_IP and PADDLE_PORT together are one entry
// of the lists, by which a server finds its number.
void add_paddle_servers(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const RankRole role = spec.role_of(place.rank);
    const auto trainers = endpoints_of(spec, place, "worker");
    const std::string& own = endpoint(place, place.rank);
    const bool server = role.name == "ps";
    out["PADDLE_ROLE"] = server ? "PSERVER" : "TRAINER";
    out["TRAINING_ROLE"] = out["PADDLE_ROLE"];
    out["PADDLE_PSERVERS_IP_PORT_LIST"] = comma_joined(endpoints_of(spec, place, "ps"));
    out["PADDLE_TRAINER_ENDPOINTS"] = comma_joined(trainers);
    out["PADDLE_TRAINERS_NUM"] = std::to_string(trainers.size());
    out["POD_IP"] = place.address;
    out["PADDLE_PORT"] = own.substr(own.rfind(':') + 1);
    out["PADDLE_NNODES"] = std::to_string(place.nodes);
    if (!server) {
        out["PADDLE_TRAINER_ID"] = std::to_string(role.index);
        if (spec.resources.gpus_per_node > 0) {
            out["FLAGS_selected_gpus"] =
                gpu_slice(spec, place.rank) ? "0" : std::to_string(place.local_rank);
        }
    }
    // The launcher's own defaults: gloo, if the script turns it on, meets over HTTP.
    out["PADDLE_WITH_GLOO"] = "0";
    out["PADDLE_GLOO_RENDEZVOUS"] = "3";
    out["PADDLE_GLOO_HTTP_ENDPOINT"] = master(place);
}

// jax/_src/distributed.py. There is no variable for a process's number: JAX takes it from Slurm's,
// of which it wants these five. Outside Slurm they are made for it.
void add_jax(Variables& out, const JobSpec& spec, const RankPlace& place) {
    out["JAX_COORDINATOR_ADDRESS"] = master(place);
    out["JAX_COORDINATOR_PORT"] = std::to_string(place.master_port);
    if (gpu_slice(spec, place.rank)) {
        out["JAX_LOCAL_DEVICE_IDS"] = "0";
    } else if (spec.resources.ranks_per_gpu > 1) {
        out["JAX_LOCAL_DEVICE_IDS"] = std::to_string(device_of_rank(spec, place.local_rank));
    }
    out.try_emplace("SLURM_JOB_ID", "1");
    out.try_emplace("SLURM_STEP_NODELIST", comma_joined(place.hosts));
    out.try_emplace("SLURM_NTASKS", std::to_string(place.world_size));
    out.try_emplace("SLURM_PROCID", std::to_string(place.rank));
    out.try_emplace("SLURM_LOCALID", std::to_string(place.local_rank));
}

// A script may also choose its backend itself, before it imports Keras.
bool names_keras_backend(const JobSpec& spec) {
    return spec.environment.count("KERAS_BACKEND") != 0 ||
           spec.recorded_environment.count("KERAS_BACKEND") != 0;
}

// keras/src/distribution/distribution_lib.py: the first address is the coordinator's.
void add_keras_jax(Variables& out, const RankPlace& place) {
    out["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = comma_joined(place.endpoints);
    out["KERAS_DISTRIBUTION_NUM_PROCESSES"] = std::to_string(place.world_size);
    out["KERAS_DISTRIBUTION_PROCESS_ID"] = std::to_string(place.rank);
}

// runner/gloo_run.py, common/gloo/gloo_context.cc. The rendezvous is HTTP, served by the agent of
// node 0 at the master's port (horovod_rendezvous.hpp).
void add_horovod(Variables& out, const JobSpec& spec, const RankPlace& place) {
    out["HOROVOD_RANK"] = std::to_string(place.rank);
    out["HOROVOD_SIZE"] = std::to_string(place.world_size);
    out["HOROVOD_LOCAL_RANK"] = std::to_string(place.local_rank);
    out["HOROVOD_LOCAL_SIZE"] = std::to_string(place.local_world_size);
    out["HOROVOD_CROSS_RANK"] = std::to_string(place.node_rank);
    out["HOROVOD_CROSS_SIZE"] = std::to_string(place.nodes);
    const auto node = static_cast<std::size_t>(place.node_rank);
    out["HOROVOD_HOSTNAME"] = node < place.hosts.size() ? place.hosts[node] : place.address;
    if (spec.launch == Launch::rank) {  // with launch task it finds its peers by MPI
        out["HOROVOD_CONTROLLER"] = "gloo";
        out["HOROVOD_CPU_OPERATIONS"] = "gloo";
        out["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = place.master_addr;
        out["HOROVOD_GLOO_RENDEZVOUS_PORT"] = std::to_string(place.master_port);
        if (const auto name = out.find("GLOO_SOCKET_IFNAME"); name != out.end()) {
            out["HOROVOD_GLOO_IFACE"] = name->second;
        }
    }
}

// deepspeed/launcher/launch.py adds these to torchrun's.
void add_deepspeed(Variables& out, const RankPlace& place) {
    out["LOCAL_SIZE"] = std::to_string(place.local_world_size);
    out["CROSS_RANK"] = std::to_string(place.node_rank);
    out["CROSS_SIZE"] = std::to_string(place.nodes);
}

// Without it, versions try NCCL and die, or run every rank by itself.
void add_accelerate(Variables& out, const JobSpec& spec) {
    if (spec.resources.gpus_per_node == 0) {
        out["ACCELERATE_USE_CPU"] = "true";
    }
}

}  // namespace

bool is_launchers(std::string_view name) {
    constexpr std::array<std::string_view, 6> kPrefixes{"TORCHELASTIC_",       "PET_",
                                                        "KERAS_DISTRIBUTION_", "PADDLE_TRAINER",
                                                        "PADDLE_GLOBAL_",      "PADDLE_LOCAL_"};
    constexpr std::array<std::string_view, 44> kNames{"RANK",
                                                      "WORLD_SIZE",
                                                      "LOCAL_RANK",
                                                      "LOCAL_WORLD_SIZE",
                                                      "GROUP_RANK",
                                                      "GROUP_WORLD_SIZE",
                                                      "NODE_RANK",
                                                      "NNODES",
                                                      "ROLE_NAME",
                                                      "ROLE_RANK",
                                                      "ROLE_WORLD_SIZE",
                                                      "MASTER_ADDR",
                                                      "MASTER_PORT",
                                                      "LOCAL_SIZE",
                                                      "CROSS_RANK",
                                                      "CROSS_SIZE",
                                                      "TF_CONFIG",
                                                      "TRAINING_ROLE",
                                                      "POD_IP",
                                                      "PADDLE_ROLE",
                                                      "PADDLE_CURRENT_ENDPOINT",
                                                      "PADDLE_MASTER",
                                                      "PADDLE_NNODES",
                                                      "PADDLE_RANK",
                                                      "PADDLE_RANK_IN_NODE",
                                                      "PADDLE_NPROC_PER_NODE",
                                                      "PADDLE_JOB_ID",
                                                      "PADDLE_PORT",
                                                      "PADDLE_PSERVERS_IP_PORT_LIST",
                                                      "PADDLE_GLOO_HTTP_ENDPOINT",
                                                      "JAX_COORDINATOR_ADDRESS",
                                                      "JAX_COORDINATOR_PORT",
                                                      "JAX_COORDINATOR_BIND_ADDRESS",
                                                      "JAX_LOCAL_DEVICE_IDS",
                                                      "HOROVOD_RANK",
                                                      "HOROVOD_SIZE",
                                                      "HOROVOD_LOCAL_RANK",
                                                      "HOROVOD_LOCAL_SIZE",
                                                      "HOROVOD_CROSS_RANK",
                                                      "HOROVOD_CROSS_SIZE",
                                                      "HOROVOD_HOSTNAME",
                                                      "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                                      "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                                      "HOROVOD_CONTROLLER"};
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
           std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void add_framework(Variables& out, const JobSpec& spec, const RankPlace& place) {
    if (needs_endpoints(spec)) {
        out["LOCKSTEP_ENDPOINT"] = endpoint(place, place.rank);
        out["LOCKSTEP_ENDPOINTS"] = comma_joined(place.endpoints);
    }
    switch (spec.framework) {
        case Framework::tensorflow:
            if (needs_endpoints(spec)) {
                add_tensorflow(out, spec, place);
            }
            break;
        case Framework::keras:
            if (needs_endpoints(spec) && runs_tensorflow(spec)) {
                add_tensorflow(out, spec, place);
            }
            if (needs_endpoints(spec) &&
                (keras_backend(spec) == "jax" || !names_keras_backend(spec))) {
                add_keras_jax(out, place);
            }
            break;
        case Framework::paddle:
            has_servers(spec) ? add_paddle_servers(out, spec, place)
                              : add_paddle_collective(out, spec, place);
            break;
        case Framework::jax:
            add_jax(out, spec, place);
            break;
        case Framework::horovod:
            add_horovod(out, spec, place);
            break;
        case Framework::deepspeed:
            add_deepspeed(out, place);
            break;
        case Framework::accelerate:
            add_accelerate(out, spec);
            break;
        default:
            break;
    }
}

// PET_*: torchrun's defaults, argparse_util.py. PADDLE_*: what paddle.distributed.launch takes
// before its own arguments, args_envs.py; a PADDLE_TRAINER_ID would be taken for the node's number.
void add_node_launch(Variables& out, const JobSpec& spec, const RankPlace& place) {
    const std::string node = std::to_string(place.node_rank);
    const std::string nodes = std::to_string(place.nodes);
    const std::string ranks = std::to_string(spec.resources.ranks_per_node);
    out["NODE_RANK"] = node;
    out["NNODES"] = nodes;
    out["MASTER_ADDR"] = place.master_addr;
    out["MASTER_PORT"] = std::to_string(place.master_port);
    out["PET_NNODES"] = nodes;
    out["PET_NODE_RANK"] = node;
    out["PET_NPROC_PER_NODE"] = ranks;
    out["PET_MASTER_ADDR"] = place.master_addr;
    out["PET_MASTER_PORT"] = std::to_string(place.master_port);
    out["PADDLE_MASTER"] = master(place);
    out["PADDLE_NNODES"] = nodes;
    out["PADDLE_RANK"] = node;
    out["PADDLE_NPROC_PER_NODE"] = ranks;
    out["PADDLE_JOB_ID"] = place.job_id;
    out["PADDLE_LOG_DIR"] = place.attempt_directory + "/paddle-node-" + node;
    out["POD_IP"] = place.address;
    out["LOCKSTEP_RANKS_PER_NODE"] = ranks;
    if (!place.error_file.empty()) {
        out["TORCHELASTIC_ERROR_FILE"] = place.error_file;
    }
    if (spec.framework == Framework::accelerate) {
        add_accelerate(out, spec);
    }
}

std::string host_and_port(const std::string& host, std::int32_t port) {
    const bool six = host.find(':') != std::string::npos;
    return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace lockstep
