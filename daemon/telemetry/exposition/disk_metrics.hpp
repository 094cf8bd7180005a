// How full the file systems of lockstepd's folders are, as gauges of /metrics. Control thread only.
#pragma once

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::telemetry {

// Of one file system, as available to users other than root.
struct DiskRoom {
    std::int64_t size = 0;  // bytes
    std::int64_t free = 0;  // bytes
    std::int64_t inodes = 0;
    std::int64_t inodes_free = 0;

    // Less than a twentieth of its bytes or of its inodes is left; a file system that has no
    // number of inodes (btrfs) says 0.
    bool nearly_full() const {
        return free < size / 20 || (inodes > 0 && inodes_free < inodes / 20);
    }
};

class DiskMetrics {
  public:
    // `folders`: values of the label `folder`. The registry outlives it.
    DiskMetrics(prometheus::Registry& registry, const std::vector<std::string>& folders);
    // `index` of folders.
    void set(std::size_t index, const DiskRoom& room);

  private:
    struct Gauges {
        prometheus::Gauge& size;
        prometheus::Gauge& free;
        prometheus::Gauge& inodes;
        prometheus::Gauge& inodes_free;
    };
    std::vector<Gauges> gauges_;
};

}  // namespace lockstep::telemetry
