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
    // Meets `size` ranks under a name that is this group's alone; `rank` counts within it.
    using Connect = std::function<Result<std::unique_ptr<Communicator>>(
        const std::string& name, std::int32_t rank, std::int32_t size)>;

    // `all` must outlive it. `node_rank`: ranks of one node say the same number. `server`: this
    // rank is a parameter server, by its role in the job.
    World(Communicator& all, Connect connect, std::int32_t node_rank = 0, bool server = false)
        : all_(all), connect_(std::move(connect)), node_rank_(node_rank), server_(server) {}

    // This rank computes on that GPU of those it sees; `connect` meets the others for it.
    void use_gpu(std::int32_t gpu, Connect connect) {
        gpu_ = gpu;
        connect_gpu_ = std::move(connect);
    }

    Communicator& all() const { return all_; }
    std::int32_t gpu() const { return gpu_; }  // −1: it computes on the CPU
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
    // The communicator of all ranks for buffers on their GPUs. All ranks call it.
    Result<std::unique_ptr<Communicator>> gpu_group(const std::string& name) const;

  private:
    Communicator& all_;
    Connect connect_;
    std::int32_t node_rank_;
    bool server_;
    std::int32_t gpu_ = -1;
    Connect connect_gpu_;
};

}  // namespace lockstep
