// Signing in to the web page: codes, sessions, and that a session is its token and no more.
#include "daemon/http/auth/page_sessions.hpp"

#include "daemon/store/token_records.hpp"
#include "tests/unit/access/access_fixture.hpp"

namespace lockstep {
namespace {

class PageSessionsTest : public AccessTest {
  protected:
    static constexpr const char* kOwn = "X-Lockstep-Request: 1\r\n";

    static std::string header_of(const HttpResponse& response, std::string_view name) {
        for (const auto& [key, value] : response.headers) {
            if (key == name) {
                return value;
            }
        }
        return "";
    }
    // The cookie's value that an answer sets.
    static std::string cookie_of(const HttpResponse& response) {
        const std::string line = header_of(response, "Set-Cookie");
        const auto at = line.find('=');
        return line.substr(at + 1, line.find(';') - at - 1);
    }
    std::string code_of(const std::string& secret) {
        const auto made = call(secret, "POST /v1/session/codes");
        EXPECT_EQ(made.status, 201) << made.text();
        return json(made).value("code", "");
    }
    HttpResponse sign_in(const std::string& key, const std::string& value) {
        return call_as(Principal{}, "POST /v1/session", "{\"" + key + "\":\"" + value + "\"}");
    }
    std::optional<Principal> behind(const std::string& cookie) {
        return sessions_->authenticate(sha256_hex(cookie));
    }
};

TEST_F(PageSessionsTest, ACodeSignsInOnceWithTheRightsOfItsToken) {
    const std::string code = code_of(vic_);
    const HttpResponse in = sign_in("code", code);
    ASSERT_EQ(in.status, 200) << in.text();
    EXPECT_EQ(json(in)["user"], "vic");
    EXPECT_EQ(json(in)["role"], "viewer");
    EXPECT_EQ(json(in)["token"], who(vic_).token);
    const auto session = behind(cookie_of(in));
    ASSERT_TRUE(session);
    EXPECT_EQ(session->user, "vic");
    EXPECT_EQ(session->role, Role::viewer);
    EXPECT_EQ(json(in)["session"], session->session);
    EXPECT_EQ(session->expires_at, clock_.wall() + limits::kPageSessionSeconds * 1000);
    EXPECT_EQ(sign_in("code", code).status, 401) << "once";
    EXPECT_EQ(sign_in("code", "guess").status, 401);
    EXPECT_EQ(header_of(sign_in("code", code), "Set-Cookie"), "");
}

TEST_F(PageSessionsTest, ACodeIsGoodForAMinute) {
    const std::string code = code_of(uma_);
    clock_.advance(std::chrono::seconds{limits::kSignInCodeSeconds});
    EXPECT_EQ(sign_in("code", code).status, 401);
}

TEST_F(PageSessionsTest, WhoTakesAllCodesKeepsNobodyElseFromSigningIn) {
    for (int i = 0; i < 100; ++i) {
        ASSERT_NE(code_of(uma_), "");
    }
    EXPECT_EQ(call(uma_, "POST /v1/session/codes").status, 503);
    EXPECT_EQ(sign_in("code", code_of(vic_)).status, 200);
    clock_.advance(std::chrono::seconds{limits::kSignInCodeSeconds});
    EXPECT_NE(code_of(uma_), "");
}

TEST_F(PageSessionsTest, ACodeOfARevokedTokenIsWorthNothing) {
    const std::string code = code_of(uma_);
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + who(uma_).token).status, 204);
    EXPECT_EQ(sign_in("code", code).status, 401);
}

TEST_F(PageSessionsTest, ATokenSignsInToo) {
    const HttpResponse in = sign_in("token", uma_);
    ASSERT_EQ(in.status, 200);
    EXPECT_EQ(behind(cookie_of(in))->user, "uma");
    EXPECT_EQ(sign_in("token", "lks_wrong").status, 401);
    for (const char* body : {"{}", R"({"code":"a","token":"b"})", R"({"code":1})", "[]", "x"}) {
        EXPECT_EQ(call_as(Principal{}, "POST /v1/session", body).status, 400) << body;
    }
}

TEST_F(PageSessionsTest, TheCookieIsHiddenFromScriptsAndOtherSites) {
    const std::string line = header_of(sign_in("token", uma_), "Set-Cookie");
    EXPECT_TRUE(line.starts_with("lockstep_session="));
    EXPECT_NE(line.find("; HttpOnly"), std::string::npos);
    EXPECT_NE(line.find("; SameSite=Strict"), std::string::npos);
    EXPECT_NE(line.find("; Max-Age=604800"), std::string::npos);
    EXPECT_EQ(line.find("Secure"), std::string::npos) << "not over plain HTTP";
    const std::string proxied =
        header_of(call_as(Principal{}, "POST /v1/session", "{\"token\":\"" + uma_ + "\"}",
                          "X-Forwarded-Proto: https\r\n"),
                  "Set-Cookie");
    EXPECT_NE(proxied.find("; Secure"), std::string::npos);
}

TEST_F(PageSessionsTest, TheSecretIsNeitherStoredNorABearerToken) {
    const std::string cookie = cookie_of(sign_in("token", uma_));
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(cookie)));
    EXPECT_FALSE(behind(uma_)) << "and a token is no cookie";
    bool found = false;
    for (const TokenRow& row : stored()) {
        EXPECT_EQ(row.sha256.find(cookie), std::string::npos);
        found = found || (is_page_session(row) && row.sha256 == sha256_hex(cookie));
    }
    EXPECT_TRUE(found);
    const Json tokens = json(call_as(root_, "GET /v1/tokens"));
    for (const auto& item : tokens["items"]) {
        EXPECT_TRUE(item["id"].get<std::string>().starts_with("tk-")) << item;
    }
}

TEST_F(PageSessionsTest, ItEndsWithItsTokenItsTimeOrSigningOut) {
    const std::string by_token = cookie_of(sign_in("token", eve_));
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + who(eve_).token).status, 204);
    EXPECT_FALSE(behind(by_token));

    const std::string signed_out = cookie_of(sign_in("token", uma_));
    const std::string kept = cookie_of(sign_in("token", uma_));
    const HttpResponse out = call_as(Principal{}, "DELETE /v1/session", "",
                                     "Cookie: a=b; lockstep_session=" + signed_out + "\r\n" + kOwn);
    EXPECT_EQ(out.status, 204);
    EXPECT_NE(header_of(out, "Set-Cookie").find("lockstep_session=; Max-Age=0"), std::string::npos);
    EXPECT_FALSE(behind(signed_out));
    EXPECT_TRUE(behind(kept));
    EXPECT_EQ(call_as(Principal{}, "DELETE /v1/session").status, 204) << "nothing to do";

    restart_daemon();
    EXPECT_TRUE(behind(kept)) << "a restart signs nobody out";
    EXPECT_FALSE(behind(signed_out));
    EXPECT_FALSE(behind(by_token));
    clock_.advance(std::chrono::seconds{limits::kPageSessionSeconds});
    EXPECT_FALSE(behind(kept));
}

TEST_F(PageSessionsTest, ItDoesNotOutliveAShortToken) {
    const std::string brief = secret_of(root_, R"({"name":"b","user":"bob","expires_in":60})");
    const HttpResponse in = sign_in("token", brief);
    clock_.advance(std::chrono::seconds{60});
    EXPECT_FALSE(behind(cookie_of(in)));
}

TEST_F(PageSessionsTest, WhoHadTheSecretIsToldWhyItCountsNoMore) {
    const auto why = [this](const HttpResponse& in) {
        return sessions_->why_refused(sha256_hex(cookie_of(in)));
    };
    const std::string brief = secret_of(root_, R"({"name":"b","user":"bob","expires_in":60})");
    const HttpResponse by_brief = sign_in("token", brief);
    const HttpResponse by_eve = sign_in("token", eve_);
    const HttpResponse by_uma = sign_in("token", uma_);
    EXPECT_EQ(why(by_brief), "") << "it counts";
    // A browser that sends nothing is told nothing.
    EXPECT_NE(header_of(by_brief, "Set-Cookie").find("Max-Age=604800;"), std::string::npos);
    clock_.advance(std::chrono::seconds{60});
    const std::string expired = "the token expired at " + to_rfc3339(clock_.wall());
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + who(eve_).token).status, 204);
    const std::string revoked = "the token was revoked at " + to_rfc3339(clock_.wall());
    for (const bool again : {false, true}) {
        if (again) {
            restart_daemon();
        }
        EXPECT_EQ(why(by_brief), expired);
        EXPECT_EQ(tokens_->why_refused(sha256_hex(brief)), expired);
        EXPECT_EQ(json(sign_in("token", brief))["detail"], expired);
        EXPECT_EQ(why(by_eve), revoked);
        EXPECT_EQ(sessions_->whose(sha256_hex(cookie_of(by_eve))).user, "eve");
        EXPECT_EQ(tokens_->whose(sha256_hex(eve_)).user, "eve");
        EXPECT_EQ(tokens_->user_of(tokens_->whose(sha256_hex(eve_)).token), "eve");
        EXPECT_EQ(json(sign_in("token", eve_))["detail"], revoked);
        EXPECT_EQ(why(by_uma), "");
        EXPECT_EQ(tokens_->why_refused(sha256_hex("lks_wrong")), "");
        EXPECT_EQ(tokens_->whose(sha256_hex("lks_wrong")).user, "");
        EXPECT_EQ(tokens_->user_of("tk-none"), "");
        EXPECT_EQ(json(sign_in("token", "lks_wrong"))["detail"], "there is no such token");
    }
    clock_.advance(std::chrono::seconds{limits::kPageSessionSeconds - 60});
    EXPECT_EQ(why(by_uma), "the session expired at " + to_rfc3339(clock_.wall()));
}

TEST_F(PageSessionsTest, TheOldestOfAUserGivesWay) {
    const std::string first = cookie_of(sign_in("token", uma_));
    const std::string others = cookie_of(sign_in("token", eve_));
    clock_.advance(std::chrono::milliseconds{1});
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(sign_in("token", uma_).status, 200);
    }
    EXPECT_FALSE(behind(first));
    EXPECT_TRUE(behind(others));
}

TEST_F(PageSessionsTest, DaemonsOfOneHostHaveCookiesOfTheirOwn) {
    EXPECT_EQ(session_cookie_name("localhost"), "lockstep_session");
    EXPECT_EQ(session_cookie_name("127.0.0.1:8470"), "lockstep_session_8470");
    EXPECT_EQ(session_cookie_name("[::1]"), "lockstep_session");
    EXPECT_EQ(session_cookie_name("[::1]:8471"), "lockstep_session_8471");
    const auto value = [](const std::string& host, const std::string& cookies) {
        HttpRequest request;
        EXPECT_FALSE(
            parse_head("GET / HTTP/1.1\r\nHost: " + host + "\r\nCookie: " + cookies + "\r\n\r\n",
                       request.head));
        return std::string{session_cookie(request)};
    };
    const std::string both = "lockstep_session_8470=one; lockstep_session_8471=two";
    EXPECT_EQ(value("localhost:8471", both), "two");
    EXPECT_EQ(value("localhost:84", both), "");
    EXPECT_EQ(value("localhost", both), "");
    EXPECT_EQ(value("localhost", "xlockstep_session=1;lockstep_session=2"), "2");
}

}  // namespace
}  // namespace lockstep
