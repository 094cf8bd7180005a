// POST, GET and DELETE /v1/tokens: who may give which rights to whom.
#include "daemon/store/token_records.hpp"
#include "tests/unit/access/access_fixture.hpp"

#include <set>

namespace lockstep {
namespace {

class TokenRoutesTest : public AccessTest {
  protected:
    // Status and the pointer of the first error.
    std::pair<int, std::string> refusal(const std::string& secret, const std::string& body) {
        const auto answer = call(secret, "POST /v1/tokens", body);
        if (answer.status < 300) {
            return {answer.status, ""};
        }
        EXPECT_EQ(answer.content_type, content_type::kProblem);
        const Json problem = json(answer);
        const bool named = problem.contains("errors");
        return {answer.status, named ? problem["errors"][0]["pointer"].get<std::string>() : ""};
    }
    std::set<std::string> listed(const std::string& secret, const std::string& query = "") {
        std::set<std::string> out;
        const Json page = json(call(secret, "GET /v1/tokens" + query));
        for (const Json& item : page["items"]) {
            EXPECT_FALSE(item.contains("token"));
            EXPECT_FALSE(item.contains("sha256"));
            out.insert(item["user"].get<std::string>() + "/" + item["name"].get<std::string>());
        }
        return out;
    }
    std::string id_of(const std::string& secret) { return who(secret).token; }
};

using Refusal = std::pair<int, std::string>;

TEST_F(TokenRoutesTest, AUserMakesTokensOfTheirOwnAndNoMore) {
    const Json own = json(call(uma_, "POST /v1/tokens", R"({"name":"laptop"})"));
    EXPECT_EQ(own["user"], "uma");
    EXPECT_EQ(own["role"], "user");
    EXPECT_EQ(own["scopes"], Json::array({"metrics", "read", "write", "secrets"}));
    EXPECT_EQ(who(own["token"]).user, "uma");
    EXPECT_EQ(refusal(uma_, R"({"name":"x","user":"eve"})"), Refusal(403, "/user"));
    EXPECT_EQ(refusal(uma_, R"({"name":"x","role":"admin"})"), Refusal(403, "/role"));
    // A viewer reads everybody's jobs: more than a user does.
    EXPECT_EQ(refusal(uma_, R"({"name":"x","role":"viewer"})"), Refusal(403, "/role"));
    EXPECT_EQ(refusal(uma_, R"({"name":"x","scopes":["admin"]})"), Refusal(400, "/scopes"));
    EXPECT_EQ(refusal(vic_, R"({"name":"x"})").first, 403);
    EXPECT_EQ(refusal("lks_guessed", R"({"name":"x"})").first, 401);
    EXPECT_EQ(refusal(admin_, R"({"name":"x","user":"eve","role":"admin"})"), Refusal(201, ""));
}

TEST_F(TokenRoutesTest, ANarrowTokenMakesNoWiderOne) {
    const std::string narrow =
        json(call(admin_, "POST /v1/tokens",
                  R"({"name":"n","role":"admin","scopes":["write"],"expires_in":3600})"))["token"];
    EXPECT_EQ(call(narrow, "GET /v1/jobs").status, 403);
    EXPECT_EQ(refusal(narrow, R"({"name":"x","role":"admin","scopes":["read"]})"),
              Refusal(403, "/scopes"));
    const Json child = json(call(narrow, "POST /v1/tokens", R"({"name":"x","role":"admin"})"));
    EXPECT_EQ(child["scopes"], Json::array({"write"}));
    const std::string reader =
        json(call(uma_, "POST /v1/tokens", R"({"name":"r","scopes":["read"]})"))["token"];
    EXPECT_EQ(refusal(reader, R"({"name":"x"})").first, 403);
    EXPECT_EQ(call(reader, "DELETE /v1/tokens/" + id_of(uma_)).status, 403);
    EXPECT_EQ(call(reader, "POST /v1/jobs", "{}").status, 403);
    EXPECT_EQ(call(reader, "GET /metrics").status, 403);
}

TEST_F(TokenRoutesTest, AUsersTokenMakesNoneThatOutlivesIt) {
    const std::string day = secret_of(root_, R"({"name":"day","user":"bob","expires_in":86400})");
    const auto end = who(day).expires_at;
    EXPECT_EQ(refusal(day, R"({"name":"x","expires_in":86401})"), Refusal(403, "/expires_in"));
    EXPECT_EQ(refusal(day, R"({"name":"x","expires_in":86400})"), Refusal(201, ""));
    EXPECT_EQ(json(call(day, "POST /v1/tokens", R"({"name":"x"})"))["expires_at"], to_rfc3339(end));
}

// An admin's token of a minute made one of ten years.
TEST_F(TokenRoutesTest, AnAdminsTokenMakesNoneThatOutlivesItEither) {
    const std::string minute =
        secret_of(root_, R"({"name":"m","user":"ada","role":"admin","expires_in":60})");
    const auto end = who(minute).expires_at;
    EXPECT_EQ(refusal(minute, R"({"name":"x","user":"bob","expires_in":61})"),
              Refusal(403, "/expires_in"));
    EXPECT_EQ(json(call(minute, "POST /v1/tokens", R"({"name":"x","user":"bob"})"))["expires_at"],
              to_rfc3339(end));
}

// Those that a stolen token had made stayed, and nobody could tell which they were.
TEST_F(TokenRoutesTest, WhatATokenHasMadeEndsWithIt) {
    const Json stolen = json(call(uma_, "POST /v1/tokens", R"({"name":"stolen"})"));
    const Json child =
        json(call(stolen.value("token", ""), "POST /v1/tokens", R"({"name":"child"})"));
    const Json grandchild =
        json(call(child.value("token", ""), "POST /v1/tokens", R"({"name":"grandchild"})"));
    EXPECT_EQ(stolen["made_with"], id_of(uma_));
    EXPECT_EQ(child["made_with"], stolen["id"]);
    EXPECT_EQ(grandchild["made_with"], child["id"]);
    EXPECT_EQ(call(uma_, "DELETE /v1/tokens/" + stolen.value("id", "")).status, 204);
    for (const Json& ended : {stolen, child, grandchild}) {
        EXPECT_EQ(call(ended.value("token", ""), "GET /v1/whoami").status, 401) << ended["name"];
    }
    restart_daemon();
    for (const Json& ended : {stolen, child, grandchild}) {
        EXPECT_EQ(call(ended.value("token", ""), "GET /v1/whoami").status, 401) << ended["name"];
    }
    EXPECT_EQ(call(uma_, "GET /v1/whoami").status, 200);
}

TEST_F(TokenRoutesTest, ATokenThatIsMadeWhileItsMakerIsEndedIsNone) {
    const Json maker = make(root_, R"({"name":"maker","user":"bob"})");
    Principal by = who(maker.value("token", ""));
    std::optional<Result<Json>> made;
    const auto create = [&]() -> Task<void> {
        TokenRequest request;
        request.name = "late";
        made = co_await tokens_->create(by, request);
    };
    bool revoked = false;
    const auto revoke = [&]() -> Task<void> {
        Principal root = root_;
        std::string id = maker.value("id", "");
        const Status done = co_await tokens_->revoke(std::move(root), std::move(id));
        revoked = done.has_value();
    };
    net::co_spawn(*io_, create(), net::detached);
    net::co_spawn(*io_, revoke(), net::detached);
    until([&] { return made && revoked; }, "both have answered");
    EXPECT_FALSE(*made);
    for (const TokenRow& row : stored()) {
        EXPECT_TRUE(row.user != "bob" || row.revoked_at != 0) << row.name;
    }
}

TEST_F(TokenRoutesTest, WhoeverHasATokenMayEndItAndAViewerNoOther) {
    const std::string other = secret_of(root_, R"({"name":"w","user":"vic","role":"viewer"})");
    EXPECT_EQ(call(vic_, "DELETE /v1/tokens/" + id_of(other)).status, 403);
    EXPECT_EQ(call(vic_, "DELETE /v1/tokens/" + id_of(uma_)).status, 403);
    const Json scraper =
        make(root_, R"({"name":"p","user":"prom","role":"viewer","scopes":["metrics"]})");
    EXPECT_EQ(
        call(scraper.value("token", ""), "DELETE /v1/tokens/" + scraper.value("id", "")).status,
        204);
    EXPECT_EQ(call(vic_, "DELETE /v1/tokens/" + id_of(vic_)).status, 204);
    EXPECT_EQ(call(vic_, "GET /v1/whoami").status, 401);
    EXPECT_EQ(call(other, "GET /v1/whoami").status, 200);
}

// All of an admin's power came with the role, whatever the token was narrowed to.
TEST_F(TokenRoutesTest, AnAdminsTokenWithoutTheScopeAdminChangesOnlyItsOwn) {
    const std::string narrow =
        secret_of(root_, R"({"name":"n","user":"ada","role":"admin","scopes":["read","write"]})");
    const std::string job = json(
        call(uma_, "POST /v1/jobs", R"({"name":"t","framework":"command","command":["x"]})"))["id"];
    EXPECT_EQ(call(narrow, "GET /v1/jobs/" + job).status, 200);
    EXPECT_EQ(call(narrow, "POST /v1/jobs/" + job + "/cancel").status, 404);
    EXPECT_EQ(call(narrow, "DELETE /v1/tokens/" + id_of(uma_)).status, 404);
    EXPECT_EQ(refusal(narrow, R"({"name":"x","user":"uma"})"), Refusal(403, "/user"));
    EXPECT_EQ(refusal(narrow, R"({"name":"x","role":"viewer"})"), Refusal(403, "/role"));
    EXPECT_EQ(call(admin_, "POST /v1/jobs/" + job + "/cancel").status, 200);
    // Nor does it end others' tokens by ending the one that they were made with.
    const std::string bobs =
        json(call(admin_, "POST /v1/tokens", R"({"name":"b","user":"bob"})"))["token"];
    EXPECT_EQ(call(narrow, "DELETE /v1/tokens/" + id_of(admin_)).status, 403);
    EXPECT_EQ(call(bobs, "GET /v1/whoami").status, 200);
    EXPECT_EQ(call(narrow, "DELETE /v1/tokens/" + id_of(narrow)).status, 204);
}

TEST_F(TokenRoutesTest, WhatIsMalformedIsNamed) {
    for (const auto& [body, pointer] : std::vector<std::pair<std::string, std::string>>{
             {R"({})", "/name"},
             {R"({"name":""})", "/name"},
             {R"({"name":"a b"})", "/name"},
             {R"({"name":"-a"})", "/name"},
             {R"({"name":7})", "/name"},
             {R"({"name":"a","user":""})", "/user"},
             {R"({"name":"a","user":"../eve"})", "/user"},
             {R"({"name":"a","role":"root"})", "/role"},
             {R"({"name":"a","scopes":[]})", "/scopes"},
             {R"({"name":"a","scopes":["agent"]})", "/scopes"},
             {R"({"name":"a","scopes":["open"]})", "/scopes"},
             {R"({"name":"a","expires_in":0})", "/expires_in"},
             {R"({"name":"a","expires_in":315360001})", "/expires_in"},
             {R"({"name":"a","expires_in":"1d"})", "/expires_in"},
             {R"({"name":"a","sha256":"00"})", "/sha256"}}) {
        EXPECT_EQ(refusal(admin_, body), Refusal(400, pointer)) << body;
    }
    const std::string unknown =
        call(admin_, "POST /v1/tokens", R"({"name":"a","scopes":["x"]})").body;
    EXPECT_NE(unknown.find("are metrics, read, write, secrets and admin"), std::string::npos)
        << unknown;
    EXPECT_EQ(refusal(admin_, "[]").first, 400);
    EXPECT_EQ(refusal(admin_, "").first, 400);
    EXPECT_EQ(call(admin_, "GET /v1/tokens?cursor=eA").status, 400);
    EXPECT_EQ(call(admin_, "GET /v1/tokens?limit=0").status, 400);
}

TEST_F(TokenRoutesTest, AnAdminListsAllAndOthersTheirOwn) {
    const std::set<std::string> all{"ada/a", "uma/u", "eve/e", "vic/v"};
    EXPECT_EQ(listed(admin_), all);
    EXPECT_EQ(listed(uma_), std::set<std::string>{"uma/u"});
    EXPECT_EQ(listed(vic_), std::set<std::string>{"vic/v"});
    const Json extra = make(root_, R"({"name":"short","user":"uma","expires_in":60})");
    EXPECT_EQ(listed(uma_), (std::set<std::string>{"uma/u", "uma/short"}));
    clock_.advance(std::chrono::seconds{60});
    EXPECT_EQ(listed(uma_), std::set<std::string>{"uma/u"});
    EXPECT_EQ(listed(uma_, "?all=true"), (std::set<std::string>{"uma/u", "uma/short"}));
}

TEST_F(TokenRoutesTest, PagesHoldEveryTokenOnce) {
    for (int i = 0; i < 7; ++i) {
        make(root_, R"({"name":"x","user":"bob"})");
        clock_.advance(std::chrono::milliseconds{i % 2});  // some in the same millisecond
    }
    std::set<std::string> seen;
    std::string cursor;
    int pages = 0;
    do {
        const Json page = json(call(admin_, "GET /v1/tokens?limit=3" + cursor));
        for (const Json& item : page["items"]) {
            EXPECT_TRUE(seen.insert(item["id"]).second);
        }
        cursor =
            page.contains("next_cursor") ? "&cursor=" + page["next_cursor"].get<std::string>() : "";
        // + and = of base 64 mean something else in a query.
        for (const auto& [from, to] : {std::pair{"+", "%2B"}, {"=", "%3D"}}) {
            for (auto at = cursor.find(from, 8); at != std::string::npos && !cursor.empty();
                 at = cursor.find(from, at + 1)) {
                cursor.replace(at, 1, to);
            }
        }
        ASSERT_LT(++pages, 10);
    } while (!cursor.empty());
    EXPECT_EQ(seen.size(), 11U);
}

TEST_F(TokenRoutesTest, OnlyTheOwnerAndAnAdminRevokeAndOthersDoNotLearnThatItExists) {
    const std::string target = "DELETE /v1/tokens/" + id_of(uma_);
    const auto foreign = call(eve_, target);
    const auto unknown = call(eve_, "DELETE /v1/tokens/tk-000000000000");
    EXPECT_EQ(foreign.status, 404);
    EXPECT_EQ(unknown.status, 404);
    std::string same{unknown.text()};
    same.replace(same.find("tk-000000000000"), 15, id_of(uma_));
    EXPECT_EQ(foreign.text(), same);
    EXPECT_EQ(call(vic_, target).status, 403);
    EXPECT_EQ(call(uma_, target).status, 204);
    EXPECT_EQ(call(uma_, target).status, 401);
    EXPECT_EQ(call(admin_, target).status, 204);  // again is no error
    EXPECT_EQ(call(admin_, "DELETE /v1/tokens/" + id_of(eve_)).status, 204);
    EXPECT_EQ(call(eve_, "GET /v1/whoami").status, 401);
}

TEST_F(TokenRoutesTest, AUsersTokenDoesNotEndAnAdminsOfTheSamePerson) {
    const std::string small = secret_of(root_, R"({"name":"s","user":"ada"})");
    EXPECT_EQ(call(small, "DELETE /v1/tokens/" + id_of(admin_)).status, 403);
    EXPECT_EQ(who(admin_).role, Role::admin);
}

TEST_F(TokenRoutesTest, WhoAmITellsWhatTheTokenMayDo) {
    const Json me = json(call(uma_, "GET /v1/whoami"));
    EXPECT_EQ(me["user"], "uma");
    EXPECT_EQ(me["role"], "user");
    EXPECT_EQ(me["scopes"], Json::array({"metrics", "read", "write", "secrets"}));
    EXPECT_EQ(me["token"], id_of(uma_));
    EXPECT_TRUE(me.contains("expires_at"));
}

}  // namespace
}  // namespace lockstep
