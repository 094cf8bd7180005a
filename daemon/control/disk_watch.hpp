// Looks how full the file systems of lockstepd's folders are, for /metrics and, once, for a warning
// in the log: a store that finds no room ends the daemon, and logs and checkpoints of every job
// share the one that holds the runs. Asked every half minute on threads of its own, because a file
// system that hangs would hang whoever asks. Control thread only.
#pragma once

#include "daemon/telemetry/exposition/disk_metrics.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// Blocking. An error: the folder is not there or cannot be asked.
Result<telemetry::DiskRoom> disk_room(const std::filesystem::path& folder);

class DiskWatch {
  public:
    // The metrics are of these folders, in this order, and outlive it.
    DiskWatch(net::io_context& io, telemetry::DiskMetrics& metrics,
              const std::vector<std::filesystem::path>& folders);

    // Asks now and then every `period`, until halt().
    Task<void> watch(std::chrono::milliseconds period = std::chrono::seconds{30});
    void halt();

  private:
    struct Watched {
        std::filesystem::path folder;
        bool told = false;    // that it is nearly full
        std::string problem;  // why it cannot be asked; "" = it can
    };
    void note(std::size_t index, const telemetry::DiskRoom& room);

    telemetry::DiskMetrics& metrics_;
    std::vector<Watched> watched_;
    SideThread asking_;
    net::steady_timer timer_;
    bool ending_ = false;
};

}  // namespace lockstep
