// How the nodes of jobs meet, over all jobs: how often and how long it takes. One per daemon;
// control thread only; the DaemonMetrics must outlive it.
#pragma once

#include "daemon/telemetry/exposition/daemon_metrics.hpp"

#include <array>
#include <cstdint>

namespace lockstep::telemetry {

enum class RendezvousResult : std::uint8_t {
    completed,  // every rank of a generation was started
    failed,     // the generation ended before that
    timed_out,  // the nodes did not all come
};
inline constexpr std::size_t kRendezvousResults = 3;

class RendezvousMetrics {
  public:
    explicit RendezvousMetrics(DaemonMetrics& metrics);

    // `seconds`: from the allocation, or from the end of the last generation, until every rank had
    // been started.
    void completed(double seconds);
    void ended(RendezvousResult result) { rounds_[static_cast<std::size_t>(result)]->Increment(); }

  private:
    prometheus::Histogram& duration_;
    std::array<prometheus::Counter*, kRendezvousResults> rounds_{};
};

}  // namespace lockstep::telemetry
