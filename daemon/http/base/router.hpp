// The table of all routes: who may call, what it takes, what it answers, and the handler. There is
// no other way to a handler, so none is reachable without its scope. Filled at start, then read on
// the control thread.
#pragma once

#include "daemon/http/base/message.hpp"
#include "job/base/limits.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

// What a caller needs. `open`: nothing. `agent`: a job's ticket, checked by the AgentGate.
// `secrets`: to set and remove one's own, which a token that is narrowed to write may not.
enum class Scope : std::uint8_t { open, metrics, read, write, secrets, admin, agent };
std::string_view to_string(Scope scope);
// viewer: metrics, read; user: and write, secrets; admin: everything but agent.
bool allows(Role role, Scope scope);
// And the token is not narrowed to others.
bool allows(const Principal& who, Scope scope);
// Whether `who` may change what is others': an admin whose token is not narrowed to less.
bool rules(const Principal& who);
struct Route;
// Whether `who` may call it; the request's parameters are there.
bool allows(const Principal& who, const Route& route, const HttpRequest& request);

// A bit for each scope.
using ScopeSet = std::uint8_t;
constexpr ScopeSet bit(Scope scope) {
    return static_cast<ScopeSet>(1U << static_cast<unsigned>(scope));
}
// What a token can be narrowed to.
inline constexpr std::array kTokenScopes{Scope::metrics, Scope::read, Scope::write, Scope::secrets,
                                         Scope::admin};
std::optional<Scope> parse_token_scope(std::string_view word);

// For hot reads that need nothing to wait for: no coroutine frame.
using FastHandler = std::function<HttpResponse(const HttpRequest&)>;
using SlowHandler = std::function<Task<HttpResponse>(HttpRequest)>;
// Answers at once if it can, otherwise waits.
struct TryHandler {
    std::function<std::optional<HttpResponse>(const HttpRequest&)> now;
    SlowHandler later;
};
// The request becomes an agent's WebSocket.
struct AgentUpgrade {};
using Handler = std::variant<FastHandler, SlowHandler, TryHandler, AgentUpgrade>;

// For /openapi.json.
struct ParameterDoc {
    std::string name;
    std::string type = "string";  // string | integer | number | boolean
    std::string description;  // "1..100; 50 if not given" is also the schema's bounds and default
    std::vector<std::string> values{};  // all there are; empty: it is open
};

// What a route is about; both static.
struct RouteTag {
    std::string_view name;
    std::string_view description;
};

struct Route {
    Method method = Method::get;
    std::string path;  // "/v1/jobs/{id}"
    Scope scope = Scope::admin;
    Handler handler;
    std::string operation;  // operationId, unique
    std::string summary;
    RouteTag tag{};
    std::vector<ParameterDoc> query{};
    std::vector<ParameterDoc> headers{};
    // Of its good answer; those that every answer of its status has are not among them.
    std::vector<ParameterDoc> answer_headers{};
    std::string request_schema{};   // component name; "" = takes no body
    std::string response_schema{};  // component name; "" = not JSON
    std::string response_type{content_type::kJson};
    int success = 200;
    std::vector<int> failures{};  // statuses beyond those every route of its scope has
    bool not_modified = false;    // answers 304 to an If-None-Match
    bool for_people = false;      // of the web page: not on a listener for Prometheus
    // Of scope metrics: programs on this machine are answered without a token, if the settings say
    // so; the handler then sees a principal without a user.
    bool without_token = false;
    bool changes_nothing = false;  // a POST that only asks: not in the audit log
    bool own_token = false;        // of scope write, but of any for the token that the {id} names
    // Nothing: kBodyBytes with a request_schema; without one none for GET, kNoBodyBytes for others.
    std::optional<std::size_t> body_limit{};
    std::size_t largest_body() const;
};

class Router {
  public:
    // The path must begin with "/" and the pair of method and path must be new.
    void add(Route route);

    struct Match {
        const Route* route = nullptr;
        std::size_t index = 0;    // of the route in routes()
        bool path_known = false;  // some route has the path
    };
    // Fills the parameters of `request`. HEAD finds GET routes. A literal segment is preferred to a
    // parameter.
    Match match(Method method, HttpRequest& request) const;
    // "GET, HEAD" for the Allow header.
    std::string allowed_methods(const HttpRequest& request) const;
    const std::vector<Route>& routes() const { return routes_; }

  private:
    struct Pattern {
        std::vector<std::string> segments;  // "{}" = a parameter
        std::size_t literals = 0;
    };
    bool fits(const Pattern& pattern, const HttpRequest& request,
              const std::vector<HttpRequest::Span>& parts) const;
    static void split_path(std::string_view path, std::vector<HttpRequest::Span>& parts);

    std::vector<Route> routes_;
    std::vector<Pattern> patterns_;  // same order
    mutable std::vector<HttpRequest::Span> parts_;
};

}  // namespace lockstep
