#include "job/trainer/meeting.hpp"

#include "job/base/unique_fd.hpp"
#include "job/collective/gloo.hpp"
#include "job/collective/memory_key_store.hpp"
#include "job/trainer/client_key_store.hpp"
#include "job/trainer/nccl_meeting.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// PyTorch's store, whose failures are exceptions.
class TorchKeyStore final : public KeyStore {
  public:
    TorchKeyStore(std::unique_ptr<c10d::TCPStore> store, std::string prefix)
        : store_(std::move(store)), prefix_(std::move(prefix)) {}

    Status set(const std::string& key, std::string_view value) override {
        try {
            store_->set(prefix_ + key, {value.begin(), value.end()});
            return {};
        } catch (const std::exception& error) {
            return fail(Errc::unavailable, std::string{"the ranks' store: "} + error.what());
        }
    }
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
        try {
            // Without patience the store's wait says of a key that is there that it is not, now and
            // then, and prints so.
            if (timeout.count() <= 0 && !store_->check({prefix_ + key})) {
                return fail(Errc::timed_out, "the ranks' store has no " + key);
            }
            if (timeout.count() > 0) {
                store_->wait({prefix_ + key}, timeout);
            }
            const std::vector<std::uint8_t> value = store_->get(prefix_ + key);
            return std::string{value.begin(), value.end()};
        } catch (const std::exception& error) {
            return fail(Errc::timed_out, std::string{"the ranks' store: "} + error.what());
        }
    }

  private:
    std::unique_ptr<c10d::TCPStore> store_;
    std::string prefix_;
};

// This node's address on the way to `host`; the kernel chooses it, nothing is sent.
std::string address_towards(const std::string& host, std::int32_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
        return "";
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
    const UniqueFd fd{::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    sockaddr_storage mine{};
    socklen_t size = sizeof mine;
    auto* address = reinterpret_cast<sockaddr*>(&mine);
    std::array<char, NI_MAXHOST> text{};
    if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
        ::getsockname(fd.get(), address, &size) != 0 ||
        ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        return "";
    }
    return text.data();
}

Result<std::unique_ptr<KeyStore>> join_store(const RankContext& context) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(context.master_port);
    options.isServer = context.rank == 0 && !context.store_elsewhere;
    options.waitWorkers = false;  // the communicator waits, and says for whom
    options.timeout = limits::kMeetPatience;
    try {
        auto store = std::make_unique<c10d::TCPStore>(context.master_address, options);
        return std::make_unique<TorchKeyStore>(
            std::move(store), "lockstep/" + std::to_string(context.generation) + "/");
    } catch (const std::exception& error) {
        return fail(Errc::unavailable, "the ranks' store at " + context.master_address + ":" +
                                           std::to_string(context.master_port) + ": " +
                                           error.what());
    }
}

// Without an agent: rank 0 makes all ids and leaves them in the ranks' store.
Result<std::vector<NcclUniqueId>> exchange_by_store(
    KeyStore& store, const NcclOptions& options,
    const std::function<Result<NcclUniqueId>()>& make) {
    constexpr std::int32_t kRanksOfAnId = 128;
    const auto count = static_cast<std::size_t>((options.size + kRanksOfAnId - 1) / kRanksOfAnId);
    const std::string key = options.prefix + "/ids";
    if (options.rank == 0) {
        std::string bytes;
        for (std::size_t i = 0; i < count; ++i) {
            const Result<NcclUniqueId> id = make();
            LOCKSTEP_TRY(id);
            bytes.append(reinterpret_cast<const char*>(id->data()), id->size());
        }
        LOCKSTEP_TRY(store.set(key, bytes));
    }
    const Result<std::string> bytes = store.wait(key, options.init_timeout);
    LOCKSTEP_TRY(bytes);
    std::vector<NcclUniqueId> ids(count);
    if (bytes->size() != count * sizeof(NcclUniqueId)) {
        return fail(Errc::conflict, "rank 0's NCCL ids are for another number of ranks");
    }
    std::memcpy(ids.data(), bytes->data(), bytes->size());
    return ids;
}

}  // namespace

Result<std::unique_ptr<Meeting>> Meeting::begin(const RankContext& context, RankClient* client) {
    if (client != nullptr) {
        return std::unique_ptr<Meeting>{
            new Meeting{std::make_unique<ClientKeyStore>(*client), context.address, client}};
    }
    if (context.world_size == 1) {
        return std::unique_ptr<Meeting>{
            new Meeting{std::make_unique<MemoryKeyStore>(), context.address, nullptr}};
    }
    Result<std::unique_ptr<KeyStore>> store = join_store(context);
    LOCKSTEP_TRY(store);
    const std::string address = context.address.empty()
                                    ? address_towards(context.master_address, context.master_port)
                                    : context.address;
    return std::unique_ptr<Meeting>{new Meeting{std::move(*store), address, nullptr}};
}

Result<std::unique_ptr<Communicator>> Meeting::connect(const std::string& name, std::int32_t rank,
                                                       const std::vector<std::int32_t>& members) {
    GlooOptions options;
    options.rank = rank;
    options.size = static_cast<std::int32_t>(members.size());
    options.names = members;
    // One reads its data from a slower disk than the others.
    options.connect_timeout = limits::kMeetPatience;
    options.address = address_;
    options.prefix = name;
    options.shared_memory = std::getenv("LOCKSTEP_TRAIN_OVER_TCP") == nullptr;
    return make_gloo(options, *store_);
}

Result<std::unique_ptr<Communicator>> Meeting::connect_gpu(const std::string& name,
                                                           std::int32_t rank,
                                                           const std::vector<std::int32_t>& members,
                                                           std::int32_t gpu,
                                                           std::function<bool()> give_up) {
    NcclOptions options;
    options.rank = rank;
    options.size = static_cast<std::int32_t>(members.size());
    options.names = members;
    options.gpu = gpu;
    options.prefix = name;
    options.give_up = std::move(give_up);
    Result<std::unique_ptr<NcclCommunicator>> made =
        client_ != nullptr
            ? connect_nccl(options, *client_, *store_)
            : make_nccl(options, *store_, [&](const std::function<Result<NcclUniqueId>()>& make) {
                  return exchange_by_store(*store_, options, make);
              });
    LOCKSTEP_TRY(made);
    return std::unique_ptr<Communicator>{std::move(*made)};
}

}  // namespace lockstep
