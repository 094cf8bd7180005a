#include "job/cli/glyph.hpp"

#include <algorithm>
#include <cwchar>

namespace lockstep::cli {
namespace {

constexpr char kEscape = '\x1b';

bool lies_in(char c, char low, char high) {
    return c >= low && c <= high;
}

// Bytes of a sequence that goes on to a terminator of its own (titles, links, device strings):
// ECMA-48, 8.3.89; BEL ends them as in xterm. Of one that the line does not end, its two first.
std::size_t string_bytes(std::string_view text) {
    for (std::size_t i = 2; i < text.size() && text[i] != '\n' && text[i] != '\r'; ++i) {
        if (text[i] == '\a' || text[i] == '\x18' || text[i] == '\x1a') {  // BEL, CAN, SUB
            return i + 1;
        }
        if (text[i] == kEscape) {
            return i + 1 < text.size() && text[i + 1] == '\\' ? i + 2 : i;
        }
        if (text.substr(i, 2) == "\xc2\x9c") {  // ST in one character
            return i + 2;
        }
    }
    return 2;
}

// Bytes of the escape sequence that `text` begins with: ECMA-48, 5.4, and ECMA-35, 13.2.
std::size_t sequence_bytes(std::string_view text) {
    if (text.size() < 2) {
        return 1;
    }
    if (std::string_view("]PX^_").find(text[1]) != std::string_view::npos) {
        return string_bytes(text);
    }
    const bool control = text[1] == '[';
    std::size_t end = control ? 2 : 1;
    while (control && end < text.size() && lies_in(text[end], '0', '?')) {
        ++end;
    }
    while (end < text.size() && lies_in(text[end], ' ', '/')) {
        ++end;
    }
    return end < text.size() && lies_in(text[end], control ? '@' : '0', '~') ? end + 1 : end;
}

// The character at the front and how many bytes it has; 0 bytes: none that is well-formed (Unicode
// 15, table 3-7). `missing`: the text ends in the middle of one that may be.
struct Decoded {
    std::size_t bytes = 0;
    char32_t code = 0;
    bool missing = false;
};

Decoded decoded(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) {
        return {1, lead, false};
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return {};
    }
    const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char32_t code = lead & (0x7fU >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (i == text.size()) {
            return {0, 0, true};
        }
        const auto next = static_cast<unsigned char>(text[i]);
        const unsigned low = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        const unsigned high = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (next < low || next > high) {
            return {};
        }
        code = (code << 6U) | (next & 0x3fU);
    }
    return {bytes, code, false};
}

}  // namespace

Glyph glyph_at(std::string_view text, std::size_t at) {
    text.remove_prefix(at);
    if (text[0] == kEscape) {
        return {Glyph::Kind::sequence, sequence_bytes(text), 0, 0};
    }
    const Decoded found = decoded(text);
    if (found.bytes == 0) {
        return {Glyph::Kind::broken, 1, 1, 0};
    }
    const int columns = found.code < 0x80 ? 1 : ::wcwidth(static_cast<wchar_t>(found.code));
    return {Glyph::Kind::character, found.bytes,
            columns < 0 ? 1 : static_cast<std::size_t>(columns), found.code};
}

bool steers(char32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

bool is_utf8_text(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = decoded(text).bytes;
        if (bytes == 0) {
            return false;
        }
        text.remove_prefix(bytes);
    }
    return true;
}

std::string_view whole_characters(std::string_view text) {
    constexpr std::size_t kLongest = 4;
    for (std::size_t back = 1; back <= std::min(kLongest, text.size()); ++back) {
        if (decoded(text.substr(text.size() - back)).missing) {
            return text.substr(0, text.size() - back);
        }
    }
    return text;
}

}  // namespace lockstep::cli
