#include "job/rank/nccl_ids.hpp"

#include "job/base/json.hpp"
#include "tests/support/temporary_folder.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The keys of one generation behind a socket, a thread per connection.
class KeyServer {
  public:
    KeyServer() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        EXPECT_EQ(
            ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
        EXPECT_EQ(::listen(listener_.get(), 512), 0);
    }
    KeyServer(const KeyServer&) = delete;
    KeyServer& operator=(const KeyServer&) = delete;

    // Connects a client and serves it until it goes.
    std::unique_ptr<RankClient> client() {
        auto made = RankClient::connect(path_);
        EXPECT_TRUE(made.has_value());
        const int fd = ::accept(listener_.get(), nullptr, nullptr);
        threads_.emplace_back([this, fd] { serve(UniqueFd{fd}); });
        return std::move(*made);
    }
    ~KeyServer() {
        for (auto& thread : threads_) {
            thread.join();
        }
    }
    std::map<std::string, Json> values;

  private:
    void serve(UniqueFd connection) {
        std::string buffer(1U << 16U, '\0');
        for (;;) {
            const auto got = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
            if (got <= 0) {
                return;
            }
            const auto size = static_cast<std::size_t>(got);
            const Json request = *parse_json(std::string_view{buffer}.substr(0, size));
            const std::string answer = dump_json(reply(request));
            ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        }
    }
    Json reply(const Json& request) {
        std::unique_lock lock{mutex_};
        Json out;
        out["id"] = request.at("id");
        out["ok"] = true;
        const auto there = [&] {
            return std::all_of(request.at("keys").begin(), request.at("keys").end(),
                               [&](const Json& key) { return values.contains(key); });
        };
        if (request.at("op") == "set") {
            const auto [place, is_new] = values.try_emplace(request.at("key"), request.at("value"));
            EXPECT_TRUE(request.at("once").get<bool>());
            out["ok"] = is_new || place->second == request.at("value");
            out["error"] = "conflict";
            changed_.notify_all();
        } else if (request.at("op") == "wait") {
            const std::chrono::milliseconds most{request.at("timeout_ms").get<std::int64_t>()};
            out["ok"] = changed_.wait_for(lock, most, there);
            out["error"] = "timed_out";
        } else {
            for (const Json& key : request.at("keys")) {
                out["values"].push_back(values.at(key));
            }
        }
        return out;
    }

    const test::TemporaryFolder folder_;
    const std::string path_ = (folder_ / "s").string();
    UniqueFd listener_;
    std::mutex mutex_;  // guards values
    std::condition_variable changed_;
    std::vector<std::thread> threads_;
};

Result<NcclId> numbered(std::int32_t rank) {
    NcclId id{};
    std::memcpy(id.data(), &rank, sizeof(rank));
    return id;
}

// What every rank of a communicator got: the roots' ranks at a time, since they wait for each
// other, and then the rest over one connection (a client holds a buffer of 4 MiB).
std::vector<Result<std::vector<NcclId>>> exchange(std::int32_t ranks,
                                                  const std::function<Result<NcclId>(int)>& make,
                                                  KeyServer& server) {
    std::vector<Result<std::vector<NcclId>>> got(static_cast<std::size_t>(ranks));
    const auto call = [&](RankClient& client, std::int32_t rank) {
        got[static_cast<std::size_t>(rank)] =
            exchange_nccl_ids(client, {"world", rank, ranks}, [&] { return make(rank); }, 60s);
    };
    std::vector<std::unique_ptr<RankClient>> clients;
    std::vector<std::thread> roots;
    std::vector<std::int32_t> rest;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
        if (nccl_root_of_rank(rank, ranks, nccl_roots(ranks))) {
            clients.push_back(server.client());
            roots.emplace_back([&, client = clients.back().get(), rank] { call(*client, rank); });
        } else {
            rest.push_back(rank);
        }
    }
    for (auto& thread : roots) {
        thread.join();
    }
    for (const std::int32_t rank : rest) {
        call(*clients.front(), rank);
    }
    return got;
}

TEST(NcclIds, NoRootHasMoreThan128RanksAndEachIsAmongItsOwn) {
    for (const std::int32_t ranks : {1, 2, 127, 128, 129, 256, 257, 1000, 9999, 98'304, 131'072}) {
        const std::int32_t roots = nccl_roots(ranks);
        EXPECT_EQ(first_rank_of_nccl_root(0, ranks, roots), 0);
        std::int32_t least = ranks;
        std::int32_t most = 0;
        for (std::int32_t root = 0; root < roots; ++root) {
            const auto first = first_rank_of_nccl_root(root, ranks, roots);
            const auto next =
                root + 1 == roots ? ranks : first_rank_of_nccl_root(root + 1, ranks, roots);
            least = std::min(least, next - first);
            most = std::max(most, next - first);
            EXPECT_EQ(nccl_root_of_rank(first, ranks, roots), root);
            EXPECT_EQ(nccl_root_of_rank(next - 1, ranks, roots),
                      next - first == 1 ? std::optional{root} : std::nullopt);
        }
        EXPECT_LE(most, kRanksPerNcclRoot) << ranks;
        EXPECT_GE(least, most - 1) << ranks;
    }
}

// As NCCL's own src/bootstrap.cc shares 10 ranks among 4 roots: 3, 3, 2 and 2.
TEST(NcclIds, TheFirstRootsHaveOneRankMore) {
    std::vector<std::int32_t> first;
    for (std::int32_t root = 0; root < 4; ++root) {
        first.push_back(first_rank_of_nccl_root(root, 10, 4));
    }
    EXPECT_EQ(first, (std::vector<std::int32_t>{0, 3, 6, 8}));
}

TEST(NcclIds, EveryRankGetsTheSameIdsInTheOrderOfTheRoots) {
    KeyServer server;
    const auto got = exchange(300, numbered, server);
    EXPECT_EQ(server.values.size(), 3U);
    EXPECT_TRUE(server.values.contains("nccl/world/2"));
    const std::vector<NcclId> expected{*numbered(0), *numbered(100), *numbered(200)};
    for (const auto& ids : got) {
        ASSERT_TRUE(ids.has_value()) << ids.error().text();
        EXPECT_EQ(*ids, expected);
    }
}

TEST(NcclIds, ARootThatFailsSaysSoAndTheOthersNameTheKeyTheyMissed) {
    KeyServer server;
    const auto client = server.client();
    const auto broken = [] { return Result<NcclId>{fail(Errc::internal, "no interface")}; };
    const auto root = exchange_nccl_ids(*client, {"world", 0, 2}, broken, 1s);
    ASSERT_FALSE(root.has_value());
    EXPECT_EQ(root.error().message, "nccl: making an id: no interface");
    const auto other = exchange_nccl_ids(*client, {"world", 1, 2}, broken, 10ms);
    EXPECT_EQ(other.error().code, Errc::timed_out);
}

TEST(NcclIds, ANameIsForOneCommunicatorAndTheGroupMustMakeSense) {
    KeyServer server;
    const auto client = server.client();
    int made = 0;
    const auto next = [&] { return numbered(++made); };
    EXPECT_TRUE(exchange_nccl_ids(*client, {"a", 0, 1}, next, 1s).has_value());
    EXPECT_EQ(exchange_nccl_ids(*client, {"a", 0, 1}, next, 1s).error().code, Errc::conflict);
    for (const NcclGroup& bad :
         {NcclGroup{"", 0, 1}, NcclGroup{"b", 1, 1}, NcclGroup{"b", -1, 1}, NcclGroup{"b", 0, 0}}) {
        EXPECT_EQ(exchange_nccl_ids(*client, bad, next, 1s).error().code, Errc::invalid);
    }
}

// ncclGetUniqueId opens the root's listening socket; it needs no GPU.
TEST(NcclIds, IdsOfTheRealLibraryArriveWhole) {
    void* library = nullptr;
    for (const char* name :
         {"libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
          "/usr/local/cuda-13.0/lib/libnccl.so.2"}) {
        library = library != nullptr ? library : ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
        GTEST_SKIP() << "libnccl.so.2 is not on this machine";
    }
    using GetUniqueId = int (*)(NcclId*);
    const auto get = reinterpret_cast<GetUniqueId>(::dlsym(library, "ncclGetUniqueId"));
    ASSERT_NE(get, nullptr);
    std::mutex mutex;
    std::map<int, NcclId> made;
    const auto make = [&](int rank) -> Result<NcclId> {
        const std::lock_guard lock{mutex};
        if (const int code = get(&made[rank]); code != 0) {
            return fail(Errc::internal, "ncclGetUniqueId: " + std::to_string(code));
        }
        return made[rank];
    };
    KeyServer server;
    const auto got = exchange(130, make, server);
    ASSERT_EQ(made.size(), 2U);
    EXPECT_NE(made.at(0), made.at(65));
    for (const auto& ids : got) {
        ASSERT_TRUE(ids.has_value()) << ids.error().text();
        EXPECT_EQ(*ids, (std::vector<NcclId>{made.at(0), made.at(65)}));
    }
}

}  // namespace
}  // namespace lockstep
