// The agent's connection to the daemon: dials, says HELLO, hands messages to the node and sends
// what its outbox holds; when the connection is lost it dials again with jitter while the ranks go
// on. Agent thread only; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/node/node.hpp"
#include "job/async/task_group.hpp"
#include "job/async/ws_client.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>

namespace lockstep {

// How long an agent waits before it dials for the first time: Slurm starts all of a large job's
// agents at one moment, and what does not fit the daemon's queue of connections is sent again by
// the kernel only after a second. 16,384 nodes a second; up to 512 nodes nothing.
std::chrono::milliseconds first_connect_delay(std::int32_t node_rank, std::int32_t nodes);

class Session {
  public:
    struct Timing {
        std::chrono::milliseconds first_retry{50};
        std::chrono::milliseconds last_retry{2'000};
        std::chrono::milliseconds connect{5'000};
        // A daemon that is starting may not know the ticket yet: 401 is believed only after this.
        std::chrono::milliseconds denied{5'000};
        // With live ranks a 401 is believed later: it may be another daemon that has taken the
        // port.
        std::chrono::milliseconds denied_running{60'000};
        // Without a daemon, and without ranks that run: so long it has what was not acknowledged.
        std::chrono::milliseconds orphan = limits::kOrphanPatience;
        std::chrono::milliseconds first_connect{0};  // before the first dial
    };

    // `attempt_file` is read again before every connect: the daemon may have moved.
    Session(TaskGroup& tasks, Node& node, std::filesystem::path attempt_file, Timing timing);

    Task<void> run();
    // The outbox has something.
    void wake();
    // Ends run(). Idempotent.
    void stop();

  private:
    Task<Status> connect_once();
    Task<Status> greet();
    Task<void> send_loop();
    std::chrono::milliseconds next_delay();

    TaskGroup sender_;
    Node& node_;
    std::filesystem::path attempt_file_;
    Timing timing_;
    WsClient client_;
    net::steady_timer wake_timer_;
    net::steady_timer retry_timer_;
    std::minstd_rand random_{std::random_device{}()};
    std::chrono::milliseconds delay_;
    // The connection, or the last try to have one while ranks ran.
    std::chrono::steady_clock::time_point lost_at_;
    std::optional<std::chrono::steady_clock::time_point> denied_since_;
    bool connected_ = false;
    bool sending_ = false;
    bool stopped_ = false;
    bool drained_ = false;  // the daemon has said that it goes
};

}  // namespace lockstep
