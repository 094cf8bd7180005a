// The bytes of answers, exactly, however little of them goes at a time.
#include "daemon/http/base/answer_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

constexpr std::string_view kDate = "Sun, 06 Nov 1994 08:49:37 GMT";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::size_t kEndless = 10'000;  // larger than any answer here

struct NoPieces final : BodyStream {
    Task<std::optional<std::string>> next() override { co_return std::nullopt; }
    void close() override {}
};

HttpResponse streamed() {
    HttpResponse response = text_response({});
    response.stream = std::make_shared<NoPieces>();
    return response;
}

// All that is pending, taken in steps of so many bytes.
std::string take(AnswerWriter& writer, std::size_t step = SIZE_MAX) {
    std::string out;
    for (auto rest = writer.pending(); !rest.empty(); rest = writer.pending()) {
        std::size_t left = step;
        std::size_t taken = 0;
        for (const auto& buffer : rest) {
            const std::size_t size = std::min(left, buffer.size());
            out.append(static_cast<const char*>(buffer.data()), size);
            left -= size;
            taken += size;
        }
        writer.consume(taken);
        if (taken == 0 || out.size() > kEndless) {
            ADD_FAILURE() << "there is no end of it";
            break;
        }
    }
    return out;
}

std::string head_of(const HttpResponse& response, const AnswerWriter::Frame& frame) {
    AnswerWriter writer;
    writer.begin(response, frame);
    return take(writer);
}

std::size_t count(std::string_view text, std::string_view part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

const std::string kPolicyLines =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n";

TEST(AnswerWriter, WritesAWholeAnswerInAnySteps) {
    HttpResponse response = json_response(R"({"id":7})", 201);
    response.headers.emplace_back("Location", "/v1/jobs/7");
    const std::string whole = "HTTP/1.1 201 Created\r\nDate: " + std::string{kDate} +
                              "\r\nContent-Type: application/json\r\nContent-Length: 8\r\n" +
                              kPolicyLines + "Location: /v1/jobs/7\r\n\r\n" + R"({"id":7})";
    for (std::size_t step = 1; step <= whole.size() + 1; ++step) {
        AnswerWriter writer;
        writer.begin(response, {.date = kDate});
        EXPECT_EQ(take(writer, step), whole) << step << " bytes at a time";
    }
}

TEST(AnswerWriter, WritesASharedBodyAndTheEndOfTheConnection) {
    const auto body = std::make_shared<const std::string>("[1,2]");
    const std::string answer = head_of(json_response(body), {.date = kDate, .keep = false});
    EXPECT_TRUE(answer.ends_with("\r\nConnection: close\r\n\r\n[1,2]")) << answer;
    EXPECT_NE(answer.find("\r\nContent-Length: 5\r\n"), std::string::npos) << answer;
}

TEST(AnswerWriter, WritesPiecesAsChunksByteByByte) {
    const std::string first(26, 'a');
    const std::string second = "b\r\n0\r\n\r\n";  // looks like an end
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}, SIZE_MAX}) {
        AnswerWriter writer;
        writer.begin(streamed(), {.date = kDate, .keep = false, .chunked = true});
        const std::string head = take(writer, step);
        EXPECT_EQ(head, "HTTP/1.1 200 OK\r\nDate: " + std::string{kDate} +
                            "\r\nContent-Type: text/plain; charset=utf-8\r\n"
                            "Transfer-Encoding: chunked\r\n" +
                            kPolicyLines + "Connection: close\r\n\r\n");
        writer.put(first);
        EXPECT_EQ(take(writer, step), "1a\r\n" + first + "\r\n");
        EXPECT_TRUE(writer.pending().empty());
        writer.put(second);
        EXPECT_EQ(take(writer, step), "8\r\n" + second + "\r\n");
        writer.end();
        EXPECT_EQ(take(writer, step), "0\r\n\r\n");
        EXPECT_TRUE(writer.pending().empty());
    }
}

TEST(AnswerWriter, SendsTheHeadAndTheFirstPieceTogether) {
    AnswerWriter writer;
    writer.begin(streamed(), {.date = kDate, .chunked = true});
    writer.put("piece");
    EXPECT_TRUE(take(writer).ends_with("\r\n\r\n5\r\npiece\r\n"));
    writer.begin(streamed(), {.date = kDate, .chunked = true});
    writer.end();
    EXPECT_TRUE(take(writer).ends_with("\r\n\r\n0\r\n\r\n")) << "an empty body has an end, too";
}

TEST(AnswerWriter, WritesPiecesPlainUpToTheEndOfTheConnection) {
    AnswerWriter writer;
    writer.begin(streamed(), {.date = kDate, .keep = false});
    const std::string head = take(writer);
    EXPECT_EQ(head.find("Transfer-Encoding"), std::string::npos) << head;
    EXPECT_EQ(head.find("Content-Length"), std::string::npos) << head;
    writer.put("piece");
    EXPECT_EQ(take(writer, 1), "piece");
    writer.end();
    EXPECT_TRUE(writer.pending().empty());
}

TEST(AnswerWriter, HeadHasTheHeadOfGetAndNothingElse) {
    for (const bool chunked : {false, true}) {
        const HttpResponse response = chunked ? streamed() : text_response("body");
        AnswerWriter writer;
        writer.begin(response, {.date = kDate, .chunked = chunked});
        std::string of_get = take(writer);
        of_get.resize(of_get.find(kHeadEnd) + kHeadEnd.size());
        writer.begin(response, {.date = kDate, .head_only = true, .chunked = chunked});
        EXPECT_EQ(take(writer), of_get);
        writer.end();
        EXPECT_TRUE(writer.pending().empty()) << "the end of a body that there is not";
    }
}

TEST(AnswerWriter, AnswersWithoutABodyHaveNoTypeAndNoLength) {
    for (const int status : {204, 304}) {
        HttpResponse response;
        response.status = status;
        response.headers.emplace_back("ETag", "\"7\"");
        const std::string answer = head_of(response, {.date = kDate});
        EXPECT_EQ(answer.find("Content-Type:"), std::string::npos) << answer;
        EXPECT_EQ(answer.find("Content-Length"), std::string::npos) << answer;
        EXPECT_TRUE(answer.ends_with("\r\nETag: \"7\"\r\n\r\n")) << answer;
    }
}

TEST(AnswerWriter, NoValueBeginsAnotherLine) {
    std::string controls;
    for (char c = 0; c < 0x20; ++c) {
        controls += c;
    }
    const std::vector<std::string> hostile{"a\r\nInjected: 1", "a\nInjected: 1", "a\rInjected: 1",
                                           "\r\n\r\n<html>", controls + '\x7F'};
    const std::string usual = head_of(text_response({}), {.date = kDate});
    for (const std::string& text : hostile) {
        HttpResponse response = text_response({});
        response.own_type = text;
        response.headers.emplace_back("Location", text);
        response.headers.emplace_back(text, "value");
        const std::string answer = head_of(response, {.date = kDate});
        EXPECT_EQ(count(answer, "\r\n"), count(usual, "\r\n") + 2) << answer;
        EXPECT_EQ(count(answer, "\n"), count(usual, "\n") + 2) << answer;
        EXPECT_EQ(count(answer, "\r"), count(usual, "\r") + 2) << answer;
        EXPECT_EQ(answer.find("\nInjected"), std::string::npos) << answer;
        EXPECT_TRUE(answer.ends_with(kHeadEnd)) << answer;
        const auto control = [](char c) {
            return (static_cast<unsigned char>(c) < 0x20 && c != '\r' && c != '\n') || c == '\x7F';
        };
        EXPECT_TRUE(std::none_of(answer.begin(), answer.end(), control)) << answer;
    }
}

TEST(AnswerWriter, KeepsFieldsOfOneNameApart) {
    HttpResponse response = text_response({});
    response.headers.emplace_back("Vary", "Authorization, Cookie");
    response.headers.emplace_back("Vary", "Accept-Encoding");
    const std::string answer = head_of(response, {.date = kDate});
    EXPECT_NE(answer.find("\r\nVary: Authorization, Cookie\r\nVary: Accept-Encoding\r\n"),
              std::string::npos)
        << answer;
}

TEST(AnswerWriter, SaysTheReasonsOfRfc9110) {
    EXPECT_TRUE(head_of(text_response({}, 413), {.date = kDate})
                    .starts_with("HTTP/1.1 413 Content Too Large\r\n"));
    EXPECT_TRUE(head_of(text_response({}, 422), {.date = kDate})
                    .starts_with("HTTP/1.1 422 Unprocessable Content\r\n"));
}

TEST(AnswerWriter, TellsAClientToGoOn) {
    AnswerWriter writer;
    writer.begin_continue();
    EXPECT_EQ(take(writer, 3), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_TRUE(writer.pending().empty());
}

TEST(AnswerWriter, ANewAnswerDropsWhatWasLeftOfTheOneBefore) {
    const HttpResponse large = text_response(std::string(1000, 'x'));
    const HttpResponse small = text_response("y");
    AnswerWriter writer;
    writer.begin(large, {.date = kDate});
    writer.consume(10);
    writer.begin(small, {.date = kDate});
    EXPECT_EQ(take(writer), head_of(small, {.date = kDate}));

    const HttpResponse pieces = streamed();
    writer.begin(pieces, {.date = kDate, .chunked = true});
    writer.put("piece");
    writer.consume(10);
    writer.begin(small, {.date = kDate});
    EXPECT_EQ(take(writer), head_of(small, {.date = kDate}));
}

}  // namespace
}  // namespace lockstep
