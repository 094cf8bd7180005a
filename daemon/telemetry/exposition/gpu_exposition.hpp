// The GPUs' part of /metrics, {node,gpu}, rendered straight from the newest looks. Names:
// README.md beside this file. Up to limits::kGpusShownInFull GPUs are shown with all they have,
// more of them with the slim profile, and of more than limits::kGpusShown none; what was left out
// is counted. Pure; control thread only.
#pragma once

#include "daemon/telemetry/exposition/gpu_owners.hpp"
#include "daemon/telemetry/exposition/gpu_table.hpp"
#include "daemon/telemetry/exposition/metric_text.hpp"
#include "daemon/telemetry/exposition/shard.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// Of the rows in gpu_exposition.cpp, those of the slim profile.
inline constexpr std::size_t kSlimGpuMetrics = 19;

// Which GPUs a body shows; borrowed from the table until its next take().
struct ShownGpus {
    struct One {
        std::size_t labels_end = 0;  // in `labels`, where it begins at the end of the one before
        const GpuSample* sample = nullptr;
    };
    struct Xid {
        std::string labels;  // … and xid="…"
        double time = 0;
    };
    std::vector<One> gpus;
    std::string labels;  // node="…",gpu="…" of all of them: twenty families walk over it
    std::vector<Xid> xids;
    bool slim = false;
    std::size_t suppressed = 0;  // series that are left out

    // A little more than what write_gpus() writes, bytes.
    std::size_t expected_size() const;
};

// Of all jobs, or of those that `jobs` holds for.
ShownGpus shown_gpus(const GpuTable& table, double now, const JobFilter& jobs = {});
// Those of one job, or a part of them; `suppressed` counts for the whole job, in part 0 only. A GPU
// that several jobs see is shown with one of them (gpu_owners.hpp).
ShownGpus job_gpus(const GpuTable& table, double now, std::string_view job, Shard shard);
void write_gpus(MetricText& text, const ShownGpus& shown);

}  // namespace lockstep::telemetry
