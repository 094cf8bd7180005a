// size: every route, its scope and its answers
// Every route of the API through a real listener, with a Control that answers from memory.
#include "daemon/http/routes/routes.hpp"

#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/auth/token_table.hpp"
#include "daemon/store/secret_store.hpp"
#include "job/base/json.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/expected_scopes.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

constexpr const char* kSpec = R"({"name":"first","framework":"command","command":["true"]})";

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

std::string concrete(std::string path) {
    if (const auto at = path.find("{id}"); at != std::string::npos) {
        path.replace(at, 4, kJob);
    }
    return path;
}

// HEAD: a stream must not hold a test up.
std::string harmless(const Route& route) {
    return std::string{route.method == Method::get ? "HEAD" : to_string(route.method)};
}

TEST_F(RoutesTest, EveryRouteAsksForItsScope) {
    const auto& expected = expected_scopes();
    ASSERT_EQ(router_.routes().size(), expected.size());
    const std::vector<std::pair<std::string, std::optional<Role>>> tokens{
        {"", std::nullopt},
        {"wrong", std::nullopt},
        {"viewer-token", Role::viewer},
        {"user-token", Role::user},
        {"admin-token", Role::admin}};
    for (const auto& route : router_.routes()) {
        ASSERT_TRUE(expected.contains(route.operation)) << route.operation;
        const Scope scope = expected.at(route.operation);
        EXPECT_EQ(route.scope, scope) << route.operation;
        if (scope == Scope::agent) {
            continue;
        }
        for (const auto& [token, role] : tokens) {
            const int status = call(harmless(route), concrete(route.path), token).status;
            const bool refused = status == 401 || status == 403;
            const bool good = scope == Scope::open || (role && allows(*role, scope));
            EXPECT_EQ(refused, !good) << route.operation << " with \"" << token << "\": " << status;
            if (refused) {
                EXPECT_EQ(status, role ? 403 : 401) << route.operation;
            }
        }
        // Tokens that are narrowed to one scope, of an admin.
        for (const Scope narrowed : kTokenScopes) {
            const std::string token = std::string{to_string(narrowed)} + "-only";
            const int status = call(harmless(route), concrete(route.path), token).status;
            EXPECT_EQ(status == 403, scope != Scope::open && scope != narrowed)
                << route.operation << " with " << token << ": " << status;
        }
    }
}

TEST_F(RoutesTest, ACookieOpensWhatItsPrincipalMayAndNoForeignPageWritesWithIt) {
    const std::vector<std::pair<std::string, std::optional<Role>>> cookies{
        {"wrong", std::nullopt}, {"viewer-cookie", Role::viewer}, {"user-cookie", Role::user}};
    for (const auto& route : router_.routes()) {
        const Scope scope = expected_scopes().at(route.operation);
        if (scope == Scope::agent) {
            continue;
        }
        for (const auto& [cookie, role] : cookies) {
            const std::vector<std::pair<std::string, std::string>> signed_in{
                {"Cookie", session_cookie_name(server_->host()) + "=" + cookie},
                {"X-Lockstep-Request", "1"}};
            const int status =
                call(harmless(route), concrete(route.path), "", "", signed_in).status;
            const bool good = scope == Scope::open || (role && allows(*role, scope));
            EXPECT_EQ(status == 401 || status == 403, !good)
                << route.operation << " with the cookie " << cookie << ": " << status;
            if (route.method != Method::get) {
                // What another site's page can make a browser send.
                EXPECT_EQ(
                    call(harmless(route), concrete(route.path), "", "", {signed_in.front()}).status,
                    403)
                    << route.operation;
            }
        }
    }
}

TEST_F(RoutesTest, SubmitHandsOverTheSpecAndAnswers201) {
    const auto response = call("POST", "/v1/jobs", "user-token", kSpec,
                               {{"Idempotency-Key", "key-1"}, {"If-Match", "\"abc\""}});
    EXPECT_EQ(response.status, 201);
    EXPECT_EQ(response.header("Location"), "/v1/jobs/" + std::string{kJob});
    EXPECT_EQ(response.body, R"({"id":"x"})");
    ASSERT_EQ(control_.submissions.size(), 1U);
    const auto& submission = control_.submissions.front();
    EXPECT_EQ(submission.spec.name, "first");
    EXPECT_EQ(submission.idempotency_key, "key-1");
    EXPECT_EQ(submission.if_match, "abc");
    EXPECT_EQ(submission.body_sha256, sha256_hex(kSpec));
    EXPECT_EQ(control_.callers.front().user, "uma");
    EXPECT_FALSE(control_.callers.front().admin);
}

TEST_F(RoutesTest, SubmitTellsARepeat) {
    control_.repeated = true;
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", kSpec).header("Idempotency-Replayed"), "true");
}

TEST_F(RoutesTest, SubmitRefusalsHaveTheirStatus) {
    const std::vector<std::pair<SubmitError, int>> table{
        {Error{Errc::invalid, "x", {{"/resources/nodes", "too many"}}}, 400},
        {{SubmitFailure::key_in_flight, Errc::conflict, "being stored"}, 409},
        {{SubmitFailure::key_reused, Errc::conflict, "the key had another body"}, 422},
        {{SubmitFailure::render_changed, Errc::conflict, "changed"}, 412},
        {Error{Errc::exhausted, "disk full"}, 507},
        {{SubmitFailure::too_many_jobs, Errc::exhausted, "20000 jobs"}, 503},
        {Error{Errc::conflict, "reused: words do not matter"}, 409},
        {Error{Errc::exhausted, "limit: words do not matter"}, 507},
        {Error{Errc::unavailable, "stopping"}, 503}};
    for (const auto& [error, status] : table) {
        control_.submit_error = error;
        const auto response = call("POST", "/v1/jobs", "user-token", kSpec);
        EXPECT_EQ(response.status, status) << error.message;
        EXPECT_EQ(response.header("Content-Type"), "application/problem+json");
    }
}

TEST_F(RoutesTest, SubmitRefusesBadDocumentsAndHeaders) {
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", "{").status, 400);
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token").status, 400);
    const auto unknown = call("POST", "/v1/jobs", "user-token",
                              R"({"name":"a","framework":"command","command":["x"],"nodez":1})");
    EXPECT_EQ(unknown.status, 400);
    EXPECT_EQ(pointers(unknown), std::vector<std::string>{"/nodez"});
    EXPECT_EQ(call("POST", "/v1/jobs", "user-token", std::string(100, '[')).status, 400);
    for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
             {"Idempotency-Key", "has space"},
             {"Idempotency-Key", std::string(256, 'k')},
             {"Idempotency-Key", ""},
             {"If-Match", "unquoted"},
             {"If-Match", "\"\""},
             {"If-Match", "*"}}) {
        EXPECT_EQ(call("POST", "/v1/jobs", "user-token", kSpec, {{name, value}}).status, 400)
            << name << ": " << value;
    }
    EXPECT_TRUE(control_.submissions.empty());
}

TEST_F(RoutesTest, RenderGivesTheHashAsETag) {
    const auto response = call("POST", "/v1/jobs/render", "user-token", kSpec);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("ETag"), "\"abc\"");
}

TEST_F(RoutesTest, ShowAsksTheStoreOnlyWhenItMust) {
    EXPECT_EQ(get(of_job("")).body, R"({"id":"y"})");
    EXPECT_EQ(control_.shown, 0);
    control_.in_memory = false;
    EXPECT_EQ(get(of_job("")).body, R"({"id":"y"})");
    EXPECT_EQ(control_.shown, 1);
    EXPECT_EQ(get("/v1/jobs/ls-other").status, 404);
    EXPECT_EQ(pointers(get(of_job("?x=1"))), std::vector<std::string>{"?x"});
}

TEST_F(RoutesTest, ListPassesItsFiltersOn) {
    EXPECT_EQ(
        get("/v1/jobs?state=running&user=uma&name=n&label=team:vision&limit=7&cursor=c").status,
        200);
    ASSERT_EQ(control_.queries.size(), 1U);
    const auto& query = control_.queries.front();
    EXPECT_EQ(query.state, JobState::running);
    EXPECT_EQ(query.user, "uma");
    EXPECT_EQ(query.name, "n");
    EXPECT_EQ(query.label_name, "team");
    EXPECT_EQ(query.label_value, "vision");
    EXPECT_EQ(query.limit, 7U);
    EXPECT_EQ(query.cursor, "c");
}

TEST_F(RoutesTest, ListNamesTheParameterThatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"limit=0", "?limit"},    {"limit=1001", "?limit"}, {"limit=x", "?limit"},
        {"state=done", "?state"}, {"label=team", "?label"}, {"cursor=bad", "?cursor"},
        {"order=up", "?order"}};
    for (const auto& [query, pointer] : table) {
        const auto response = get("/v1/jobs?" + query);
        EXPECT_EQ(response.status, 400) << query;
        EXPECT_EQ(pointers(response), std::vector<std::string>{pointer}) << query;
    }
}

TEST_F(RoutesTest, AHeatmapIsBytesAndItsParametersArePassedOn) {
    const auto good =
        get(of_job("/heatmap?metric=loss&ranks=1000-1999&from=5&to=9&columns=100&rows=50"));
    EXPECT_EQ(good.status, 200);
    EXPECT_EQ(good.header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(good.body, "LSH1" + std::string{kJob});
    ASSERT_EQ(control_.heatmap_queries.size(), 1U);
    const auto& query = control_.heatmap_queries.front();
    EXPECT_EQ(query.metric, "loss");
    EXPECT_EQ(query.ranks.size(), 1000U);
    EXPECT_EQ(query.ranks.back(), 1999);
    EXPECT_EQ(query.from, 5.0);
    EXPECT_EQ(query.to, 9.0);
    EXPECT_EQ(query.columns, 100U);
    EXPECT_EQ(query.rows, 50U);
    EXPECT_EQ(get(of_job("/heatmap?columns=0&rows=-1&ranks=x")).status, 400);
}

TEST_F(RoutesTest, RanksAreSortedAndPagedAsAsked) {
    EXPECT_EQ(get(of_job("/ranks?sort=-loss&offset=20&limit=10")).status, 200);
    EXPECT_EQ(get(of_job("/ranks")).status, 200);
    ASSERT_EQ(control_.ranks_queries.size(), 2U);
    EXPECT_EQ(control_.ranks_queries[0].key.name, "loss");
    EXPECT_TRUE(control_.ranks_queries[0].descending);
    EXPECT_EQ(control_.ranks_queries[0].offset, 20U);
    EXPECT_EQ(control_.ranks_queries[0].limit, 10U);
    EXPECT_EQ(control_.ranks_queries[1].key.name, "rank");
    EXPECT_FALSE(control_.ranks_queries[1].descending);
    const auto bad = get(of_job("/ranks?sort=colour&offset=-1&limit=0"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?offset", "?limit", "?sort"}));
    EXPECT_EQ(control_.ranks_queries.size(), 2U);
}

TEST_F(RoutesTest, EventsAndSeriesPassTheirParametersOn) {
    EXPECT_EQ(get(of_job("/events?after=12&limit=3")).body,
              "{\"asked\":\"" + std::string{kJob} + " 12 3\"}");
    EXPECT_EQ(get(of_job("/series?metric=lr&ranks=0-2,5&x=time&from=1.5&to=9&points=100")).status,
              200);
    ASSERT_EQ(control_.series_queries.size(), 1U);
    const auto& query = control_.series_queries.front();
    EXPECT_EQ(query.metric, "lr");
    EXPECT_EQ(query.ranks, (std::vector<std::int32_t>{0, 1, 2, 5}));
    EXPECT_TRUE(query.by_time);
    EXPECT_EQ(query.from, 1.5);
    EXPECT_EQ(query.to, 9.0);
    EXPECT_EQ(query.points, 100U);
    const auto bad = get(of_job("/series?ranks=9-1&x=epoch&points=5000&from=nan"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?from", "?points", "?ranks", "?x"}));
}

TEST_F(RoutesTest, GpusAreAskedForByTheirNumbersOrByRanks) {
    EXPECT_EQ(get(of_job("/series?entity=gpu&gpus=3,0-1")).status, 200);
    const auto& query = control_.series_queries.at(0);
    EXPECT_EQ(query.metric, "gpu_utilization_ratio");
    EXPECT_EQ(query.gpus, (std::vector<std::int32_t>{0, 1, 3}));
    for (const char* wrong : {"/series?gpus=1", "/samples?entity=gpu&gpus=1&ranks=1"}) {
        EXPECT_EQ(pointers(get(of_job(wrong))), std::vector<std::string>{"?gpus"});
    }
}

TEST_F(RoutesTest, ANodeIsAskedForByItsName) {
    EXPECT_EQ(get("/v1/nodes/n1").body, "{\"asked\":\"n1\"}");
    EXPECT_EQ(get("/v1/nodes/n2").status, 404);
    EXPECT_EQ(get("/v1/nodes/n1?x=1").status, 400);
    EXPECT_EQ(get("/v1/nodes?cursor=%21").status, 400);
}

TEST_F(RoutesTest, SamplesAndMetricNamesPassTheirParametersOn) {
    EXPECT_EQ(get(of_job("/metrics")).body, "{\"asked\":\"" + std::string{kJob} + "\"}");
    EXPECT_EQ(get(of_job("/metrics?x=1")).status, 400);
    EXPECT_EQ(get(of_job("/samples?metric=lr&ranks=0-2,5&from=3&to=9&attempt=2&generation=4&"
                         "limit=7&cursor=MS4yLjM%3D"))
                  .status,
              200);
    EXPECT_EQ(get(of_job("/samples")).status, 200);
    ASSERT_EQ(control_.samples_queries.size(), 2U);
    const auto& query = control_.samples_queries.front();
    EXPECT_EQ(query.metric, "lr");
    EXPECT_EQ(query.ranks, (std::vector<std::int32_t>{0, 1, 2, 5}));
    EXPECT_EQ(query.from, 3);
    EXPECT_EQ(query.to, 9);
    EXPECT_EQ(query.attempt, 2);
    EXPECT_EQ(query.generation, 4);
    EXPECT_EQ(query.limit, 7U);
    EXPECT_EQ(query.cursor, "MS4yLjM=");
    const auto& plain = control_.samples_queries.back();
    EXPECT_FALSE(plain.from || plain.to || plain.attempt || plain.generation);
    EXPECT_EQ(plain.limit, 10'000U);
    const auto bad = get(of_job("/samples?ranks=0-256&from=x&attempt=-1&limit=65537"));
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(pointers(bad), (std::vector<std::string>{"?from", "?attempt", "?limit", "?ranks"}));
    const auto cursor = get(of_job("/samples?cursor=bad"));
    EXPECT_EQ(cursor.status, 400);
    EXPECT_EQ(pointers(cursor), std::vector<std::string>{"?cursor"});
}

TEST_F(RoutesTest, ScriptIsNotThereWithTheLocalScheduler) {
    EXPECT_EQ(get(of_job("/script")).status, 404);
}

TEST_F(RoutesTest, ScriptIsPlainText) {
    control_.script_text = "#!/bin/bash\nexit 0\n";
    const auto response = get(of_job("/script"));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, control_.script_text);
    EXPECT_EQ(response.header("Content-Type"), "text/plain; charset=utf-8");
}

TEST_F(RoutesTest, LogsComeInSlices) {
    write_log("one\ntwo\nthree\n");
    const auto all = get(of_job("/logs"));
    EXPECT_EQ(all.status, 200);
    EXPECT_EQ(all.body, "one\ntwo\nthree\n");
    EXPECT_EQ(all.header("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_EQ(all.header("Lockstep-Log-Offset"), "0");
    EXPECT_EQ(all.header("Lockstep-Log-Next"), "14");
    EXPECT_EQ(get(of_job("/logs?rank=0&tail=2")).body, "two\nthree\n");
    EXPECT_EQ(get(of_job("/logs?offset=4")).body, "two\nthree\n");
    EXPECT_EQ(get(of_job("/logs?rank=1")).status, 404);
    EXPECT_EQ(get(of_job("/logs?tail=1&offset=1")).status, 400);
    EXPECT_EQ(get(of_job("/logs?rank=-1")).status, 400);
    EXPECT_EQ(get(of_job("/logs?rank=../../etc")).status, 400);
}

TEST_F(RoutesTest, EvidenceIsAListAndItsFiles) {
    const auto listed = get(of_job("/evidence"));
    EXPECT_EQ(listed.status, 200);
    EXPECT_EQ(get(of_job("/evidence?limit=1")).status, 200);
    EXPECT_EQ(control_.evidence_limits, (std::vector<std::size_t>{50, 1}));
    EXPECT_EQ(get(of_job("/evidence?limit=0")).status, 400);
    EXPECT_EQ(get(of_job("/evidence?limit=51")).status, 400);
    EXPECT_EQ(get(of_job("/evidence?rank=1")).status, 400);
    control_.evidence_at = {folder_.path().string(), {"evidence", "gen-1", "rank-00000"}};
    const auto at = folder_ / "evidence" / "gen-1" / "rank-00000";
    std::filesystem::create_directories(at);
    std::ofstream{at / "python.txt"} << "spin (a.py:3)\n";
    std::ofstream{at / "flight-recorder", std::ios::binary} << std::string("\x80\0x", 3);
    const auto text = get(of_job("/evidence/python.txt?attempt=1&generation=2&rank=0&offset=5"));
    EXPECT_EQ(text.status, 200);
    EXPECT_EQ(text.body, "(a.py:3)\n");
    EXPECT_EQ(text.header("Content-Type"), "text/plain; charset=utf-8");
    EXPECT_EQ(text.header("Lockstep-Log-Next"), "14");
    ASSERT_EQ(control_.evidence_queries.size(), 1U);
    EXPECT_EQ(control_.evidence_queries[0].attempt, 1);
    EXPECT_EQ(control_.evidence_queries[0].generation, 2);
    EXPECT_EQ(control_.evidence_queries[0].name, "python.txt");
    const auto dump = get(of_job("/evidence/flight-recorder"));
    EXPECT_EQ(dump.header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(dump.body.size(), 3U);
    EXPECT_EQ(get(of_job("/evidence/ras.txt")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/agent.json")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/..%2F..%2Fagent.json")).status, 400);
    EXPECT_EQ(get(of_job("/evidence/python.txt?rank=1")).status, 404);
    EXPECT_EQ(get(of_job("/evidence/python.txt?rank=../x")).status, 400);
}

TEST_F(RoutesTest, ALogThatIsNotThereYetIsEmptyOr404) {
    control_.place.path = (folder_ / "none").string();
    const auto empty = get(of_job("/logs"));
    EXPECT_EQ(empty.status, 200);
    EXPECT_EQ(empty.body, "");
    control_.place_error = Error{Errc::unavailable, "rank 0 was not started yet"};
    EXPECT_EQ(get(of_job("/logs")).status, 404);
}

TEST_F(RoutesTest, AFollowedLogEndsWithItsRank) {
    write_log("one\ntwo\n");
    control_.place.may_grow = true;
    std::string got;
    ClientRequest request;
    request.target = of_job("/logs?follow=true&tail=1");
    request.headers.emplace_back("Authorization", "Bearer user-token");
    const auto done = http_stream_now(
        {"127.0.0.1", std::to_string(server_->port())}, request, [&](std::string_view bytes) {
            got += bytes;
            if (got == "two\n") {
                write_log("three\n");
                server_->on_thread([&] { control_.place.may_grow = false; });
            }
            return true;
        });
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, 200);
    EXPECT_EQ(got, "two\nthree\n");
}

TEST_F(RoutesTest, EventStreamResumesByIdAndFollowsAndTellsNothingOfOthersJobs) {
    const auto message = [](std::int64_t seq, const char* user = "uma") {
        return FakeControl::message(seq, "job." + std::string{kJob}, user);
    };
    control_.stored = {message(1), message(2, "vic"), message(3)};
    std::string got;
    ClientRequest request;
    request.target = "/v1/events?topics=jobs";
    request.headers = {{"Authorization", "Bearer user-token"}, {"Last-Event-ID", "1"}};
    bool sent = false;
    const auto done = http_stream_now(
        {"127.0.0.1", std::to_string(server_->port())}, request, [&](std::string_view bytes) {
            got += bytes;
            if (!sent && got.find("id: 3\n") != std::string::npos) {
                sent = true;
                server_->on_thread([&] {
                    control_.publish(message(3));  // published a moment after it was replayed
                    control_.publish(message(4, "vic"));
                    control_.publish(message(5));
                });
            }
            return got.find("id: 5\n") == std::string::npos;
        });
    ASSERT_TRUE(done);
    EXPECT_EQ(done->header("Content-Type"), "text/event-stream");
    EXPECT_EQ(got.find("id: "), got.find("id: 3\n")) << "old, or another user's:\n" << got;
    EXPECT_EQ(got.find("id: ", got.find("id: 3\n") + 1), got.find("id: 5\n")) << got;
    EXPECT_NE(got.find("id: 5\nevent: submitted\ndata: {\"seq\":5}\n\n"), std::string::npos) << got;
    EXPECT_EQ(get("/v1/events?topics=weather").status, 400);
    EXPECT_EQ(call("GET", "/v1/events", "user-token", "", {{"Last-Event-ID", "x"}}).status, 400);
}

TEST_F(RoutesTest, HealthReadinessMetricsAndIdentity) {
    EXPECT_EQ(call("GET", "/healthz", "").status, 200);
    EXPECT_EQ(call("GET", "/readyz", "").status, 200);
    control_.ready_error = Error{Errc::exhausted, "store: the disk is full"};
    const auto not_ready = call("GET", "/readyz", "");
    EXPECT_EQ(not_ready.status, 503);
    EXPECT_NE(not_ready.body.find("the disk is full"), std::string::npos);
    const auto metrics = call("GET", "/metrics", "viewer-token");
    EXPECT_EQ(metrics.body, "up 1\n");
    EXPECT_EQ(metrics.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    EXPECT_EQ(get("/v1/whoami").body,
              R"({"user":"uma","role":"user","scopes":["metrics","read","write","secrets"],)"
              R"("identity":"self"})");
}

TEST_F(RoutesTest, MetricsOfTheDaemonAloneAndOfAPartOfAJob) {
    EXPECT_EQ(get("/metrics?jobs=none").body, "own 1\n");
    EXPECT_EQ(get("/metrics?jobs=all").body, "up 1\n");
    EXPECT_EQ(pointers(get("/metrics?jobs=some")), std::vector<std::string>{"?jobs"});
    const std::string path = "/metrics/jobs/" + std::string{kJob};
    const auto part = call("GET", path + "?shard=1/4", "user-token", "", {{"Accept", "text/x"}});
    EXPECT_EQ(part.status, 200);
    EXPECT_EQ(part.body, "part 1 of 4\n");
    EXPECT_EQ(part.header("Content-Type"), "text/x");
    EXPECT_EQ(control_.callers.back().user, "uma");
    EXPECT_FALSE(control_.callers.back().reads_all);
    EXPECT_EQ(get(path).body, "part 0 of 1\n");
    for (const char* bad : {"4/4", "1", "-1/2", "x/2", "0/0"}) {
        const auto refused = get(path + "?shard=" + bad);
        EXPECT_EQ(refused.status, 400) << bad;
        EXPECT_EQ(pointers(refused), std::vector<std::string>{"?shard"}) << bad;
    }
    EXPECT_EQ(get("/metrics/jobs/ls-nobody").status, 404);
}

TEST_F(RoutesTest, ScrapeTargetsAreAListOfGroupsAsPrometheusReadsThem) {
    const std::string path = "/v1/prometheus/targets";
    const auto none = call("GET", path, "viewer-token");
    EXPECT_EQ(none.body, "[]");
    EXPECT_EQ(none.header("Content-Type"), "application/json");
    EXPECT_EQ(none.header("Cache-Control"), "no-store");
    EXPECT_TRUE(control_.callers.back().reads_all);
    control_.scraped = {{"ls-1", "small", "ada", "native", "", 1},
                        {"ls-2", "large", "bob", "command", "77", 2}};
    const auto list = parse_json(get(path).body);
    ASSERT_TRUE(list);
    ASSERT_EQ(list->size(), 3U);
    const Json& small = (*list)[0];
    const std::string address = small["targets"][0].get<std::string>();
    EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
    EXPECT_EQ(small["labels"]["__metrics_path__"], "/metrics/jobs/ls-1");
    EXPECT_FALSE(small["labels"].contains("__param_shard"));
    EXPECT_EQ(small["labels"]["instance"], "ls-1/0");
    EXPECT_EQ(small["labels"]["__meta_lockstep_job"], "ls-1");
    EXPECT_EQ(small["labels"]["__meta_lockstep_user"], "ada");
    const Json& second = (*list)[2];
    EXPECT_EQ(second["targets"][0], address);
    EXPECT_EQ(second["labels"]["__param_shard"], "1/2");
    EXPECT_EQ(second["labels"]["instance"], "ls-2/1");
    EXPECT_EQ(second["labels"]["__meta_lockstep_allocation"], "77");
    for (const Json& group : *list) {
        for (const auto& [name, value] : group["labels"].items()) {
            EXPECT_TRUE(value.is_string()) << name;  // Prometheus takes nothing else
        }
    }
    EXPECT_EQ(pointers(get(path + "?x=1")), std::vector<std::string>{"?x"});
}

TEST_F(RoutesTest, TheOpenApiDocumentPassesItsLint) {
    const auto file = folder_ / "openapi.json";
    std::ofstream{file} << call("GET", "/openapi.json", "").body;
    const std::string lint = std::string{LOCKSTEP_SOURCE_DIR} + "/tests/lint/openapi.py";
    if (std::system("python3 -c '' 2>/dev/null") != 0) {
        GTEST_SKIP() << "python3 is not there";
    }
    EXPECT_EQ(std::system(("python3 -B '" + lint + "' '" + file.string() + "'").c_str()), 0);
}

}  // namespace
}  // namespace lockstep
