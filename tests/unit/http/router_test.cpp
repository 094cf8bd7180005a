#include "daemon/http/base/router.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Route route(Method method, std::string path, std::string operation) {
    Route out;
    out.method = method;
    out.path = std::move(path);
    out.operation = std::move(operation);
    out.handler = FastHandler{[](const HttpRequest&) { return HttpResponse{}; }};
    return out;
}

class RouterTest : public testing::Test {
  protected:
    RouterTest() {
        router_.add(route(Method::get, "/", "root"));
        router_.add(route(Method::get, "/v1/jobs/{id}", "show"));
        router_.add(route(Method::post, "/v1/jobs/render", "render"));
        router_.add(route(Method::post, "/v1/jobs/{id}", "touch"));
        router_.add(route(Method::get, "/v1/jobs/{id}/ranks/{rank}", "rank"));
    }
    std::string find(Method method, std::string path) {
        request_.path = std::move(path);
        const auto match = router_.match(method, request_);
        return match.route != nullptr ? match.route->operation : match.path_known ? "405" : "404";
    }
    Router router_;
    HttpRequest request_;
};

TEST_F(RouterTest, FindsRoutesByMethodAndPath) {
    EXPECT_EQ(find(Method::get, "/"), "root");
    EXPECT_EQ(find(Method::get, "/v1/jobs/a"), "show");
    EXPECT_EQ(request_.param(), "a");
    EXPECT_EQ(find(Method::get, "/v1/jobs/a/ranks/7"), "rank");
    EXPECT_EQ(request_.param(0), "a");
    EXPECT_EQ(request_.param(1), "7");
}

TEST_F(RouterTest, PrefersTheLiteral) {
    EXPECT_EQ(find(Method::post, "/v1/jobs/render"), "render");
    EXPECT_EQ(find(Method::post, "/v1/jobs/other"), "touch");
    EXPECT_EQ(find(Method::get, "/v1/jobs/render"), "show");
}

TEST_F(RouterTest, HeadIsServedByGet) {
    EXPECT_EQ(find(Method::head, "/v1/jobs/a"), "show");
}

TEST_F(RouterTest, TellsUnknownPathsFromUnknownMethods) {
    EXPECT_EQ(find(Method::delete_, "/v1/jobs/a"), "405");
    EXPECT_EQ(router_.allowed_methods(request_), "GET, HEAD, POST");
    for (const char* path : {"/v1/jobs", "/v1/jobs/", "/v1/jobs/a/", "//v1/jobs/a",
                             "/v1/jobs/a/ranks", "/v1/jobs//ranks/1", "/x", "/V1/jobs/a"}) {
        EXPECT_EQ(find(Method::get, path), "404") << path;
    }
}

TEST(Roles, AllowWhatTheyShould) {
    const std::vector<std::pair<Scope, std::string>> table{
        {Scope::open, "vua"}, {Scope::metrics, "vua"}, {Scope::read, "vua"},
        {Scope::write, "ua"}, {Scope::admin, "a"},     {Scope::agent, ""}};
    for (const auto& [scope, who] : table) {
        std::string got;
        got += allows(Role::viewer, scope) ? "v" : "";
        got += allows(Role::user, scope) ? "u" : "";
        got += allows(Role::admin, scope) ? "a" : "";
        EXPECT_EQ(got, who) << to_string(scope);
    }
}

TEST(RouterDeathTest, RefusesARouteTwice) {
    Router router;
    router.add(route(Method::get, "/a", "one"));
    EXPECT_DEATH(router.add(route(Method::get, "/a", "two")), "check failed");
    EXPECT_DEATH(router.add(route(Method::get, "/b", "one")), "check failed");
}

}  // namespace
}  // namespace lockstep
