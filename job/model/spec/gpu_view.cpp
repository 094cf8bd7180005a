#include "job/model/spec/gpu_view.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/framework.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// GPUs the rank is to see, or one of the words of framework.hpp.
std::int32_t demand(const JobSpec& spec, std::int32_t rank) {
    if (spec.launch != Launch::rank) {
        return kAllGpus;
    }
    const RankRole role = spec.role_of(rank);
    if (role.gpus >= 0) {
        return role.gpus;
    }
    const auto gpus_of = traits_of(spec.framework).gpus_of;
    return gpus_of != nullptr ? gpus_of(spec, role) : kAllGpus;
}

// What each rank with an equal share gets: the same on every node, as TensorFlow wants it.
// kAllGpus: every rank sees all GPUs.
std::int32_t equal_share(const JobSpec& spec) {
    const std::int32_t per_node = spec.ranks_per_node();
    std::int32_t share = kAllGpus;
    bool alone = true;
    for (std::int32_t node = 0; node < spec.resources.nodes; ++node) {
        std::int32_t sharing = 0;
        std::int32_t taken = 0;
        for (std::int32_t local = 0; local < per_node; ++local) {
            const std::int32_t one = demand(spec, node * per_node + local);
            sharing += one == kEqualShareOfGpus ? 1 : 0;
            taken += std::max(one, 0);
        }
        if (sharing > 0) {
            const std::int32_t here = (spec.resources.gpus_per_node - taken) / sharing;
            share = share == kAllGpus ? here : std::min(share, here);
            alone = alone && sharing == 1 && taken == 0;
        }
    }
    return alone || spec.resources.gpus_per_node == 0 ? kAllGpus : share;
}

}  // namespace

std::int32_t device_of_rank(const JobSpec& spec, std::int32_t local_rank) {
    return local_rank / spec.resources.ranks_per_gpu;
}

void check_shared_gpus(const JobSpec& spec, std::vector<FieldError>& errors) {
    constexpr const char* kPointer = "/resources/ranks_per_gpu";
    const Resources& resources = spec.resources;
    if (resources.ranks_per_gpu == 1) {
        return;
    }
    if (resources.gpus_per_node == 0) {
        errors.push_back({kPointer,
                          "says how many ranks share a GPU: /resources/gpus_per_node says "
                          "how many GPUs there are, and asks for none"});
    } else if (spec.ranks_per_node() > resources.gpus_per_node * resources.ranks_per_gpu) {
        errors.push_back(
            {kPointer, std::to_string(resources.gpus_per_node) + " GPUs × " +
                           std::to_string(resources.ranks_per_gpu) + " ranks are fewer than the " +
                           std::to_string(spec.ranks_per_node()) + " ranks of a node"});
    }
    if (spec.launch != Launch::rank) {
        errors.push_back(
            {kPointer,
             "needs launch rank: with others the ranks are numbered by their launcher, "
             "and take the GPU of that number"});
    }
    const auto hands_out = traits_of(spec.framework).hands_out_gpus;
    if (hands_out != nullptr && hands_out(spec)) {
        errors.push_back({kPointer, "framework " + std::string{to_string(spec.framework)} +
                                        " gives each rank a GPU of its own"});
    }
    if (gpu_slice(spec, 0)) {
        errors.push_back({kPointer, "roles say which GPUs a rank sees: one of the two"});
    }
}

bool has_too_few_gpus(const JobSpec& spec) {
    return equal_share(spec) == 0;
}

std::optional<GpuSlice> gpu_slice(const JobSpec& spec, std::int32_t rank) {
    const std::int32_t own = demand(spec, rank);
    const std::int32_t share = own == kAllGpus || own == 0 ? kAllGpus : equal_share(spec);
    const auto count_of = [&](std::int32_t asked) {
        return asked == kEqualShareOfGpus ? share : asked;
    };
    GpuSlice out;
    out.count = count_of(own);
    if (out.count == kAllGpus) {
        return std::nullopt;
    }
    const std::int32_t per_node = spec.ranks_per_node();
    for (std::int32_t other = rank - rank % per_node; other < rank; ++other) {
        out.first += std::max(count_of(demand(spec, other)), 0);
    }
    return out;
}

std::string visible_devices(const GpuSlice& slice, const std::string& visible) {
    std::string out;
    const auto names = visible.empty() ? std::vector<std::string>{} : split(visible, ',');
    for (std::int32_t i = slice.first; i < slice.first + slice.count; ++i) {
        const auto index = static_cast<std::size_t>(i);
        if (names.empty() || index < names.size()) {
            out += out.empty() ? "" : ",";
            out += names.empty() ? std::to_string(i) : names[index];
        }
    }
    return out;
}

}  // namespace lockstep
