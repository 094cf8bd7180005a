#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

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
        out.try_emplace("HOROVOD_CPU_OPERATIONS", "gloo");
        out["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = place.master_addr;
        out["HOROVOD_GLOO_RENDEZVOUS_PORT"] = std::to_string(place.master_port);
        // The job's own environment comes later than a framework's variables, and counts.
        const auto given = spec.environment.find("GLOO_SOCKET_IFNAME");
        const auto inherited = out.find("GLOO_SOCKET_IFNAME");
        if (given != spec.environment.end()) {
            out.try_emplace("HOROVOD_GLOO_IFACE", given->second);
        } else if (inherited != out.end()) {
            out.try_emplace("HOROVOD_GLOO_IFACE", inherited->second);
        }
    }
}

constexpr std::array<std::string_view, 10> kHorovodVariables{"HOROVOD_RANK",
                                                             "HOROVOD_SIZE",
                                                             "HOROVOD_LOCAL_RANK",
                                                             "HOROVOD_LOCAL_SIZE",
                                                             "HOROVOD_CROSS_RANK",
                                                             "HOROVOD_CROSS_SIZE",
                                                             "HOROVOD_HOSTNAME",
                                                             "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                                             "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                                             "HOROVOD_CONTROLLER"};
constexpr std::array<FrameworkPackage, 1> kHorovodPackages{{{"horovod", "horovod"}}};
constexpr std::array<FrameworkImport, 1> kHorovodImports{{{"horovod", 20}}};

}  // namespace

const FrameworkTraits& horovod() {
    static constexpr FrameworkTraits kTraits{
        .launches = kRankOrTask,
        .no_other_launch = "Horovod's ranks are started one by one",
        .add_rank = add_horovod,
        .variables = kHorovodVariables,
        .packages = kHorovodPackages,
        .imports = kHorovodImports,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
