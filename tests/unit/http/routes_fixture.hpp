// Every route of the API through a real listener, with a Control that answers from memory.
#pragma once

#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/secret_store.hpp"
#include "job/base/json.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class RoutesTest : public testing::Test {
  protected:
    RoutesTest() : context_{io_, control_, metrics_, tokens_} {
        context_.sessions = &sessions_;
        context_.secrets = &secrets_;
        add_routes(router_, context_);
        server_ = std::make_unique<TestServer>(router_, &control_.gate, HttpSettings{},
                                               Surface::all, &io_);
    }
    ~RoutesTest() override {
        store_.stop();  // it keeps the server's thread at work
    }
    ClientResponse call(const std::string& method, const std::string& target,
                        const std::string& token = "user-token", const std::string& body = "",
                        std::vector<std::pair<std::string, std::string>> headers = {}) {
        auto response = server_->call(method, target, token, body, std::move(headers));
        EXPECT_TRUE(response) << method << " " << target;
        return response ? *response : ClientResponse{};
    }
    ClientResponse get(const std::string& target) { return call("GET", target); }
    std::string of_job(const std::string& rest) { return "/v1/jobs/" + std::string{kJob} + rest; }
    // The pointers of a problem document's errors.
    static std::vector<std::string> pointers(const ClientResponse& response) {
        std::vector<std::string> out;
        const auto json = parse_json(response.body);
        if (json && json->contains("errors")) {
            for (const auto& error : (*json)["errors"]) {
                out.push_back(error["pointer"].get<std::string>());
            }
        }
        return out;
    }
    void write_log(const std::string& text) {
        control_.place.path = (folder_ / "rank-00000.log").string();
        std::ofstream{control_.place.path, std::ios::binary | std::ios::app} << text;
    }

    const test::TemporaryFolder folder_;
    net::io_context io_{1};
    FakeControl control_;
    telemetry::DaemonMetrics metrics_;
    Store store_{io_, std::move(Database::open(folder_ / "db").value()), Store::Hooks{}};
    const SystemClock clock_;
    TaskGroup tasks_{io_};
    TokenTable tokens_{store_, clock_, tasks_, {}};
    PageSessions sessions_{store_, clock_, tokens_, {}};
    SecretStore secrets_{folder_ / "secrets"};
    RouteContext context_;
    Router router_;
    std::unique_ptr<TestServer> server_;
};

}  // namespace lockstep
