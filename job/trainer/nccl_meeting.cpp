#include "job/trainer/nccl_meeting.hpp"

#include "job/rank/nccl_ids.hpp"

namespace lockstep {

Result<std::unique_ptr<NcclCommunicator>> connect_nccl(const NcclOptions& options,
                                                       RankClient& client, KeyStore& keys) {
    const NcclGroup group{options.prefix, options.rank, options.size};
    return make_nccl(options, keys, [&](const std::function<Result<NcclId>()>& make) {
        return exchange_nccl_ids(client, group, make, options.init_timeout);
    });
}

}  // namespace lockstep
