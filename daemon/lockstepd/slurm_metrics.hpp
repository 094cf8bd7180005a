// What lockstepd tells about its dealings with Slurm: lockstep_slurm_*. Counting is safe on any
// thread; refresh() and follow() on the control thread. The telemetry::DaemonMetrics it registers
// with must outlive it. Without follow() there are no such series: only a daemon that uses Slurm
// has them.
#pragma once

#include "daemon/telemetry/exposition/daemon_metrics.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Counted since the start, or as it is now.
struct SlurmValues {
    std::uint64_t submitted = 0;
    std::uint64_t refused = 0;
    std::uint64_t unclear = 0;
    std::uint64_t adopted = 0;
    std::uint64_t forgotten = 0;
    std::uint64_t surplus = 0;
    std::uint64_t malformed_rows = 0;
    std::uint64_t attempts = 0;
    std::uint64_t sending = 0;
    std::uint64_t leftovers = 0;
    std::uint64_t leftovers_cancelled = 0;
    bool reachable = false;
    double last_success = 0;                                 // Unix seconds; 0 = not yet
    std::map<std::string, std::uint64_t> pending_reasons{};  // jobs that wait, by Slurm's word
    // Jobs that Slurm has and has not ended, by partition and Slurm's word for the state.
    std::map<std::pair<std::string, std::string>, std::uint64_t> jobs{};
};

class SlurmMetrics {
  public:
    explicit SlurmMetrics(telemetry::DaemonMetrics& metrics) : metrics_(metrics) {}

    // One of Slurm's programs was run. Before follow() it counts nothing.
    void called(std::string_view program, bool good, double seconds);
    // Slurm has started a job that it had let wait so long. Before follow() it counts nothing.
    void waited(const std::string& partition, double seconds);
    void follow(std::function<SlurmValues()> source);
    // Takes the values over; before each scrape, or often enough.
    void refresh();

  private:
    struct Families;
    telemetry::DaemonMetrics& metrics_;
    std::function<SlurmValues()> source_;
    std::shared_ptr<Families> families_;
    SlurmValues last_;
};

}  // namespace lockstep
