#include "job/async/request_parser.hpp"

#include "job/async/asio.hpp"

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <utility>

namespace lockstep {
namespace {

namespace http = boost::beast::http;

}  // namespace

struct RequestParser::Impl {
    http::request_parser<http::string_body> parser;
    std::string pending;  // not parsed yet: a head is parsed as a whole
    bool head_told = false;
    std::size_t body_bytes = 0;
};

RequestParser::RequestParser(std::size_t head_bytes, std::size_t body_bytes)
    : impl_(std::make_unique<Impl>()) {
    impl_->parser.header_limit(static_cast<std::uint32_t>(head_bytes));
    impl_->parser.body_limit(body_bytes);
    impl_->body_bytes = body_bytes;
}

RequestParser::~RequestParser() = default;

RequestParser::Step RequestParser::feed(std::string_view bytes) {
    auto& [parser, pending, head_told, body_bytes] = *impl_;
    pending.append(bytes);
    for (;;) {
        if (head_told && parser.is_done()) {
            return Step::done;
        }
        if (pending.empty()) {
            return Step::more;
        }
        boost::beast::error_code ec;
        const std::size_t used = parser.put(net::buffer(pending), ec);
        pending.erase(0, used);
        if (ec == http::error::header_limit || ec == http::error::body_limit ||
            ec == http::error::buffer_overflow) {
            return Step::too_large;
        }
        if (ec && ec != http::error::need_more) {
            return Step::bad;
        }
        if (!head_told && parser.is_header_done()) {
            head_told = true;
            return parser.chunked()        ? Step::bad
                   : length() > body_bytes ? Step::too_large
                                           : Step::head;
        }
        if (used == 0) {
            return Step::more;
        }
    }
}

std::string RequestParser::method() const {
    const auto name = impl_->parser.get().method_string();
    return {name.data(), name.size()};
}

std::string RequestParser::target() const {
    const auto target = impl_->parser.get().target();
    return {target.data(), target.size()};
}

std::size_t RequestParser::length() const {
    const auto length = impl_->parser.content_length();
    return length ? static_cast<std::size_t>(*length) : 0;
}

std::string RequestParser::header(std::string_view name) const {
    const auto& fields = impl_->parser.get();
    const auto found = fields.find(boost::beast::string_view{name.data(), name.size()});
    if (found == fields.end()) {
        return {};
    }
    return {found->value().data(), found->value().size()};
}

std::string RequestParser::take_body() {
    return std::move(impl_->parser.get().body());
}

}  // namespace lockstep
