// Of several addresses of a name the first that answers is taken, whatever the others do.
#include "job/async/connect_first.hpp"

#include "job/base/unique_fd.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Listens on a free port of the loopback, and accepts nobody.
class FirstListener {
  public:
    explicit FirstListener(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
        ::listen(fd_.get(), backlog);
        socklen_t size = sizeof at;
        ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size);
        address_ = {net::ip::address_v4::loopback(), ntohs(at.sin_port)};
    }
    tcp::endpoint address() const { return address_; }
    void close() { fd_.reset(); }

    // Until the kernel drops what comes, as a firewall does. False: it takes any number.
    bool fill() {
        for (int i = 0; i < 64; ++i) {
            UniqueFd caller{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
            sockaddr_in to{};
            to.sin_family = AF_INET;
            to.sin_port = htons(address_.port());
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            ::connect(caller.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
            pollfd ready{caller.get(), POLLOUT, 0};
            callers_.push_back(std::move(caller));
            if (::poll(&ready, 1, 300) == 0) {
                return true;
            }
        }
        return false;
    }

  private:
    UniqueFd fd_;
    tcp::endpoint address_;
    std::vector<UniqueFd> callers_;
};

class ConnectFirst : public testing::Test {
  protected:
    static Task<void> connect(tcp::socket& socket, const std::vector<tcp::endpoint>& targets,
                              std::chrono::steady_clock::time_point deadline, const bool& late,
                              std::optional<ErrorCode>& out) {
        const auto over = [&late] { return late; };
        const ErrorCode ec = co_await connect_first(socket, targets, deadline, over);
        out = ec;
    }

    // What came of it, with the deadline kept as callers keep it.
    ErrorCode try_all(const std::vector<tcp::endpoint>& targets, std::chrono::milliseconds time) {
        bool late = false;
        std::optional<ErrorCode> out;
        const auto deadline = std::chrono::steady_clock::now() + time;
        net::steady_timer timer{io_, deadline};
        timer.async_wait([&](const ErrorCode& ec) {
            if (!ec) {
                late = true;
                ErrorCode ignored;
                socket_.close(ignored);
            }
        });
        net::co_spawn(io_, connect(socket_, targets, deadline, late, out),
                      [&timer](const std::exception_ptr&) { timer.cancel(); });
        io_.restart();
        io_.run();
        return out.value();
    }

    net::io_context io_{1};
    tcp::socket socket_{io_};
};

// It used up the time of all, and the one that works was never tried.
TEST_F(ConnectFirst, AnAddressThatSwallowsPacketsLeavesTimeForTheNext) {
    FirstListener silent{0};
    if (!silent.fill()) {
        GTEST_SKIP() << "this kernel answers for listeners whose queue is full";
    }
    const FirstListener good{4};
    const ErrorCode ec = try_all({silent.address(), good.address()}, 4s);
    ASSERT_FALSE(ec) << ec.message();
    EXPECT_EQ(socket_.remote_endpoint(), good.address());
}

TEST_F(ConnectFirst, AnAddressThatRefusesCostsNothing) {
    FirstListener gone{4};
    const tcp::endpoint nobody = gone.address();
    const FirstListener good{4};
    gone.close();
    const ErrorCode ec = try_all({nobody, good.address()}, 60s);
    ASSERT_FALSE(ec) << ec.message();
    EXPECT_EQ(socket_.remote_endpoint(), good.address());
    EXPECT_EQ(try_all({nobody, nobody}, 60s), net::error::connection_refused);
}

TEST_F(ConnectFirst, WithoutAddressesThereIsNoHost) {
    EXPECT_EQ(try_all({}, 60s), net::error::host_not_found);
}

}  // namespace
}  // namespace lockstep
