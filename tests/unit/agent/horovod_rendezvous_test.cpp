// Horovod's rendezvous: its rules, and the server over real sockets with clients that lie, stop
// half way or are too many.
#include "job/agent/horovod/horovod_rendezvous.hpp"

#include "job/agent/preflight/held_port.hpp"
#include "tests/support/another_user.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string value(const HorovodScopes& scopes, const std::string& scope, const std::string& key) {
    const auto found = scopes.get(scope, key);
    return found ? *found : "none";
}

TEST(HorovodScopes, AGroupIsForgottenOnceAllOfItAreConnected) {
    HorovodScopes scopes{{4, 2, 2}};
    for (const char* rank : {"0", "1"}) {
        ASSERT_TRUE(scopes.put("local_n1", rank, std::string{"at "} + rank));
    }
    scopes.remove("local_n1", "0");
    scopes.remove("local_n1", "0");
    scopes.remove("local_n1", "7");
    scopes.remove("local_n1", "-1");
    scopes.remove("local_n1", "x");
    EXPECT_EQ(value(scopes, "local_n1", "0"), "at 0") << "rank 1 may not have read it";
    scopes.remove("local_n1", "1");
    EXPECT_EQ(value(scopes, "local_n1", "0"), "none");
    EXPECT_EQ(scopes.keys(), 0U);
    EXPECT_EQ(scopes.bytes(), 0U);
    ASSERT_TRUE(scopes.put("local_n1", "0", "again"));
    scopes.remove("local_n1", "0");
    EXPECT_EQ(value(scopes, "local_n1", "0"), "again") << "the next round counts from nothing";
}

TEST(HorovodScopes, EachKindOfGroupHasItsSize) {
    HorovodScopes scopes{{3, 1, 2}};
    const std::map<std::string, int> sizes{{"global", 3}, {"local_n1", 1}, {"cross_0", 2}};
    for (const auto& [scope, size] : sizes) {
        ASSERT_TRUE(scopes.put(scope, "0", "v"));
        for (int rank = 0; rank < size; ++rank) {
            EXPECT_EQ(value(scopes, scope, "0"), "v") << scope << " after " << rank;
            scopes.remove(scope, std::to_string(rank));
        }
        EXPECT_EQ(value(scopes, scope, "0"), "none") << scope;
    }
    ASSERT_TRUE(scopes.put("runfunc", "result", "v"));
    ASSERT_TRUE(scopes.put("runfunc", "other", "w"));
    scopes.remove("runfunc", "result");
    EXPECT_EQ(value(scopes, "runfunc", "result"), "none") << "no group: it is just deleted";
    EXPECT_EQ(value(scopes, "runfunc", "other"), "w");
    scopes.remove("nobody", "x");
}

// Its ranks were waited for as if they were all of the node, so it was never emptied: a later set
// of the same ranks could meet the addresses of the last one.
TEST(HorovodScopes, AProcessSetIsNoGroupOfKnownSize) {
    HorovodScopes scopes{{4, 2, 2}};
    for (const char* scope : {"global_process_set_hash_4711", "local_n1_process_set_hash_4711",
                              "cross_0_process_set_hash_4711"}) {
        ASSERT_TRUE(scopes.put(scope, "0", "v"));
        scopes.remove(scope, "0");
        EXPECT_EQ(value(scopes, scope, "0"), "none") << scope;
    }
    EXPECT_EQ(scopes.keys(), 0U);
    EXPECT_EQ(scopes.bytes(), 0U);
}

TEST(HorovodScopes, IsBounded) {
    HorovodScopes scopes{{1, 1, 1}, 2, 20};
    ASSERT_TRUE(scopes.put("s", "a", "12345"));
    ASSERT_TRUE(scopes.put("s", "b", "12345"));
    EXPECT_EQ(scopes.bytes(), 14U);
    EXPECT_FALSE(scopes.put("s", "c", "")) << "keys";
    EXPECT_FALSE(scopes.put("s", "b", "123456789012")) << "bytes";
    EXPECT_EQ(value(scopes, "s", "b"), "12345");
    ASSERT_TRUE(scopes.put("s", "b", "1234567890"));
    EXPECT_EQ(scopes.bytes(), 19U);
    scopes.remove("s", "a");
    scopes.remove("s", "b");
    EXPECT_EQ(scopes.bytes(), 0U);
}

// A client that blocks, for at most 20 s.
class Client {
  public:
    explicit Client(std::int32_t port) : socket_(io_) {
        ErrorCode ec;
        socket_.connect({net::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)}, ec);
        const timeval patience{20, 0};
        ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    }
    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const auto sent =
                ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    void done_sending() {
        ErrorCode ignored;
        socket_.shutdown(tcp::socket::shutdown_send, ignored);
    }
    // All until the server closes; "timed out" if it does not.
    std::string read_all() {
        std::string out;
        std::array<char, 4096> buffer{};
        for (;;) {
            const auto got = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0);
            if (got < 0 && errno == EAGAIN) {
                return "timed out";
            }
            if (got <= 0) {
                return out;
            }
            out.append(buffer.data(), static_cast<std::size_t>(got));
        }
    }
    std::string ask(std::string_view bytes) {
        send(bytes);
        return read_all();
    }

  private:
    net::io_context io_;
    tcp::socket socket_;
};

class HorovodRendezvousServer : public testing::Test {
  protected:
    // The server in this thread while `clients` runs in another.
    template <class Clients>
    void serve(Clients clients, HorovodRendezvousCaps caps = {},
               std::unique_ptr<StoreGuard> guard = nullptr) {
        auto made =
            HorovodRendezvous::listen(tasks_, port_.fd(), {4, 2, 2}, caps, std::move(guard));
        ASSERT_TRUE(made) << made.error().message;
        server_ = std::move(*made);
        std::thread thread{[&] {
            clients();
            net::post(io_, [this] {
                totals_ = server_->totals();
                server_.reset();
            });
        }};
        io_.restart();
        io_.run();
        thread.join();
        EXPECT_EQ(tasks_.size(), 0U) << "nothing is left behind";
    }
    std::string ask(const std::string& bytes) { return Client{port_.number()}.ask(bytes); }
    std::string get(const std::string& path) {
        return ask("GET " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    }
    std::string put(const std::string& path, const std::string& body) {
        return ask("PUT " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
    }
    HorovodRendezvous::Totals totals_now() {
        std::promise<HorovodRendezvous::Totals> now;
        net::post(io_, [&] { now.set_value(server_->totals()); });
        return now.get_future().get();
    }
    template <class Condition>
    bool becomes(Condition condition) {
        for (int tries = 0; tries < 100'000; ++tries) {
            if (condition(totals_now())) {
                return true;
            }
        }
        return false;
    }

    net::io_context io_{1};
    TaskGroup tasks_{io_};
    HeldPort port_ = HeldPort::hold("127.0.0.1").value();
    std::unique_ptr<HorovodRendezvous> server_;
    HorovodRendezvous::Totals totals_;
};

TEST_F(HorovodRendezvousServer, AnotherUserOfTheMachineIsClosedBeforeItIsHeard) {
    const test::AnotherUser us;
    StoreGuard::Options options;
    options.uid = us.job;
    serve([this] { EXPECT_EQ(put("/global/0", "mine"), ""); }, {},
          std::make_unique<StoreGuard>(std::move(options)));
    EXPECT_EQ(totals_.keys, 0U);
    EXPECT_EQ(totals_.refused, 1U);
    EXPECT_EQ(totals_.requests, 0U);
}

TEST_F(HorovodRendezvousServer, HoldsNoMoreThanItsWorldNeeds) {
    HorovodRendezvousCaps caps;
    caps.bytes = 100;
    serve(
        [this] {
            EXPECT_THAT(put("/global/0", std::string(50, 'x')), StartsWith("HTTP/1.1 200"));
            EXPECT_THAT(put("/global/1", std::string(50, 'x')), StartsWith("HTTP/1.1 503"));
        },
        caps);
}

TEST_F(HorovodRendezvousServer, AnswersAsHorovodsOwn) {
    const std::string bytes{"\0\r\n\r\n\xff", 6};
    serve([&] {
        EXPECT_THAT(get("/global/0"), StartsWith("HTTP/1.1 404 "));
        EXPECT_THAT(put("/global/0", bytes),
                    StartsWith("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"));
        const std::string answer = get("/global/0");
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n"));
        EXPECT_EQ(answer.substr(answer.size() - 6), bytes);
        EXPECT_THAT(put("/global/0", "new"), StartsWith("HTTP/1.1 200"));
        EXPECT_THAT(get("/global/0"), HasSubstr("\r\n\r\nnew"));
        for (const char* rank : {"0", "1", "2", "3"}) {
            EXPECT_THAT(get("/global/0"), StartsWith("HTTP/1.1 200"));
            EXPECT_THAT(ask(std::string{"DELETE /global/"} + rank + " HTTP/1.1\r\n\r\n"),
                        StartsWith("HTTP/1.1 200"));
        }
        EXPECT_THAT(get("/global/0"), StartsWith("HTTP/1.1 404"));
        EXPECT_THAT(ask("GET /global/0 HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 404"));
    });
    EXPECT_EQ(totals_.keys, 0U);
    EXPECT_GE(totals_.requests, 14U);
}

TEST_F(HorovodRendezvousServer, ARequestMayComeInPiecesAndBeLarge) {
    const std::string large(3U << 20U, 'x');
    serve([&] {
        Client slow{port_.number()};
        const std::string head = "PUT /cross_0/1 HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
        for (std::size_t i = 0; i < head.size(); i += 7) {
            slow.send(head.substr(i, 7));
            EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 1; }));
        }
        slow.send("ab");
        EXPECT_THAT(get("/cross_0/1"), StartsWith("HTTP/1.1 404")) << "it is not whole";
        EXPECT_THAT(slow.ask("cd"), StartsWith("HTTP/1.1 200"));
        EXPECT_THAT(get("/cross_0/1"), HasSubstr("\r\n\r\nabcd"));
        EXPECT_THAT(put("/global/1", large), StartsWith("HTTP/1.1 200"));
        const std::string answer = get("/global/1");
        EXPECT_EQ(answer.substr(answer.size() - large.size()), large);
    });
}

TEST_F(HorovodRendezvousServer, WhatIsNoRequestIsRefused) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"\x16\x03\x01\x02\r\n\r\n", "400"},
        {"GET\r\n\r\n", "400"},
        {"GET / HTTP/1.1\r\n\r\n", "400"},
        {"GET /scope HTTP/1.1\r\n\r\n", "400"},
        {"GET /scope/ HTTP/1.1\r\n\r\n", "400"},
        {"GET //key HTTP/1.1\r\n\r\n", "400"},
        {"GET /a/b/c HTTP/1.1\r\n\r\n", "400"},
        {"GET http://x/a/b HTTP/1.1\r\n\r\n", "400"},
        {"GET /a/" + std::string(9000, 'k') + " HTTP/1.1\r\n\r\n", "400"},
        {"GET /a/b HTTP/1.1\r\nX: " + std::string(20'000, 'h') + "\r\n\r\n", "413"},
        {"POST /a/b HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "405"},
        {"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "400"},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "400"},
        {"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx", "413"}};
    serve([&] {
        for (const auto& [bytes, status] : table) {
            Client client{port_.number()};
            client.send(bytes);
            client.done_sending();
            EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 " + status + " "))
                << bytes.substr(0, 80);
        }
        Client silent{port_.number()};
        silent.done_sending();
        EXPECT_EQ(silent.read_all(), "");
        Client half{port_.number()};
        half.send("PUT /a/b HTTP/1.1\r\nContent-Length: 9\r\n\r\nx");
        half.done_sending();
        EXPECT_EQ(half.read_all(), "");
        EXPECT_THAT(put("/a/b", "good"), StartsWith("HTTP/1.1 200")) << "it goes on";
        EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 0; }));
    });
    EXPECT_GE(totals_.refused, table.size());
    EXPECT_EQ(totals_.keys, 1U);
}

TEST_F(HorovodRendezvousServer, WhoNeverEndsItsRequestIsClosed) {
    HorovodRendezvousCaps caps;
    caps.patience = std::chrono::milliseconds{100};
    serve(
        [&] {
            Client nothing{port_.number()};
            Client half{port_.number()};
            half.send("PUT /a/b HTTP/1.1\r\nContent-Length: 4\r\n\r\nx");
            EXPECT_EQ(nothing.read_all(), "");
            EXPECT_EQ(half.read_all(), "");
        },
        caps);
    EXPECT_EQ(totals_.keys, 0U);
}

TEST_F(HorovodRendezvousServer, ConnectionsAndBodiesOnTheirWayAreBounded) {
    HorovodRendezvousCaps caps;
    caps.connections = 3;
    caps.transit_bytes = 100;
    serve(
        [&] {
            Client half{port_.number()};
            half.send("PUT /a/b HTTP/1.1\r\nContent-Length: 60\r\n\r\nx");
            // Until its head was read there is room for the next.
            EXPECT_TRUE(becomes([](const auto& now) { return now.transit == 60; }));
            Client more{port_.number()};
            more.send("PUT /a/c HTTP/1.1\r\nContent-Length: 60\r\n\r\nx");
            more.done_sending();
            EXPECT_THAT(more.read_all(), StartsWith("HTTP/1.1 503 "));
            EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 1; }));
            Client second{port_.number()};
            Client third{port_.number()};
            EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 3; }));
            EXPECT_EQ(Client{port_.number()}.read_all(), "") << "the fourth";
            EXPECT_THAT(half.ask(std::string(59, 'y')), StartsWith("HTTP/1.1 200"));
            EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 2; }));
            EXPECT_THAT(get("/a/b"), StartsWith("HTTP/1.1 200"));
        },
        caps);
    EXPECT_EQ(totals_.transit, 0U);
}

TEST_F(HorovodRendezvousServer, ANewOneKnowsNothingOfTheOneBefore) {
    serve([&] { put("/global/0", "old"); });
    serve([&] { EXPECT_THAT(get("/global/0"), StartsWith("HTTP/1.1 404")); });
    std::unique_ptr<Client> open;
    serve([&] {
        open = std::make_unique<Client>(port_.number());
        EXPECT_TRUE(becomes([](const auto& now) { return now.connections == 1; }));
    });
    EXPECT_EQ(open->read_all(), "") << "its connections end with it";
}

}  // namespace
}  // namespace lockstep::test
