// What holds of all routes: who may call them, and what is said of them in the OpenAPI document.
#include "tests/unit/http/expected_scopes.hpp"
#include "tests/unit/http/routes_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace lockstep {
namespace {

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
