// The ranks of a generation as a strategy sees them: all of them, what each is for, and how some of
// them form a group of their own. Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class World {
  public:
    // Meets the ranks of a group under a name that is this group's alone; `rank` counts within it,
    // `members` are ranks of the world.
    using Connect = std::function<Result<std::unique_ptr<Communicator>>(
        const std::string& name, std::int32_t rank, const std::vector<std::int32_t>& members)>;

    // The same between GPUs; `members` are ranks of the world, and `rank` the place among them.
    using ConnectGpus = std::function<Result<std::unique_ptr<Communicator>>(
        const std::string& name, std::int32_t rank, const std::vector<std::int32_t>& members)>;

    // `all` must outlive it. `node_rank`: ranks of one node say the same number. `server`: this
    // rank is a parameter server, by its role in the job.
    World(Communicator& all, Connect connect, std::int32_t node_rank = 0, bool server = false)
        : all_(all), connect_(std::move(connect)), node_rank_(node_rank), server_(server) {}

    // This rank computes on these GPUs of those it sees, which have the numbers that CUDA gives
    // them; `connect` meets the others for the first of them, null where there are none. Without
    // GPUs (tests) it meets them for buffers in host memory.
    void use_gpus(std::vector<std::int32_t> gpus, ConnectGpus connect) {
        gpus_ = std::move(gpus);
        connect_gpu_ = std::move(connect);
    }

    Communicator& all() const { return all_; }
    // The first; −1: it computes on the CPU.
    std::int32_t gpu() const { return gpus_.empty() ? -1 : gpus_.front(); }
    const std::vector<std::int32_t>& gpus() const { return gpus_; }
    std::int32_t rank() const { return all_.rank(); }
    std::int32_t size() const { return all_.size(); }
    std::int32_t node_rank() const { return node_rank_; }
    bool server() const { return server_; }

    // What every rank says, in the order of the ranks. All ranks call it.
    Result<std::vector<std::int64_t>> gather(std::int64_t mine) const;
    // The communicator of `members` (ranks of the world, this one among them) in that order. All
    // members call it with the same list.
    Result<std::unique_ptr<Communicator>> group(const std::string& name,
                                                const std::vector<std::int32_t>& members) const;
    bool meets_on_gpus() const { return connect_gpu_ != nullptr; }
    // The same for buffers on their GPUs.
    Result<std::unique_ptr<Communicator>> gpu_group(const std::string& name,
                                                    const std::vector<std::int32_t>& members) const;
    // Of all ranks.
    Result<std::unique_ptr<Communicator>> gpu_group(const std::string& name) const;

  private:
    std::int32_t place_in(const std::vector<std::int32_t>& members) const;

    Communicator& all_;
    Connect connect_;
    std::int32_t node_rank_;
    bool server_;
    std::vector<std::int32_t> gpus_;
    ConnectGpus connect_gpu_;
};

}  // namespace lockstep
