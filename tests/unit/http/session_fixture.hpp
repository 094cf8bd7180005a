// A listener with one route of each kind, and clients that send raw bytes to it.
#pragma once

#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

// Two pieces, then the end; or nothing until it is closed.
class TwoPieces final : public BodyStream {
  public:
    explicit TwoPieces(net::io_context& io, bool endless) : timer_(io), endless_(endless) {}
    Task<std::optional<std::string>> next() override {
        if (sent_ < 2) {
            co_return "piece " + std::to_string(++sent_) + "\n";
        }
        while (endless_ && !closed_) {
            timer_.expires_at(std::chrono::steady_clock::time_point::max());
            ErrorCode ec;
            co_await timer_.async_wait(into(ec));
        }
        co_return std::nullopt;
    }
    void close() override {
        closed_ = true;
        timer_.cancel();
    }

  private:
    net::steady_timer timer_;
    bool endless_;
    bool closed_ = false;
    int sent_ = 0;
};

class SessionTest : public testing::Test {
  protected:
    void start(HttpSettings settings = {}, Surface surface = Surface::all,
               std::shared_ptr<TlsContext> tls = nullptr) {
        settings.allowed_hosts.emplace_back("train.example.org");
        add("GET", "/open", Scope::open, [](const HttpRequest&) { return json_response("{}"); });
        add("GET", "/private", Scope::read,
            [](const HttpRequest& request) { return text_response(request.principal.user); });
        add("POST", "/echo", Scope::write,
            [](const HttpRequest& request) { return text_response(request.body); });
        Route metrics;
        metrics.path = "/metrics";
        metrics.scope = Scope::metrics;
        metrics.operation = "metrics";
        metrics.handler = FastHandler{
            [](const HttpRequest& request) { return text_response(request.principal.user); }};
        metrics.without_token = true;
        router_.add(metrics);
        metrics.path = "/metrics/job";
        metrics.operation = "jobMetrics";
        metrics.without_token = false;
        router_.add(metrics);
        add("GET", "/large", Scope::open,
            [](const HttpRequest&) { return text_response(std::string(8U << 20U, 'x')); });
        add("GET", "/pieces", Scope::open, [this](const HttpRequest&) { return pieces(); });
        add("GET", "/stream", Scope::open, [this](const HttpRequest&) { return stream(false); });
        add("GET", "/endless", Scope::open, [this](const HttpRequest&) { return stream(true); });
        add("GET", "/watch", Scope::read, [this](const HttpRequest&) { return stream(true); });
        Route slow;
        slow.path = "/slow";
        slow.scope = Scope::open;
        slow.operation = "slow";
        slow.handler =
            SlowHandler{[](HttpRequest request) { return wait_a_turn(std::move(request)); }};
        router_.add(slow);
        Route agent;
        agent.path = "/v1/agent";
        agent.scope = Scope::agent;
        agent.operation = "agent";
        agent.handler = AgentUpgrade{};
        router_.add(agent);
        server_ = std::make_unique<TestServer>(router_, &gate_, std::move(settings), surface, &io_,
                                               std::move(tls));
    }
    void TearDown() override { server_.reset(); }

    static Task<HttpResponse> wait_a_turn(HttpRequest request) {
        co_await net::post(net::use_awaitable);
        co_return text_response("slow " + request.path);
    }
    HttpResponse stream(bool endless) {
        HttpResponse response = text_response({});
        response.stream = std::make_shared<TwoPieces>(io_, endless);
        return response;
    }
    // Numbered lines, so that a piece that is lost, doubled or out of order is seen.
    static std::string numbered_lines() {
        std::string out;
        for (std::size_t i = 0; i < kLines; ++i) {
            out += std::to_string(i) += '\n';
        }
        return out;
    }
    HttpResponse pieces() {
        HttpResponse response = text_response({});
        response.make = [this](const std::function<std::string(std::string)>& put) {
            ++made_;
            std::string piece;
            for (std::size_t i = 0; i < kLines; ++i) {
                if (i == breaks_at_) {
                    throw std::runtime_error{"no more of it"};
                }
                piece += std::to_string(i) += '\n';
                if (piece.size() > 100'000) {
                    piece = put(std::move(piece));
                    piece.clear();
                }
            }
            put(std::move(piece));
        };
        return response;
    }
    void add(const char* method, std::string path, Scope scope, FastHandler handler) {
        Route route;
        route.method = std::string_view{method} == "GET" ? Method::get : Method::post;
        route.operation = method + path;
        route.path = std::move(path);
        route.scope = scope;
        route.handler = std::move(handler);
        route.request_schema = route.method == Method::post ? "Anything" : "";
        router_.add(std::move(route));
    }
    // Sends the bytes, reads until the server closes.
    std::string exchange(const std::string& bytes) {
        RawClient client{server_->port()};
        EXPECT_TRUE(client.connected());
        client.send(bytes);
        std::string answer = client.read_to_end();
        EXPECT_FALSE(client.timed_out())
            << "the server did not close after: " << bytes.substr(0, 80);
        return answer;
    }
    std::string get(const std::string& path, const std::string& headers = "") {
        return exchange("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                        headers + "\r\n");
    }
    std::string post(const std::string& headers, const std::string& body) {
        return exchange(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
            "Connection: close\r\n" +
            headers + "\r\n" + body);
    }

    static constexpr std::size_t kLines = 2'000'000;  // 15 MiB: more than a socket takes at once
    std::atomic<int> made_{0};
    std::atomic<std::size_t> breaks_at_{kLines};
    net::io_context io_{1};
    Router router_;
    FakeGate gate_;
    std::unique_ptr<TestServer> server_;
};

}  // namespace lockstep
