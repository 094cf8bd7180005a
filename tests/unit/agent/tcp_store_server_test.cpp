// The store over real sockets: many clients, bad ones among them, the port before and after it.
#include "job/agent/preflight/held_port.hpp"
#include "job/agent/torch_store/tcp_store.hpp"
#include "tests/support/another_user.hpp"
#include "tests/unit/agent/tcp_store_streams.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <thread>

namespace lockstep::test {
namespace {

// A client that blocks, for at most 20 s.
class Client {
  public:
    explicit Client(std::int32_t port, bool mapped = false)
        : fd_(::socket(mapped ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const timeval patience{20, 0};
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        const auto number = htons(static_cast<std::uint16_t>(port));
        sockaddr_in four{};
        four.sin_family = AF_INET;
        four.sin_port = number;
        ::inet_pton(AF_INET, "127.0.0.1", &four.sin_addr);
        sockaddr_in6 six{};
        six.sin6_family = AF_INET6;
        six.sin6_port = number;
        ::inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
        connected = mapped ? ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&six), sizeof(six))
                           : ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&four), sizeof(four));
    }
    void send(const std::string& bytes) {
        std::size_t sent = 0;
        while (sent < bytes.size()) {
            const auto n =
                ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (n <= 0) {
                return;
            }
            sent += static_cast<std::size_t>(n);
        }
    }
    // `size` bytes, or fewer if the server closed before.
    std::string read(std::size_t size) {
        std::string out(size, '\0');
        std::size_t got = 0;
        while (got < size) {
            const auto n = ::recv(fd_.get(), out.data() + got, size - got, 0);
            if (n <= 0) {
                timed_out = n < 0 && errno == EAGAIN;
                break;
            }
            got += static_cast<std::size_t>(n);
        }
        out.resize(got);
        return out;
    }
    std::string ask(const std::string& bytes, std::size_t size) {
        send(bytes);
        return read(size);
    }
    bool closed_by_server() { return read(1).empty() && !timed_out; }

    int connected = -1;
    bool timed_out = false;

  private:
    UniqueFd fd_;
};

class TcpStoreServer : public testing::Test {
  protected:
    // The server in this thread while `clients` runs in another.
    template <class Clients>
    void serve(Clients clients, TcpStoreCaps caps = {},
               std::unique_ptr<StoreGuard> guard = nullptr) {
        auto store = TcpStore::listen(tasks_, port_.fd(), caps, std::move(guard));
        ASSERT_TRUE(store) << store.error().message;
        store_ = std::move(*store);
        std::thread thread{[&] {
            clients();
            net::post(io_, [this] {
                totals_ = store_->totals();
                store_.reset();
            });
        }};
        io_.restart();
        io_.run();
        thread.join();
    }

    // From the clients' thread.
    TcpStore::Totals totals_now() {
        std::promise<TcpStore::Totals> now;
        net::post(io_, [&] { now.set_value(store_->totals()); });
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
    HeldPort port_ = *HeldPort::hold("127.0.0.1");
    std::unique_ptr<TcpStore> store_;
    TcpStore::Totals totals_;
};

const std::string kPing = code(13) + raw(std::uint32_t{7});

TEST_F(TcpStoreServer, AnswersClientsOfEveryReleaseAtOnce) {
    serve([this] {
        Client newest{port_.number()};
        Client older{port_.number(), true};
        Client oldest{port_.number()};
        Client guarded{port_.number()};
        EXPECT_EQ(newest.ask(new_client(), new_replies().size()), new_replies());
        EXPECT_EQ(oldest.ask(code(7) + text("/w"), 1), code(3));
        EXPECT_EQ(guarded.ask(raw(kStoreMagic) + code(2) + text("/a"), text("two+").size()),
                  text("two+"));
        EXPECT_EQ(older.ask(code(3) + text("init/") + raw(std::int64_t{1}), 8),
                  raw(std::int64_t{2}));
        older.send(code(0) + text("/w") + text("v"));
        EXPECT_EQ(oldest.read(27 + 1), code(1) + text("/w") + text("") + text("v"));
    });
    EXPECT_EQ(totals_.refused, 0U);
}

TEST_F(TcpStoreServer, ServesTheJobsUserOnThisMachine) {
    serve(
        [this] {
            Client client{port_.number()};
            EXPECT_EQ(client.ask(new_client(), new_replies().size()), new_replies());
            Client mapped{port_.number(), true};
            EXPECT_EQ(mapped.ask(validate() + kPing, 4), raw(std::uint32_t{7}));
        },
        {}, std::make_unique<StoreGuard>(StoreGuard::Options{}));
    EXPECT_EQ(totals_.refused, 0U);
}

TEST_F(TcpStoreServer, AnotherUserOfTheMachineIsClosedBeforeItIsHeard) {
    const AnotherUser us;
    StoreGuard::Options options;
    options.uid = us.job;
    serve(
        [this] {
            for (int i = 0; i < 3; ++i) {
                Client client{port_.number()};
                client.send(validate() + code(1) + text("init/") + text("mine"));
                EXPECT_TRUE(client.closed_by_server());
            }
            EXPECT_EQ(totals_now().keys, 0U);
        },
        {}, std::make_unique<StoreGuard>(std::move(options)));
    EXPECT_EQ(totals_.refused, 3U);
    EXPECT_EQ(totals_.queries, 0U);
}

TEST_F(TcpStoreServer, ABadClientIsClosedAndTheOthersGoOn) {
    serve([this] {
        Client good{port_.number()};
        good.send(validate() + code(6) + list({"/late"}));
        Client silent{port_.number()};
        silent.send(validate() + code(1) + text("/k") + raw(std::uint64_t{1000}) + "half");
        for (const std::string& bad :
             {std::string{"GET / HTTP/1.1\r\nHost: store\r\n\r\n"}, std::string(5000, '\xff'),
              validate() + code(1) + raw(~std::uint64_t{0}), validate() + code(99),
              validate() + code(1) + text("/n") + text("x") + code(4) + text("/n") +
                  raw(std::int64_t{1})}) {
            Client client{port_.number()};
            client.send(bad);
            EXPECT_TRUE(client.closed_by_server()) << testing::PrintToString(bad.substr(0, 40));
        }
        Client other{port_.number()};
        EXPECT_EQ(other.ask(validate() + code(1) + text("/late") + text("") + kPing, 4),
                  raw(std::uint32_t{7}));
        EXPECT_EQ(good.read(1), code(0));
        EXPECT_EQ(totals_now().refused, 5U);
        EXPECT_EQ(totals_now().connections, 3U);
    });
}

TEST_F(TcpStoreServer, AClientThatGoesAwayWhileItWaitsIsForgotten) {
    serve([this] {
        Client other{port_.number()};
        for (int round = 0; round < 100; ++round) {
            Client client{port_.number()};
            client.send(validate() + code(6) + list({"/late"}));
        }
        // One that is not answered would mean that a reply went to a number that is used again.
        Client waits{port_.number()};
        EXPECT_EQ(waits.ask(validate() + kPing, 4), raw(std::uint32_t{7}));
        other.send(validate() + code(1) + text("/late") + text("v"));
        EXPECT_EQ(other.ask(kPing, 4), raw(std::uint32_t{7}));
        EXPECT_EQ(waits.ask(code(3) + text("/late"), 9), text("v"));
        EXPECT_TRUE(becomes([](const auto& totals) { return totals.connections == 2; }));
    });
    EXPECT_EQ(totals_.transit, 0U);
}

TEST_F(TcpStoreServer, LargeValuesPassWhole) {
    const std::string value(limits::kStoreValueBytes, 'v');
    serve([&] {
        Client client{port_.number()};
        Client reader{port_.number()};
        EXPECT_EQ(client.ask(validate() + code(1) + text("/k") + text(value) + kPing, 4),
                  raw(std::uint32_t{7}));
        // The replies are more than a socket takes: the rest goes when the reader reads.
        reader.send(validate() + code(10) + list({"/k", "/k", "/k"}));
        EXPECT_EQ(client.ask(kPing, 4), raw(std::uint32_t{7}));
        EXPECT_EQ(reader.read(3 * text(value).size()), text(value) + text(value) + text(value));
        EXPECT_EQ(reader.ask(kPing, 4), raw(std::uint32_t{7}));
    });
    EXPECT_EQ(totals_.transit, 0U);
}

TEST_F(TcpStoreServer, WhoAsksAndReadsNothingIsClosedAtTheCap) {
    TcpStoreCaps caps;
    caps.reply_bytes = 1U << 20U;
    caps.transit_bytes = 32U << 20U;
    serve(
        [&] {
            Client client{port_.number()};
            const std::string value(1U << 20U, 'v');
            EXPECT_EQ(client.ask(validate() + code(1) + text("/k") + text(value) + kPing, 4),
                      raw(std::uint32_t{7}));
            Client greedy{port_.number()};
            std::string all = validate();
            for (int i = 0; i < 2000; ++i) {
                all += code(3) + text("/k");
            }
            greedy.send(all);
            EXPECT_TRUE(becomes([](const auto& totals) { return totals.refused == 1; }));
            EXPECT_EQ(client.ask(kPing, 4), raw(std::uint32_t{7}));
        },
        caps);
    EXPECT_EQ(totals_.transit, 0U);
}

TEST_F(TcpStoreServer, WhatIsHalfReceivedIsBoundedOverAllConnections) {
    TcpStoreCaps caps;
    caps.transit_bytes = 1U << 20U;
    serve(
        [&] {
            std::vector<std::unique_ptr<Client>> clients;
            for (int i = 0; i < 8; ++i) {
                clients.push_back(std::make_unique<Client>(port_.number()));
                clients.back()->send(validate() + code(1) + text("/k") +
                                     raw(std::uint64_t{1U << 20U}) + std::string(300'000, 'v'));
            }
            Client other{port_.number()};
            EXPECT_EQ(other.ask(validate() + kPing, 4), raw(std::uint32_t{7}));
            EXPECT_TRUE(becomes([](const auto& totals) { return totals.refused >= 5; }));
            EXPECT_LE(totals_now().transit, caps.transit_bytes);
        },
        caps);
}

TEST_F(TcpStoreServer, TakesNoMoreConnectionsThanItMay) {
    TcpStoreCaps caps;
    caps.connections = 2;
    serve(
        [this] {
            Client first{port_.number()};
            Client second{port_.number()};
            EXPECT_EQ(first.ask(validate() + kPing, 4), raw(std::uint32_t{7}));
            EXPECT_EQ(second.ask(validate() + kPing, 4), raw(std::uint32_t{7}));
            Client third{port_.number()};
            EXPECT_TRUE(third.closed_by_server());
            EXPECT_EQ(first.ask(kPing, 4), raw(std::uint32_t{7}));
        },
        caps);
}

TEST_F(TcpStoreServer, TheNextGenerationFindsItsStoreEmptyAndThePortStaysHeld) {
    std::unique_ptr<Client> old;
    serve([&] {
        old = std::make_unique<Client>(port_.number());
        old->send(validate() + code(1) + text("/k") + text("v"));
        EXPECT_EQ(old->ask(code(3) + text("/k"), 9), text("v"));
    });
    EXPECT_TRUE(old->closed_by_server());
    Client between{port_.number()};  // waits on the held port; of ranks that are gone
    between.send(validate() + code(1) + text("/k") + text("stale"));
    EXPECT_FALSE(HeldPort::hold("127.0.0.1", port_.number())) << "nobody else gets it";
    serve([this] {
        Client client{port_.number()};
        EXPECT_EQ(client.ask(validate() + code(5) + list({"/k"}), 1), code(1));
    });
    EXPECT_TRUE(between.closed_by_server());
}

}  // namespace
}  // namespace lockstep::test
