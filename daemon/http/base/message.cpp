#include "daemon/http/base/message.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char small = lower(c);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

std::string_view to_string(Method method) {
    constexpr std::array<std::string_view, 10> kWords{
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "OTHER"};
    static_assert(names_all_of<Method>(kWords));
    return kWords[static_cast<std::size_t>(method)];
}

std::string_view to_string(Role role) {
    constexpr std::array<std::string_view, 3> kWords{"viewer", "user", "admin"};
    static_assert(names_all_of<Role>(kWords));
    return kWords[static_cast<std::size_t>(role)];
}

std::optional<Role> parse_role(std::string_view word) {
    for (const Role role : {Role::viewer, Role::user, Role::admin}) {
        if (to_string(role) == word) {
            return role;
        }
    }
    return std::nullopt;
}

const RequestHead::Field* RequestHead::find(std::string_view name) const {
    for (const auto& field : fields) {
        if (same_token(std::string_view{bytes}.substr(field.name_at, field.name_size), name)) {
            return &field;
        }
    }
    return nullptr;
}

std::string_view RequestHead::header(std::string_view name) const {
    const Field* field = find(name);
    return field == nullptr ? std::string_view{} : value_of(*field);
}

bool RequestHead::has(std::string_view name) const {
    return find(name) != nullptr;
}

void RequestHead::clear() {
    method = Method::get;
    http_10 = false;
    keep_alive = false;
    content_length = 0;
    bytes.clear();
    target_ = {};
    fields.clear();
}

HttpResponse json_response(std::string body, int status) {
    HttpResponse response;
    response.status = status;
    response.body = std::move(body);
    return response;
}

HttpResponse json_response(std::shared_ptr<const std::string> body, int status) {
    HttpResponse response;
    response.status = status;
    response.shared_body = std::move(body);
    return response;
}

HttpResponse text_response(std::string body, int status) {
    HttpResponse response;
    response.status = status;
    response.content_type = content_type::kText;
    response.body = std::move(body);
    return response;
}

std::string_view reason_phrase(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 201:
            return "Created";
        case 202:
            return "Accepted";
        case 204:
            return "No Content";
        case 304:
            return "Not Modified";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 409:
            return "Conflict";
        case 411:
            return "Length Required";
        case 412:
            return "Precondition Failed";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 415:
            return "Unsupported Media Type";
        case 417:
            return "Expectation Failed";
        case 421:
            return "Misdirected Request";
        case 422:
            return "Unprocessable Content";
        case 426:
            return "Upgrade Required";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        case 505:
            return "HTTP Version Not Supported";
        case 507:
            return "Insufficient Storage";
        default:
            return "Unknown";
    }
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (c == '+' && plus_is_space) {
            c = ' ';
        } else if (c == '%') {
            if (i + 2 >= text.size()) {
                return std::nullopt;
            }
            const int high = hex_digit(text[i + 1]);
            const int low = hex_digit(text[i + 2]);
            if (high < 0 || low < 0) {
                return std::nullopt;
            }
            c = static_cast<char>(high * 16 + low);
            i += 2;
        }
        if (c == '\0') {
            return std::nullopt;
        }
        out += c;
    }
    return out;
}

Result<Query> parse_query(std::string_view text) {
    Query out;
    while (!text.empty()) {
        const auto end = text.find('&');
        const auto part = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
        if (part.empty()) {
            continue;
        }
        const auto equals = part.find('=');
        auto name = percent_decode(part.substr(0, equals), true);
        auto value = equals == std::string_view::npos
                         ? std::optional{std::string{}}
                         : percent_decode(part.substr(equals + 1), true);
        if (!name || !value || name->empty()) {
            return fail(Errc::invalid, "the query string is not well-formed: " + printable(part));
        }
        if (out.size() == limits::kQueryParameters) {
            return fail(Errc::invalid, "more than 64 query parameters");
        }
        out.emplace_back(std::move(*name), std::move(*value));
    }
    return out;
}

bool same_token(std::string_view a, std::string_view b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [](char x, char y) { return lower(x) == lower(y); });
}

bool has_token(std::string_view list, std::string_view token) {
    while (!list.empty()) {
        const auto end = list.find(',');
        if (same_token(trim(list.substr(0, end)), token)) {
            return true;
        }
        list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
    }
    return false;
}

}  // namespace lockstep
