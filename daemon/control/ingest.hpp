// Telemetry on its way in: batches of all agents are logged together (one fsync for many, one row
// per job, packed on a thread of its own), then put into the series, then acknowledged. Bounded:
// what does not fit is refused, and the agent, which still has it, sends it again after the next
// connect. Control thread only.
#pragma once

#include "daemon/control/agent_link.hpp"
#include "daemon/control/context.hpp"
#include "job/model/batch.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Ingest {
  public:
    // `on_job`: once per job whose series have new rows, after each commit.
    Ingest(ControlContext& context, std::function<void(JobActor&)> on_job);

    void add(std::shared_ptr<AgentLink> link, Batch batch, std::string bytes);
    // Until every batch that was added before the call has been stored; later ones do not delay it.
    Task<void> flush();
    void stop();

  private:
    struct Item {
        std::shared_ptr<AgentLink> link;
        Batch batch;
        std::string bytes;
    };
    Task<void> run();
    // One row a job, by job; the rows' ids in that order.
    Task<Result<std::vector<std::int64_t>>> store(
        std::shared_ptr<const std::map<std::string, std::string>> logs);
    void take(const std::vector<Item>& items, const std::map<std::string, std::int64_t>& logged);

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
