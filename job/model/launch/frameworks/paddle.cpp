#include "job/base/text.hpp"
#include "job/model/launch/frameworks/frameworks.hpp"
#include "job/model/spec/gpu_view.hpp"

#include <cstdint>

namespace lockstep::frameworks {
namespace {

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
        out.try_emplace("PADDLE_DISTRI_BACKEND", "gloo");
    }
}

// Servers have no GPUs, so a node's workers count without them.
std::int32_t worker_of_node(const JobSpec& spec, const RankPlace& place) {
    std::int32_t out = 0;
    for (std::int32_t rank = place.rank - place.local_rank; rank < place.rank; ++rank) {
        out += spec.role_of(rank).name == "ps" ? 0 : 1;
    }
    return out;
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
                gpu_slice(spec, place.rank)
                    ? "0"
                    : std::to_string(device_of_rank(spec, worker_of_node(spec, place)));
        }
    }
    // The launcher's own defaults: gloo, if the script turns it on, meets over HTTP.
    out.try_emplace("PADDLE_WITH_GLOO", "0");
    out.try_emplace("PADDLE_GLOO_RENDEZVOUS", "3");
    out["PADDLE_GLOO_HTTP_ENDPOINT"] = master(place);
}

void add_paddle(Variables& out, const JobSpec& spec, const RankPlace& place) {
    has_role(spec, "ps") ? add_paddle_servers(out, spec, place)
                         : add_paddle_collective(out, spec, place);
}

std::span<const std::string_view> paddle_roles(const JobSpec&) {
    return kWorkersAndServers;
}

void check_paddle_roles(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (!has_role(spec, "worker")) {
        errors.push_back({"/roles", "paddle needs at least one worker"});
    }
}

std::int32_t paddle_gpus_of(const JobSpec&, const RankRole& role) {
    return role.name == "ps" ? 0 : kAllGpus;
}

constexpr std::array<std::string_view, 16> kPaddleVariables{"PADDLE_TRAINER*",
                                                            "PADDLE_GLOBAL_*",
                                                            "PADDLE_LOCAL_*",
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
                                                            "PADDLE_GLOO_HTTP_ENDPOINT"};
constexpr std::array<FrameworkPackage, 2> kPaddlePackages{
    {{"paddlepaddle", "paddle"}, {"paddlepaddle_gpu", "paddle"}}};
constexpr std::array<FrameworkImport, 1> kPaddleImports{{{"paddle", 70}}};

}  // namespace

const FrameworkTraits& paddle() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankOrNode,
        .no_other_launch = "Paddle knows no MPI",
        .roles = paddle_roles,
        .check_roles = check_paddle_roles,
        .needs_endpoints = always,
        .add_rank = add_paddle,
        .variables = kPaddleVariables,
        .gpus_of = paddle_gpus_of,
        .masks_gpus = always,
        .packages = kPaddlePackages,
        .imports = kPaddleImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
