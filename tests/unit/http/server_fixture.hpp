// A real HttpServer on a free port of the loopback, on a thread of its own, with three tokens:
// "admin-token", "user-token" and "viewer-token" of the users ada, uma and vic.
#pragma once

#include "daemon/http/server/server.hpp"
#include "job/async/http_client.hpp"
#include "job/base/digest.hpp"
#include "tests/unit/http/raw_client.hpp"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace lockstep {

// `ended`: hashes that are refused from now on.
inline Authenticator test_authenticator(const std::set<std::string>& ended) {
    std::map<std::string, Principal> table{
        {sha256_hex("admin-token"), Principal{"ada", Role::admin}},
        {sha256_hex("user-token"), Principal{"uma", Role::user}},
        {sha256_hex("viewer-token"), Principal{"vic", Role::viewer}}};
    // "read-only" and so on: an admin's, narrowed to one scope.
    for (const Scope scope : kTokenScopes) {
        table[sha256_hex(std::string{to_string(scope)} + "-only")] =
            Principal{"ada", Role::admin, bit(scope)};
    }
    return [table, &ended](const std::string& hash) -> std::optional<Principal> {
        const auto found = table.find(hash);
        return found == table.end() || ended.contains(hash) ? std::nullopt
                                                            : std::optional{found->second};
    };
}

// Cookies "user-cookie" and "viewer-cookie" of the same users, as the web page's sessions.
inline Authenticator test_cookies(const std::set<std::string>& ended) {
    std::map<std::string, Principal> table{
        {sha256_hex("user-cookie"), Principal{"uma", Role::user}},
        {sha256_hex("viewer-cookie"), Principal{"vic", Role::viewer}}};
    return [table, &ended](const std::string& hash) -> std::optional<Principal> {
        const auto found = table.find(hash);
        return found == table.end() || ended.contains(hash) ? std::nullopt
                                                            : std::optional{found->second};
    };
}

class TestServer {
  public:
    TestServer(Router& router, AgentGate* gate, HttpSettings settings,
               Surface surface = Surface::all, net::io_context* io = nullptr,
               std::shared_ptr<TlsContext> tls = nullptr)
        : io_(io != nullptr ? *io : own_io_),
          server_(io_, router, test_authenticator(ended_), gate, metrics_,
                  with_cookies(std::move(settings))) {
        auto bound = server_.listen("127.0.0.1", 0, surface, std::move(tls));
        EXPECT_TRUE(bound.has_value());
        port_ = bound ? bound->port() : std::uint16_t{0};
        guard_.emplace(io_.get_executor());
        thread_ = std::thread{[this] { io_.run(); }};
    }
    ~TestServer() { stop(); }

    void stop(std::chrono::milliseconds patience = std::chrono::milliseconds{500}) {
        if (!thread_.joinable()) {
            return;
        }
        net::post(io_, [this, patience] {
            net::co_spawn(io_, server_.stop(patience),
                          [this](const std::exception_ptr&) { guard_.reset(); });
        });
        thread_.join();
    }
    // Runs on the server's thread and waits for it.
    template <class F>
    auto on_thread(F work) {
        std::packaged_task<decltype(work())()> task{std::move(work)};
        auto result = task.get_future();
        net::post(io_, [&task] { task(); });
        return result.get();
    }
    void end_token(const std::string& token) {
        on_thread([&] { ended_.insert(sha256_hex(token)); });
    }
    std::uint16_t port() const { return port_; }
    std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
    net::io_context& io() { return io_; }
    HttpServer& server() { return server_; }
    telemetry::DaemonMetrics& metrics() { return metrics_; }

    Result<ClientResponse> call(std::string method, std::string target, std::string token,
                                std::string body = {},
                                std::vector<std::pair<std::string, std::string>> headers = {}) {
        ClientRequest request;
        request.method = std::move(method);
        request.target = std::move(target);
        request.body = std::move(body);
        request.headers = std::move(headers);
        request.deadline = std::chrono::seconds{10};
        if (!token.empty()) {
            request.headers.emplace_back("Authorization", "Bearer " + token);
        }
        if (!request.body.empty()) {
            request.headers.emplace_back("Content-Type", "application/json");
        }
        return http_request_now({"127.0.0.1", std::to_string(port_)}, std::move(request));
    }

  private:
    HttpSettings with_cookies(HttpSettings settings) {
        settings.by_cookie = test_cookies(ended_);
        settings.why_refused = [this](const std::string& hash, bool cookie) -> std::string {
            return !ended_.contains(hash) ? "" : cookie ? "the session ended" : "the token ended";
        };
        return settings;
    }

    net::io_context own_io_{1};
    net::io_context& io_;
    telemetry::DaemonMetrics metrics_;
    std::set<std::string> ended_;  // of the server's thread
    HttpServer server_;
    std::optional<net::executor_work_guard<net::io_context::executor_type>> guard_;
    std::thread thread_;
    std::uint16_t port_ = 0;
};

}  // namespace lockstep
