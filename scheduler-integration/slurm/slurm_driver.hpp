// What both drivers of Slurm say alike of it: its name, the files and logs that it leaves in an
// attempt's directory, and what other exporters call its jobs.
#pragma once

#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_logs.hpp"

#include <filesystem>
#include <optional>
#include <string_view>

namespace lockstep {

class SlurmDriver : public Scheduler {
  public:
    std::string_view title() const override { return "Slurm"; }
    // `scontrol update TimeLimit=` moves it, OverTimeLimit adds to it, suspended time is not
    // counted.
    bool keeps_time_limit() const override { return true; }
    std::string_view batch_file() const override { return slurm::kBatchFileName; }
    std::string_view allocation_variable() const override { return "SLURM_JOB_ID"; }
    std::optional<ClusterLabel> cluster_label(std::string_view id) const override {
        // Not "local-ls-…", of an attempt of another scheduler that this daemon had before.
        if (id.empty() || id.find_first_not_of("0123456789") != std::string_view::npos) {
            return std::nullopt;
        }
        return ClusterLabel{"slurm_job_id", id};
    }
    std::optional<MemoryEvidence> memory_evidence(const std::filesystem::path& directory,
                                                  std::int32_t nodes) const override {
        return slurm::find_memory_evidence(directory, nodes);
    }
    std::string launch_words(const std::filesystem::path& directory,
                             std::int32_t node_rank) const override {
        return slurm::find_launch_words(directory, node_rank);
    }
};

}  // namespace lockstep
