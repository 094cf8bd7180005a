// The whole API without sockets: the real route table, control, store and tokens; requests are
// checked as a Session checks them. The clock is the test's.
#pragma once

#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/request_head.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/secret_store.hpp"
#include "daemon/store/token_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class AccessTest : public ControlTest {
  protected:
    void SetUp() override {
        ControlTest::SetUp();
        open_api();
        admin_ = secret_of(root_, R"({"name":"a","user":"ada","role":"admin"})");
        uma_ = secret_of(root_, R"({"name":"u","user":"uma"})");
        eve_ = secret_of(root_, R"({"name":"e","user":"eve"})");
        vic_ = secret_of(root_, R"({"name":"v","user":"vic","role":"viewer"})");
    }
    void TearDown() override {
        close_api();
        ControlTest::TearDown();
    }
    void restart_daemon() {
        close_api();
        shut_down();
        boot();
        open_api();
    }

    // As a Session does after it has read the request; 401 and 403 are its own.
    HttpResponse call(const std::string& secret, const std::string& line,
                      const std::string& body = "", const std::string& headers = "") {
        const auto principal = tokens_->authenticate(sha256_hex(secret));
        return principal ? call_as(*principal, line, body, headers) : protocol_problem(401, "");
    }
    HttpResponse call_as(const Principal& principal, const std::string& line,
                         const std::string& body = "", const std::string& headers = "") {
        HttpRequest request;
        const std::string head = line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
        EXPECT_FALSE(parse_head(head, request.head)) << line;
        EXPECT_FALSE(split_target(request)) << line;
        request.body = body;
        request.principal = principal;
        const auto match = router_->match(request.head.method, request);
        if (match.route == nullptr) {
            ADD_FAILURE() << "no route: " << line;
            return protocol_problem(404, "");
        }
        if (!allows(principal, *match.route, request)) {
            return protocol_problem(403, "");
        }
        if (const auto* fast = std::get_if<FastHandler>(&match.route->handler)) {
            return (*fast)(request);
        }
        const auto* both = std::get_if<TryHandler>(&match.route->handler);
        if (both != nullptr) {
            if (auto now = both->now(request)) {
                return std::move(*now);
            }
        }
        const SlowHandler& later =
            both != nullptr ? both->later : std::get<SlowHandler>(match.route->handler);
        HttpResponse response;
        auto run = [&]() -> Task<void> {
            auto task = later(std::move(request));
            response = co_await std::move(task);
        };
        wait(run());
        return response;
    }
    Json json(const HttpResponse& response) {
        auto parsed = parse_json(response.text());
        EXPECT_TRUE(parsed.has_value()) << response.status << " " << response.text();
        return parsed.value_or(Json::object());
    }
    Json make(const Principal& by, const std::string& body) {
        const auto made = call_as(by, "POST /v1/tokens", body);
        EXPECT_EQ(made.status, 201) << made.text();
        return json(made);
    }
    std::string secret_of(const Principal& by, const std::string& body) {
        return make(by, body).value("token", "");
    }
    Principal who(const std::string& secret) {
        return tokens_->authenticate(sha256_hex(secret)).value_or(Principal{});
    }
    std::vector<TokenRow> stored() {
        std::vector<TokenRow> out;
        auto run = [&]() -> Task<void> {
            const std::function<Result<std::vector<TokenRow>>(Database&)> all = [](Database& db) {
                return TokenRecords{db}.all();
            };
            auto rows = co_await store_->read<std::vector<TokenRow>>(all);
            EXPECT_TRUE(rows.has_value());
            out = rows.value_or(std::vector<TokenRow>{});
        };
        wait(run());
        return out;
    }

    const Principal root_{"root", Role::admin};
    std::string admin_, uma_, eve_, vic_;  // secrets; ada is the fixture's owner of jobs
    std::unique_ptr<TaskGroup> tasks_;
    std::unique_ptr<TokenTable> tokens_;
    std::unique_ptr<PageSessions> sessions_;
    std::unique_ptr<SecretStore> secrets_;
    std::unique_ptr<Router> router_;
    Identities* identities_ = nullptr;  // set before SetUp(), by a test of them

  private:
    void open_api() {
        tasks_ = std::make_unique<TaskGroup>(*io_);
        tokens_ = std::make_unique<TokenTable>(*store_, clock_, *tasks_, stored());
        sessions_ = std::make_unique<PageSessions>(*store_, clock_, *tokens_, stored());
        secrets_ = std::make_unique<SecretStore>(folder_ / "secrets");
        secrets_->load();
        router_ = std::make_unique<Router>();
        RouteContext context{*io_, *control_, *metrics_, *tokens_, identities_};
        context.sessions = sessions_.get();
        context.secrets = secrets_.get();
        add_routes(*router_, context);
    }
    void close_api() {
        wait(tasks_->join());
        router_.reset();
        sessions_.reset();
        tokens_.reset();
        tasks_.reset();
    }
};

}  // namespace lockstep
