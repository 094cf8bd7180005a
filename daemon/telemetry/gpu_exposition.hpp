// The GPUs' part of /metrics, {node,gpu}, rendered straight from the newest looks. Names:
// README.md beside this file. Up to limits::kGpusShownInFull GPUs are shown with all they have,
// more of them with the slim profile, and of more than limits::kGpusShown none; what was left out
// is counted. Pure; control thread only.
#pragma once

#include "daemon/telemetry/gpu_table.hpp"
#include "daemon/telemetry/metric_text.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::telemetry {

// Which GPUs a body shows; borrowed from the table until its next take().
struct ShownGpus {
    struct One {
        std::string labels;  // node="…",gpu="…"
        const GpuSample* sample = nullptr;
    };
    struct Xid {
        std::string labels;  // … and xid="…"
        double time = 0;
    };
    std::vector<One> gpus;
    std::vector<Xid> xids;
    bool slim = false;
    std::size_t suppressed = 0;  // series that are left out
};

ShownGpus shown_gpus(const GpuTable& table, double now);
void write_gpus(MetricText& text, const ShownGpus& shown);

}  // namespace lockstep::telemetry
