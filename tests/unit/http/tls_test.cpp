// Listeners that speak TLS: requests, streams and agent sockets through it, and who is turned away.
#include "daemon/http/auth/certificate.hpp"
#include "job/async/rest_http.hpp"
#include "job/async/ws_client.hpp"
#include "tests/unit/http/session_fixture.hpp"
#include "tests/unit/http/tls_client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Sends back what it gets.
class Mirror final : public AgentSession {
  public:
    explicit Mirror(std::shared_ptr<AgentPeer> peer) : peer_(std::move(peer)) {}
    void on_text(std::string_view bytes) override { peer_->send({false, std::string{bytes}}); }
    void on_binary(std::string_view bytes) override { peer_->send({true, std::string{bytes}}); }
    void on_closed() override { peer_.reset(); }

  private:
    std::shared_ptr<AgentPeer> peer_;
};

class TlsTest : public SessionTest {
  protected:
    void start_tls(HttpSettings settings = {}, UnixMillis lifetime = 3'600'000) {
        const UnixMillis now = SystemClock{}.wall();
        const auto made = make_certificate({"127.0.0.1"}, now - 7'200'000, now + lifetime);
        ASSERT_TRUE(made) << made.error().text();
        fingerprint_ = made->fingerprint;
        const auto context = listener_tls(*made);
        ASSERT_TRUE(context) << context.error().text();
        gate_.answer = [](std::shared_ptr<AgentPeer> peer) {
            return Result<std::shared_ptr<AgentSession>>{std::make_shared<Mirror>(std::move(peer))};
        };
        start(std::move(settings), Surface::all, *context);
    }
    Endpoint endpoint() const {
        return {"127.0.0.1", std::to_string(server_->port()), true, fingerprint_};
    }
    Result<ClientResponse> ask(const Endpoint& where, std::string method, std::string target,
                               std::string body = {}) {
        ClientRequest request;
        request.method = std::move(method);
        request.target = std::move(target);
        request.body = std::move(body);
        request.headers = {{"Authorization", "Bearer user-token"},
                           {"Content-Type", "application/json"}};
        return http_request_now(where, std::move(request));
    }
    // `talk` runs to its end on a context of its own.
    static void run(Task<void> talk) {
        net::io_context io{1};
        net::co_spawn(io, std::move(talk),
                      [](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); });
        io.run();
    }

    std::string fingerprint_;
};

TEST_F(TlsTest, RequestsGoThroughItWhateverTheirSize) {
    start_tls();
    const auto who = ask(endpoint(), "GET", "/private");
    ASSERT_TRUE(who) << who.error().text();
    EXPECT_EQ(who->body, "uma");
    const std::string body = "\"" + std::string(900'000, 'b') + "\"";
    const auto echo = ask(endpoint(), "POST", "/echo", body);
    ASSERT_TRUE(echo) << echo.error().text();
    EXPECT_EQ(echo->body, body);
    const auto large = ask(endpoint(), "GET", "/large");
    ASSERT_TRUE(large) << large.error().text();
    EXPECT_EQ(large->body.size(), 8U << 20U);
    const auto pieces = ask(endpoint(), "GET", "/pieces");
    ASSERT_TRUE(pieces) << pieces.error().text();
    EXPECT_TRUE(pieces->body == numbered_lines());
    const auto slow = ask(endpoint(), "GET", "/slow");
    ASSERT_TRUE(slow) << slow.error().text();
    EXPECT_EQ(slow->body, "slow /slow");
}

// Users' Slurm tokens went in clear to a slurmrestd on another machine.
TEST_F(TlsTest, ARestServerIsAskedOverTlsAndToldNothingIfItShowsAnotherCertificate) {
    start_tls();
    RestAddress address;
    address.endpoint = endpoint();
    const auto asked = [&](const std::string& target) {
        RestAnswer answer;
        net::io_context io{1};
        RestHttp rest{io, address, 16U << 20U};
        const auto talk = [&]() -> Task<void> {
            ClientRequest request;
            request.target = target;
            request.headers = {{"Authorization", "Bearer user-token"}};
            answer = co_await rest.request(std::move(request));
        };
        net::co_spawn(io, talk(),
                      [](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); });
        io.run();
        return answer;
    };
    const auto who = asked("/private");
    ASSERT_TRUE(who.response) << who.response.error().text();
    EXPECT_EQ(who.response->body, "uma");
    EXPECT_EQ(asked("/large").response->body.size(), 8U << 20U);
    address.endpoint.fingerprint = "sha256:" + std::string(64, '0');
    const auto other = asked("/private");
    ASSERT_FALSE(other.response);
    EXPECT_FALSE(other.sent);
    EXPECT_THAT(other.response.error().message, HasSubstr("shows certificate"));
    address.endpoint.fingerprint.clear();  // nobody's authority has signed it
    const auto untrusted = asked("/private");
    ASSERT_FALSE(untrusted.response);
    EXPECT_FALSE(untrusted.sent);
    EXPECT_THAT(untrusted.response.error().message, HasSubstr("not trusted"));
}

TEST_F(TlsTest, AStreamArrivesWholeAndEnds) {
    start_tls();
    ClientRequest request;
    request.target = "/stream";
    std::string all;
    const auto done = http_stream_now(endpoint(), request, [&](std::string_view bytes) {
        all += bytes;
        return true;
    });
    ASSERT_TRUE(done) << done.error().text();
    EXPECT_EQ(all, "piece 1\npiece 2\n");
}

TEST_F(TlsTest, RequestsOfOneConnectionFollowEachOtherAndItsEndIsSaid) {
    start_tls();
    TlsClient client{server_->port()};
    ASSERT_TRUE(client.shaken());
    EXPECT_TRUE(client.send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT_EQ(status_in(client.read_until("{}")), 200);
    EXPECT_TRUE(
        client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                    "Authorization: Bearer user-token\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: 4\r\n\r\n"));
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_TRUE(client.send("1234"));
    const std::string answer = client.read_until();
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_TRUE(answer.ends_with("\r\n\r\n1234"));
    EXPECT_TRUE(client.ended_properly());
}

TEST_F(TlsTest, AnotherCertificateIsRefusedByNameBeforeAnythingIsSent) {
    start_tls();
    Endpoint other = endpoint();
    other.fingerprint = "sha256:" + std::string(64, '0');
    const auto got = ask(other, "GET", "/private");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Errc::denied);
    EXPECT_THAT(got.error().message, HasSubstr("127.0.0.1:" + other.port));
    EXPECT_THAT(got.error().message, HasSubstr("shows certificate " + fingerprint_));
    EXPECT_THAT(got.error().message, HasSubstr(other.fingerprint + " is expected"));
    run([](Endpoint where) -> Task<void> {
        auto& io = static_cast<net::io_context&>(
            net::query(co_await net::this_coro::executor, net::execution::context));
        WsClient client{io};
        const Status refused = co_await client.connect(where, "/v1/agent", "ticket", 10s);
        EXPECT_FALSE(refused);
        EXPECT_TRUE(refused || refused.error().code == Errc::denied);
    }(other));
    EXPECT_TRUE(server_->on_thread([this] { return gate_.tickets.empty(); }));
    EXPECT_TRUE(ask(endpoint(), "GET", "/private"));
}

TEST_F(TlsTest, WithoutAFingerprintSomebodyKnownHasToVouch) {
    start_tls();
    Endpoint anybody = endpoint();
    anybody.fingerprint.clear();
    const auto got = ask(anybody, "GET", "/private");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Errc::denied);
    EXPECT_THAT(got.error().message, HasSubstr("the daemon at 127.0.0.1:" + anybody.port +
                                               " shows a certificate that is not trusted: "));
}

TEST_F(TlsTest, AStrangersCertificateCanBeLookedAt) {
    start_tls();
    Endpoint anybody = endpoint();
    anybody.fingerprint.clear();
    const auto shown = certificate_now(anybody, 10s);
    ASSERT_TRUE(shown) << shown.error().text();
    EXPECT_EQ(*shown, fingerprint_);
    EXPECT_EQ(server_->on_thread([this] { return server_->server().counters().timed_out; }), 0U);
}

TEST_F(TlsTest, APinnedCertificateMayHaveExpired) {
    start_tls({}, -3'600'000);
    const auto got = ask(endpoint(), "GET", "/private");
    ASSERT_TRUE(got) << got.error().text();
    EXPECT_EQ(got->body, "uma");
}

TEST_F(TlsTest, PlainHttpAtTheTlsPortIsToldSoAndHarmsNobody) {
    start_tls();
    const std::string answer = get("/open");
    EXPECT_EQ(status_in(answer), 400);
    EXPECT_TRUE(answer.ends_with("this port speaks TLS: use https://\n"));
    EXPECT_EQ(exchange(std::string(100, '\x7F')).find("HTTP"), std::string::npos);
    EXPECT_EQ(
        exchange(std::string("\x16\x03\x01\x40\x00", 5) + std::string(0x4000, 'x')).find("HTTP"),
        std::string::npos);
    EXPECT_TRUE(ask(endpoint(), "GET", "/private"));
}

TEST_F(TlsTest, AStalledHandshakeEndsAtItsDeadlineAndHoldsUpNobody) {
    HttpSettings settings;
    settings.limits.header_timeout = 5s;  // of the good handshake too
    settings.limits.sweep = 10ms;
    start_tls(std::move(settings));
    RawClient silent{server_->port()};
    RawClient begun{server_->port()};
    EXPECT_TRUE(begun.send(std::string_view{"\x16\x03\x01\x02\x00\x01", 6}));
    EXPECT_TRUE(ask(endpoint(), "GET", "/private"));
    EXPECT_EQ(silent.read_to_end(), "");
    EXPECT_FALSE(silent.timed_out());
    EXPECT_EQ(begun.read_to_end(), "");
    EXPECT_FALSE(begun.timed_out());
    EXPECT_EQ(server_->on_thread([this] { return server_->server().counters().timed_out; }), 2U);
}

TEST_F(TlsTest, AStopWaitsNeitherForIdlePeersNorForHandshakes) {
    start_tls();
    TlsClient idle{server_->port()};
    RawClient handshake{server_->port()};
    EXPECT_TRUE(idle.shaken());
    EXPECT_TRUE(ask(endpoint(), "GET", "/private"));
    const auto began = std::chrono::steady_clock::now();
    server_->stop(60s);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
    EXPECT_EQ(handshake.read_to_end(), "");
}

TEST_F(TlsTest, OldProtocolsAreRefused) {
    start_tls();
    const TlsClient old{server_->port(), TLS1_1_VERSION};
    EXPECT_FALSE(old.shaken());
    EXPECT_EQ(old.refusal(), SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);  // the server's, not our own
    EXPECT_TRUE(TlsClient(server_->port(), TLS1_2_VERSION).shaken());
    EXPECT_TRUE(TlsClient(server_->port(), TLS1_3_VERSION).shaken());
}

TEST_F(TlsTest, ManyHandshakesAtATimeAllEnd) {
    HttpSettings settings;
    settings.limits.address_handshakes = 2;
    settings.limits.header_timeout = 60s;  // they wait for each other
    start_tls(std::move(settings));
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([this, &good] {
            for (int j = 0; j < 5; ++j) {
                const auto got = ask(endpoint(), "GET", "/private");
                good += got && got->body == "uma" ? 1 : 0;
            }
        });
    }
    for (std::thread& one : threads) {
        one.join();
    }
    EXPECT_EQ(good, 40);
}

TEST_F(TlsTest, FiniteFieldsAreNotOffered) {
    start_tls();
    for (const char* group : {"X25519", "P-256", "P-384"}) {
        EXPECT_TRUE(TlsClient(server_->port(), TLS1_3_VERSION, group).shaken()) << group;
    }
    for (const char* group : {"ffdhe2048", "ffdhe8192", "P-521"}) {
        const TlsClient client{server_->port(), TLS1_3_VERSION, group};
        EXPECT_FALSE(client.shaken()) << group;
        EXPECT_EQ(client.refusal(), SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE) << group;
    }
}

TEST_F(TlsTest, AgentMessagesGoBothWays) {
    start_tls();
    run([](Endpoint where) -> Task<void> {
        auto& io = static_cast<net::io_context&>(
            net::query(co_await net::this_coro::executor, net::execution::context));
        WsClient client{io};
        const Status up = co_await client.connect(where, "/v1/agent", "ticket", 10s);
        EXPECT_TRUE(up) << up.error().text();
        EXPECT_EQ(client.local_address(), "127.0.0.1");
        for (const std::size_t size :
             {std::size_t{1}, std::size_t{40'000}, std::size_t{3} << 20U}) {
            WsMessage message;
            message.binary = size > 1;
            message.bytes = std::string(size, 'm');
            const Status sent = co_await client.write(std::move(message));
            EXPECT_TRUE(sent);
            const auto back = co_await client.read();
            EXPECT_TRUE(back && back->bytes.size() == size && back->binary == (size > 1));
        }
        client.close();
        const auto after = co_await client.read();
        EXPECT_FALSE(after);
    }(endpoint()));
    EXPECT_EQ(server_->on_thread([this] { return gate_.tickets.size(); }), 1U);
}

}  // namespace
}  // namespace lockstep
