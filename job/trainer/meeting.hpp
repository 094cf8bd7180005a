// How this process meets the other ranks: through its agent, or, started by torchrun or by hand
// with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, through a TCPStore as PyTorch does. Owns the
// store; training thread only.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/collective/key_store.hpp"
#include "job/rank/client.hpp"
#include "job/rank/rank_context.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Meeting {
  public:
    // `client`: the agent's, or null without one. unavailable, timed_out: nobody keeps the store at
    // MASTER_ADDR. Under torchrun its agent does (TORCHELASTIC_USE_AGENT_STORE), else rank 0.
    static Result<std::unique_ptr<Meeting>> begin(const RankContext& context, RankClient* client);

    // Meets the other members of a group; each name once. Errors as of make_gloo().
    Result<std::unique_ptr<Communicator>> connect(const std::string& name, std::int32_t rank,
                                                  const std::vector<std::int32_t>& members);
    // The same for buffers on GPU `gpu` of those that this process sees: by NCCL. `rank`: the place
    // among `members`, which are ranks of the job. Errors as of make_nccl(). `give_up`: as in
    // NcclOptions.
    Result<std::unique_ptr<Communicator>> connect_gpu(const std::string& name, std::int32_t rank,
                                                      const std::vector<std::int32_t>& members,
                                                      std::int32_t gpu,
                                                      std::function<bool()> give_up);

  private:
    Meeting(std::unique_ptr<KeyStore> store, std::string address, RankClient* client)
        : store_(std::move(store)), address_(std::move(address)), client_(client) {}

    std::unique_ptr<KeyStore> store_;
    std::string address_;
    RankClient* client_;
};

}  // namespace lockstep
