// A Gloo context that tells every wait when the rank it waits for is gone.
//
// Gloo's TCP transport fails the operations that are queued on a connection when the connection
// ends, but not the one whose message is half written or half read at that moment (Pair::
// signalException looks at neither rx_ nor the unbound buffers of tx_, in 2022 and in 2026): its
// caller waits for the whole timeout for a process that was killed. Here every wait knows its rank,
// and one whose rank is lost is ended.
#pragma once

#include <gloo/rendezvous/context.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace lockstep {

class WatchedGloo final : public gloo::rendezvous::Context {
  public:
    using gloo::rendezvous::Context::Context;
    ~WatchedGloo() override;

    // What a rank is called in errors. Any thread.
    using Name = std::function<std::int32_t(std::int32_t rank)>;

    // Once, after connectFullMesh and before anything is sent. `patience`: of a wait that is given
    // no timeout of its own; it counts time in which this process ran (running_time.hpp). A thread
    // watches the connections until this object ends. Throws what Gloo throws.
    void watch(std::chrono::milliseconds patience, Name name);
    // The connection to it has ended, as the watch has seen. Any thread, after watch().
    bool is_lost(int other) const;

  private:
    class Watch;
    std::shared_ptr<Watch> watch_;
    std::thread thread_;
};

}  // namespace lockstep
