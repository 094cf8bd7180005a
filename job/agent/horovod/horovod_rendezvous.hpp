// The rendezvous of Horovod's ranks when Gloo connects them: the server that horovodrun would start
// (horovod/runner/http/http_server.py), for the clients of horovod/common/gloo/http_store.cc.
// GET, PUT and DELETE of /scope/key: 200, or 404 for what is not there yet; clients ask every 10
// ms. Written after their sources, of 0.28.1, which runs against it (tests/frameworks). Served by
// the agent of rank 0 on the port that it holds for the master; one per generation, whose keys and
// connections go with it. Like the server it stands for it asks nobody who they are, but it looks
// at where they come from (store_guard.hpp). One request a connection, which is closed with the
// answer. Agent thread only. It may be destroyed at any time; the TaskGroup must outlive it
// (one_request_server.hpp).
#pragma once

#include "job/agent/horovod/horovod_scopes.hpp"
#include "job/agent/torch_store/store_guard.hpp"
#include "job/async/one_request_server.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <memory>

namespace lockstep {

struct HorovodRendezvousCaps {
    std::size_t connections = limits::kHorovodConnections;
    std::size_t bytes = limits::kStoreBytes;  // that it holds
    std::size_t value_bytes = limits::kStoreValueBytes;
    std::size_t transit_bytes = limits::kStoreTransitBytes;  // bodies that are on their way
    std::chrono::milliseconds patience = limits::kHorovodPatience;
};

class HorovodRendezvous {
  public:
    struct Totals {
        std::size_t connections = 0;  // open
        std::size_t keys = 0;
        std::size_t bytes = 0;
        std::size_t transit = 0;     // of bodies that are on their way
        std::uint64_t requests = 0;  // answered with 200 or 404
        std::uint64_t refused = 0;
    };

    // Listens on a duplicate of `bound`, a bound socket that stays the caller's. Connections that
    // wait on it from before are closed, and whoever `guard` does not admit (nullptr: it admits
    // everybody).
    static Result<std::unique_ptr<HorovodRendezvous>> listen(
        TaskGroup& tasks, int bound, ScopeSizes sizes, HorovodRendezvousCaps caps = {},
        std::unique_ptr<StoreGuard> guard = nullptr);
    // Closes every connection.
    ~HorovodRendezvous();
    HorovodRendezvous(const HorovodRendezvous&) = delete;
    HorovodRendezvous& operator=(const HorovodRendezvous&) = delete;

    Totals totals() const;

  private:
    struct State;
    HorovodRendezvous(std::unique_ptr<State> state, std::unique_ptr<OneRequestServer> server);
    std::unique_ptr<State> state_;              // outlives the server, whose handlers use it
    std::unique_ptr<OneRequestServer> server_;  // after it
};

}  // namespace lockstep
