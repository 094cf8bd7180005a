#include "job/trainer/nccl_meeting.hpp"

#include "job/rank/nccl_ids.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

// As a Python rank tells of an exception. The type says to the agent (job/model/failure.cpp) whose
// fault it is: one's own, or a peer's, of which this rank only speaks.
void tell(RankClient& client, std::int32_t rank, const NcclVerdict& verdict) {
    const bool mine =
        std::find(verdict.culprits.begin(), verdict.culprits.end(), rank) != verdict.culprits.end();
    client.exception(mine ? "CollectiveError" : "PeerFault", verdict.text);
}

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> connect_nccl(const NcclOptions& given, RankClient& client,
                                                       KeyStore& keys) {
    NcclOptions options = given;
    if (!options.on_verdict) {
        options.on_verdict = [&client, rank = given.name_of(given.rank)](
                                 const NcclVerdict& verdict) { tell(client, rank, verdict); };
    }
    const NcclGroup group{options.prefix, options.rank, options.size};
    return make_nccl(options, keys, [&](const std::function<Result<NcclId>()>& make) {
        auto ids = exchange_nccl_ids(client, group, make, options.init_timeout);
        // Where several ranks make ids it is not known who did not.
        const bool waited = !ids && ids.error().code == Errc::timed_out && options.rank != 0;
        if (waited && nccl_roots(options.size) == 1) {
            options.on_verdict(missing_root(options.name_of(0), ids.error().message));
        }
        return ids;
    });
}

}  // namespace lockstep
