#include "daemon/http/base/request_head.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Field = RequestHead::Field;

Method method_of(http::verb verb) {
    switch (verb) {
        case http::verb::get:
            return Method::get;
        case http::verb::head:
            return Method::head;
        case http::verb::post:
            return Method::post;
        case http::verb::put:
            return Method::put;
        case http::verb::patch:
            return Method::patch;
        case http::verb::delete_:
            return Method::delete_;
        case http::verb::options:
            return Method::options;
        case http::verb::connect:
            return Method::connect;
        case http::verb::trace:
            return Method::trace;
        default:
            return Method::other;
    }
}

// Beast's grammar writing into a RequestHead: the views it hands out lie in head.bytes, because
// the whole block is put in one piece and holds no folded line.
class HeadParser final : public http::basic_parser<true> {
  public:
    explicit HeadParser(RequestHead& head) : head_(head) {
        header_limit(static_cast<std::uint32_t>(limits::kHeaderBytes + 1));
        // The session counts the body itself. (boost::none would refuse any: Beast 1.74 compares
        // the length with the optional.)
        body_limit(std::numeric_limits<std::uint64_t>::max());
    }
    int version() const { return version_; }

  private:
    std::uint16_t offset(beast::string_view text) const {
        return static_cast<std::uint16_t>(text.data() - head_.bytes.data());
    }
    void on_request_impl(http::verb method, beast::string_view, beast::string_view target,
                         int version, beast::error_code&) override {
        head_.method = method_of(method);
        head_.target_ = {0, 0, offset(target), static_cast<std::uint16_t>(target.size())};
        version_ = version;
    }
    void on_field_impl(http::field, beast::string_view name, beast::string_view value,
                       beast::error_code&) override {
        Field field;
        field.name_at = offset(name);
        field.name_size = static_cast<std::uint16_t>(name.size());
        if (!value.empty()) {
            field.value_at = offset(value);
            field.value_size = static_cast<std::uint16_t>(value.size());
        }
        head_.fields.push_back(field);
    }
    void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}
    void on_header_impl(beast::error_code&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
    std::size_t on_body_impl(beast::string_view body, beast::error_code&) override {
        return body.size();
    }
    void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body,
                                   beast::error_code&) override {
        return body.size();
    }
    void on_finish_impl(beast::error_code&) override {}

    RequestHead& head_;
    int version_ = 0;
};

// What the lines say before the grammar is asked.
struct Tally {
    std::size_t fields = 0;
    std::size_t hosts = 0;
    std::size_t lengths = 0;
    std::size_t credentials = 0;
};

std::optional<HeadProblem> check_field_line(std::string_view line, Tally& tally) {
    if (line.front() == ' ' || line.front() == '\t') {
        return HeadProblem{400, "a header field is folded over two lines"};
    }
    if (++tally.fields > limits::kHeaderFields) {
        return HeadProblem{431, "more than 64 header fields"};
    }
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) {
        return HeadProblem{400, "a header line is not a field"};
    }
    const auto name = line.substr(0, colon);
    if (same_token(name, "transfer-encoding")) {
        return HeadProblem{411, "transfer codings are not accepted: send Content-Length"};
    }
    if (same_token(name, "host")) {
        ++tally.hosts;
    } else if (same_token(name, "authorization")) {
        ++tally.credentials;
    } else if (same_token(name, "content-length")) {
        ++tally.lengths;
        const auto value = trim(line.substr(colon + 1));
        const bool digits =
            std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (value.empty() || !digits || value.size() > 18) {
            return HeadProblem{400, "Content-Length is not a number"};
        }
    }
    return std::nullopt;
}

std::optional<HeadProblem> check_lines(std::string_view block) {
    const bool foreign = std::any_of(block.begin(), block.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && c != '\r' && c != '\n' && c != '\t') || byte == 0x7F;
    });
    if (foreign) {
        return HeadProblem{400, "control characters in the header"};
    }
    Tally tally;
    bool first = true;
    while (!block.empty()) {
        const auto end = block.find('\n');
        if (end == std::string_view::npos || end == 0 || block[end - 1] != '\r') {
            return HeadProblem{400, "a header line does not end with CR LF"};
        }
        const auto line = block.substr(0, end - 1);
        block.remove_prefix(end + 1);
        if (line.find('\r') != std::string_view::npos) {
            return HeadProblem{400, "a bare CR in the header"};
        }
        if (!std::exchange(first, false) && !line.empty()) {
            if (auto problem = check_field_line(line, tally)) {
                return problem;
            }
        }
    }
    if (tally.hosts != 1) {
        return HeadProblem{
            400, tally.hosts == 0 ? "the Host header is missing" : "more than one Host header"};
    }
    if (tally.lengths > 1) {
        return HeadProblem{400, "more than one Content-Length"};
    }
    if (tally.credentials > 1) {
        // What is in front of lockstepd may have looked at the other one.
        return HeadProblem{400, "more than one Authorization header"};
    }
    return std::nullopt;
}

}  // namespace

std::size_t head_end(std::string_view bytes, std::size_t from) {
    // The blank line may begin in what was searched before.
    const auto at = bytes.find("\n\r\n", from < 2 ? 0 : from - 2);
    const auto bare = bytes.find("\n\n", from < 1 ? 0 : from - 1);
    if (bare < at) {
        return bare + 2;  // refused by parse_head, at once and not after the timeout
    }
    return at == std::string_view::npos ? at : at + 3;
}

HeadProblem endless_head(std::string_view bytes) {
    if (bytes.find('\n') == std::string_view::npos) {
        return {414, "the request line is longer than " + std::to_string(limits::kTargetBytes) +
                         " bytes"};
    }
    return {431, "the header is larger than " + std::to_string(limits::kHeaderBytes) + " bytes"};
}

std::optional<HeadProblem> parse_head(std::string_view block, RequestHead& head) {
    head.clear();
    if (auto problem = check_lines(block)) {
        return problem;
    }
    head.bytes.assign(block);
    HeadParser parser{head};
    beast::error_code ec;
    parser.put(boost::asio::const_buffer{head.bytes.data(), head.bytes.size()}, ec);
    if (ec == http::error::bad_version ||
        (!ec && parser.version() != 11 && parser.version() != 10)) {
        return HeadProblem{505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
    }
    if ((ec && ec != http::error::need_more) || !parser.is_header_done()) {
        return HeadProblem{400, "not a well-formed HTTP request"};
    }
    if (head.target().size() > limits::kTargetBytes) {
        return HeadProblem{
            414, "the target is longer than " + std::to_string(limits::kTargetBytes) + " bytes"};
    }
    head.http_10 = parser.version() == 10;
    head.keep_alive = !head.http_10 && parser.keep_alive();
    const auto length = head.header("content-length");
    if (!length.empty()) {
        head.content_length = static_cast<std::uint64_t>(to_int(length).value_or(0));
    }
    return std::nullopt;
}

std::optional<HeadProblem> split_target(HttpRequest& request) {
    const auto target = request.head.target();
    if (target.empty() || target.front() != '/') {
        return HeadProblem{400, "the target must be a path"};
    }
    const auto mark = target.find('?');
    const auto path = target.substr(0, mark);
    request.query.clear();
    if (path.find('%') == std::string_view::npos) {
        request.path.assign(path);
    } else {
        auto decoded = percent_decode(path, false);
        if (!decoded || std::count(decoded->begin(), decoded->end(), '/') !=
                            std::count(path.begin(), path.end(), '/')) {
            return HeadProblem{400, "the path is not well-formed"};
        }
        request.path = std::move(*decoded);
    }
    if (mark == std::string_view::npos) {
        return std::nullopt;
    }
    auto query = parse_query(target.substr(mark + 1));
    if (!query) {
        return HeadProblem{400, query.error().message};
    }
    request.query = std::move(*query);
    return std::nullopt;
}

std::string_view host_without_port(std::string_view host) {
    std::size_t end = host.find(':');
    if (host.starts_with('[')) {
        const auto bracket = host.find(']');
        if (bracket == std::string_view::npos) {
            return {};
        }
        end = bracket + 1 == host.size() ? std::string_view::npos : bracket + 1;
    }
    if (end == std::string_view::npos) {
        return host;
    }
    const auto port = host.substr(end);
    const auto number = port.starts_with(':') ? to_int(port.substr(1)) : std::nullopt;
    if (!number || *number < 1 || *number > 65'535) {
        return {};
    }
    return host.substr(0, end);
}

}  // namespace lockstep
