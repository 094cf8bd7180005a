// NCCL's Inspector plugin in the ranks of a node: where it is, what the ranks are told of it, and
// what it then posts of them (otlp_receiver.hpp, inspector_metrics.hpp): rows of telemetry, one a
// rank each limits::kInspectorRow at the most, and the newest values for the evidence of a hang.
// Agent thread only; one object serves all generations, and must outlive the TaskGroup's
// coroutines.
#pragma once

#include "job/agent/nccl/inspector_metrics.hpp"
#include "job/agent/nccl/inspector_table.hpp"
#include "job/agent/nccl/otlp_receiver.hpp"
#include "job/agent/ranks/rank_message.hpp"
#include "job/async/task_group.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/spec.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr const char* kInspectorFile = "libnccl-profiler-inspector.so";

// The plugin that ranks of this job would load; "": none, or nobody wants it. The job's variable
// kNcclInspector (own_variables.hpp) goes before the agent's, then the file in `beside` (Lockstep's
// own libraries), then in the folders of LD_LIBRARY_PATH. Without GPUs only where the job names it.
// `problem`: why the one that was named cannot be used, in words for the job's user. Reads the
// file; blocks.
std::string find_inspector(const JobSpec& spec, const std::map<std::string, std::string>& inherited,
                           const std::filesystem::path& beside, std::string& problem);

class InspectorWatch {
  public:
    struct Handlers {
        std::function<void(std::int32_t rank, const RankReport& row)> seen;
        // Something the job's user should know.
        std::function<void(std::string message)> warn;
    };
    using Clock = std::function<std::chrono::steady_clock::time_point()>;

    InspectorWatch(
        TaskGroup& tasks, Handlers handlers,
        Clock clock = [] { return std::chrono::steady_clock::now(); });

    // Of a generation: its ranks on this node. `plugin`: "" = none.
    void expect(const std::string& plugin, std::int32_t first_rank, std::int32_t local_ranks);
    // What a rank is told; the same in every generation.
    NcclInspector place_of(std::int32_t local_rank) const;
    // What is posted of these ranks from now on is kept for end_table(); of others no more.
    // False: no Inspector is used.
    bool begin_tables(const std::vector<std::int32_t>& ranks);
    // What has come of the rank since, for people; "" if nothing has. Nothing: it was not begun, or
    // no Inspector is used.
    std::optional<std::string> end_table(std::int32_t rank);
    // Nothing is taken any more: the agent is about to end.
    void stop() { receiver_.reset(); }
    // The newest values of a rank, for people; "" if there are none.
    std::string words_of(std::int32_t rank) const;

  private:
    struct Rank {
        std::string token;
        std::array<std::optional<InspectorValue>, kNcclBandwidths> newest;
        std::array<std::chrono::steady_clock::time_point, kNcclBandwidths> at{};
        std::array<bool, kNcclBandwidths> waiting{};  // for the next row
        std::optional<std::chrono::steady_clock::time_point> row_at;
        std::optional<InspectorTable> table;  // while it is wanted
        std::chrono::steady_clock::time_point table_began{};
    };
    Rank* of_rank(std::int32_t rank);
    std::optional<std::int32_t> who(std::string_view token) const;
    bool take(std::int32_t local_rank, const std::string& body);

    TaskGroup& tasks_;
    Handlers handlers_;
    Clock clock_;
    std::string plugin_;
    std::int32_t first_rank_ = 0;
    std::vector<Rank> ranks_;  // by local rank
    bool tried_ = false;       // to listen
    bool left_out_told_ = false;
    std::unique_ptr<OtlpReceiver> receiver_;
};

}  // namespace lockstep
