// Who may connect to what the agent serves for its ranks.
#include "job/agent/torch_store/store_guard.hpp"

#include "job/agent/torch_store/tcp_store_state.hpp"
#include "job/base/unique_fd.hpp"
#include "tests/support/another_user.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Verdict = StoreGuard::Verdict;

tcp::endpoint at(const std::string& address, std::uint16_t port = 4711) {
    return {net::ip::make_address(address), port};
}

StoreGuard::Options two_nodes() {
    StoreGuard::Options out;
    out.nodes = {"10.0.0.1", "10.0.0.2", "192.168.7.2", "fd00::2", "not an address", ""};
    out.own = {"10.0.0.1"};
    return out;
}

TEST(StoreGuard, AdmitsTheNodesOfTheWorldAndNoOtherMachine) {
    StoreGuard guard{two_nodes()};
    const auto here = at("10.0.0.1", 29500);
    EXPECT_EQ(guard.judge(at("10.0.0.2"), here), Verdict::admitted);
    EXPECT_EQ(guard.judge(at("192.168.7.2"), here), Verdict::admitted) << "its other interface";
    EXPECT_EQ(guard.judge(at("::ffff:10.0.0.2"), here), Verdict::admitted) << "a socket of IPv6";
    EXPECT_EQ(guard.judge(at("fd00::2"), here), Verdict::admitted);
    EXPECT_EQ(guard.judge(at("fd00::2%7"), here), Verdict::admitted) << "with a scope";
    EXPECT_EQ(guard.judge(at("10.0.0.3"), here), Verdict::stranger);
    EXPECT_EQ(guard.judge(at("::ffff:10.0.0.3"), here), Verdict::stranger);
    EXPECT_EQ(guard.judge(at("fd00::3"), here), Verdict::stranger);
}

TEST(StoreGuard, AdmitsEveryMachineWhereTheNodesAreNotAllKnown) {
    StoreGuard::Options options = two_nodes();
    options.nodes_known = false;
    StoreGuard guard{std::move(options)};
    EXPECT_EQ(guard.judge(at("10.0.0.3"), at("10.0.0.1", 29500)), Verdict::admitted);
}

// A connection over loopback: the client's socket, and the one that was accepted.
class Connection {
  public:
    explicit Connection(const std::string& to = "127.0.0.1") {
        tcp::acceptor acceptor{io_, at(to, 0)};
        client.connect(acceptor.local_endpoint());
        server = acceptor.accept();
    }

  private:
    net::io_context io_{1};

  public:
    tcp::socket client{io_};
    tcp::socket server{io_};
};

TEST(StoreGuard, AdmitsTheJobsUserOnThisMachine) {
    Connection connection;
    StoreGuard guard{{}};
    EXPECT_TRUE(guard.admits(connection.server.native_handle()));
    EXPECT_EQ(guard.judge(connection.client.local_endpoint(), connection.client.remote_endpoint()),
              Verdict::admitted);
}

TEST(StoreGuard, AClosedSocketIsNobodysAndNotRoots) {
    for (const bool reset : {false, true}) {
        Connection connection;
        connection.client.send(net::buffer("SET", 3));
        if (reset) {
            connection.client.set_option(tcp::socket::linger{true, 0});
        }
        connection.client.close();
        StoreGuard::Options options;
        options.uid = 0;  // the kernel's answer for a socket without an owner
        StoreGuard guard{std::move(options)};
        EXPECT_FALSE(guard.admits(connection.server.native_handle())) << reset;
    }
}

TEST(StoreGuard, AnotherUserOfThisMachineIsRefusedAndTheJobIsTold) {
    const AnotherUser us;
    StoreGuard::Options options;
    options.uid = us.job;
    std::vector<std::string> told;
    options.tell = [&](std::string text) { told.push_back(std::move(text)); };
    StoreGuard guard{std::move(options)};
    for (int i = 0; i < 3; ++i) {
        Connection connection;
        EXPECT_FALSE(guard.admits(connection.server.native_handle()));
    }
    EXPECT_THAT(told, ElementsAre(HasSubstr("a process of another user on this node")));
}

// Docker's ranks, of a job whose user is not root.
TEST(StoreGuard, RootOfThisMachineIsAdmitted) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root has root's sockets";
    }
    Connection connection;
    StoreGuard::Options options;
    options.uid = 4711;
    StoreGuard guard{std::move(options)};
    EXPECT_TRUE(guard.admits(connection.server.native_handle()));
}

// As of a rank whose own address is translated on the way to its own node: no socket of this
// machine has the peer's address, and the connection lives.
TEST(StoreGuard, AConnectionThatLivesAndIsNobodysIsNotRefused) {
    Connection connection{"127.0.0.1"};
    StoreGuard::Options options;
    options.own = {"10.99.0.1"};
    StoreGuard guard{std::move(options)};
    EXPECT_EQ(guard.judge(at("10.99.0.1", 40'000), at("127.0.0.1", 29'500)), Verdict::not_found);
}

// Of the kernel's own word, with a process that is another user's.
TEST(StoreGuard, AProcessOfAnotherUserIsTold) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can start a process of another user";
    }
    constexpr uid_t kOther = 4711;
    net::io_context io{1};
    tcp::acceptor acceptor{io, at("127.0.0.1", 0)};
    const tcp::endpoint here = acceptor.local_endpoint();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const UniqueFd socket{
            ::setuid(kOther) == 0 ? ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1};
        const bool connected = socket && ::connect(socket.get(), here.data(),
                                                   static_cast<socklen_t>(here.size())) == 0;
        char byte = 0;
        const bool closed = connected && ::recv(socket.get(), &byte, 1, 0) == 0;
        ::_exit(closed ? 0 : 1);
    }
    pollfd waiting{acceptor.native_handle(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 20'000), 1) << "the other user's process did not connect";
    tcp::socket server = acceptor.accept();
    StoreGuard guard{{}};
    EXPECT_EQ(guard.judge(server.remote_endpoint(), server.local_endpoint()),
              Verdict::another_user);
    StoreGuard::Options theirs;
    theirs.uid = kOther;
    StoreGuard other{std::move(theirs)};
    EXPECT_EQ(other.judge(server.remote_endpoint(), server.local_endpoint()), Verdict::admitted);
    server.close();
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(StoreGuard, OwnAddressesHaveNoLoopback) {
    for (const std::string& text : own_addresses()) {
        ErrorCode ec;
        const auto address = net::ip::make_address(text, ec);
        EXPECT_FALSE(ec) << text;
        EXPECT_FALSE(address.is_loopback()) << text;
    }
}

TEST(StoreCaps, FollowTheWorldsSize) {
    constexpr std::size_t kMiB = 1U << 20U;
    EXPECT_EQ(store_bytes(1), 72 * kMiB);
    EXPECT_EQ(store_bytes(8), 128 * kMiB);
    EXPECT_EQ(store_bytes(120), limits::kStoreBytes);
    EXPECT_EQ(store_bytes(limits::kRanks), limits::kStoreBytes);
    EXPECT_EQ(store_bytes(0), store_bytes(1)) << "what a daemon may say";
    EXPECT_EQ(store_caps(1).transit_bytes, 128 * kMiB);
    EXPECT_EQ(store_caps(15).transit_bytes, limits::kStoreTransitBytes);
    EXPECT_GE(store_caps(1).transit_bytes, limits::kStoreQueryBytes) << "the largest query fits";
    EXPECT_GE(store_bytes(2), 2 * limits::kStoreValueBytes);
}

}  // namespace
}  // namespace lockstep::test
