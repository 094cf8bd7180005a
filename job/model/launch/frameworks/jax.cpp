#include "job/base/text.hpp"
#include "job/model/launch/frameworks/frameworks.hpp"
#include "job/model/spec/gpu_view.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep::frameworks {
namespace {

// Of the GPUs that the ranks of a node see, where they see the same ones; 0: it is not known. The
// job's own CUDA_VISIBLE_DEVICES comes later than a framework's variables, and counts.
std::int32_t gpus_seen(const Variables& out, const JobSpec& spec, std::int32_t local_world_size) {
    const auto given = spec.environment.find("CUDA_VISIBLE_DEVICES");
    const auto inherited = out.find("CUDA_VISIBLE_DEVICES");
    if (given == spec.environment.end() && inherited == out.end()) {
        return spec.resources.gpus_per_node;
    }
    const std::string& names = given != spec.environment.end() ? given->second : inherited->second;
    const auto count =
        names.empty() ? 0
                      : static_cast<std::int32_t>(std::count(names.begin(), names.end(), ',')) + 1;
    // Of another number each of several ranks may have been given its own.
    return count == spec.resources.gpus_per_node || local_world_size == 1 ? count : 0;
}

std::string device_ids(std::int32_t first, std::int32_t count) {
    std::vector<std::string> out;
    for (std::int32_t i = first; i < first + count; ++i) {
        out.push_back(std::to_string(i));
    }
    return comma_joined(out);
}

// jax/_src/distributed.py. There is no variable for a process's number: JAX takes it from Slurm's,
// of which it wants these five. Outside Slurm they are made for it.
void add_jax(Variables& out, const JobSpec& spec, const RankPlace& place) {
    out["JAX_COORDINATOR_ADDRESS"] = master(place);
    out["JAX_COORDINATOR_PORT"] = std::to_string(place.master_port);
    add_jax_devices(out, spec, place);
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

void add_jax_devices(Variables& out, const JobSpec& spec, const RankPlace& place) {
    std::int32_t first = 0;
    std::int32_t count = 0;
    if (const auto slice = gpu_slice(spec, place.rank)) {
        count = std::max(slice->count, 1);  // they count within what is visible
    } else if (spec.resources.ranks_per_gpu > 1) {
        first = device_of_rank(spec, place.local_rank);
        count = 1;
    } else if (spec.resources.gpus_per_node > 0 && place.local_world_size > 0) {
        count = gpus_seen(out, spec, place.local_world_size) / place.local_world_size;
        first = place.local_rank * count;
    }
    if (count > 0) {
        out["JAX_LOCAL_DEVICE_IDS"] = device_ids(first, count);
    }
}

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
