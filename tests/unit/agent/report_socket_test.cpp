#include "job/agent/ranks/report_socket.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>

namespace lockstep {
namespace {

TEST(ReportSocket, AnAnswerThatNoSocketHoldsIsReplacedAndTheConnectionStays) {
    net::io_context io;
    TaskGroup tasks{io};
    const test::TemporaryFolder folder;
    const std::string path = (folder / "s").string();
    std::uint64_t from = 0;
    ReportSocket::Handlers handlers;
    handlers.message = [&](std::uint64_t connection, std::string_view) { from = connection; };
    handlers.too_large = [](std::uint64_t, std::size_t, std::string_view) {};
    auto socket = ReportSocket::listen(tasks, path, std::move(handlers));
    ASSERT_TRUE(socket.has_value());

    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd rank{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    ASSERT_EQ(::connect(rank.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ASSERT_EQ(::send(rank.get(), "x", 1, 0), 1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (from == 0 && std::chrono::steady_clock::now() < deadline) {
        io.run_one_for(std::chrono::milliseconds{100});
    }
    ASSERT_NE(from, 0U);

    std::string got(100, '\0');
    const auto receive = [&] {
        const auto size = ::recv(rank.get(), got.data(), got.size(), MSG_DONTWAIT);
        return got.substr(0, size > 0 ? static_cast<std::size_t>(size) : 0);
    };
    // Linux holds no message of 64 MiB in a socket, whatever its buffer is said to be.
    (*socket)->answer(from, std::string(64U << 20U, 'x'), "too large");
    EXPECT_EQ(receive(), "too large");
    (*socket)->answer(from, "small");
    EXPECT_EQ(receive(), "small");
    (*socket)->close();
    io.run();
}

}  // namespace
}  // namespace lockstep
