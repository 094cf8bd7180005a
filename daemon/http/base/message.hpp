// One HTTP request and its answer as handlers see them; no socket, no parser. Values; any thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// `other`: a method this server never serves (501).
enum class Method : std::uint8_t {
    get,
    head,
    post,
    put,
    patch,
    delete_,
    options,
    connect,
    trace,
    other
};
std::string_view to_string(Method method);

enum class Role : std::uint8_t { viewer, user, admin };
std::string_view to_string(Role role);
std::optional<Role> parse_role(std::string_view word);

// Who asks. `user` is empty on public routes.
struct Principal {
    std::string user;
    Role role = Role::viewer;
    std::uint8_t scopes = 0xFF;   // ScopeSet (router.hpp) that the token is narrowed to
    std::string token{};          // its id
    std::int64_t expires_at = 0;  // milliseconds since the epoch; 0 = never
    std::string session{};        // of the web page, that a cookie showed; its id
};

// Decoded query parameters in the order they were given.
using Query = std::vector<std::pair<std::string, std::string>>;

// The request line and the header fields. The fields lie in `bytes`, by position, so that a
// request costs one buffer that the connection keeps and not two strings a field.
class RequestHead {
  public:
    struct Field {
        std::uint16_t name_at = 0;
        std::uint16_t name_size = 0;
        std::uint16_t value_at = 0;
        std::uint16_t value_size = 0;
    };

    Method method = Method::get;
    bool http_10 = false;
    bool keep_alive = false;
    std::uint64_t content_length = 0;
    std::string bytes;
    Field target_{};
    std::vector<Field> fields;

    std::string_view target() const { return value_of(target_); }
    // The first field of that name, case-insensitive; "" if there is none.
    std::string_view header(std::string_view name) const;
    bool has(std::string_view name) const;
    void clear();

  private:
    std::string_view value_of(const Field& field) const {
        return std::string_view{bytes}.substr(field.value_at, field.value_size);
    }
    const Field* find(std::string_view name) const;
};

struct HttpRequest {
    RequestHead head;
    std::string path;  // percent-decoded, without the query
    Query query;
    std::string body;
    Principal principal;
    std::string remote;   // address of the peer, without the port
    bool secure = false;  // over TLS

    struct Span {
        std::uint16_t at = 0;
        std::uint16_t size = 0;
    };
    std::array<Span, 4> params_{};  // the {…} of the route, in its order

    std::string_view header(std::string_view name) const { return head.header(name); }
    // The n-th {…} of the route's path.
    std::string_view param(std::size_t n = 0) const {
        return std::string_view{path}.substr(params_[n].at, params_[n].size);
    }
};

// A body that comes piece by piece. The session calls next() until it says nothing more; close()
// when the client has gone or the daemon stops: a waiting next() must then return soon.
class BodyStream {
  public:
    virtual ~BodyStream() = default;
    virtual Task<std::optional<std::string>> next() = 0;
    virtual void close() = 0;
    // Whether it ended because its reader did not keep up.
    virtual bool lagged() const { return false; }
};

// A large body that is made in one go and handed out piece by piece meanwhile, so that it is never
// in memory as a whole. The session calls it once, right after the handler has returned; `put`
// sends what the socket takes, keeps the rest, and gives a string for the next piece, its memory to
// be used again.
using BodyMaker = std::function<void(const std::function<std::string(std::string)>& put)>;

namespace content_type {
inline constexpr std::string_view kBinary = "application/octet-stream";
inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kProblem = "application/problem+json";
inline constexpr std::string_view kText = "text/plain; charset=utf-8";
inline constexpr std::string_view kMetrics = "text/plain; version=0.0.4; charset=utf-8";
inline constexpr std::string_view kEvents = "text/event-stream";
}  // namespace content_type

// What a page of ours may load; API answers may load nothing.
inline constexpr std::string_view kApiPolicy = "default-src 'none'; frame-ancestors 'none'";

struct HttpResponse {
    int status = 200;
    // These three must be literals or outlive the server.
    std::string_view content_type = content_type::kJson;
    std::string_view cache_control = "no-store";
    std::string_view security_policy = kApiPolicy;
    std::string own_type;  // a content type that is no literal; overrides the one above
    std::string body;
    std::shared_ptr<const std::string> shared_body;  // if set, the body: not copied
    std::vector<std::pair<std::string, std::string>> headers;
    std::shared_ptr<BodyStream> stream;  // if set, the body is what it yields
    BodyMaker make;                      // if set, the body is what it hands out

    std::string_view text() const {
        return shared_body ? std::string_view{*shared_body} : std::string_view{body};
    }
};

// 200 with the JSON text.
HttpResponse json_response(std::string body, int status = 200);
HttpResponse json_response(std::shared_ptr<const std::string> body, int status = 200);
HttpResponse text_response(std::string body, int status = 200);
// "OK", "Not Found", …: the reason phrase of a status this server uses.
std::string_view reason_phrase(int status);

// Percent-decodes one path or one query component; nothing when malformed or when it holds NUL.
// `plus_is_space` as in HTML forms, for queries.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);
// "a=1&b=%20" → pairs; invalid when malformed or more than 64 parameters.
Result<Query> parse_query(std::string_view text);
bool same_token(std::string_view a, std::string_view b);  // ASCII, case-insensitive
// Whether a comma-separated list such as the value of Connection holds the token.
bool has_token(std::string_view list, std::string_view token);

}  // namespace lockstep
