#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

constexpr std::array<std::string_view, 4> kTensorflowRoles{"chief", "worker", "ps", "evaluator"};

void add_cluster(Variables& out, const JobSpec& spec, const RankPlace& place) {
    if (needs_endpoints(spec)) {
        add_tensorflow(out, spec, place);
    }
}

bool tensorflow_needs_endpoints(const JobSpec& spec) {
    return spec.world_size() > 1 || !spec.roles.empty();
}

constexpr std::array<std::string_view, 1> kTensorflowVariables{"TF_CONFIG"};
constexpr std::array<FrameworkPackage, 2> kTensorflowPackages{
    {{"tensorflow", "tensorflow"}, {"tensorflow_cpu", "tensorflow"}}};
constexpr std::array<FrameworkImport, 1> kTensorflowImports{{{"tensorflow", 90}}};

}  // namespace

std::span<const std::string_view> tensorflow_roles(const JobSpec&) {
    return kTensorflowRoles;
}

void check_tensorflow_roles(const JobSpec& spec, std::vector<FieldError>& errors) {
    for (std::size_t i = 0; i < spec.roles.size(); ++i) {
        const RoleSpec& role = spec.roles[i];
        if ((role.name == "chief" || role.name == "evaluator") && role.count != 1) {
            errors.push_back(
                {"/roles/" + std::to_string(i) + "/count", "TensorFlow has one " + role.name});
        }
    }
    const bool chief = has_role(spec, "chief");
    const bool worker = has_role(spec, "worker");
    if (has_role(spec, "ps") && (!chief || !worker)) {
        errors.push_back({"/roles", "parameter servers of TensorFlow need a chief and a worker"});
    } else if (!chief && !worker) {
        errors.push_back({"/roles", "TensorFlow needs a chief or a worker"});
    }
}

// Servers never end by themselves, nor an evaluator; with servers the workers serve too and the
// chief drives them.
bool tensorflow_ends_job(const JobSpec& spec, const RoleSpec& role) {
    if (role.name == "ps" || role.name == "evaluator") {
        return false;
    }
    return !runs_tensorflow(spec) || !has_role(spec, "ps") || role.name == "chief";
}

void check_tensorflow(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (spec.launch == Launch::node && spec.resources.nodes > 1) {
        errors.push_back({"/launch", "with launch node " + framework_words(spec) +
                                         " is one process on one node: use launch rank"});
    }
}

// Servers keep their variables on the CPU, and the chief only drives the workers then; a worker
// takes all GPUs that it sees.
std::int32_t tensorflow_gpus_of(const JobSpec& spec, const RankRole& role) {
    if (!runs_tensorflow(spec) || !needs_endpoints(spec)) {
        return kAllGpus;
    }
    const bool none = role.name == "ps" || (role.name == "chief" && has_role(spec, "ps"));
    return none ? 0 : kEqualShareOfGpus;
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
    if (role.name == "chief" && has_role(spec, "ps")) {
        out["GRPC_FAIL_FAST"] = "use_caller";  // a worker that is lost is an error, not a wait
    }
}

const FrameworkTraits& tensorflow() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankOrNode,
        .no_other_launch = "TensorFlow knows no MPI",
        .roles = tensorflow_roles,
        .check_roles = check_tensorflow_roles,
        .ends_job = tensorflow_ends_job,
        .check = check_tensorflow,
        .needs_endpoints = tensorflow_needs_endpoints,
        .add_rank = add_cluster,
        .variables = kTensorflowVariables,
        .gpus_of = tensorflow_gpus_of,
        .masks_gpus = always,
        .hands_out_gpus = always,
        .packages = kTensorflowPackages,
        .imports = kTensorflowImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
