#include "job/trainer/world.hpp"

#include "job/base/check.hpp"

#include <algorithm>

namespace lockstep {

Result<std::vector<std::int64_t>> World::gather(std::int64_t mine) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(size()), mine);
    if (size() > 1) {
        const Status done = all_.all_gather({&mine, 1, Dtype::i64, Device::cpu},
                                            {all.data(), all.size(), Dtype::i64, Device::cpu});
        LOCKSTEP_TRY(done);
    }
    return all;
}

Result<std::unique_ptr<Communicator>> World::group(const std::string& name,
                                                   const std::vector<std::int32_t>& members) const {
    const auto mine = std::find(members.begin(), members.end(), rank());
    LOCKSTEP_CHECK(mine != members.end());
    return connect_(name, static_cast<std::int32_t>(mine - members.begin()),
                    static_cast<std::int32_t>(members.size()));
}

Result<std::unique_ptr<Communicator>> World::gpu_group(const std::string& name) const {
    LOCKSTEP_CHECK(gpu_ >= 0 && connect_gpu_ != nullptr);
    return connect_gpu_(name, rank(), size());
}

}  // namespace lockstep
