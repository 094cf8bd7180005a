// A Ray cluster of one rank a node (job/rank/python/lockstep/ray.py).
#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

void check_ray(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (spec.resources.ranks_per_node > 1) {
        errors.push_back({"/resources/ranks_per_node",
                          "framework ray has one rank a node: Ray itself uses all of it"});
    }
}

// Rank 0 starts the head and then the command, the others join; by the Python that has Ray.
std::vector<std::string> start_ray(const std::string& first) {
    const bool python = first.substr(first.rfind('/') + 1).starts_with("python");
    return {python ? first : "python3", "-m", "lockstep.ray", "--"};
}

constexpr std::array<FrameworkPackage, 1> kRayPackages{{{"ray", "ray"}}};
// Its driver imports what the workers train with.
constexpr std::array<FrameworkImport, 1> kRayImports{{{"ray", 10}}};

}  // namespace

const FrameworkTraits& ray() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankAlone,
        .no_other_launch = "one rank a node starts Ray there, and Ray all the rest",
        .check = check_ray,
        .before_command = start_ray,
        .own_programs = true,
        .hands_out_gpus = always,
        .packages = kRayPackages,
        .imports = kRayImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
