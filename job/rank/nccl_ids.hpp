// How NCCL's unique ids travel to every rank of a communicator: over the keys of the generation, so
// that an id of a generation before can't be met. Does not need NCCL itself. Any thread, one call
// at a time per client.
//
// ncclCommInitRankScalable (NCCL 2.23) takes several ids, each the address of a root that brings
// its share of the ranks together; one root alone takes them one after another. NCCL gives root i
// the ranks from i * (n / roots) + min(i, n % roots) on (src/bootstrap.cc, firstRankFromRoot), in
// the order of the ids. The first rank of each share makes its id, so that a root is among its
// ranks.
#pragma once

#include "job/rank/client.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr std::int32_t kRanksPerNcclRoot = 128;  // as PyTorch and XLA have it
using NcclId = std::array<std::byte, 128>;              // NCCL_UNIQUE_ID_BYTES

// Both for 1 <= roots <= ranks.
std::int32_t nccl_roots(std::int32_t ranks);
std::int32_t first_rank_of_nccl_root(std::int32_t root, std::int32_t ranks, std::int32_t roots);
// The root whose id this rank makes, if it makes one.
std::optional<std::int32_t> nccl_root_of_rank(std::int32_t rank, std::int32_t ranks,
                                              std::int32_t roots);

struct NcclGroup {
    std::string name;  // of the communicator: every one of a generation needs a name of its own
    std::int32_t rank = 0;
    std::int32_t ranks = 1;
};
// The ids for ncclCommInitRankScalable (ncclCommInitRank, if there is one), the same on every rank.
// Every rank of the group must call it; `make` (ncclGetUniqueId) is called on the roots' ranks. The
// ids are the write-once keys nccl/<name>/<root>.
// invalid: the group; conflict: the name was used before; timed_out names the roots that are
// missing.
Result<std::vector<NcclId>> exchange_nccl_ids(RankClient& client, const NcclGroup& group,
                                              const std::function<Result<NcclId>()>& make,
                                              RankClient::Timeout timeout);

}  // namespace lockstep
