#include "job/base/text.hpp"
#include "job/model/launch/frameworks/frameworks.hpp"
#include "job/model/spec/gpu_view.hpp"

namespace lockstep::frameworks {
namespace {

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

bool jax_must_agree(const JobSpec&, std::string_view package) {
    return package == "jax" || package == "jaxlib";
}

constexpr std::array<std::string_view, 4> kJaxVariables{
    "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_COORDINATOR_BIND_ADDRESS",
    "JAX_LOCAL_DEVICE_IDS"};
constexpr std::array<FrameworkPackage, 2> kJaxPackages{{{"jax", "jax"}, {"jaxlib", "jaxlib"}}};
constexpr std::array<FrameworkImport, 1> kJaxImports{{{"jax", 100}}};

}  // namespace

const FrameworkTraits& jax() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankOrTask,
        .no_other_launch = "one JAX process per node is launch rank with ranks_per_node 1",
        .add_rank = add_jax,
        .variables = kJaxVariables,
        .packages = kJaxPackages,
        .must_agree = jax_must_agree,
        .imports = kJaxImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
