// The standard process_* metrics of this process, read from /proc when asked.
// Names: https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
// Blocking reads of a few kilobytes of procfs; any thread.
#pragma once

#include "daemon/telemetry/exposition/metric_text.hpp"

#include <cstdint>
#include <optional>

namespace lockstep::telemetry {

// What could not be read is absent.
struct ProcessUse {
    std::optional<double> cpu_seconds;
    std::optional<double> start_time;  // seconds since the Unix epoch
    std::optional<std::uint64_t> resident_bytes;
    std::optional<std::uint64_t> virtual_bytes;
    std::optional<std::uint64_t> open_descriptors;
    std::optional<std::uint64_t> max_descriptors;
    std::optional<std::uint64_t> threads;
};

ProcessUse read_process_use();
void write_process_metrics(MetricText& text, const ProcessUse& use);

}  // namespace lockstep::telemetry
