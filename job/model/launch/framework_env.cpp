#include "job/model/launch/framework_env.hpp"

#include "job/base/text.hpp"
#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep {

void add_framework(std::map<std::string, std::string>& out, const JobSpec& spec,
                   const RankPlace& place) {
    if (needs_endpoints(spec)) {
        out["LOCKSTEP_ENDPOINT"] = frameworks::endpoint(place, place.rank);
        out["LOCKSTEP_ENDPOINTS"] = comma_joined(place.endpoints);
    }
    if (const auto add = traits_of(spec.framework).add_rank) {
        add(out, spec, place);
    }
}

// PET_*: torchrun's defaults, argparse_util.py. PADDLE_*: what paddle.distributed.launch takes
// before its own arguments, args_envs.py; a PADDLE_TRAINER_ID would be taken for the node's number.
void add_node_launch(std::map<std::string, std::string>& out, const JobSpec& spec,
                     const RankPlace& place) {
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
    out["PADDLE_MASTER"] = host_and_port(place.master_addr, place.master_port);
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
    if (const auto add = traits_of(spec.framework).add_node) {
        add(out, spec);
    }
}

std::string host_and_port(const std::string& host, std::int32_t port) {
    const bool six = host.find(':') != std::string::npos;
    return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace lockstep
