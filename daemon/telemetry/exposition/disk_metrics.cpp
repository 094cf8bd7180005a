#include "daemon/telemetry/exposition/disk_metrics.hpp"

namespace lockstep::telemetry {
namespace {

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help,
                         const std::string& folder) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(
        {{"folder", folder}});
}

}  // namespace

DiskMetrics::DiskMetrics(prometheus::Registry& registry, const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
        gauges_.push_back(
            {gauge(registry, "lockstep_disk_size_bytes",
                   "Size of the file system that holds the folder.", folder),
             gauge(registry, "lockstep_disk_free_bytes",
                   "What of it lockstepd's user may still write.", folder),
             gauge(registry, "lockstep_disk_inodes",
                   "Files that it can hold; 0: as many as there is room for.", folder),
             gauge(registry, "lockstep_disk_inodes_free",
                   "Files that lockstepd's user may still make on it.", folder)});
    }
}

void DiskMetrics::set(std::size_t index, const DiskRoom& room) {
    const Gauges& one = gauges_.at(index);
    one.size.Set(static_cast<double>(room.size));
    one.free.Set(static_cast<double>(room.free));
    one.inodes.Set(static_cast<double>(room.inodes));
    one.inodes_free.Set(static_cast<double>(room.inodes_free));
}

}  // namespace lockstep::telemetry
