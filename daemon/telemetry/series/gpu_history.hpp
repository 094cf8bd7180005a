// History of a job's GPUs. Agents look once a second (job/model/wire/gpu_batch.hpp); what is kept
// of a look goes into the telemetry log and then, as rows of EntityKind::gpu, the way of the ranks'
// rows: newest rows in memory, chunks on disk. A GPU is a node and the number of its /dev/nvidia
// file; the job gives each a number of its own, in the order in which they are first seen, and
// that is the entity.
//
// Bounded: limits::kGpusOfJob GPUs (100 bytes each), and limits::kGpuSamplesPerSecond values a
// second of one job: up to 2,600 GPUs every look is kept, of larger jobs the looks of each node
// every n-th second, evenly spread. What waits for a chunk counts against the job's open rows as a
// rank's does.
//
// GpuHistory and GpuDirectory: control thread only, but for a snapshot, which never changes.
#pragma once

#include "daemon/telemetry/series/history.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// Names by metric id of what is kept: "gpu_" and the key of job/model/wire/gpu_batch.hpp.
const std::vector<std::string>& gpu_history_metrics();

// What a chart of the metric calls worse, unless it says: low for what a GPU at work has more of.
bool gpu_low_is_worse(std::string_view metric);

// One look as the telemetry log has it: u32 magic "LSGH", u8 length, node[length], u32 uses,
// uses × (u32 rank, u32 gpu), then a batch (job/model/wire/batch.hpp) with GPUs for ranks.
struct GpuRows {
    std::string node;
    std::vector<GpuUse> uses;  // by GPU, then rank
    Batch batch;
};

// `step_of`: of a GPU with the ranks that use it, the newest step that one of them has reported in
// `generation`; -1 = none. Nothing: there is nothing in the look to keep.
using StepOf = std::function<std::int64_t(const std::vector<std::uint32_t>& ranks)>;
std::optional<GpuRows> make_gpu_rows(std::string_view node, const GpuBatch& look,
                                     std::uint32_t generation, const StepOf& step_of);
// Values that they would have.
std::size_t kept_gpu_values(const GpuBatch& look);
std::string encode_gpu_rows(const GpuRows& rows);
bool is_gpu_rows(std::string_view bytes);
// invalid: not such bytes.
Result<GpuRows> decode_gpu_rows(std::string_view bytes);

// Which GPUs a job has had.
class GpuDirectory {
  public:
    struct Gpu {
        std::uint32_t node = 0;  // index of node_names()
        std::uint32_t gpu = 0;
        std::vector<std::uint32_t> ranks;  // that had a process on it when last any had; ascending
    };
    std::size_t size() const { return gpus_.size(); }
    const Gpu& at(std::uint32_t id) const { return gpus_[id]; }
    const std::string& node_of(std::uint32_t id) const { return nodes_[gpus_[id].node]; }
    // Ascending.
    std::vector<std::uint32_t> used_by(const std::vector<std::int32_t>& ranks) const;
    std::optional<std::uint32_t> find(std::string_view node, std::uint32_t gpu) const;
    std::optional<std::uint32_t> node_index(std::string_view node) const;

    // Nothing: the job has limits::kGpusOfJob already.
    std::optional<std::uint32_t> add(std::string_view node, std::uint32_t gpu);
    void set_ranks(std::uint32_t id, std::vector<std::uint32_t> ranks) {
        gpus_[id].ranks = std::move(ranks);
    }
    // A line a node: "gpus ID:GPU:RANK+RANK,… NODE\n".
    std::string text() const;
    // Takes one of them, without its end; false: it is damaged.
    bool take_line(std::string_view line);
    std::size_t bytes() const;

  private:
    std::uint32_t node(std::string_view name);

    std::vector<std::string> nodes_;
    std::map<std::string, std::uint32_t, std::less<>> node_ids_;
    std::vector<std::vector<std::uint32_t>> of_node_;  // ids of its GPUs
    std::vector<Gpu> gpus_;
};

class GpuHistory {
  public:
    // Whether a look of this node is to be kept at `now`, seconds; it counts as kept then.
    bool take_turn(std::string_view node, double now);
    // How many rows were added.
    std::size_t add(const GpuRows& rows, std::int32_t attempt, double now, History& history);
    bool restore_line(std::string_view line) { return mutable_directory().take_line(line); }

    const GpuDirectory& directory() const { return *directory_; }
    // The same as it is now, for another thread.
    std::shared_ptr<const GpuDirectory> snapshot() const {
        shared_ = true;
        return directory_;
    }
    // Names of what any row that came here had a value of, ascending.
    std::vector<std::string> metrics() const;
    std::size_t bytes() const { return directory_->bytes() + slots_.size() * sizeof slots_[0]; }

  private:
    GpuDirectory& mutable_directory();

    std::shared_ptr<GpuDirectory> directory_ = std::make_shared<GpuDirectory>();
    mutable bool shared_ = false;      // somebody may hold it: it is copied before it changes
    std::vector<bool> seen_;           // by metric id
    std::vector<std::int64_t> slots_;  // by node: when the last look was kept, in intervals
};

}  // namespace lockstep::telemetry
