// Which GPUs are shown with a job, or with some jobs. Two jobs on a node see the same GPUs, and
// each GPU is shown with one of them: the oldest that has a process on it, else the oldest. Borrows
// from the table until its next take(); control thread only.
#pragma once

#include "daemon/telemetry/exposition/gpu_table.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lockstep::telemetry {

using GpuPlace = std::pair<std::string_view, std::uint32_t>;  // node, GPU
using JobFilter = std::function<bool(std::string_view job)>;

class GpuOwners {
  public:
    // Of the jobs that `ours` holds for.
    GpuOwners(const GpuTable& table, double now, const JobFilter& ours);
    // Whether one of the jobs looks at the node.
    bool has_node(std::string_view node) const { return nodes_.contains(node); }
    // The node's number in its job; nothing: the GPU is not shown with any of them.
    std::optional<std::size_t> slot_of(std::string_view node, std::uint32_t gpu) const;

  private:
    struct Node {
        std::size_t slot = 0;
        bool shared = false;  // more than one look is of it
    };
    void share_out(const GpuTable& table, double now, const JobFilter& ours);

    std::unordered_map<std::string_view, Node> nodes_;
    std::map<GpuPlace, std::size_t> shared_;  // the job's GPUs of shared nodes
};

}  // namespace lockstep::telemetry
