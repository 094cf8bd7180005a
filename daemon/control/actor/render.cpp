#include "daemon/control/actor/render.hpp"

#include "daemon/control/base/attempt_files.hpp"
#include "job/base/digest.hpp"
#include "job/base/limits.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <map>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int32_t kSomePort = 1;  // of a node, known once its agent holds it

using RankVariables = std::map<std::string, std::string>;

// What Lockstep has made of what is not known yet, as a reader understands it. The master's port is
// known once its agent holds it; until then it is 0.
std::string as_shown(const std::string& name, std::string value) {
    constexpr std::string_view kPort = "<port held by node 0>";
    constexpr std::string_view kUnknown = "<address of node 0>:0";
    if (value == "0" && name.ends_with("_PORT")) {
        return std::string{kPort};
    }
    if (name == "NCCL_SOCKET_MAGIC") {
        return "<of the generation>";
    }
    if (name == "NCCL_RAS_ADDR" && value == "127.0.0.1:" + std::to_string(kSomePort)) {
        return "127.0.0.1:<port held by the node>";
    }
    if (const auto at = value.find(kUnknown); at != std::string::npos) {
        value.replace(at + kUnknown.size() - 1, 1, kPort);
    }
    return value;
}

// What the ranks' environment begins with, without what the node has itself: as RankPlanner in the
// agent makes it.
RankVariables before_ranks(const JobSpec& spec, const Scheduler& scheduler) {
    RankVariables allocation;
    if (const auto name = scheduler.allocation_variable(); !name.empty()) {
        allocation.emplace(name, "<" + std::string{scheduler.title()} + "'s id of the job>");
    }
    RankVariables out = base_environment(spec, allocation);
    const std::string interface = "<interface of the node's address>";
    out.try_emplace("GLOO_SOCKET_IFNAME", interface);
    out.try_emplace("TP_SOCKET_IFNAME", interface);
    out.try_emplace("NCCL_SOCKET_IFNAME", "=" + interface);
    if (spec.resources.nodes > 1) {
        out.try_emplace("NCCL_IB_HCA", "=<active RDMA ports; unset if there are none>");
    }
    return out;
}

Json environment_json(const JobSpec& spec, const RankPlace& place, const Scheduler& scheduler) {
    const RankVariables before = before_ranks(spec, scheduler);
    Json out = Json::object();
    for (const auto& [name, value] : rank_environment(spec, place, before)) {
        const auto given = before.find(name);
        const bool as_given = (given != before.end() && given->second == value) ||
                              spec.environment.find(name) != spec.environment.end();
        out[name] = as_given ? value : as_shown(name, value);
    }
    if (spec.launch == Launch::node) {
        out["LOCKSTEP_OUTPUT"] = "<pipe of the launcher's output>";
    }
    for (const std::string& name : spec.secrets) {
        out[name] = kMaskedValue;
    }
    return out;
}

// Of the first rank, in the first generation.
RankPlace first_place(const JobSpec& spec) {
    RankPlace place;
    place.job_id = "<job id>";
    place.world_size = spec.world_size();
    place.local_world_size = spec.ranks_per_node();
    place.nodes = spec.resources.nodes;
    place.master_addr = "<address of node 0>";
    place.address = "<address of the node>";
    place.socket_path = "<folder of the sockets>/<rank>.sock";
    place.attempt_directory = "<attempt directory>";
    place.error_file = "<attempt directory>/rank-00000.error.json";
    place.checkpoint_directory = spec.checkpoint.directory.empty()
                                     ? "<runs directory>/<job id>/checkpoints"
                                     : spec.checkpoint.directory;
    if (spec.train) {
        place.train_config_file = "<attempt directory>/train-00000.json";
    }
    place.agent_program = "<lockstep-agent>";
    place.python_path = std::string{"<folder above lockstep-agent's>/"} + kPythonFolder;
    place.ras_port = kSomePort;
    if (needs_endpoints(spec) || place.nodes <= limits::kEnvironmentHosts) {
        for (std::int32_t node = 0; node < place.nodes; ++node) {
            place.hosts.push_back("<node " + std::to_string(node) + ">");
        }
    }
    for (std::int32_t rank = 0; needs_endpoints(spec) && rank < place.world_size; ++rank) {
        place.endpoints.push_back("<address of rank " + std::to_string(rank) + ">:<port>");
    }
    return place;
}

}  // namespace

Result<Json> render_json(const JobSpec& spec, const Scheduler& scheduler,
                         const std::filesystem::path& runs_dir,
                         const std::vector<std::string>& warnings) {
    const JobId job{std::string{kTemplateJob}};
    const auto script = scheduler.script(
        attempt_request(job, 1, spec, attempt_directory(runs_dir, job, 1).string()));
    LOCKSTEP_TRY(script);
    const RankPlace place = first_place(spec);
    Json out = Json::object();
    out["scheduler"] = scheduler.name();
    out["nodes"] = spec.resources.nodes;
    out["ranks"] = place.world_size;
    out["command"] = rank_command(spec, place, "lockstep-train");
    out["environment"] = environment_json(spec, place, scheduler);
    if (*script) {
        out["script"] = **script;
    }
    out["warnings"] = warnings;
    out["render_hash"] = sha256_hex(dump_json(to_json(spec)) + "\n" + dump_json(out));
    return out;
}

}  // namespace lockstep
