// Every route of the API through a real listener, with a Control that answers from memory.
#pragma once

#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/secret_store.hpp"
#include "job/base/json.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <memory>
#include <set>
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
        if (response) {
            expect_documented(method, target, *response);
        }
        return response ? *response : ClientResponse{};
    }
    // Clients are made from /openapi.json: what a route answers with beside the headers that any
    // answer may have is in it.
    void expect_documented(const std::string& method, const std::string& target,
                           const ClientResponse& response) {
        static const std::set<std::string> kOfAny{"allow",
                                                  "cache-control",
                                                  "connection",
                                                  "content-encoding",
                                                  "content-length",
                                                  "content-security-policy",
                                                  "content-type",
                                                  "cross-origin-opener-policy",
                                                  "date",
                                                  "keep-alive",
                                                  "referrer-policy",
                                                  "server",
                                                  "strict-transport-security",
                                                  "transfer-encoding",
                                                  "vary",
                                                  "x-accel-buffering",
                                                  "x-content-type-options",
                                                  "x-frame-options"};
        HttpRequest request;
        request.path = target.substr(0, target.find('?'));
        const auto asked = method == "GET"      ? Method::get
                           : method == "POST"   ? Method::post
                           : method == "PUT"    ? Method::put
                           : method == "DELETE" ? Method::delete_
                                                : Method::head;
        const Router own{router_};  // match() has a buffer, which the server's thread uses
        const Route* route = own.match(asked, request).route;
        if (route == nullptr || asked == Method::head) {
            return;
        }
        if (documented_.is_null()) {
            documented_ = parse_json(*context_.openapi).value();
        }
        const Json& answers = documented_["paths"][route->path][small(method)]["responses"];
        const auto answer = answers.find(std::to_string(response.status));
        std::set<std::string> known = kOfAny;
        if (answer != answers.end() && answer->contains("headers")) {
            for (const auto& [name, header] : (*answer)["headers"].items()) {
                known.insert(small(name));
            }
        }
        for (const auto& [name, value] : response.headers) {
            EXPECT_TRUE(known.contains(small(name)))
                << name << " of " << method << " " << target << " is not in /openapi.json";
        }
    }
    static std::string small(std::string text) {
        std::transform(text.begin(), text.end(), text.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        return text;
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

    Json documented_;  // /openapi.json, once it is asked for
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
