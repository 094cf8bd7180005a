// A TCPStore that torch's clients speak to (dialects: tcp_store_wire.hpp), served by the agent of
// rank 0 in place of rank 0, on the port that the agent holds. One per generation: its keys and its
// connections go with it. It outlives its ranks, so that what they leave in it when they fail (the
// signal to dump the flight recorder) reaches the others.
// Agent thread only. Its coroutine shares the state, so the object may be destroyed at any time;
// the TaskGroup must outlive the coroutine.
#pragma once

#include "job/agent/torch_store/store_guard.hpp"
#include "job/agent/torch_store/tcp_store_state.hpp"
#include "job/async/task_group.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <memory>

namespace lockstep {

class TcpStore {
  public:
    struct Totals {
        std::size_t connections = 0;  // open
        std::size_t keys = 0;
        std::size_t bytes = 0;    // that the store holds
        std::size_t transit = 0;  // of queries half received and replies not sent
        std::uint64_t queries = 0;
        std::uint64_t refused = 0;  // connections closed for what they are or sent, or at a cap
    };

    // Listens on a duplicate of `bound`, a bound socket that stays the caller's: the port is held
    // before, while and after it is served. Connections that wait on it from before are closed.
    // Whoever `guard` does not admit is closed, too; nullptr: it admits everybody.
    static Result<std::unique_ptr<TcpStore>> listen(TaskGroup& tasks, int bound,
                                                    TcpStoreCaps caps = {},
                                                    std::unique_ptr<StoreGuard> guard = nullptr);
    // Closes every connection.
    ~TcpStore();
    TcpStore(const TcpStore&) = delete;
    TcpStore& operator=(const TcpStore&) = delete;

    Totals totals() const;

  private:
    struct Server;
    explicit TcpStore(std::shared_ptr<Server> server) : server_(std::move(server)) {}
    std::shared_ptr<Server> server_;
};

}  // namespace lockstep
