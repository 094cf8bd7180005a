// The receiver of OTLP over real sockets, with clients that lie, stop half way or are too many.
#include "job/agent/nccl/otlp_receiver.hpp"

#include "job/async/asio.hpp"
#include "tests/unit/agent/inspector_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace lockstep::test {
namespace {

using testing::StartsWith;
using namespace std::chrono_literals;

class OtlpReceiverTest : public testing::Test {
  protected:
    // The receiver in this thread while `clients` runs in another.
    template <class Clients>
    void serve(Clients clients, OtlpCaps caps = {}) {
        OtlpReceiver::Handlers handlers;
        handlers.who = [](std::string_view token) {
            return token == "seven" ? std::optional{7} : std::nullopt;
        };
        handlers.take = [this](std::int32_t who, const std::string& body) {
            bodies_.emplace_back(who, body);
            return body != "bad";
        };
        auto made = OtlpReceiver::listen(tasks_, std::move(handlers), caps);
        ASSERT_TRUE(made) << made.error().message;
        receiver_ = std::move(*made);
        std::thread thread{[&, port = receiver_->port()] {
            clients(port);
            net::post(io_, [this] {
                totals_ = receiver_->totals();
                receiver_.reset();
            });
        }};
        io_.restart();
        io_.run();
        thread.join();
        EXPECT_EQ(tasks_.size(), 0U) << "nothing is left behind";
    }
    static std::string ask(std::uint16_t port, const std::string& bytes) {
        const Poster poster{port};
        poster.send(bytes);
        return poster.answer();
    }

    net::io_context io_{1};
    TaskGroup tasks_{io_};
    std::unique_ptr<OtlpReceiver> receiver_;
    OtlpReceiver::Totals totals_;
    std::vector<std::pair<std::int32_t, std::string>> bodies_;
};

TEST_F(OtlpReceiverTest, TakesTheBodyOfWhoeverItKnows) {
    serve([](std::uint16_t port) {
        EXPECT_THAT(ask(port, replaced(request("seven", "{}"), "Authorization", "authorization")),
                    StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_THAT(ask(port, request("seven", "bad")), StartsWith("HTTP/1.1 400 "));
        const Poster slow{port};
        for (const char letter : request("seven", "by the letter")) {
            slow.send({&letter, 1});
        }
        EXPECT_THAT(slow.answer(), StartsWith("HTTP/1.1 200 "));
        const std::string large(250'000, ' ');
        EXPECT_THAT(ask(port, request("seven", large)), StartsWith("HTTP/1.1 200 "));
    });
    ASSERT_EQ(bodies_.size(), 4U);
    EXPECT_EQ(bodies_[0], (std::pair{7, std::string{"{}"}}));
    EXPECT_EQ(bodies_[2].second, "by the letter");
    EXPECT_EQ(bodies_[3].second.size(), 250'000U);
    EXPECT_EQ(totals_.taken, 3U);
    EXPECT_EQ(totals_.refused, 1U);
    EXPECT_EQ(totals_.transit, 0U);
}

TEST_F(OtlpReceiverTest, EverythingElseIsRefused) {
    serve([](std::uint16_t port) {
        const auto changed = [](const std::string& from, const std::string& to) {
            return replaced(request("seven", "{}"), from, to);
        };
        EXPECT_THAT(ask(port, request("eight", "{}")), StartsWith("HTTP/1.1 401 "));
        EXPECT_THAT(ask(port, request("", "{}")), StartsWith("HTTP/1.1 401 "));
        EXPECT_THAT(ask(port, changed("Authorization", "X")), StartsWith("HTTP/1.1 401 "));
        EXPECT_THAT(ask(port, changed("Bearer", "Basic")), StartsWith("HTTP/1.1 401 "));
        EXPECT_THAT(ask(port, changed("/v1/metrics", "/v1/traces")), StartsWith("HTTP/1.1 404 "));
        EXPECT_THAT(ask(port, changed("POST", "PUT")), StartsWith("HTTP/1.1 405 "));
        EXPECT_THAT(ask(port, changed("application/json", "application/x-protobuf")),
                    StartsWith("HTTP/1.1 415 "));
        EXPECT_THAT(ask(port, changed("Content-Length: 2", "Content-Length: 262145")),
                    StartsWith("HTTP/1.1 413 "));
        EXPECT_THAT(ask(port, changed("Content-Length: 2", "Transfer-Encoding: chunked")),
                    StartsWith("HTTP/1.1 400 "));
        EXPECT_THAT(ask(port, changed("Content-Length: 2", "Content-Length: -2")),
                    StartsWith("HTTP/1.1 400 "));
        EXPECT_THAT(ask(port, "\x16\x03\x01 no HTTP\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
        EXPECT_THAT(ask(port, changed("Host: ", "X: " + std::string(9000, 'x'))),
                    StartsWith("HTTP/1.1 413 "));
        const Poster half{port};
        half.send(request("seven", "{}").substr(0, 60));
        half.done_sending();
        EXPECT_EQ(half.answer(), "");
    });
    EXPECT_TRUE(bodies_.empty());
    EXPECT_EQ(totals_.taken, 0U);
}

TEST_F(OtlpReceiverTest, WhoSaysNothingOrIsOneTooManyIsClosed) {
    OtlpCaps caps;
    caps.connections = 2;
    caps.patience = 300ms;
    caps.transit_bytes = 100;
    serve(
        [](std::uint16_t port) {
            const Poster silent{port};
            const Poster half{port};
            half.send(request("seven", std::string(90, 'x')).substr(0, 200));
            const Poster third{port};
            EXPECT_EQ(third.answer(), "") << "closed at once";
            EXPECT_EQ(silent.answer(), "") << "closed after its time";
            EXPECT_EQ(half.answer(), "");
            EXPECT_THAT(ask(port, request("seven", std::string(101, 'x'))),
                        StartsWith("HTTP/1.1 503 "));
            EXPECT_THAT(ask(port, request("seven", "{}")), StartsWith("HTTP/1.1 200 "));
        },
        caps);
    EXPECT_EQ(totals_.taken, 1U);
    EXPECT_EQ(totals_.transit, 0U);
}

}  // namespace
}  // namespace lockstep::test
