// The listener against clients that no library would be: raw sockets and malformed requests.
#include "daemon/http/base/content_coding.hpp"
#include "tests/unit/http/session_fixture.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr const char* kJsonType = "Content-Type: application/json\r\n";

TEST_F(SessionTest, EveryAnswerCarriesTheSecurityHeaders) {
    start();
    for (const char* path : {"/open", "/nothing", "/private"}) {
        const auto answer = get(path);
        EXPECT_NE(answer.find("\r\nX-Content-Type-Options: nosniff\r\n"), std::string::npos)
            << path;
        EXPECT_NE(answer.find("\r\nCache-Control: no-store\r\n"), std::string::npos) << path;
        EXPECT_NE(answer.find("\r\nContent-Security-Policy: default-src 'none'"),
                  std::string::npos);
        EXPECT_NE(answer.find("\r\nDate: "), std::string::npos);
    }
}

TEST_F(SessionTest, AHeaderValueOfAHandlerIsOneLine) {
    add("GET", "/named", Scope::open, [](const HttpRequest& request) {
        HttpResponse response = text_response({});
        response.headers.emplace_back("Location", "/jobs/" + request.query.at(0).second);
        return response;
    });
    start();
    const auto answer = get("/named?name=a%0D%0ASet-Cookie:%20b%0D%0A%0D%0A<html>");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_EQ(answer.find("\nSet-Cookie"), std::string::npos) << answer;
    EXPECT_TRUE(answer.ends_with("\r\nConnection: close\r\n\r\n")) << answer;
}

TEST_F(SessionTest, MalformedRequestsAreAnsweredAndTheConnectionEnds) {
    start();
    const std::string line = "POST /echo HTTP/1.1\r\n";
    const std::string host = "Host: localhost\r\n";
    const std::vector<std::pair<std::string, int>> corpus{
        {line + host + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 411},
        {line + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411},
        {line + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400},
        {line + host + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
        {line + host + host + "\r\n", 400},
        {line + "\r\n", 400},
        {"GET /open HTTP/1.1\nHost: localhost\n\n", 400},
        {"GET /open HTTP/1.1\r\n" + host + std::string{"X: a\0b\r\n\r\n", 10}, 400},
        {"GET /open HTTP/1.1\r\n" + host + "X: a\r\n folded\r\n\r\n", 400},
        {"GET /open HTTP/1.1\r\n" + host + "X: " + std::string(9U << 10U, 'a') + "\r\n\r\n", 431},
        {"GET /" + std::string(3U << 10U, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
        {"GET /" + std::string(20U << 10U, 'a'), 414},
        {"BREW /open HTTP/1.1\r\n" + host + "\r\n", 501},
        {"TRACE /open HTTP/1.1\r\n" + host + "\r\n", 405},
        {"CONNECT localhost:80 HTTP/1.1\r\n" + host + "\r\n", 405},
        {"GET http://localhost/open HTTP/1.1\r\n" + host + "\r\n", 400},
        {"GET /open HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", 421},
        {"GET /open HTTP/1.1\r\nHost: localhost.evil.example.org\r\n\r\n", 421},
        {"GET /open HTTP/1.1\r\nHost: localhost@evil\r\n\r\n", 421},
        {"\x16\x03\x01\x02\r\n\r\n", 400},
    };
    for (const auto& [bytes, status] : corpus) {
        const auto answer = exchange(bytes);
        EXPECT_EQ(status_in(answer), status) << bytes.substr(0, 100) << "\n" << answer;
        EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
        EXPECT_NE(answer.find("application/problem+json"), std::string::npos) << answer;
        EXPECT_EQ(answer.find("HTTP/1.1", 9), std::string::npos) << "a second answer: " << answer;
    }
}

TEST_F(SessionTest, AMethodThatIsServedNowhereIsToldAllThatAre) {
    start();
    const auto answer = exchange("TRACE /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(answer.find("\r\nAllow: GET, HEAD, POST, PUT, DELETE\r\n"), std::string::npos)
        << answer;
}

TEST_F(SessionTest, KnownHostsAreServedWithAndWithoutAPort) {
    start();
    for (const std::string host : {"localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:8470",
                                   "train.example.org", "train.example.org:443"}) {
        const auto answer =
            exchange("GET /open HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
        EXPECT_EQ(status_in(answer), 200) << host;
    }
}

TEST_F(SessionTest, ForeignOriginsMayOnlyRead) {
    start();
    const std::string foreign = "Origin: http://evil.example.org\r\n";
    EXPECT_EQ(status_in(get("/open", foreign)), 200);
    EXPECT_EQ(status_in(post(kJsonType + foreign + "Content-Length: 2\r\n", "{}")), 403);
    EXPECT_EQ(
        status_in(post(kJsonType + std::string{"Origin: null\r\nContent-Length: 2\r\n"}, "{}")),
        403);
    EXPECT_EQ(
        status_in(post(kJsonType + std::string{"Origin: http://localhost\r\nContent-Length: 2\r\n"},
                       "{}")),
        200);
}

TEST_F(SessionTest, TokensAreNeededAndTheirScopeCounts) {
    start();
    auto answer = get("/private");
    EXPECT_EQ(status_in(answer), 401);
    EXPECT_NE(answer.find("\r\nWWW-Authenticate: Bearer"), std::string::npos);
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer wrong\r\n")), 401);
    answer = get("/private", "Authorization: Bearer viewer-token\r\n");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_TRUE(answer.ends_with("\r\n\r\nvic"));
    EXPECT_EQ(server_->call("POST", "/echo", "viewer-token", "{}")->status, 403);
    EXPECT_EQ(server_->call("POST", "/echo", "user-token", "{}")->status, 200);
}

TEST_F(SessionTest, WhoHadTheSecretIsToldWhyItCountsNoMore) {
    start();
    server_->end_token("user-token");
    server_->end_token("user-cookie");
    auto answer = get("/private", "Authorization: Bearer user-token\r\n");
    EXPECT_EQ(status_in(answer), 401);
    EXPECT_NE(answer.find("the token ended"), std::string::npos);
    answer = get("/private", "Cookie: lockstep_session=user-cookie\r\n");
    EXPECT_EQ(status_in(answer), 401);
    EXPECT_NE(answer.find("the session ended"), std::string::npos);
    for (const char* other : {"", "Authorization: Bearer wrong\r\n"}) {
        EXPECT_NE(get("/private", other).find("a valid token is needed"), std::string::npos);
    }
}

TEST_F(SessionTest, ACookieCountsAsItsPrincipalAndItsWritesNeedTheHeader) {
    start();
    const std::string viewer = "Cookie: lockstep_session=viewer-cookie\r\n";
    EXPECT_TRUE(get("/private", viewer).ends_with("\r\n\r\nvic"));
    EXPECT_EQ(status_in(get("/private", "Cookie: lockstep_session=wrong\r\n")), 401);
    EXPECT_EQ(status_in(get("/private", "Cookie: lockstep_session=viewer-token\r\n")), 401);
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer viewer-cookie\r\n")), 401);
    // A token that is given wins, right or wrong.
    EXPECT_TRUE(get("/private", viewer + "Authorization: Bearer user-token\r\n").ends_with("uma"));
    EXPECT_EQ(status_in(get("/private", viewer + "Authorization: Bearer wrong\r\n")), 401);
    const auto write = [this](const std::string& headers) {
        return status_in(
            exchange("POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                     std::string{kJsonType} + "Content-Length: 2\r\n" + headers + "\r\n{}"));
    };
    const std::string user = "Cookie: lockstep_session=user-cookie\r\n";
    const std::string ours = "X-Lockstep-Request: 1\r\n";
    EXPECT_EQ(write(user), 403);
    EXPECT_EQ(write(user + "X-Lockstep-Request: 0\r\n"), 403);
    EXPECT_EQ(write(user + ours), 200);
    EXPECT_EQ(write(user + ours + "Origin: http://localhost\r\n"), 200);
    EXPECT_EQ(write(user + ours + "Origin: http://evil.example.org\r\n"), 403);
    EXPECT_EQ(write(user + ours + "Origin: null\r\n"), 403);
    EXPECT_EQ(write(viewer + ours), 403) << "its role does not write";
    EXPECT_EQ(write(ours), 401);
}

TEST_F(SessionTest, TheTokenIsCheckedAgainForEachRequestOfAConnection) {
    start();
    RawClient client{server_->port()};
    const std::string head = "GET /private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ";
    client.send(head + "viewer-token\r\n\r\n");
    EXPECT_EQ(status_in(client.read_until("vic")), 200);
    client.send(head + "wrong\r\n\r\n");
    EXPECT_EQ(status_in(client.read_until("}")), 401);
    client.send(head + "user-token\r\n\r\n");
    EXPECT_EQ(status_in(client.read_until("uma")), 200);
}

TEST_F(SessionTest, WrongMethodsLearnTheRightOnes) {
    start();
    const auto answer =
        exchange("DELETE /open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(status_in(answer), 405);
    EXPECT_NE(answer.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
}

TEST_F(SessionTest, HeadHasTheHeadersOfGetAndNoBody) {
    start();
    const auto answer =
        exchange("HEAD /open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_NE(answer.find("\r\nContent-Length: 2\r\n"), std::string::npos);
    EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(SessionTest, BodiesArriveWholeInAnyPieces) {
    start();
    RawClient client{server_->port()};
    const std::string body(100'000, 'b');
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n");
    client.send("Content-Type: application/json; charset=utf-8\r\nConnection: close\r\n");
    client.send("Content-Length: 100000\r\n\r\n" + body.substr(0, 10));
    client.send(body.substr(10));
    const auto answer = client.read_to_end();
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body));
}

TEST_F(SessionTest, BodiesOfOtherTypesAreRefused) {
    start();
    EXPECT_EQ(status_in(post("Content-Type: text/plain\r\nContent-Length: 2\r\n", "{}")), 415);
    EXPECT_EQ(status_in(post("Content-Length: 2\r\n", "{}")), 415);
    EXPECT_EQ(status_in(post("", "")), 200);  // no Content-Length: no body
}

TEST_F(SessionTest, ABodyThatGetDoesNotTakeIsRefused) {
    start();
    EXPECT_EQ(status_in(get("/open", "Content-Length: 0\r\n")), 200);
    const auto answer =
        exchange("GET /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\nx");
    EXPECT_EQ(status_in(answer), 413);
    EXPECT_NE(answer.find("this request takes no body"), std::string::npos);
}

TEST_F(SessionTest, ATooLargeBodyIsRefusedAndTheAnswerArrives) {
    start();
    RawClient client{server_->port()};
    client.send(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
        "Content-Type: application/json\r\nContent-Length: 2097152\r\n\r\n");
    EXPECT_TRUE(client.send(std::string(2U << 20U, 'b')));
    client.finish_sending();
    const auto answer = client.read_to_end();
    EXPECT_EQ(status_in(answer), 413);
    EXPECT_NE(answer.find("\"status\":413"), std::string::npos);
}

TEST_F(SessionTest, ExpectContinueIsAnsweredOnceOrRefusedAtOnce) {
    start();
    RawClient client{server_->port()};
    const std::string head =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
        "Content-Type: application/json\r\nExpect: 100-continue\r\n";
    client.send(head + "Connection: close\r\nContent-Length: 5\r\n\r\n");
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    EXPECT_EQ(status_in(client.read_to_end()), 200);

    RawClient large{server_->port()};
    large.send(head + "Content-Length: 2097152\r\n\r\n");
    EXPECT_EQ(status_in(large.read_until("}")), 413);
    EXPECT_EQ(status_in(post("Expect: magic\r\nContent-Length: 2\r\n", "{}")), 417);
}

TEST_F(SessionTest, JsonGoesOutAsGzipWhereThatIsTaken) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{50'000}, std::size_t{500'000}}) {
        const std::string body = "[\"" + std::string(size, 'x') + "\"]";
        add("GET", "/json" + std::to_string(size), Scope::open,
            [body](const HttpRequest&) { return json_response(std::string{body}); });
    }
    start();
    const std::string gzip = "Accept-Encoding: gzip\r\n";
    EXPECT_EQ(get("/json100", gzip).find("Content-Encoding"), std::string::npos);
    EXPECT_EQ(get("/json50000").find("Content-Encoding"), std::string::npos);
    EXPECT_EQ(get("/large", gzip).find("Content-Encoding"), std::string::npos) << "no JSON";
    for (const std::size_t size : {std::size_t{50'000}, std::size_t{500'000}}) {
        const auto answer = get("/json" + std::to_string(size), gzip);
        EXPECT_NE(answer.find("\r\nContent-Encoding: gzip\r\n"), std::string::npos);
        EXPECT_NE(answer.find("\r\nVary: Accept-Encoding\r\n"), std::string::npos);
        const auto body = gunzip_bytes(answer.substr(answer.find("\r\n\r\n") + 4), 1U << 20U);
        ASSERT_TRUE(body);
        EXPECT_EQ(body->size(), size + 4);
    }
}

TEST_F(SessionTest, PipelinedRequestsAreAnsweredInOrder) {
    start();
    RawClient client{server_->port()};
    client.send(
        "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n"
        "Content-Type: application/json\r\nContent-Length: 4\r\n\r\nthreeGET /nothing ");
    client.send("HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const auto all = client.read_to_end();
    const auto one = all.find("\r\n\r\n{}");
    const auto two = all.find("\r\n\r\nslow /slow");
    const auto three = all.find("\r\n\r\nthre");
    EXPECT_LT(one, two);
    EXPECT_LT(two, three);
    ASSERT_NE(three, std::string::npos) << all;
    // "eGET" is no method: the body ended where its length said.
    EXPECT_NE(all.find("HTTP/1.1 501", three), std::string::npos) << all;
}

TEST_F(SessionTest, RefusedRequestsWithASmallBodyKeepTheConnection) {
    start();
    RawClient client{server_->port()};
    client.send(
        "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
        "GET /open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const auto all = client.read_to_end();
    EXPECT_EQ(status_in(all), 404);
    EXPECT_NE(all.find("HTTP/1.1 200"), std::string::npos) << all;
}

TEST_F(SessionTest, Http10IsAnsweredAndClosed) {
    start();
    EXPECT_EQ(status_in(exchange("GET /open HTTP/1.0\r\nHost: localhost\r\n\r\n")), 200);
}

}  // namespace
}  // namespace lockstep
