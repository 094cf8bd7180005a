// Submissions of one user that are too many, and sweeps that are taken up in slices.
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/database.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class SubmitRoutesTest : public testing::Test {
  protected:
    SubmitRoutesTest() : context_{io_, control_, metrics_, tokens_} {
        add_routes(router_, context_);
        server_ = std::make_unique<TestServer>(router_, &control_.gate, HttpSettings{},
                                               Surface::all, &io_);
    }
    ~SubmitRoutesTest() override {
        store_.stop();  // it keeps the server's thread at work
    }
    ClientResponse post(const std::string& path, const std::string& body) {
        auto response = server_->call("POST", path, "user-token", body);
        EXPECT_TRUE(response) << path;
        return response ? *response : ClientResponse{};
    }

    const test::TemporaryFolder folder_;
    net::io_context io_{1};
    FakeControl control_;
    telemetry::DaemonMetrics metrics_;
    Store store_{io_, std::move(Database::open(folder_ / "db").value()), Store::Hooks{}};
    SystemClock clock_;
    TaskGroup tasks_{io_};
    TokenTable tokens_{store_, clock_, tasks_, {}};
    RouteContext context_;
    Router router_;
    std::unique_ptr<TestServer> server_;
};

TEST_F(SubmitRoutesTest, TooManyOfOneUserIs429WithWhenToTryAgain) {
    SubmitError full{SubmitFailure::user_quota, Errc::exhausted,
                     "limit: a user may submit 60 jobs a minute"};
    full.retry_after_s = 17;
    control_.submit_error = full;
    const auto response = post("/v1/jobs", R"({"name":"a","framework":"command","command":["x"]})");
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.header("Retry-After"), "17");
    EXPECT_EQ(response.header("Content-Type"), "application/problem+json");
    EXPECT_NE(response.body.find("60 jobs a minute"), std::string::npos) << response.body;
}

// Nobody knows when the user removes jobs; a tool that waits for it would wait for ever.
TEST_F(SubmitRoutesTest, TooMuchStoredByOneUserIs429WithoutATime) {
    control_.submit_error = SubmitError{SubmitFailure::user_quota, Errc::exhausted,
                                        "limit: a user's jobs may take 5.0 GB on disk"};
    const auto response = post("/v1/jobs", R"({"name":"a","framework":"command","command":["x"]})");
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.header("Retry-After"), "");
    EXPECT_NE(response.body.find("5.0 GB on disk"), std::string::npos) << response.body;
}

TEST_F(SubmitRoutesTest, HooksThatAreTurnedOffWhereThatHasNoEffectAreRefusedByName) {
    const auto response = post("/v1/jobs", R"({"name":"a","framework":"command","command":["x"],
            "inherit_environment":true,"recorded_environment":{"LOCKSTEP_PYTHON_HOOKS":"off"}})");
    EXPECT_EQ(response.status, 400);
    EXPECT_NE(response.body.find("/recorded_environment/LOCKSTEP_PYTHON_HOOKS"), std::string::npos)
        << response.body;
}

TEST_F(SubmitRoutesTest, SweepsAreTakenUpOneByOneAndAllOfThem) {
    std::string values;
    for (int i = 0; i < 500; ++i) {
        values += (i > 0 ? "," : "") + std::to_string(i);
    }
    const std::string body = R"({"name":"s","framework":"command","command":["x","0"],
                                 "sweep":{"parameters":{"environment.A":[)" +
                             values + "]}}}";
    // Numbers are no values of an environment: the first point says so, and the turn is free again.
    EXPECT_EQ(post("/v1/jobs", body).status, 400);
    std::string good = body;
    good.replace(good.find("environment.A"), 13, "command.1");
    std::string texts;
    for (int i = 0; i < 500; ++i) {
        texts += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\"";
    }
    good.replace(good.find(values), values.size(), texts);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(post("/v1/jobs", good).status, 201);
    }
    EXPECT_EQ(post("/v1/jobs/render", good).status, 200);
    server_->on_thread([this] {
        EXPECT_EQ(control_.submissions.size(), 2U);
        for (const auto& one : control_.submissions) {
            EXPECT_EQ(one.sweep ? one.sweep->points.size() : 0, 500U);
        }
    });
}

}  // namespace
}  // namespace lockstep
