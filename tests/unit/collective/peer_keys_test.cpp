// Two ends of a connection that share keys.
#include "job/collective/peer_keys.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <future>

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

// As meet_peer() makes it, but that one end's bytes can be any.
std::array<UniqueFd, 2> connected() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    return {UniqueFd{both[0]}, UniqueFd{both[1]}};
}

std::int32_t free_port() {
    const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
}

TEST(PeerKeys, AreTheSameAtBothEnds) {
    const std::int32_t port = free_port();
    const auto end = std::chrono::steady_clock::now() + 10s;
    const auto meeting = [&](bool lead, const char* token) {
        return PeerMeeting{lead, token, "127.0.0.1", {"127.0.0.1"}, port};
    };
    auto leader = std::async(std::launch::async, meet_peer, meeting(true, "secret"), end);
    // A stranger is sent away and holds nobody up.
    const auto soon = std::chrono::steady_clock::now() + 300ms;
    EXPECT_EQ(meet_peer(meeting(false, "terces"), soon).error().code, Errc::timed_out);
    auto follower = meet_peer(meeting(false, "secret"), end);
    auto led = leader.get();
    ASSERT_TRUE(follower) << follower.error().message;
    ASSERT_TRUE(led) << led.error().message;
    PeerKeyStore one{std::move(*led)};
    PeerKeyStore other{std::move(*follower)};
    const std::string bytes("a\0b\n", 4);
    ASSERT_TRUE(one.set("key", bytes));
    ASSERT_TRUE(one.set("large", std::string(limits::kPeerKeyBytes, 'x')));
    EXPECT_EQ(*other.wait("key", 5s), bytes);
    EXPECT_EQ(other.wait("large", 5s)->size(), limits::kPeerKeyBytes);
    EXPECT_EQ(*one.wait("key", 0ms), bytes) << "its own";
    EXPECT_EQ(one.wait("no", 0ms).error().code, Errc::timed_out);
}

TEST(PeerKeys, OfAnEndThatHasLeftStay) {
    auto [mine, theirs] = connected();
    PeerKeyStore store{std::move(mine)};
    {
        PeerKeyStore other{std::move(theirs)};
        ASSERT_TRUE(other.set("last", "word"));
    }
    EXPECT_EQ(*store.wait("last", 5s), "word");
    EXPECT_EQ(store.wait("more", 60s).error().code, Errc::unavailable) << "at once";
    EXPECT_TRUE(store.left());
}

TEST(PeerKeys, OfSeveralThreadsAreWaitedForWhenTheOtherEndHasLeft) {
    auto [mine, theirs] = connected();
    PeerKeyStore store{std::move(mine), true};
    theirs.reset();
    EXPECT_EQ(store.wait("ours", 10ms).error().code, Errc::unavailable);
    auto waiting = std::async(std::launch::async, [&] { return store.wait("ours", 30s); });
    static_cast<void>(store.set("ours", "here"));
    EXPECT_EQ(*waiting.get(), "here");
}

TEST(PeerKeys, OfAStrangerAreNotTaken) {
    for (const std::string& sent :
         {std::string(32, 'x'), std::string("-1 5") + std::string(60, ' '),
          std::to_string(limits::kPeerKeyBytes + 1) + " 1" + std::string(60, ' '),
          std::string("3 99999999999999999999") + std::string(60, ' '), std::string("3 3 ")}) {
        auto [mine, theirs] = connected();
        PeerKeyStore store{std::move(mine)};
        ASSERT_GT(::send(theirs.get(), sent.data(), sent.size(), MSG_NOSIGNAL), 0);
        theirs.reset();
        EXPECT_EQ(store.wait("key", 30s).error().code, Errc::unavailable) << sent;
    }
}

TEST(PeerKeys, ThatAreTooManyEndTheConnection) {
    auto [mine, theirs] = connected();
    PeerKeyStore store{std::move(mine)};
    PeerKeyStore other{std::move(theirs)};
    for (int i = 0;
         i < 20 && other.set("key" + std::to_string(i), std::string(limits::kPeerKeyBytes, 'x'));
         ++i) {
    }
    EXPECT_EQ(store.wait("none", 30s).error().code, Errc::unavailable);
    EXPECT_TRUE(store.left());
}

}  // namespace
}  // namespace lockstep::test
