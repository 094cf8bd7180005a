// Text in the pieces that a terminal takes it in: characters, control characters, escape sequences.
// Pure but for the locale's widths, which Terminal::detect() has chosen; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::cli {

struct Glyph {
    enum class Kind {
        character,  // valid UTF-8, control characters too
        sequence,   // ESC and what belongs to it
        broken,     // a byte that is no UTF-8
    };
    Kind kind = Kind::character;
    std::size_t bytes = 1;
    std::size_t columns = 1;
    char32_t code = 0;  // of a character
};

// What stands at `at`, which is inside. A sequence ends where a terminal takes it to end, but never
// behind the line: one that is not complete there is only what cannot be text.
Glyph glyph_at(std::string_view text, std::size_t at);

// Whether a terminal does with it anything but show it as one of the characters of the line:
// control characters of one byte (\n and \t as well) and of two, and marks that turn the direction
// of what follows.
bool steers(char32_t code);

bool is_utf8_text(std::string_view text);
// Without the beginning of a character that is not complete yet.
std::string_view whole_characters(std::string_view text);

}  // namespace lockstep::cli
