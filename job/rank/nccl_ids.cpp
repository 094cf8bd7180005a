#include "job/rank/nccl_ids.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

std::int32_t nccl_roots(std::int32_t ranks) {
    return (ranks + kRanksPerNcclRoot - 1) / kRanksPerNcclRoot;
}

std::int32_t first_rank_of_nccl_root(std::int32_t root, std::int32_t ranks, std::int32_t roots) {
    return root * (ranks / roots) + std::min(root, ranks % roots);
}

std::optional<std::int32_t> nccl_root_of_rank(std::int32_t rank, std::int32_t ranks,
                                              std::int32_t roots) {
    for (std::int32_t root = 0; root < roots; ++root) {
        if (first_rank_of_nccl_root(root, ranks, roots) == rank) {
            return root;
        }
    }
    return std::nullopt;
}

Result<std::vector<NcclId>> exchange_nccl_ids(RankClient& client, const NcclGroup& group,
                                              const std::function<Result<NcclId>()>& make,
                                              RankClient::Timeout timeout) {
    if (group.ranks < 1 || group.rank < 0 || group.rank >= group.ranks || group.name.empty()) {
        return fail(Errc::invalid, "nccl: rank " + std::to_string(group.rank) + " of " +
                                       std::to_string(group.ranks) + " in \"" + group.name + "\"");
    }
    const std::int32_t roots = nccl_roots(group.ranks);
    std::vector<std::string> keys;
    keys.reserve(static_cast<std::size_t>(roots));
    for (std::int32_t root = 0; root < roots; ++root) {
        keys.push_back("nccl/" + group.name + "/" + std::to_string(root));
    }
    if (const auto mine = nccl_root_of_rank(group.rank, group.ranks, roots)) {
        const Result<NcclId> id = make();
        if (!id) {
            return fail(id.error().in("nccl: making an id"));
        }
        const std::string_view bytes{reinterpret_cast<const char*>(id->data()), id->size()};
        const Status set =
            client.set(keys[static_cast<std::size_t>(*mine)], bytes, RankClient::Write::once);
        if (!set) {
            return fail(set.error().in("nccl"));
        }
    }
    if (const Status there = client.wait(keys, timeout); !there) {
        return fail(there.error().in("nccl"));
    }
    const auto values = client.multi_get(keys);
    if (!values) {
        return fail(values.error().in("nccl"));
    }
    std::vector<NcclId> ids(values->size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if ((*values)[i].size() != ids[i].size()) {
            return fail(Errc::corrupt, keys[i] + ": is not 128 bytes long");
        }
        std::memcpy(ids[i].data(), (*values)[i].data(), ids[i].size());
    }
    return ids;
}

}  // namespace lockstep
