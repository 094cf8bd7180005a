// One HTTP request with one deadline, and line streams for server-sent events and followed logs.
// TCP or TLS. Beast stays in the .cpp. One object per thread; calls block the coroutine only.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// http[s]://host:port of a daemon; the path of the URL is not used.
struct Endpoint {
    std::string host;
    std::string port;
    bool tls = false;
    // "sha256:…" of the certificate it must show; "" = the system's authorities vouch for it.
    std::string fingerprint{};
    // Whether an address that the host has may be connected to; empty = any may. Asked of each
    // address right before, so that no second lookup can answer otherwise. From the thread of the
    // connection.
    std::function<bool(const net::ip::address&)> may_connect{};
    // Instead of host and port: a Unix socket of this user's or root's.
    std::string unix_path{};
    // "host:port", with [] around an IPv6 address, or "localhost"; what the Host header carries.
    std::string authority() const;
};
// Accepts "http://127.0.0.1:8470", "127.0.0.1:8470", "localhost", "https://host".
Result<Endpoint> parse_endpoint(std::string_view url);

// "sha256:" and 64 lower-case hexadecimal characters, from that or from what others print:
// capitals, colons, no "sha256:" (openssl x509 -fingerprint). invalid: not a fingerprint.
Result<std::string> parse_fingerprint(std::string_view text);

struct ClientRequest {
    std::string method = "GET";
    std::string target = "/";
    std::string body{};
    std::vector<std::pair<std::string, std::string>> headers{};
    std::chrono::milliseconds deadline{30'000};  // for stream(): until the headers are there
    // For http_request_now(): another thread may end it, which then answers Errc::cancelled.
    std::stop_token stop{};
    // The answer's body is not read and not waited for: for servers that may send anything.
    bool head_only = false;
    // Set with each request: whether there was no connection, so that nothing of it was sent.
    // Outlives the request; nullptr: nobody asks.
    bool* unsent = nullptr;
};
struct ClientResponse {
    int status = 0;
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string header(std::string_view name) const;  // case-insensitive; "" if absent
};

// unavailable: cannot connect; invalid: the host has no address that may be connected to; denied:
// it shows another certificate; timed_out: the deadline passed (whether it was done is unknown).
Task<Result<ClientResponse>> http_request(Endpoint endpoint, ClientRequest request);

// Reads a body piece by piece as it arrives, until it ends or `on_bytes` returns false. A status
// other than 200 ends it at once with the body in the response.
Task<Result<ClientResponse>> http_stream(Endpoint endpoint, ClientRequest request,
                                         std::function<bool(std::string_view)> on_bytes);

// Blocking forms for the command line: run an io_context of their own until done.
// The fingerprint of the certificate that is shown there, trusted or not: for a person to judge.
Result<std::string> certificate_now(const Endpoint& endpoint, std::chrono::milliseconds deadline);
Result<ClientResponse> http_request_now(const Endpoint& endpoint, ClientRequest request);
Result<ClientResponse> http_stream_now(const Endpoint& endpoint, ClientRequest request,
                                       std::function<bool(std::string_view)> on_bytes);

}  // namespace lockstep
