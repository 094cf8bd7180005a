// The routes of nodes, of the daemon itself and of those who watch it.
#include "tests/unit/http/routes_fixture.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST_F(RoutesTest, ANodeIsAskedForByItsName) {
    EXPECT_EQ(get("/v1/nodes/n1").body, "{\"asked\":\"n1\"}");
    EXPECT_EQ(get("/v1/nodes/n2").status, 404);
    EXPECT_EQ(get("/v1/nodes/n1?x=1").status, 400);
    EXPECT_EQ(get("/v1/nodes?cursor=%21").status, 400);
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

}  // namespace
}  // namespace lockstep
