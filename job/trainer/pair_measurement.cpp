#include "job/trainer/pair_measurement.hpp"

#include "job/collective/gloo.hpp"
#include "job/collective/memory_key_store.hpp"
#include "job/collective/peer_keys.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kOrder = 512;  // of the matrices: 0.27 GFLOP a product
constexpr int kProducts = 6;
constexpr std::size_t kExchangeBytes = 8U << 20U;
constexpr int kExchanges = 2;

std::chrono::milliseconds left_of(Clock::time_point end) {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()),
                    std::chrono::milliseconds{0});
}

Result<std::unique_ptr<Communicator>> meet(const PairTask& task, Clock::time_point end) {
    GlooOptions options;
    options.rank = task.lead || task.alone ? 0 : 1;
    options.size = task.alone ? 1 : 2;
    options.address = task.address;
    options.shared_memory = false;  // it is the network that is measured
    options.connect_timeout = left_of(end);
    options.operation_timeout = left_of(end);
    MemoryKeyStore alone;
    if (task.alone) {
        return make_gloo(options, alone);
    }
    auto fd = meet_peer({task.lead, task.token, task.address, task.peers, task.port}, end);
    LOCKSTEP_TRY(fd);
    options.connect_timeout = std::max(left_of(end), std::chrono::milliseconds{1});
    options.operation_timeout = options.connect_timeout;
    PeerKeyStore store{std::move(*fd)};
    return make_gloo(options, store);
}

}  // namespace

Result<std::int64_t> measure_pair(const PairTask& task, std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    const at::Tensor matrix = at::full({kOrder, kOrder}, 1.0 / kOrder);
    at::Tensor product = at::mm(matrix, matrix);  // the first one has libraries to load
    auto ranks = meet(task, end);
    LOCKSTEP_TRY(ranks);
    LOCKSTEP_TRY((*ranks)->barrier());
    const auto began = Clock::now();
    for (int i = 0; i < kProducts; ++i) {
        product = at::mm(product, matrix);
    }
    if (std::abs(product[0][0].item<float>() * kOrder - 1) > 1e-3F) {
        return fail(Errc::internal, "its processor computes wrongly");
    }
    std::vector<std::byte> bytes(kExchangeBytes);
    for (int i = 0; i < kExchanges; ++i) {
        for (std::int32_t root = 0; root < (*ranks)->size(); ++root) {
            LOCKSTEP_TRY((*ranks)->broadcast(bytes, root));
        }
    }
    LOCKSTEP_TRY((*ranks)->barrier());
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
}

}  // namespace lockstep
