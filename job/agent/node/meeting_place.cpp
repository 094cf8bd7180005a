#include "job/agent/node/meeting_place.hpp"

#include "job/agent/torch_store/store_guard.hpp"
#include "job/base/machine.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::int32_t node_count(const wire::World& world) {
    return std::max(world.nodes, static_cast<std::int32_t>(world.hosts.size()));
}

// The port was bound on every address before the nodes had found each other, and frameworks that
// serve on it themselves want all of them: so it is each connection that is looked at.
std::unique_ptr<StoreGuard> guard_of(const wire::World& world, const std::string& own_address,
                                     std::function<void(std::string)> refused) {
    StoreGuard::Options options;
    options.own = own_addresses();
    options.own.push_back(own_address);
    options.nodes = world.admitted;
    options.nodes_known = node_count(world) <= 1 || !options.nodes.empty();
    options.tell = std::move(refused);
    return std::make_unique<StoreGuard>(std::move(options));
}

}  // namespace

Result<MeetingPlace> MeetingPlace::open(TaskGroup& tasks, const wire::World& world,
                                        const std::map<std::string, std::string>& environment,
                                        const HeldPort* master, const std::string& own_address,
                                        std::function<void(std::string)> refused) {
    MeetingPlace out;
    const auto told = [&environment](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string{} : found->second;
    };
    const bool torch = told("TORCHELASTIC_USE_AGENT_STORE") == "True";
    const bool horovod = told("HOROVOD_GLOO_RENDEZVOUS_ADDR") == world.master_address &&
                         told("HOROVOD_GLOO_RENDEZVOUS_PORT") == std::to_string(world.master_port);
    if (!torch && !horovod) {
        return out;
    }
    if (master == nullptr || !master->held() || master->number() != world.master_port) {
        return fail(Errc::conflict, "the master port of this generation is not held: " +
                                        std::to_string(world.master_port));
    }
    auto guard = guard_of(world, own_address, std::move(refused));
    if (!torch) {
        const ScopeSizes sizes{world.world_size, world.local_ranks, node_count(world)};
        HorovodRendezvousCaps caps;
        caps.bytes = store_bytes(world.world_size);
        caps.transit_bytes = caps.bytes;  // one of the largest values of each rank
        auto rendezvous =
            HorovodRendezvous::listen(tasks, master->fd(), sizes, caps, std::move(guard));
        LOCKSTEP_TRY(rendezvous);
        out.rendezvous_ = std::move(*rendezvous);
        return out;
    }
    auto store =
        TcpStore::listen(tasks, master->fd(), store_caps(world.world_size), std::move(guard));
    LOCKSTEP_TRY(store);
    out.store_ = std::move(*store);
    return out;
}

}  // namespace lockstep
