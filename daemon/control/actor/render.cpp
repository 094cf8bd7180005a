#include "daemon/control/actor/render.hpp"

#include "daemon/control/base/attempt_files.hpp"
#include "job/base/digest.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/spec_environment.hpp"

namespace lockstep {
namespace {

constexpr std::int32_t kSomePort = 1;  // of a node, known once its agent holds it

// The master's port is known once its agent holds it; until then it is 0.
std::string with_port(const std::string& name, std::string value) {
    constexpr std::string_view kPort = "<port held by node 0>";
    constexpr std::string_view kUnknown = "<address of node 0>:0";
    if (value == "0" && name.ends_with("_PORT")) {
        return std::string{kPort};
    }
    if (name == "NCCL_RAS_ADDR" && value == "127.0.0.1:" + std::to_string(kSomePort)) {
        return "127.0.0.1:<port held by the node>";
    }
    if (const auto at = value.find(kUnknown); at != std::string::npos) {
        value.replace(at + kUnknown.size() - 1, 1, kPort);
    }
    return value;
}

}  // namespace

Result<Json> render_json(const JobSpec& spec, const Scheduler& scheduler,
                         const std::filesystem::path& runs_dir,
                         const std::vector<std::string>& warnings) {
    const JobId job{std::string{kTemplateJob}};
    const auto script = scheduler.script(
        attempt_request(job, 1, spec, attempt_directory(runs_dir, job, 1).string()));
    LOCKSTEP_TRY(script);
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
        place.train_config_file = "<attempt directory>/train.json";
    }
    place.agent_program = "<lockstep-agent>";
    place.ras_port = kSomePort;
    for (std::int32_t rank = 0; needs_endpoints(spec) && rank < place.world_size; ++rank) {
        place.endpoints.push_back("<address of rank " + std::to_string(rank) + ">:<port>");
    }
    Json out = Json::object();
    out["scheduler"] = scheduler.name();
    out["nodes"] = spec.resources.nodes;
    out["ranks"] = place.world_size;
    out["command"] = rank_command(spec, place, "lockstep-train");
    out["environment"] = Json::object();
    for (const auto& [name, value] : rank_environment(spec, place, base_environment(spec, {}))) {
        out["environment"][name] = with_port(name, value);
    }
    for (const std::string& name : spec.secrets) {
        out["environment"][name] = kMaskedValue;
    }
    if (*script) {
        out["script"] = **script;
    }
    out["warnings"] = warnings;
    out["render_hash"] = sha256_hex(dump_json(to_json(spec)) + "\n" + dump_json(out));
    return out;
}

}  // namespace lockstep
