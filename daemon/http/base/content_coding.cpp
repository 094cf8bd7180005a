#include "daemon/http/base/content_coding.hpp"

#include "daemon/http/base/message.hpp"
#include "job/base/digest.hpp"
#include "job/base/text.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, with gzip's head and tail
constexpr std::size_t kInflateStep = 64U << 10U;

// The bytes as zlib wants them; it does not write to its input.
Bytef* input_of(std::string_view bytes) {
    return reinterpret_cast<Bytef*>(       // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
        const_cast<char*>(bytes.data()));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

Bytef* output_of_deflate(std::string& bytes, std::size_t at) {
    return reinterpret_cast<Bytef*>(  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
        bytes.data() + at);
}

// "gzip;q=0.5" → whether it is gzip (or *), and whether that is wanted.
bool wants_gzip(std::string_view item, bool& named) {
    const auto semicolon = item.find(';');
    const auto coding = trim(item.substr(0, semicolon));
    named = same_token(coding, "gzip") || same_token(coding, "x-gzip");
    if (!named && coding != "*") {
        return false;
    }
    if (semicolon == std::string_view::npos) {
        return true;
    }
    auto weight = trim(item.substr(semicolon + 1));
    if (weight.size() < 3 || !same_token(weight.substr(0, 2), "q=")) {
        return true;
    }
    weight.remove_prefix(2);
    return weight.find_first_of("123456789") != std::string_view::npos;
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) {
    bool any = false;
    while (!accept_encoding.empty()) {
        const auto comma = std::min(accept_encoding.find(','), accept_encoding.size());
        bool named = false;
        const bool wanted = wants_gzip(accept_encoding.substr(0, comma), named);
        if (named) {
            return wanted;
        }
        any = any || wanted;
        accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    }
    return any;
}

Result<std::string> gzip_bytes(std::string_view bytes) {
    z_stream stream{};
    if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        return fail(Errc::exhausted, "no memory to compress");
    }
    std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
    stream.next_in = input_of(bytes);
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = output_of_deflate(out, 0);
    stream.avail_out = static_cast<uInt>(out.size());
    const int state = deflate(&stream, Z_FINISH);
    const auto size = static_cast<std::size_t>(stream.total_out);
    deflateEnd(&stream);
    if (state != Z_STREAM_END) {
        return fail(Errc::internal, "deflate ended with " + std::to_string(state));
    }
    out.resize(size);
    return out;
}

Result<std::string> gunzip_bytes(std::string_view bytes, std::size_t cap) {
    z_stream stream{};
    if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
        return fail(Errc::exhausted, "no memory to decompress");
    }
    stream.next_in = input_of(bytes);
    stream.avail_in = static_cast<uInt>(bytes.size());
    std::string out;
    int state = Z_OK;
    while (state == Z_OK && out.size() <= cap) {
        const std::size_t have = static_cast<std::size_t>(stream.total_out);
        out.resize(have + kInflateStep);
        stream.next_out = output_of_deflate(out, have);
        stream.avail_out = static_cast<uInt>(kInflateStep);
        state = inflate(&stream, Z_NO_FLUSH);
    }
    const auto size = static_cast<std::size_t>(stream.total_out);
    inflateEnd(&stream);
    if (size > cap) {
        return fail(Errc::exhausted, "more than " + std::to_string(cap) + " bytes");
    }
    if (state != Z_STREAM_END) {
        return fail(Errc::corrupt, "not gzip");
    }
    out.resize(size);
    return out;
}

std::string entity_tag(std::string_view bytes, std::string_view variant) {
    std::string out = "\"" + sha256_hex(bytes).substr(0, 20);
    if (!variant.empty()) {
        out.append("-").append(variant);
    }
    return out + "\"";
}

bool tag_matches(std::string_view if_none_match, std::string_view tag) {
    if (trim(if_none_match) == "*") {
        return true;
    }
    while (!if_none_match.empty()) {
        const auto comma = std::min(if_none_match.find(','), if_none_match.size());
        auto one = trim(if_none_match.substr(0, comma));
        if (one.starts_with("W/")) {
            one.remove_prefix(2);
        }
        if (one == tag) {
            return true;
        }
        if_none_match.remove_prefix(std::min(comma + 1, if_none_match.size()));
    }
    return false;
}

}  // namespace lockstep
