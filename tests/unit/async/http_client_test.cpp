// The HTTP client against a server that answers with whatever bytes the test wants.
#include "job/async/http_client.hpp"

#include "job/base/unique_fd.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Accepts one connection on a free port and hands it to `serve` on a thread.
class OneShot {
  public:
    explicit OneShot(std::function<void(int)> serve)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
        ::listen(listener_.get(), 1);
        socklen_t size = sizeof at;
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
        port_ = std::to_string(ntohs(at.sin_port));
        thread_ = std::thread{[this, serve = std::move(serve)] {
            const UniqueFd fd{::accept(listener_.get(), nullptr, nullptr)};
            if (fd) {
                serve(fd.get());
            }
        }};
    }
    ~OneShot() {
        ::shutdown(listener_.get(), SHUT_RDWR);
        thread_.join();
    }
    Endpoint endpoint() const { return {"127.0.0.1", port_}; }

  private:
    UniqueFd listener_;
    std::string port_;
    std::thread thread_;
};

std::string read_head(int fd) {
    std::string all;
    char byte = 0;
    while (all.find("\r\n\r\n") == std::string::npos && ::recv(fd, &byte, 1, 0) == 1) {
        all += byte;
    }
    return all;
}

void write_all(int fd, const std::string& text) {
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

TEST(Endpoint, IsReadFromUrlsAndBareAddresses) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"http://127.0.0.1:8470", "127.0.0.1:8470"},
        {"127.0.0.1:1", "127.0.0.1:1"},
        {"localhost", "localhost:8470"},
        {"http://[::1]:99/path", "[::1]:99"},
        {"http://host/", "host:8470"},
        {"https://host", "host:8470"},
        {"http://host:5?x=1", "host:5"}};
    for (const auto& [url, authority] : table) {
        const auto endpoint = parse_endpoint(url);
        ASSERT_TRUE(endpoint) << url;
        EXPECT_EQ(endpoint->authority(), authority);
        EXPECT_EQ(endpoint->tls, url.starts_with("https"));
    }
}

TEST(Endpoint, RefusesWhatItCannotReach) {
    for (const char* url :
         {"", "http://", "https://", "ftp://host", "host:", "host:0", "host:99999", "host:x",
          "[::1", "[::1]x", "http://user@host", "ho st"}) {
        EXPECT_FALSE(parse_endpoint(url)) << url;
    }
}

TEST(HttpClient, SendsWhatItIsGivenAndReadsTheAnswer) {
    std::promise<std::string> seen;
    OneShot server{[&](int fd) {
        std::string request = read_head(fd);
        std::string body(5, '\0');
        ::recv(fd, body.data(), body.size(), MSG_WAITALL);
        seen.set_value(request + body);
        write_all(fd, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Thing: a\r\n\r\nok");
    }};
    ClientRequest request;
    request.method = "POST";
    request.target = "/v1/jobs?x=1";
    request.body = "hello";
    request.headers = {{"Authorization", "Bearer t"}};
    const auto response = http_request_now(server.endpoint(), request);
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->body, "ok");
    EXPECT_EQ(response->header("x-thing"), "a");
    EXPECT_EQ(response->header("none"), "");
    const auto text = seen.get_future().get();
    EXPECT_TRUE(text.starts_with("POST /v1/jobs?x=1 HTTP/1.1\r\n")) << text;
    EXPECT_NE(text.find("\r\nHost: " + server.endpoint().authority() + "\r\n"), std::string::npos);
    EXPECT_NE(text.find("\r\nAuthorization: Bearer t\r\n"), std::string::npos);
    EXPECT_NE(text.find("\r\nContent-Length: 5\r\n"), std::string::npos);
    EXPECT_TRUE(text.ends_with("\r\n\r\nhello"));
}

TEST(HttpClient, ReadsABodyThatEndsWithTheConnection) {
    OneShot server{[](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
    }};
    const auto response = http_request_now(server.endpoint(), {});
    ASSERT_TRUE(response);
    EXPECT_EQ(response->body, "until the end");
}

TEST(HttpClient, NobodyThereIsUnavailable) {
    Endpoint gone;
    {
        OneShot server{[](int) {}};
        gone = server.endpoint();
    }
    const auto response = http_request_now(gone, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::unavailable);
    EXPECT_NE(response.error().message.find("cannot connect"), std::string::npos);
}

// Both were Errc::unavailable and nothing else, so that a submission that nobody had taken was
// said to have been accepted, perhaps.
TEST(HttpClient, WhatWasNeverSentIsToldApartFromALostAnswer) {
    ClientRequest request;
    bool unsent = false;
    request.unsent = &unsent;
    Endpoint gone;
    {
        OneShot server{[](int fd) { read_head(fd); }};
        gone = server.endpoint();
        unsent = true;
        ASSERT_FALSE(http_request_now(gone, request));
        EXPECT_FALSE(unsent) << "it was read and not answered";
    }
    ASSERT_FALSE(http_request_now(gone, request));
    EXPECT_TRUE(unsent);
}

TEST(HttpClient, ABrokenAnswerIsUnavailable) {
    OneShot server{[](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    }};
    const auto response = http_request_now(server.endpoint(), {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::unavailable);
}

TEST(HttpClient, SilenceIsTimedOut) {
    std::promise<void> done;
    OneShot server{[&](int fd) {
        read_head(fd);
        done.get_future().wait();
    }};
    ClientRequest request;
    request.deadline = 2s;  // the connection must stand by then
    const auto response = http_request_now(server.endpoint(), request);
    done.set_value();
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::timed_out);
}

TEST(HttpClient, AnotherThreadEndsARequestThatNobodyAnswers) {
    std::promise<void> asked;
    std::promise<void> ended;
    OneShot server{[&](int fd) {
        read_head(fd);
        asked.set_value();
        ended.get_future().wait();
    }};
    std::stop_source source;
    const std::jthread other{[&] {
        asked.get_future().wait();
        source.request_stop();
    }};
    ClientRequest request;
    request.deadline = 60s;
    request.stop = source.get_token();
    const auto answer = http_request_now(server.endpoint(), std::move(request));
    ended.set_value();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::cancelled);
}

// Whoever asks on behalf of others says where it may not go, by the address and not by the name.
TEST(HttpClient, AnAddressThatIsNotAllowedIsNotConnectedTo) {
    std::promise<void> asked;
    OneShot server{[&](int fd) {
        asked.set_value();
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }};
    Endpoint endpoint = server.endpoint();
    endpoint.host = "localhost";
    endpoint.may_connect = [](const net::ip::address& address) { return !address.is_loopback(); };
    const auto refused = http_request_now(endpoint, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::invalid);
    EXPECT_EQ(asked.get_future().wait_for(0s), std::future_status::timeout);
    endpoint.may_connect = [](const net::ip::address& address) { return address.is_v4(); };
    const auto taken = http_request_now(endpoint, {});
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_EQ(taken->status, 200);
}

TEST(HttpClient, ABodyThatNobodyWantsIsNotWaitedFor) {
    std::promise<void> done;
    OneShot server{[&](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 202 Accepted\r\nContent-Length: 999999999999\r\n\r\nbegin");
        done.get_future().wait();
    }};
    ClientRequest request;
    request.deadline = 60s;
    request.head_only = true;
    const auto answer = http_request_now(server.endpoint(), std::move(request));
    done.set_value();
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 202);
}

TEST(Fingerprint, IsReadInTheFormsPeopleHaveIt) {
    const std::string wanted = "sha256:" + std::string(32, 'a') + std::string(32, '1');
    std::string colons;
    for (int i = 0; i < 32; ++i) {
        colons += i < 16 ? "AA:" : "11:";
    }
    colons.pop_back();
    EXPECT_EQ(parse_fingerprint(wanted + "\n").value(), wanted);
    EXPECT_EQ(parse_fingerprint("SHA256:" + colons).value(), wanted);
    EXPECT_EQ(parse_fingerprint(colons).value(), wanted);
    for (const std::string& bad : {std::string{}, std::string{"sha256:"}, std::string{"*"},
                                   wanted + "a", std::string(64, 'g'), "md5:" + wanted}) {
        EXPECT_FALSE(parse_fingerprint(bad).has_value()) << bad;
    }
}

TEST(HttpRequest, ATlsHandshakeThatNobodyAnswersIsBounded) {
    OneShot server{[](int fd) {
        char byte = 0;
        while (::recv(fd, &byte, 1, 0) == 1) {  // the ClientHello; nothing comes back
        }
    }};
    Endpoint endpoint = server.endpoint();
    endpoint.tls = true;
    ClientRequest request;
    request.deadline = 2s;  // the connection must stand by then
    const auto response = http_request_now(endpoint, request);
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::unavailable);
    EXPECT_NE(response.error().message.find("no answer in time"), std::string::npos);
}

TEST(HttpRequest, APlainServerIsNoTlsServer) {
    OneShot server{[](int fd) { write_all(fd, "HTTP/1.1 400 Bad Request\r\n\r\n"); }};
    Endpoint endpoint = server.endpoint();
    endpoint.tls = true;
    const auto response = http_request_now(endpoint, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::unavailable);
    EXPECT_NE(response.error().message.find("no TLS with 127.0.0.1:"), std::string::npos);
}

TEST(HttpStream, HandsOverPiecesAsTheyCome) {
    std::promise<void> first;
    OneShot server{[&](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n");
        first.get_future().wait();  // the second comes only after the first was seen
        write_all(fd, "4\r\ntwo\n\r\n0\r\n\r\n");
    }};
    std::string all;
    const auto response = http_stream_now(server.endpoint(), {}, [&](std::string_view bytes) {
        if (all.empty()) {
            first.set_value();
        }
        all += bytes;
        return true;
    });
    ASSERT_TRUE(response) << response.error().text();
    EXPECT_EQ(all, "one\ntwo\n");
}

TEST(HttpStream, EndsWhenTheReaderHasEnough) {
    OneShot server{[](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\n\r\nfirst");
        char byte = 0;
        ::recv(fd, &byte, 1, 0);  // until the client goes
    }};
    std::string all;
    const auto response = http_stream_now(server.endpoint(), {}, [&](std::string_view bytes) {
        all += bytes;
        return false;
    });
    ASSERT_TRUE(response);
    EXPECT_EQ(all, "first");
}

TEST(HttpStream, ARefusalComesWithItsBody) {
    OneShot server{[](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
    }};
    bool called = false;
    const auto response = http_stream_now(server.endpoint(), {}, [&](std::string_view) {
        called = true;
        return true;
    });
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 404);
    EXPECT_EQ(response->body, "none");
    EXPECT_FALSE(called);
}

TEST(HttpStream, ATruncatedStreamIsAnError) {
    OneShot server{[](int fd) {
        read_head(fd);
        write_all(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n");
    }};
    std::string all;
    const auto response = http_stream_now(server.endpoint(), {}, [&](std::string_view bytes) {
        all += bytes;
        return true;
    });
    EXPECT_EQ(all, "one\n");
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, Errc::unavailable);
}

}  // namespace
}  // namespace lockstep
