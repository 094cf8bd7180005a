// The listener's limits in time and number: silence, slow readers, too many connections, streams.
#include "tests/unit/http/session_fixture.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

HttpSettings impatient() {
    HttpSettings settings;
    settings.limits.header_timeout = 50ms;
    settings.limits.body_timeout = 50ms;
    settings.limits.idle_timeout = 50ms;
    settings.limits.write_timeout = 50ms;
    settings.limits.sweep = 10ms;
    return settings;
}

TEST_F(SessionTest, SilenceIsEndedWhateverItInterrupts) {
    start(impatient());
    const std::string post =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
        "Content-Type: application/json\r\nContent-Length: 10\r\n\r\nhalf";
    for (const std::string& begin : {std::string{}, std::string{"GET /op"},
                                     std::string{"GET /open HTTP/1.1\r\nHost: loc"}, post}) {
        EXPECT_EQ(exchange(begin), "") << begin;
    }
    // A machine that stands still makes this one late too. Each ends once it is silent.
    std::uint64_t ended = 4;
    int status = 0;
    for (int tries = 0; tries < 20 && status != 200; ++tries, ++ended) {
        status = status_in(exchange("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    EXPECT_EQ(status, 200);
    EXPECT_EQ(server_->on_thread([this] { return server_->server().counters().timed_out; }), ended);
}

TEST_F(SessionTest, AHeaderMayNotTrickleInForever) {
    start(impatient());
    RawClient client{server_->port()};
    // Bytes keep coming, but the deadline is that of the whole header.
    bool alive = true;
    for (int i = 0; i < 100'000 && alive; ++i) {
        alive = client.send(i == 0 ? "GET /open HTTP/1.1\r\nHost: localhost\r\nX: " : "a");
        std::this_thread::yield();
        alive = alive && i < 7000;
    }
    EXPECT_NE(status_in(client.read_to_end()), 200);
}

TEST_F(SessionTest, AReaderThatStopsReadingIsEvicted) {
    start(impatient());
    RawClient client{server_->port()};
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const auto deadline = Steady::now() + 10s;
    const auto closed = [this] {
        return server_->on_thread([this] { return server_->server().counters().timed_out; });
    };
    while (closed() == 0 && Steady::now() < deadline) {
        std::this_thread::yield();
    }
    EXPECT_EQ(closed(), 1U);
    EXPECT_LT(client.read_to_end().size(), 8U << 20U);
}

TEST_F(SessionTest, ConnectionsOverTheCapAreTurnedAway) {
    HttpSettings settings;
    settings.limits.connections = 2;
    settings.limits.stranger_patience = 1h;  // they are slow if the machine stands still
    start(settings);
    RawClient one{server_->port()};
    RawClient two{server_->port()};
    // Both are in once they have been answered.
    for (RawClient* client : {&one, &two}) {
        client->send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_EQ(status_in(client->read_until("{}")), 200);
    }
    RawClient three{server_->port()};
    EXPECT_EQ(status_in(three.read_to_end()), 503);
    one.send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(one.read_until("{}")), 200);
}

TEST_F(SessionTest, WhoOnlyHoldsConnectionsGivesWay) {
    HttpSettings settings;
    settings.limits.connections = 3;
    settings.limits.stranger_patience = 0ms;
    start(settings);
    RawClient honest{server_->port()};
    honest.send(
        "GET /private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n\r\n");
    EXPECT_EQ(status_in(honest.read_until("uma")), 200);
    RawClient first{server_->port()};
    first.send("GET /op");
    RawClient second{server_->port()};
    second.send("GET /op");
    EXPECT_EQ(status_in(get("/open")), 200);
    EXPECT_EQ(first.read_to_end(), "");
    EXPECT_FALSE(first.timed_out());
    honest.send(
        "GET /private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n\r\n");
    EXPECT_EQ(status_in(honest.read_until("uma")), 200);
}

TEST_F(SessionTest, AUserOverTheShareLosesTheConnectionThatHasRestedLongest) {
    HttpSettings settings;
    settings.limits.user_connections = 2;
    start(settings);
    const std::string ask =
        "GET /private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n\r\n";
    RawClient first{server_->port()};
    RawClient second{server_->port()};
    RawClient third{server_->port()};
    for (RawClient* client : {&first, &second, &third}) {
        client->send(ask);
        EXPECT_EQ(status_in(client->read_until("uma")), 200);
    }
    EXPECT_EQ(first.read_to_end(), "");
    EXPECT_FALSE(first.timed_out());
    second.send(ask);
    EXPECT_EQ(status_in(second.read_until("uma")), 200);
    // Two that are at work: streams.
    RawClient one{server_->port()};
    RawClient two{server_->port()};
    for (RawClient* client : {&one, &two}) {
        client->send(
            "GET /watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n\r\n");
        EXPECT_EQ(status_in(client->read_until("piece 2")), 200);
    }
    EXPECT_EQ(status_in(exchange(ask)), 429);
    EXPECT_EQ(status_in(get("/open")), 200);
}

TEST_F(SessionTest, OneConnectionIsNotForEver) {
    HttpSettings settings;
    settings.limits.requests = 3;
    start(settings);
    std::string many;
    for (int i = 0; i < 5; ++i) {
        many += "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n";
    }
    const std::string answers = exchange(many);
    std::size_t answered = 0;
    for (auto at = answers.find("HTTP/1.1 200"); at != std::string::npos;
         at = answers.find("HTTP/1.1 200", at + 1)) {
        ++answered;
    }
    EXPECT_EQ(answered, 3U);
    EXPECT_NE(answers.find("Connection: close"), std::string::npos);
}

TEST_F(SessionTest, BodiesOfAllConnectionsShareTheirRoom) {
    HttpSettings settings;
    settings.limits.bodies = 100'000;
    start(settings);
    const auto head = [](std::size_t length) {
        return "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
               "Content-Type: application/json\r\nContent-Length: " +
               std::to_string(length) + "\r\n\r\n";
    };
    RawClient half{server_->port()};
    half.send(head(90'000) + std::string(80'000, 'h'));
    // Not before: of two that come together either may be the one without room.
    const auto taken = [this] {
        return server_->on_thread([this] { return server_->server().body_bytes(); });
    };
    const auto deadline = Steady::now() + 30s;
    while (taken() < 80'000 && Steady::now() < deadline) {
        std::this_thread::yield();
    }
    RawClient other{server_->port()};
    other.send(head(60'000) + std::string(60'000, 'o'));
    const std::string answer = other.read_until("\r\n\r\n");
    EXPECT_EQ(status_in(answer), 503);
    const auto wait = answer.find("\r\nRetry-After: 1\r\n");
    ASSERT_NE(wait, std::string::npos);
    EXPECT_EQ(answer.find("\r\nRetry-After:", wait + 1), std::string::npos) << "said twice";
    EXPECT_EQ(status_in(get("/open")), 200);
    half.send(std::string(10'000, 'h'));
    EXPECT_EQ(status_in(half.read_until("hhh")), 200);
    const std::string body(60'000, 'o');
    EXPECT_EQ(status_in(post("Content-Type: application/json\r\nContent-Length: 60000\r\n", body)),
              200);
}

TEST_F(SessionTest, StreamsArriveInPiecesAndEnd) {
    start();
    const auto answer = get("/stream");
    EXPECT_NE(answer.find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
    EXPECT_TRUE(answer.ends_with("\r\n\r\n8\r\npiece 1\n\r\n8\r\npiece 2\n\r\n0\r\n\r\n"))
        << answer;
    const auto old = exchange("GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(old.ends_with("\r\n\r\npiece 1\npiece 2\n")) << old;
}

TEST_F(SessionTest, HeadOfAStreamIsItsHeadAndOpensNone) {
    start();
    const auto answer = exchange("HEAD /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_NE(answer.find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos) << answer;
    EXPECT_TRUE(answer.ends_with("\r\nConnection: close\r\n\r\n")) << answer;
    EXPECT_EQ(server_->on_thread([this] { return server_->server().counters().streams; }), 0U);
}

TEST_F(SessionTest, StreamsOverTheCapAreRefusedAndAClientThatGoesFreesItsPlace) {
    HttpSettings settings;
    settings.limits.streams = 1;
    start(settings);
    {
        RawClient first{server_->port()};
        first.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
        EXPECT_EQ(status_in(first.read_until("piece 2")), 200);
        EXPECT_EQ(status_in(get("/endless")), 503);
    }
    const auto deadline = Steady::now() + 10s;
    const auto open = [this] {
        return server_->on_thread([this] { return server_->server().counters().streams; });
    };
    while (open() != 0 && Steady::now() < deadline) {
        std::this_thread::yield();
    }
    EXPECT_EQ(open(), 0U);
}

// The descriptor of this process at the other end of a client's connection; -1: none.
int server_end(const RawClient& client) {
    sockaddr_in wanted{};
    socklen_t size = sizeof wanted;
    ::getsockname(client.descriptor(), reinterpret_cast<sockaddr*>(&wanted), &size);
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        const int fd = std::stoi(entry.path().filename().string());
        sockaddr_in peer{};
        size = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sin_family == AF_INET && peer.sin_port == wanted.sin_port) {
            return fd;
        }
    }
    return -1;
}

// A client that vanished while it followed a quiet log kept its place until lockstepd ended.
TEST_F(SessionTest, AClientThatVanishesFromAQuietStreamIsFound) {
    start();
    RawClient client{server_->port()};
    client.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(client.read_until("piece 2")), 200);
    const int fd = server_end(client);
    ASSERT_GE(fd, 0);
    const auto option = [fd](int level, int name) {
        int value = 0;
        socklen_t size = sizeof value;
        ::getsockopt(fd, level, name, &value, &size);
        return value;
    };
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    const int found_after = option(IPPROTO_TCP, TCP_KEEPIDLE) +
                            option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_LE(found_after, 120) << "seconds; the kernel's own are two hours";
}

TEST_F(SessionTest, OneUsersStreamsLeaveRoomForOthers) {
    HttpSettings settings;
    settings.limits.user_streams = 2;
    start(settings);
    const auto watch = [](RawClient& client, const std::string& token) {
        client.send("GET /watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
                    "\r\n\r\n");
        return status_in(client.read_until("piece 2\n\r\n"));
    };
    RawClient kept{server_->port()};
    EXPECT_EQ(watch(kept, "viewer-token"), 200);
    {
        RawClient second{server_->port()};
        EXPECT_EQ(watch(second, "viewer-token"), 200);
        const std::string refused = get("/watch", "Authorization: Bearer viewer-token\r\n");
        EXPECT_EQ(status_in(refused), 429);
        EXPECT_NE(refused.find("\r\nRetry-After: 1\r\n"), std::string::npos);
        RawClient other{server_->port()};
        EXPECT_EQ(watch(other, "user-token"), 200);
    }
    const auto deadline = Steady::now() + 10s;
    const auto open = [this] {
        return server_->on_thread([this] { return server_->server().counters().streams; });
    };
    while (open() != 1 && Steady::now() < deadline) {
        std::this_thread::yield();
    }
    RawClient again{server_->port()};
    EXPECT_EQ(watch(again, "viewer-token"), 200);
}

TEST_F(SessionTest, SomeStreamsAreForAdmins) {
    HttpSettings settings;
    settings.limits.streams = 2;
    settings.limits.admin_streams = 1;
    start(settings);
    RawClient first{server_->port()};
    first.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(first.read_until("piece 2")), 200);
    EXPECT_EQ(status_in(get("/watch", "Authorization: Bearer viewer-token\r\n")), 503);
    RawClient admin{server_->port()};
    admin.send(
        "GET /watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin-token\r\n\r\n");
    EXPECT_EQ(status_in(admin.read_until("piece 2")), 200);
}

TEST_F(SessionTest, AStreamIsCutWhenItsTokenEndsAndNoOther) {
    HttpSettings settings;
    settings.limits.sweep = 20ms;
    start(settings);
    const auto watch = [](RawClient& client, const std::string& token) {
        client.send("GET /watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
                    "\r\n\r\n");
        EXPECT_EQ(status_in(client.read_until("piece 2\n\r\n")), 200);
    };
    RawClient revoked{server_->port()};
    RawClient other{server_->port()};
    RawClient open{server_->port()};
    watch(revoked, "user-token");
    watch(other, "viewer-token");
    open.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(open.read_until("piece 2\n\r\n")), 200);
    server_->end_token("user-token");
    // No last chunk: the client does not take it for the end of what there was.
    EXPECT_EQ(revoked.read_to_end(), "");
    EXPECT_FALSE(revoked.timed_out());
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer user-token\r\n")), 401);
    EXPECT_EQ(server_->on_thread([this] { return server_->server().counters().streams; }), 2U);
}

TEST_F(SessionTest, StoppingEndsStreamsAndIdleConnectionsAtOnce) {
    start();
    RawClient idle{server_->port()};
    idle.send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(idle.read_until("{}")), 200);
    RawClient streaming{server_->port()};
    streaming.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(streaming.read_until("piece 2")), 200);
    const auto begin = Steady::now();
    server_->stop(60s);
    EXPECT_LT(Steady::now() - begin, 30s);
    EXPECT_EQ(idle.read_some(), "");
    EXPECT_FALSE(idle.timed_out());
}

TEST_F(SessionTest, TheAgentsListenerServesAgentsOnly) {
    start({}, Surface::agents);
    EXPECT_EQ(status_in(get("/open")), 404);
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer admin-token\r\n")), 404);
    EXPECT_EQ(status_in(get("/v1/agent")), 426);
}

TEST_F(SessionTest, OpenMetricsNeedNoTokenButRefuseAWrongOne) {
    HttpSettings settings;
    settings.metrics_open = true;
    start(settings);
    EXPECT_EQ(status_in(get("/metrics")), 200);
    EXPECT_EQ(status_in(get("/metrics", "Authorization: Bearer wrong\r\n")), 401);
    EXPECT_EQ(status_in(get("/private")), 401);
}

// Anonymous callers read the jobs of all users there.
TEST_F(SessionTest, MetricsOfAJobNeedATokenAlsoWhereMetricsAreOpen) {
    HttpSettings settings;
    settings.metrics_open = true;
    start(settings);
    EXPECT_EQ(status_in(get("/metrics/job")), 401);
    EXPECT_EQ(status_in(get("/metrics/job", "Authorization: Bearer viewer-token\r\n")), 200);
}

TEST_F(SessionTest, MetricsNeedATokenUnlessTheyAreOpen) {
    start();
    EXPECT_EQ(status_in(get("/metrics")), 401);
}

TEST_F(SessionTest, TheMetricsListenerServesMetricsAndOpenRoutesOnly) {
    start({}, Surface::metrics);
    EXPECT_EQ(status_in(get("/open")), 200);
    EXPECT_EQ(status_in(get("/metrics", "Authorization: Bearer viewer-token\r\n")), 200);
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer admin-token\r\n")), 404);
}

}  // namespace
}  // namespace lockstep
