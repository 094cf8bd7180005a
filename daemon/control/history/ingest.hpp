// Telemetry on its way in: batches of all agents are logged together (one fsync for many, one row
// per job, packed on a thread of its own), then put into the series, then acknowledged. Bounded:
// what does not fit is refused, and the agent, which still has it, sends it again after the next
// connect. Looks at GPUs take the same way, but for the acknowledgement. Control thread only.
#pragma once

#include "daemon/control/actor/agent_link.hpp"
#include "daemon/control/base/context.hpp"
#include "job/model/wire/batch.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

class Ingest {
  public:
    // `on_job`: once per job whose series have new rows, after each commit.
    Ingest(ControlContext& context, std::function<void(JobActor&)> on_job);

    void add(std::shared_ptr<AgentLink> link, Batch batch, std::string bytes);
    // What a look at a node's GPUs leaves for history, if it is its turn. Nobody waits for it or
    // sends it again: it is left out when half of the room for telemetry is taken.
    void add(std::shared_ptr<AgentLink> link, const GpuBatch& look);
    // Until every batch that was added before the call has been stored; later ones do not delay it.
    Task<void> flush();
    void stop();

  private:
    struct Item {
        std::shared_ptr<AgentLink> link;
        std::variant<Batch, telemetry::GpuRows> what;
        std::string bytes;

        std::uint32_t node_rank() const {
            const Batch* batch = std::get_if<Batch>(&what);
            return batch != nullptr ? batch->node_rank
                                    : std::get<telemetry::GpuRows>(what).batch.node_rank;
        }
    };
    void enqueue(Item item);
    Task<void> run();
    // One row a job, by job; the rows' ids in that order.
    Task<Result<std::vector<std::int64_t>>> store(
        std::shared_ptr<const std::map<std::string, std::string>> logs);
    void take(const std::vector<Item>& items, const std::map<std::string, std::int64_t>& logged);
    void take(AgentLink& link, const Batch& batch, telemetry::JobSeries& series, double now);

    ControlContext& context_;
    std::function<void(JobActor&)> on_job_;
    net::thread_pool packing_{1};  // a flush of thousands of nodes takes zstd 50 ms and more
    std::vector<Item> items_;
    std::size_t bytes_ = 0;
    std::uint64_t added_ = 0;   // items ever
    std::uint64_t stored_ = 0;  // of those, stored
    bool running_ = false;
    bool stopping_ = false;
    net::steady_timer idle_;
    net::steady_timer retry_;
};

}  // namespace lockstep
