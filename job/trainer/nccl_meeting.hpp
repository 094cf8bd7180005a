// How the ranks of a job meet for NCCL: the ids travel over the keys of their agents. Needs no
// LibTorch.
#pragma once

#include "job/collective/nccl.hpp"
#include "job/rank/client.hpp"

#include <memory>

namespace lockstep {

// `keys`: over the same client; must outlive the communicator. options.prefix is the name of the
// communicator, new for each of a generation; a new generation has keys of its own. Errors as of
// make_nccl() and exchange_nccl_ids(). What NCCL's watch finds
// is told to the agent: the job's cause is then the rank that is to blame, and not the first that
// has noticed.
Result<std::unique_ptr<NcclCommunicator>> connect_nccl(const NcclOptions& options,
                                                       RankClient& client, KeyStore& keys);

}  // namespace lockstep
