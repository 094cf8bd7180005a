// What others have written, on its way to a terminal.
#include "job/cli/glyph.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace lockstep::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::size_t kTabStop = 8;

// A line of a terminal: a cell for each column; the right half of a wide character is "".
class Cells {
  public:
    void home() { at_ = 0; }
    void back() { at_ -= at_ > 0 ? 1 : 0; }
    void tab() { at_ = (at_ / kTabStop + 1) * kTabStop; }

    void put(std::string_view character, std::size_t columns) {
        if (columns == 0) {  // an accent: to what stands before it
            std::size_t before = std::min(at_, cells_.size());
            while (before > 0 && cells_[before - 1].empty()) {
                --before;
            }
            if (before > 0) {
                cells_[before - 1] += character;
            }
            return;
        }
        cells_.resize(std::max(cells_.size(), at_ + columns), " ");
        for (std::size_t i = 0; i < columns; ++i) {
            part(at_ + i);
            cells_[at_ + i] = i == 0 ? character : "";
        }
        at_ += columns;
    }

    // ESC [ K: 0 from here to the end, 1 from the beginning to here, 2 all of it.
    void clear(char what) {
        for (std::size_t i = 0; what == '1' && i < std::min(at_ + 1, cells_.size()); ++i) {
            part(i);
            cells_[i] = " ";
        }
        if (what == '0' && at_ < cells_.size()) {
            part(at_);
            cells_.resize(at_);
        } else if (what == '2') {
            cells_.clear();
        }
    }

    std::string text() const {
        std::string out;
        for (const std::string& cell : cells_) {
            out += cell;
        }
        return out;
    }

  private:
    // What is left of a wide character of which the cell is a half.
    void part(std::size_t at) {
        if (cells_[at].empty()) {
            cells_[at - 1] = " ";
        }
        if (at + 1 < cells_.size() && cells_[at + 1].empty()) {
            cells_[at + 1] = " ";
        }
    }

    std::vector<std::string> cells_;
    std::size_t at_ = 0;
};

// What the escape sequence clears of its line: 0, 1, 2 or nothing.
char cleared(std::string_view sequence) {
    if (!sequence.starts_with("\x1b[") || !sequence.ends_with('K')) {
        return '\0';
    }
    const std::string_view what = sequence.substr(2, sequence.size() - 3);
    return what.empty() ? '0' : what == "0" || what == "1" || what == "2" ? what[0] : '\0';
}

std::string_view without_returns(std::string_view line) {
    return line.substr(0, line.find_last_not_of('\r') + 1);
}

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

bool is_redrawn(std::string_view line) {
    return without_returns(line).find_first_of("\r\b") != std::string_view::npos;
}

std::string settled(std::string_view line) {
    if (!is_redrawn(line)) {
        return harmless(line);
    }
    line = without_returns(line);
    Cells cells;
    for (std::size_t at = 0; at < line.size();) {
        const Glyph glyph = glyph_at(line, at);
        const std::string_view piece = line.substr(at, glyph.bytes);
        if (glyph.kind == Glyph::Kind::broken) {
            cells.put(kReplacement, 1);
        } else if (const char what = cleared(piece); what != '\0') {
            cells.clear(what);
        } else if (glyph.code == U'\r') {
            cells.home();
        } else if (glyph.code == U'\b') {
            cells.back();
        } else if (glyph.code == U'\t') {
            cells.tab();
        } else if (glyph.kind == Glyph::Kind::character && !steers(glyph.code)) {
            cells.put(piece, glyph.columns);
        }
        at += glyph.bytes;
    }
    return cells.text();
}

std::string compacted(std::string_view line) {
    const std::size_t last = line.rfind('\r');
    return last == std::string_view::npos || !is_redrawn(line.substr(0, last))
               ? std::string(line)
               : settled(line.substr(0, last)) + std::string(line.substr(last));
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
