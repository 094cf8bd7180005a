// WS /v1/agent from end to end: WsClient against the listener, with a gate that records.
#include "daemon/http/server/agent_socket.hpp"

#include "job/async/ws_client.hpp"
#include "job/base/digest.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Echoes with a mark; "close" closes, "flood" sends more than the queue holds.
class Echo final : public AgentSession {
  public:
    Echo(std::shared_ptr<AgentPeer> peer, std::promise<void>& closed, std::atomic<int>& heard)
        : peer_(std::move(peer)), closed_(closed), heard_(heard) {
        peer_->send({false, "welcome"});
    }
    void on_text(std::string_view bytes) override {
        ++heard_;
        if (bytes == "close") {
            peer_->send({false, "bye"});
            peer_->close("asked to");
            return;
        }
        if (bytes == "shared") {
            const auto text = std::make_shared<const std::string>("for all");
            peer_->send({true, "first"});
            peer_->send_shared(text);
            peer_->send_shared(text);
            peer_->send({true, "last"});
            return;
        }
        if (bytes == "flood") {
            for (int i = 0; i < 40; ++i) {
                peer_->send({true, std::string(1U << 20U, 'f')});
            }
            return;
        }
        peer_->send({false, "text " + std::string{bytes}});
    }
    void on_binary(std::string_view bytes) override {
        peer_->send({true, "binary " + std::to_string(bytes.size())});
    }
    void on_closed() override { closed_.set_value(); }  // throws when it is called twice

  private:
    std::shared_ptr<AgentPeer> peer_;
    std::promise<void>& closed_;
    std::atomic<int>& heard_;
};

class AgentSocketTest : public testing::Test {
  protected:
    AgentSocketTest() {
        Route route;
        route.path = "/v1/agent";
        route.scope = Scope::agent;
        route.operation = "agent";
        route.handler = AgentUpgrade{};
        router_.add(route);
        gate_.answer = [this](std::shared_ptr<AgentPeer> peer) {
            return Result<std::shared_ptr<AgentSession>>{
                std::make_shared<Echo>(std::move(peer), closed_, heard_)};
        };
        server_ = std::make_unique<TestServer>(router_, &gate_, HttpSettings{});
    }
    Status connect(WsClient& client) {
        return run(client.connect({"127.0.0.1", std::to_string(server_->port())}, "/v1/agent",
                                  "ticket", 10s));
    }
    template <class T>
    T run(Task<T> task) {
        std::optional<T> out;
        net::co_spawn(io_, keep(std::move(task), out),
                      [](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); });
        io_.restart();
        while (!out) {
            io_.run_one();
        }
        return std::move(*out);
    }
    template <class T>
    static Task<void> keep(Task<T> task, std::optional<T>& out) {
        out.emplace(co_await std::move(task));
    }
    std::string read(WsClient& client) {
        auto message = run(client.read());
        return message ? (message->binary ? "b:" : "t:") + message->bytes.substr(0, 80) : "closed";
    }
    bool closed_soon() { return closed_.get_future().wait_for(10s) == std::future_status::ready; }

    net::io_context io_{1};
    Router router_;
    FakeGate gate_;
    std::promise<void> closed_;
    std::atomic<int> heard_{0};
    std::unique_ptr<TestServer> server_;
};

TEST_F(AgentSocketTest, MessagesGoBothWaysInOrder) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    EXPECT_EQ(gate_.tickets, std::vector<std::string>{sha256_hex("ticket")});
    EXPECT_EQ(gate_.remotes, std::vector<std::string>{"127.0.0.1"});
    EXPECT_EQ(client.local_address(), "127.0.0.1");
    EXPECT_EQ(read(client), "t:welcome");
    WsMessage text{false, "hello"};
    WsMessage binary{true, std::string(3U << 20U, 'x')};
    EXPECT_TRUE(run(client.write(text)));
    EXPECT_TRUE(run(client.write(binary)));
    EXPECT_EQ(read(client), "t:text hello");
    EXPECT_EQ(read(client), "b:binary 3145728");
    client.close();
    EXPECT_EQ(read(client), "closed");
    EXPECT_TRUE(closed_soon());
}

// Has not said who it is before its first "hello".
class Shy final : public AgentSession {
  public:
    explicit Shy(std::shared_ptr<AgentPeer> peer) : peer_(std::move(peer)) {}
    void on_text(std::string_view bytes) override {
        hello_ = hello_ || bytes == "hello";
        peer_->send({false, std::to_string(bytes.size())});
    }
    void on_binary(std::string_view) override {}
    bool introduced() const override { return hello_; }
    void on_closed() override {}

  private:
    std::shared_ptr<AgentPeer> peer_;
    bool hello_ = false;
};

TEST_F(AgentSocketTest, WhoDoesNotSayHelloIsNotWaitedFor) {
    HttpSettings settings;
    settings.limits.hello_timeout = 50ms;
    settings.limits.sweep = 10ms;
    gate_.answer = [](std::shared_ptr<AgentPeer> peer) {
        return Result<std::shared_ptr<AgentSession>>{std::make_shared<Shy>(std::move(peer))};
    };
    server_ = std::make_unique<TestServer>(router_, &gate_, settings);
    WsClient silent{io_};
    ASSERT_TRUE(connect(silent));
    EXPECT_EQ(read(silent), "closed");
}

TEST_F(AgentSocketTest, BeforeHelloMessagesAreSmall) {
    gate_.answer = [](std::shared_ptr<AgentPeer> peer) {
        return Result<std::shared_ptr<AgentSession>>{std::make_shared<Shy>(std::move(peer))};
    };
    WsMessage large{false, std::string(limits::kHelloBytes + 1, 'x')};
    WsClient stranger{io_};
    ASSERT_TRUE(connect(stranger));
    static_cast<void>(run(stranger.write(large)));  // the answer may come before it has gone
    EXPECT_EQ(read(stranger), "closed");
    WsClient agent{io_};
    ASSERT_TRUE(connect(agent));
    WsMessage hello{false, "hello"};
    EXPECT_TRUE(run(agent.write(hello)));
    EXPECT_TRUE(run(agent.write(large)));
    EXPECT_EQ(read(agent), "t:5");
    EXPECT_EQ(read(agent), "t:" + std::to_string(limits::kHelloBytes + 1));
}

TEST_F(AgentSocketTest, WhatManyAgentsGetKeepsItsPlaceAmongTheRest) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    WsMessage message{false, "shared"};
    EXPECT_TRUE(run(client.write(message)));
    for (const char* expected : {"t:welcome", "b:first", "t:for all", "t:for all", "b:last"}) {
        EXPECT_EQ(read(client), expected);
    }
    client.close();
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, TheDaemonClosesAfterWhatItHadToSay) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    WsMessage message{false, "close"};
    EXPECT_TRUE(run(client.write(message)));
    EXPECT_EQ(read(client), "t:welcome");
    EXPECT_EQ(read(client), "t:bye");
    EXPECT_EQ(read(client), "closed");
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, AnUnknownTicketIs401BeforeTheUpgrade) {
    gate_.answer = nullptr;
    WsClient client{io_};
    const auto status = connect(client);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::denied);
}

TEST_F(AgentSocketTest, ATakenNodeIs403AndABusyDaemonMayBeTriedAgain) {
    const std::vector<std::pair<Errc, Errc>> table{{Errc::conflict, Errc::denied},
                                                   {Errc::unavailable, Errc::unavailable}};
    for (const auto& [said, seen] : table) {
        gate_.answer = [code = said](const std::shared_ptr<AgentPeer>&) {
            return Result<std::shared_ptr<AgentSession>>{fail(code, "no")};
        };
        WsClient client{io_};
        const auto status = connect(client);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, seen);
    }
}

TEST_F(AgentSocketTest, AnAgentThatDoesNotReadIsClosed) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    WsMessage message{false, "flood"};
    EXPECT_TRUE(run(client.write(message)));
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, AFrameOverTheCapEndsTheConnection) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    WsMessage message{true, std::string(limits::kAgentFrameBytes + 1, 'x')};
    run(client.write(message));
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, PlainRequestsAndRequestsWithoutATicketAreRefused) {
    const std::string upgrade =
        "GET /v1/agent HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    const std::string key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const std::vector<std::pair<std::string, int>> table{
        {"GET /v1/agent HTTP/1.1\r\nHost: localhost\r\n\r\n", 426},
        {upgrade + "\r\n", 400},
        {upgrade + key + "\r\n", 401},
        {upgrade + key + "Authorization: Basic x\r\n\r\n", 401}};
    for (const auto& [bytes, status] : table) {
        RawClient client{server_->port()};
        client.send(bytes);
        client.finish_sending();
        EXPECT_EQ(status_in(client.read_to_end()), status) << bytes;
    }
    EXPECT_TRUE(gate_.tickets.empty());
}

TEST_F(AgentSocketTest, StoppingClosesAgents) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    EXPECT_EQ(read(client), "t:welcome");
    server_->stop(100ms);
    EXPECT_EQ(read(client), R"(t:{"type":"drain","reason":"lockstepd is being stopped"})");
    EXPECT_EQ(read(client), "closed");
    EXPECT_TRUE(closed_soon());
}

// A client that says what no library would; "" = it was not let in.
std::string upgrade(RawClient& client, const std::string& behind = {}) {
    client.send(
        "GET /v1/agent HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer ticket\r\n\r\n" +
        behind);
    return client.read_until("\x81\x07welcome");
}
// With a mask of zeros, which leaves the payload as it is.
std::string frame(unsigned first, const std::string& payload) {
    std::string out{static_cast<char>(first), static_cast<char>(0x80U | payload.size())};
    return out + std::string(4, '\0') + payload;
}

TEST_F(AgentSocketTest, TheAnswerToTheUpgradeComesBeforeWhatWasSentThen) {
    RawClient client{server_->port()};
    const std::string answer = upgrade(client);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 101 ")) << answer;
    EXPECT_NE(answer.find("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
              std::string::npos)
        << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\n\x81\x07welcome")) << answer;
}

TEST_F(AgentSocketTest, WhatComesWithTheUpgradeOrTogetherIsHeardInOrder) {
    RawClient client{server_->port()};
    std::string all = upgrade(client, frame(0x81, "early"));  // maybe its answer, too
    client.send(frame(0x81, "two") + frame(0x89, "still there?") + frame(0x82, "12345"));
    all += client.read_until("binary 5");
    EXPECT_EQ(all.substr(all.find("text")),
              "text early\x81\x08text two\x8a\x0cstill there?\x82\x08"
              "binary 5");
}

// A node that was given up went on to say what counted, for as long as it did not answer CLOSE.
TEST_F(AgentSocketTest, NothingIsHeardOnceTheDaemonCloses) {
    RawClient client{server_->port()};
    upgrade(client);
    client.send(frame(0x81, "close") + frame(0x81, "late") + frame(0x88, "\x03\xe8"));
    client.read_to_end();
    EXPECT_TRUE(closed_soon());
    EXPECT_EQ(heard_, 1);
}

TEST_F(AgentSocketTest, ACloseIsAnsweredWithItsCode) {
    RawClient client{server_->port()};
    upgrade(client);
    client.send(frame(0x88, "\x03\xe9"));
    EXPECT_EQ(client.read_to_end(), "\x88\x02\x03\xe9");
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, WhoBreaksTheRulesIsToldSoAndGoes) {
    RawClient client{server_->port()};
    upgrade(client);
    client.send(frame(0x81, "\xff"));
    EXPECT_EQ(client.read_to_end(), "\x88\x02\x03\xef");
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, AnOldProtocolIsNotUpgraded) {
    RawClient client{server_->port()};
    client.send(
        "GET /v1/agent HTTP/1.0\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer ticket\r\n\r\n");
    client.finish_sending();
    EXPECT_EQ(status_in(client.read_to_end()), 400);
}

TEST_F(AgentSocketTest, WhoIsQuietIsAskedAndThenLeft) {
    const std::string ping{"\x89\0", 2};
    bool asked_twice = false;
    // Where the machine stands still for longer than a client may be silent, its answer is late.
    for (const auto silence : {400ms, 3'000ms, 14'000ms}) {
        HttpSettings settings;
        settings.limits.sweep = 5ms;
        settings.limits.agent_silence = silence;
        server_ = std::make_unique<TestServer>(router_, &gate_, settings);
        closed_ = {};
        RawClient client{server_->port()};
        upgrade(client);
        const bool asked = client.read_some() == ping;
        client.send(frame(0x8A, ""));
        const bool again = client.read_some() == ping;  // it was heard: asked once more
        asked_twice = client.read_to_end().empty() && asked && again;
        EXPECT_FALSE(client.timed_out());
        EXPECT_TRUE(closed_soon());
        if (asked_twice) {
            break;
        }
    }
    EXPECT_TRUE(asked_twice);
}

TEST_F(AgentSocketTest, ACloseThatIsNotAnsweredEndsTheConnection) {
    HttpSettings settings;
    settings.limits.sweep = 5ms;
    settings.limits.agent_close_timeout = 20ms;
    server_ = std::make_unique<TestServer>(router_, &gate_, settings);
    RawClient client{server_->port()};
    upgrade(client);
    client.send(frame(0x81, "close"));
    const std::string all = client.read_to_end();
    EXPECT_FALSE(client.timed_out());
    EXPECT_TRUE(
        all.starts_with("\x81\x03"
                        "bye\x88\x0a\x03\xe8"
                        "asked to"))
        << all;
    EXPECT_TRUE(closed_soon());
}

TEST_F(AgentSocketTest, AWaitingReadEndsWhenTheClientCloses) {
    WsClient client{io_};
    ASSERT_TRUE(connect(client));
    EXPECT_EQ(read(client), "t:welcome");
    net::post(io_, [&] { client.close(); });
    EXPECT_EQ(read(client), "closed");
}

}  // namespace
}  // namespace lockstep
