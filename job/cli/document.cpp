#include "job/cli/document.hpp"

#include "job/base/text.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](std::string_view ending) { return name.ends_with(ending); });
}

Place place_at(std::string_view text, std::size_t byte) {
    byte = std::min(byte, text.size());
    const std::string_view before = text.substr(0, byte);
    const std::size_t line = before.rfind('\n');
    Place out;
    out.line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    out.column = byte - (line == std::string_view::npos ? 0 : line + 1) + 1;
    return out;
}

// What the reader has most likely done.
std::string json_advice(std::string_view text, std::size_t byte) {
    if (byte >= text.size()) {
        return "the document ends too early: a bracket or a quote is missing";
    }
    const char c = text[byte];
    if (c == '\'') {
        return "texts take double quotes";
    }
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
        return "text needs double quotes, except true, false and null";
    }
    if (c == '"') {
        return "a comma or a colon is missing before this";
    }
    return "this is not expected here";
}

DocumentError wrong_json(const std::string& text, const std::string& why,
                         const JsonProblem& where) {
    DocumentError out;
    if (where.byte == 0) {
        out.message = why;
        return out;
    }
    std::size_t byte = std::min(where.byte - 1, text.size());
    // The parser has read a word to its end before it refuses it.
    while (!where.bad_utf8 && byte > 0 && byte < text.size() &&
           std::isalnum(static_cast<unsigned char>(text[byte])) != 0 &&
           std::isalnum(static_cast<unsigned char>(text[byte - 1])) != 0) {
        --byte;
    }
    out.message = where.bad_utf8 ? "not UTF-8" : "not JSON: " + json_advice(text, byte);
    if (byte >= text.size()) {
        byte = text.find_last_not_of(kBlanks) + 1;
    }
    out.place = place_at(text, byte);
    out.line = line_of(text, out.place.line);
    return out;
}

// A file of another kind, or nothing.
std::string other_kind(const std::string& name, const std::string& text) {
    const std::string shown = one_line(name);
    if (text.find_first_not_of(kBlanks) == std::string::npos) {
        return "is empty; the smallest specification is {\"name\": \"first\", \"framework\": "
               "\"native\"}";
    }
    if (text.starts_with("#!") && text.find("\n#SBATCH") != std::string::npos) {
        return "is a batch script; its command can be run as it is: lockstep run -N NODES -t "
               "TIME -- COMMAND";
    }
    if (name.ends_with(".py") || text.starts_with("#!")) {
        return "is a program and no specification: lockstep run -- " +
               (name.ends_with(".py") ? "python3 " + shown : "./" + shown);
    }
    return "";
}

}  // namespace

std::string line_of(const std::string& text, std::size_t number) {
    const auto lines = split(text, '\n');
    if (number == 0 || number > lines.size()) {
        return "";
    }
    std::string line = lines[number - 1];
    if (!line.empty() && line.back() == '\r') {
        line.pop_back();
    }
    return line;
}

std::string place_text(const Document& document, const Place& place) {
    if (document.name.empty() || place.line == 0) {
        return one_line(document.name);
    }
    return one_line(document.name) + ":" + std::to_string(place.line) + ":" +
           std::to_string(place.column);
}

std::string excerpt(const std::string& line, const Place& place) {
    if (place.line == 0) {
        return "";
    }
    constexpr std::size_t kMost = 100;
    const std::size_t column = std::min(place.column, line.size() + 1);
    // Of a very long line what is around the place.
    const std::size_t from = column > kMost ? column - kMost / 2 : 0;
    const std::string shown = one_line(line.substr(from, kMost));
    const std::string number = std::to_string(place.line);
    return "  " + number + " | " + shown + "\n  " + std::string(number.size(), ' ') + " | " +
           std::string(visible_width(one_line(line.substr(from, column - 1 - from))), ' ') + "^";
}

std::string blanked_json(std::string_view text) {
    std::string out{text};
    std::size_t comma = std::string::npos;  // the last thing but blanks and comments
    const auto blank = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to && i < out.size(); ++i) {
            out[i] = out[i] == '\n' ? '\n' : ' ';
        }
    };
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '"') {
            for (++at; at < text.size() && text[at] != '"'; ++at) {
                at += text[at] == '\\' ? 1 : 0;
            }
            comma = std::string::npos;
        } else if (text.compare(at, 2, "//") == 0) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            blank(at, end);
            at = end - 1;
        } else if (text.compare(at, 2, "/*") == 0) {
            const std::size_t end = text.find("*/", at + 2);
            if (end == std::string_view::npos) {
                return out;  // the parser will stop here
            }
            blank(at, end + 2);
            at = end + 1;
        } else if (c == ',') {
            comma = at;
        } else if ((c == '}' || c == ']') && comma != std::string::npos) {
            out[comma] = ' ';
            comma = std::string::npos;
        } else if (kBlanks.find(c) == std::string_view::npos) {
            comma = std::string::npos;
        }
    }
    return out;
}

tl::expected<Document, DocumentError> parse_document(std::string name, std::string text) {
    if (text.starts_with("\xEF\xBB\xBF")) {
        text.erase(0, 3);
    }
    if (std::string kind = other_kind(name, text); !kind.empty()) {
        return tl::unexpected(DocumentError{std::move(kind), {}, {}});
    }
    const std::string blanked = blanked_json(text);
    const std::size_t first = blanked.find_first_not_of(kBlanks);
    const bool bracket =
        first != std::string::npos && (blanked[first] == '{' || blanked[first] == '[');
    const bool json = name.ends_with(".json") || name.ends_with(".jsonc") ||
                      (bracket && !ends_with_any(name, {".yaml", ".yml"}));
    if (!json) {
        return parse_yaml(std::move(name), std::move(text));
    }
    JsonProblem where;
    auto parsed = parse_json(blanked, where);
    if (!parsed) {
        return tl::unexpected(wrong_json(text, parsed.error().message, where));
    }
    Document out;
    out.json = std::move(*parsed);
    out.name = std::move(name);
    find_places(blanked, out);
    out.text = std::move(text);
    return out;
}

}  // namespace lockstep::cli
