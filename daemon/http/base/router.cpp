#include "daemon/http/base/router.hpp"

#include "job/base/check.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {
// Stands for any {…}; no literal segment holds braces.
constexpr std::string_view kParameter = "{}";
}  // namespace

std::string_view to_string(Scope scope) {
    constexpr std::array<std::string_view, 7> kWords{"open",    "metrics", "read", "write",
                                                     "secrets", "admin",   "agent"};
    static_assert(names_all_of<Scope>(kWords));
    return kWords[static_cast<std::size_t>(scope)];
}

bool allows(Role role, Scope scope) {
    switch (scope) {
        case Scope::open:
        case Scope::metrics:
        case Scope::read:
            return true;
        case Scope::write:
        case Scope::secrets:
            return role != Role::viewer;
        case Scope::admin:
            return role == Role::admin;
        case Scope::agent:
            return false;
    }
    return false;
}

bool allows(const Principal& who, Scope scope) {
    return allows(who.role, scope) && (scope == Scope::open || (who.scopes & bit(scope)) != 0);
}

bool rules(const Principal& who) {
    return allows(who, Scope::admin);
}

bool allows(const Principal& who, const Route& route, const HttpRequest& request) {
    return allows(who, route.scope) ||
           (route.own_token && !who.token.empty() && request.param() == who.token);
}

std::optional<Scope> parse_token_scope(std::string_view word) {
    for (const Scope scope : kTokenScopes) {
        if (to_string(scope) == word) {
            return scope;
        }
    }
    return std::nullopt;
}

std::size_t Route::largest_body() const {
    if (body_limit) {
        return *body_limit;
    }
    if (!request_schema.empty()) {
        return limits::kBodyBytes;
    }
    return method == Method::get ? 0 : limits::kNoBodyBytes;
}

void Router::add(Route route) {
    LOCKSTEP_CHECK(route.path.starts_with('/'));
    for (const auto& other : routes_) {
        LOCKSTEP_CHECK(other.method != route.method || other.path != route.path);
        LOCKSTEP_CHECK(other.operation != route.operation);
    }
    Pattern pattern;
    std::size_t parameters = 0;
    for (auto& segment : split(std::string_view{route.path}.substr(1), '/')) {
        const bool parameter = segment.starts_with('{') && segment.ends_with('}');
        parameters += parameter ? 1 : 0;
        pattern.literals += parameter ? 0 : 1;
        pattern.segments.push_back(parameter ? std::string{kParameter} : std::move(segment));
    }
    LOCKSTEP_CHECK(parameters <= std::tuple_size_v<decltype(HttpRequest::params_)>);
    patterns_.push_back(std::move(pattern));
    routes_.push_back(std::move(route));
}

void Router::split_path(std::string_view path, std::vector<HttpRequest::Span>& parts) {
    parts.clear();
    std::size_t at = 1;
    while (at <= path.size()) {
        const auto end = std::min(path.find('/', at), path.size());
        parts.push_back({static_cast<std::uint16_t>(at), static_cast<std::uint16_t>(end - at)});
        at = end + 1;
    }
}

bool Router::fits(const Pattern& pattern, const HttpRequest& request,
                  const std::vector<HttpRequest::Span>& parts) const {
    if (pattern.segments.size() != parts.size()) {
        return false;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto text = std::string_view{request.path}.substr(parts[i].at, parts[i].size);
        const auto& segment = pattern.segments[i];
        if (segment == kParameter ? text.empty() : segment != text) {
            return false;
        }
    }
    return true;
}

Router::Match Router::match(Method method, HttpRequest& request) const {
    split_path(request.path, parts_);
    const Method wanted = method == Method::head ? Method::get : method;
    Match found;
    for (std::size_t i = 0; i < routes_.size(); ++i) {
        if (!fits(patterns_[i], request, parts_)) {
            continue;
        }
        found.path_known = true;
        if (routes_[i].method == wanted &&
            (found.route == nullptr || patterns_[i].literals > patterns_[found.index].literals)) {
            found.route = &routes_[i];
            found.index = i;
        }
    }
    if (found.route != nullptr) {
        std::size_t next = 0;
        const auto& segments = patterns_[found.index].segments;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            if (segments[i] == kParameter) {
                request.params_[next++] = parts_[i];
            }
        }
    }
    return found;
}

std::string Router::allowed_methods(const HttpRequest& request) const {
    split_path(request.path, parts_);
    std::string out;
    for (std::size_t i = 0; i < routes_.size(); ++i) {
        if (!fits(patterns_[i], request, parts_)) {
            continue;
        }
        out += out.empty() ? "" : ", ";
        out += to_string(routes_[i].method);
        if (routes_[i].method == Method::get) {
            out += ", HEAD";
        }
    }
    return out;
}

}  // namespace lockstep
