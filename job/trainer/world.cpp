#include "job/trainer/world.hpp"

#include "job/base/check.hpp"

#include <algorithm>
#include <numeric>

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

std::int32_t World::place_in(const std::vector<std::int32_t>& members) const {
    const auto mine = std::find(members.begin(), members.end(), rank());
    LOCKSTEP_CHECK(mine != members.end());
    return static_cast<std::int32_t>(mine - members.begin());
}

Result<std::unique_ptr<Communicator>> World::group(const std::string& name,
                                                   const std::vector<std::int32_t>& members) const {
    return connect_(name, place_in(members), members);
}

Result<std::unique_ptr<Communicator>> World::gpu_group(
    const std::string& name, const std::vector<std::int32_t>& members) const {
    LOCKSTEP_CHECK(meets_on_gpus());
    return connect_gpu_(name, place_in(members), members);
}

Result<std::unique_ptr<Communicator>> World::gpu_group(const std::string& name) const {
    std::vector<std::int32_t> everybody(static_cast<std::size_t>(size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    return gpu_group(name, everybody);
}

}  // namespace lockstep
