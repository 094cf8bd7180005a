// What others have written, on its way to a terminal.
#include "job/cli/glyph.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace lockstep::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

// Each piece is judged by itself and written whole: what is left out joins nothing.
std::string harmless(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        if (glyph.kind == Glyph::Kind::broken) {
            out += kReplacement;
        } else if (glyph.kind == Glyph::Kind::character &&
                   (!steers(glyph.code) || glyph.code == U'\n' || glyph.code == U'\t')) {
            out += text.substr(at, glyph.bytes);
        }
        at += glyph.bytes;
    }
    return out;
}

std::string spelled(const Terminal& terminal, std::string_view text) {
    if (terminal.unicode) {
        return std::string(text);
    }
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        const bool ascii = static_cast<unsigned char>(text[at]) < 0x80;
        out += ascii ? std::string(text.substr(at, glyph.bytes)) : std::string(glyph.columns, '?');
        at += glyph.bytes;
    }
    return out;
}

std::string harmless_json(std::string_view json) {
    std::string out;
    out.reserve(json.size());
    for (std::size_t at = 0; at < json.size();) {
        if (static_cast<unsigned char>(json[at]) < 0x7f) {
            out += json[at++];
            continue;
        }
        const Glyph glyph = glyph_at(json, at);
        if (glyph.kind == Glyph::Kind::broken) {
            out += kReplacement;
        } else if (steers(glyph.code)) {
            std::array<char, 8> text{};
            std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(glyph.code));
            out += text.data();
        } else {
            out += json.substr(at, glyph.bytes);
        }
        at += glyph.bytes;
    }
    return out;
}

std::string one_line(std::string_view text) {
    std::string out = harmless(text);
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    return out;
}

}  // namespace lockstep::cli
