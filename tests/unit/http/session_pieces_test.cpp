// Bodies that are made in one go and sent piece by piece.
#include "tests/unit/http/session_fixture.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

using SessionPieces = SessionTest;

constexpr std::string_view kAsk = "GET /pieces HTTP/1.1\r\nHost: localhost\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

// Takes a chunked body off the front (RFC 9112 §7.1); what it held, or "broken".
std::string take_chunks(std::string_view& in) {
    std::string out;
    for (;;) {
        std::size_t size = 0;
        const auto read = std::from_chars(in.data(), in.data() + in.size(), size, 16);
        in.remove_prefix(static_cast<std::size_t>(read.ptr - in.data()));
        if (read.ec != std::errc{} || !in.starts_with("\r\n") || in.size() < size + 4) {
            return "broken";
        }
        out += in.substr(2, size);
        in.remove_prefix(2 + size);
        if (!in.starts_with("\r\n")) {
            return "broken";
        }
        in.remove_prefix(2);
        if (size == 0) {
            return out;
        }
    }
}

TEST_F(SessionPieces, ArriveWholeAndTheConnectionGoesOn) {
    start();
    const std::string answer = exchange(std::string{kAsk} + "\r\n" + std::string{kAsk} +
                                        "\r\nGET /open HTTP/1.1\r\nHost: localhost\r\n"
                                        "Connection: close\r\n\r\n");
    std::string_view rest = answer;
    const std::string lines = numbered_lines();
    for (int i = 0; i < 2; ++i) {
        const auto end = rest.find(kHeadEnd);
        ASSERT_NE(end, std::string_view::npos);
        const std::string_view head = rest.substr(0, end);
        EXPECT_NE(head.find("\r\nTransfer-Encoding: chunked"), std::string_view::npos);
        EXPECT_EQ(head.find("Content-Length"), std::string_view::npos);
        rest.remove_prefix(end + kHeadEnd.size());
        EXPECT_TRUE(take_chunks(rest) == lines) << "answer " << i;
    }
    EXPECT_EQ(status_in(rest), 200);
    EXPECT_TRUE(rest.ends_with("{}"));
}

TEST_F(SessionPieces, Http10GetsThemPlainAndThenTheEnd) {
    start();
    const std::string answer = exchange("GET /pieces HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos);
    EXPECT_NE(answer.find("Content-Length: " + std::to_string(numbered_lines().size())),
              std::string::npos);
    EXPECT_TRUE(std::string_view{answer}.substr(answer.find(kHeadEnd) + kHeadEnd.size()) ==
                numbered_lines());
}

TEST_F(SessionPieces, HeadMakesNone) {
    start();
    const std::string answer =
        exchange("HEAD /pieces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(status_in(answer), 200);
    EXPECT_TRUE(answer.ends_with(kHeadEnd));
    EXPECT_EQ(made_, 0);
}

TEST_F(SessionPieces, WhatCannotBeMadeWholeDoesNotLookWhole) {
    start();
    breaks_at_ = kLines / 2;
    std::string answer = exchange(std::string{kAsk} + "\r\n");
    std::string_view body{answer};
    body.remove_prefix(body.find(kHeadEnd) + kHeadEnd.size());
    EXPECT_EQ(take_chunks(body), "broken");
    EXPECT_EQ(status_in(get("/open")), 200);
}

// It was 200 and a connection that ended.
TEST_F(SessionPieces, WhatFailsBeforeItBeginsIsAFailure) {
    start();
    breaks_at_ = 0;
    EXPECT_EQ(status_in(exchange(std::string{kAsk} + "Connection: close\r\n\r\n")), 500);
}

// HTTP/1.0 has no end of a body but its length and the connection's.
TEST_F(SessionPieces, WhatCannotBeMadeWholeIsAFailureForHttp10) {
    start();
    breaks_at_ = kLines / 2;
    EXPECT_EQ(status_in(exchange("GET /pieces HTTP/1.0\r\nHost: localhost\r\n\r\n")), 500);
}

TEST_F(SessionPieces, WhoLeavesHarmsNobody) {
    start();
    {
        RawClient client{server_->port()};
        client.send(std::string{kAsk} + "\r\n");
        EXPECT_EQ(status_in(client.read_some()), 200);
    }
    EXPECT_EQ(status_in(get("/open")), 200);
}

}  // namespace
}  // namespace lockstep
