#include "job/collective/nccl.hpp"

#include "job/base/digest.hpp"
#include "job/collective/nccl_ranks.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

Result<NcclNode> prepare(const NcclOptions& options, KeyStore& keys) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
        return fail(Errc::invalid, "nccl: rank " + std::to_string(options.rank) + " of " +
                                       std::to_string(options.size));
    }
    NcclNode node;
    node.options = options;
    node.keys = &keys;
    auto driver = load_cuda(options.cuda_driver);
    LOCKSTEP_TRY(driver);
    node.driver = *driver;
    const auto& api = node.driver.api;
    int count = 0;
    if (const auto code = api.device_get_count(&count); code != cuda::kSuccess) {
        return fail(Errc::not_found, "no GPU can be used: " + node.driver.error(code));
    }
    if (options.gpu < 0 || options.gpu >= count) {
        return fail(Errc::not_found, "no GPU " + std::to_string(options.gpu) +
                                         ": this process sees " + std::to_string(count));
    }
    cuda::Device device = 0;
    cuda::Result code = api.device_get(&device, options.gpu);
    if (code == cuda::kSuccess) {
        // Kept until the process ends: others in it (LibTorch) use the same one.
        code = api.primary_ctx_retain(&node.context, device);
    }
    if (code != cuda::kSuccess) {
        return fail(Errc::not_found,
                    "GPU " + std::to_string(options.gpu) + ": " + node.driver.error(code));
    }
    auto library = load_nccl(options.nccl_library);
    LOCKSTEP_TRY(library);
    node.library = *library;
    if (node.library.api.comm_init_rank_config == nullptr) {
        return fail(Errc::invalid,
                    "NCCL: " + options.nccl_library + " has no ncclCommInitRankConfig");
    }
    return node;
}

// That all have the same library and ids is found before NCCL would wait for it for ever.
Status compare_with_first(const NcclNode& node, const std::vector<NcclUniqueId>& ids) {
    const std::string_view bytes{reinterpret_cast<const char*>(ids.data()),
                                 ids.size() * sizeof(NcclUniqueId)};
    const std::string mine = node.library.version_text() + " " + sha256_hex(bytes);
    const std::int32_t rank = node.options.rank;
    if (const Status set = node.keys->set(node.key("rank/", rank), mine); !set) {
        return fail(set.error().in("nccl"));
    }
    const std::string root = "rank " + std::to_string(node.options.name_of(0));
    const auto first = node.keys->wait(node.key("rank/", 0), node.options.init_timeout);
    if (!first) {
        const NcclVerdict verdict = missing_root(node.options.name_of(0), first.error().message);
        if (first.error().code == Errc::timed_out && node.options.on_verdict) {
            node.options.on_verdict(verdict);
        }
        return fail(Error{first.error().code, verdict.text});
    }
    if (*first == mine) {
        return {};
    }
    const std::string version = first->substr(0, first->find(' '));
    std::string why = "rank " + std::to_string(node.options.name_of(rank));
    if (version != node.library.version_text()) {
        why += " has NCCL " + node.library.version_text() + ", " + root + " " + version;
    } else {
        why += " has other NCCL ids than " + root;
    }
    NcclPosition position;
    position.error = nccl::kInvalidArgument;
    position.text = why.substr(why.find(' ', 5) + 1);
    static_cast<void>(node.keys->set(node.key("at/", rank), position.encode()));
    static_cast<void>(node.keys->set(node.key("alarm"), why));
    return fail(Errc::conflict, "NCCL's initialisation: " + why);
}

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> make_nccl(const NcclOptions& options, KeyStore& keys,
                                                    const ExchangeNcclIds& exchange) {
    auto node = prepare(options, keys);
    LOCKSTEP_TRY(node);
    node->use_gpu();
    const auto& api = node->library.api;
    auto ids = exchange([&]() -> Result<NcclUniqueId> {
        nccl::UniqueId id;
        if (const auto code = api.get_unique_id(&id); code != nccl::kSuccess) {
            return fail(Errc::unavailable, node->library.error(code, nullptr));
        }
        NcclUniqueId out;
        std::memcpy(out.data(), id.internal, out.size());
        return out;
    });
    LOCKSTEP_TRY(ids);
    if (ids->empty()) {
        return fail(Errc::invalid, "nccl: no ids");
    }
    LOCKSTEP_TRY(compare_with_first(*node, *ids));
    std::vector<nccl::UniqueId> list(ids->size());
    for (std::size_t i = 0; i < list.size(); ++i) {
        std::memcpy(list[i].internal, (*ids)[i].data(), sizeof list[i].internal);
    }
    nccl::Config config;
    nccl::Comm comm = nullptr;
    // An older NCCL takes one id alone: one root for all ranks is slower, and does.
    const nccl::Result begun =
        list.size() > 1 && api.comm_init_rank_scalable != nullptr
            ? api.comm_init_rank_scalable(&comm, options.size, options.rank,
                                          static_cast<int>(list.size()), list.data(), &config)
            : api.comm_init_rank_config(&comm, options.size, list[0], options.rank, &config);
    auto out = std::make_unique<NcclRanks>(std::move(*node), comm);
    LOCKSTEP_TRY(out->finish_init(begun));
    return out;
}

}  // namespace lockstep
