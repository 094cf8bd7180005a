#include "daemon/http/base/answer_writer.hpp"

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include <algorithm>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Head = http::response_header<>;

// A handler's header value can hold what a user wrote; a line end in it would begin a new header.
// Beast's fields take any bytes.
std::string safe(std::string_view text) {
    std::string out{text};
    std::replace_if(
        out.begin(), out.end(),
        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7F'; }, ' ');
    return out;
}

// In one string: each field is a buffer of its own, and a system call takes longer the more there
// are.
template <class Buffers>
void write_to(std::string& out, const Buffers& buffers) {
    out.clear();
    for (const net::const_buffer buffer : beast::buffers_range_ref(buffers)) {
        out.append(static_cast<const char*>(buffer.data()), buffer.size());
    }
}

void write_to(std::string& out, const Head& head) {
    write_to(out, Head::fields_type::writer{head, head.version(), head.result_int()}.get());
}

}  // namespace

void AnswerWriter::begin(const HttpResponse& response, const Frame& frame) {
    const bool bodiless = response.status == 204 || response.status == 304;
    const bool in_pieces = response.stream || response.make;
    Head head;
    head.result(static_cast<unsigned>(response.status));
    head.reason(reason_phrase(response.status));
    head.insert(http::field::date, frame.date);
    if (!bodiless) {
        const std::string own_type = safe(response.own_type);
        head.insert(http::field::content_type,
                    own_type.empty() ? response.content_type : std::string_view{own_type});
    }
    if (frame.chunked) {
        head.insert(http::field::transfer_encoding, "chunked");
    } else if (!bodiless && !in_pieces) {
        head.insert(http::field::content_length, std::to_string(response.text().size()));
    }
    head.insert(http::field::cache_control, response.cache_control);
    head.insert("X-Content-Type-Options", "nosniff");
    head.insert("Content-Security-Policy", response.security_policy);
    for (const auto& [name, value] : response.headers) {
        head.insert(safe(name), safe(value));
    }
    if (!frame.keep) {
        head.insert(http::field::connection, "close");
    }
    write_to(head_, head);
    chunked_ = frame.chunked && !frame.head_only;
    rest_ = {net::buffer(head_)};
    if (!frame.head_only && !in_pieces) {
        rest_[2] = net::buffer(response.text());
    }
}

void AnswerWriter::begin_continue() {
    Head head;
    head.result(http::status::continue_);
    write_to(head_, head);
    rest_ = {net::buffer(head_)};
}

void AnswerWriter::put(std::string_view piece) {
    rest_[2] = net::buffer(piece);
    if (chunked_) {
        write_to(chunk_, http::chunk_header{piece.size()});
        rest_[1] = net::buffer(chunk_);
        rest_[3] = *http::chunk_crlf{}.begin();
    }
}

void AnswerWriter::end() {
    if (chunked_) {
        write_to(chunk_, http::make_chunk_last());
        rest_[1] = net::buffer(chunk_);
    }
}

std::span<const net::const_buffer> AnswerWriter::pending() {
    const auto first = std::find_if(rest_.begin(), rest_.end(),
                                    [](const auto& buffer) { return buffer.size() > 0; });
    return {first, rest_.end()};
}

void AnswerWriter::consume(std::size_t bytes) {
    for (auto& buffer : rest_) {
        const std::size_t gone = std::min(bytes, buffer.size());
        buffer += gone;
        bytes -= gone;
    }
}

}  // namespace lockstep
