// Keras, on TensorFlow, JAX or torch.
#include "job/base/text.hpp"
#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

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

void add_keras(Variables& out, const JobSpec& spec, const RankPlace& place) {
    if (!needs_endpoints(spec)) {
        return;
    }
    if (runs_tensorflow(spec)) {
        add_tensorflow(out, spec, place);
    }
    if (keras_backend(spec) == "jax" || !names_keras_backend(spec)) {
        add_keras_jax(out, place);
        add_jax_devices(out, spec, place);
    }
}

bool keras_needs_endpoints(const JobSpec& spec) {
    return (spec.world_size() > 1 || !spec.roles.empty()) && keras_backend(spec) != "torch";
}

constexpr std::array<std::string_view, 1> kKerasWorkers{"worker"};
std::span<const std::string_view> keras_roles(const JobSpec& spec) {
    return runs_tensorflow(spec) ? tensorflow_roles(spec) : kKerasWorkers;
}

void check_keras_roles(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (runs_tensorflow(spec)) {
        check_tensorflow_roles(spec, errors);
    }
}

void check_keras(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (runs_tensorflow(spec)) {
        check_tensorflow(spec, errors);
    }
}

bool keras_must_agree(const JobSpec& spec, std::string_view package) {
    const std::string_view backend = keras_backend(spec);
    return package == "keras" || package == backend || (package == "jaxlib" && backend == "jax");
}

constexpr std::array<std::string_view, 1> kKerasVariables{"KERAS_DISTRIBUTION_*"};
constexpr std::array<FrameworkPackage, 1> kKerasPackages{{{"keras", "keras"}}};
constexpr std::array<FrameworkImport, 1> kKerasImports{{{"keras", 80}}};

}  // namespace

const FrameworkTraits& keras() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankOrNode,
        .no_other_launch = "Keras knows no MPI",
        .variant = keras_backend,
        .roles = keras_roles,
        .check_roles = check_keras_roles,
        .ends_job = tensorflow_ends_job,
        .check = check_keras,
        .needs_endpoints = keras_needs_endpoints,
        .add_rank = add_keras,
        .variables = kKerasVariables,
        .may_run_torch = true,
        .gpus_of = tensorflow_gpus_of,
        .masks_gpus = runs_tensorflow,
        .hands_out_gpus = runs_tensorflow,
        .packages = kKerasPackages,
        .must_agree = keras_must_agree,
        .imports = kKerasImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
