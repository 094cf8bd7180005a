#include "job/agent/ranks/telemetry_buffer.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/nccl_bandwidth.hpp"

#include <utility>

namespace lockstep {

bool TelemetryBuffer::full() const {
    return open_.rows() >= limits::kBatchRows;
}

bool TelemetryBuffer::add(std::int32_t rank, const RankReport& report) {
    if (full()) {
        return false;
    }
    open_.add_row(static_cast<std::uint32_t>(rank), report.step, report.time);
    for (const auto& [name, value] : report.metrics) {
        if (names_.count(name) == 0 && !nccl_bandwidth_named(name)) {  // these have their own room
            if (names_.size() >= limits::kMetricsPerJob) {
                if (refused_values_++ == 0) {
                    log::warn("metric left out, the job has too many names",
                              {{"rank", rank}, {"metric", name}});
                }
                continue;
            }
            names_.insert(name);
        }
        open_.set(name, value);
    }
    return true;
}

std::optional<Batch> TelemetryBuffer::take() {
    if (empty()) {
        return std::nullopt;
    }
    Batch next;
    next.generation = open_.generation;
    next.node_rank = open_.node_rank;
    Batch out = std::exchange(open_, std::move(next));
    out.seq = next_seq_++;
    return out;
}

}  // namespace lockstep
