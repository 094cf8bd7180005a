// Whose socket a port of the loopback is, as the kernel tells it.
#include "job/cli/listener.hpp"

#include "job/async/http_client.hpp"
#include "job/cli/client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kStranger = 65'533;

net::ip::address ip(const std::string& text) {
    return net::ip::make_address(text);
}

class Listening {
  public:
    explicit Listening(const std::string& address)
        : acceptor_(io_, tcp::endpoint{ip(address), 0}, /*reuse_addr=*/false) {}
    // The socket becomes another user's: root alone can do that.
    bool give_to(uid_t user) {
        return ::fchown(acceptor_.native_handle(), user, static_cast<gid_t>(-1)) == 0;
    }
    std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
    // Whether somebody has connected.
    bool has_heard() {
        acceptor_.non_blocking(true);
        ErrorCode ec;
        static_cast<void>(acceptor_.accept(ec));
        return !ec;
    }

  private:
    net::io_context io_;
    tcp::acceptor acceptor_;
};

TEST(Listener, IsFoundAtItsAddressAndWhereAnyIsTaken) {
    const Listening near{"127.0.0.1"};
    EXPECT_THAT(listeners_at(ip("127.0.0.1"), near.port()), ElementsAre(::geteuid()));
    EXPECT_THAT(listeners_at(ip("127.0.0.2"), near.port()), IsEmpty());
    const Listening any{"0.0.0.0"};
    EXPECT_THAT(listeners_at(ip("127.0.0.1"), any.port()), ElementsAre(::geteuid()));
    EXPECT_EQ(stranger_at(ip("127.0.0.1"), any.port(), {}), std::nullopt);
}

TEST(Listener, OfBothFamiliesTakesConnectionsOfIPv4) {
    net::io_context io;
    ErrorCode ec;
    tcp::acceptor six{io};
    six.open(tcp::v6(), ec);
    if (!ec) {
        six.bind({net::ip::address_v6{}, 0}, ec);
    }
    if (ec) {
        GTEST_SKIP() << "no IPv6: " << ec.message();
    }
    six.listen();
    const auto port = six.local_endpoint().port();
    EXPECT_THAT(listeners_at(ip("127.0.0.1"), port), ElementsAre(::geteuid()));
    EXPECT_THAT(listeners_at(ip("::1"), port), ElementsAre(::geteuid()));
}

TEST(Listener, OfAnotherUserIsAStrangerUnlessKnown) {
    Listening other{"127.0.0.1"};
    if (!other.give_to(kStranger)) {
        GTEST_SKIP() << "root alone gives a socket away";
    }
    EXPECT_EQ(stranger_at(ip("127.0.0.1"), other.port(), {}), kStranger);
    EXPECT_EQ(stranger_at(ip("127.0.0.1"), other.port(), {1, kStranger}), std::nullopt);
    EXPECT_THAT(user_text(kStranger), HasSubstr("65533"));
}

// It got the token of whoever asked next: any user may bind the port of a lockstepd that is down.
TEST(Listener, OfAnotherUserIsSentNoToken) {
    Listening other{"127.0.0.1"};
    if (!other.give_to(kStranger)) {
        GTEST_SKIP() << "root alone gives a socket away";
    }
    Access access;
    access.url = "http://localhost:" + std::to_string(other.port());
    access.token = "secret";
    const auto client = Client::connect(access);
    ASSERT_TRUE(client.has_value());
    const auto answer = client->get("/v1/jobs");
    ASSERT_FALSE(answer.has_value());
    EXPECT_FALSE(other.has_heard());
    // localhost is two addresses; at the other one nobody listens.
    access.url = "http://127.0.0.1:" + std::to_string(other.port());
    const auto refused = Client::connect(access)->get("/v1/jobs");
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::denied);
    EXPECT_THAT(refused.error().message, HasSubstr("uid 65533"));
    EXPECT_FALSE(other.has_heard());
}

}  // namespace
}  // namespace lockstep::cli
