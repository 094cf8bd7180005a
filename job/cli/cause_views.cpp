// Why a job ended, for people: in a line, and with the failing rank's own words.
#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <cctype>

namespace lockstep::cli {
namespace {

// Whether the text has this name as a word of its own: n1 is none of n12.
bool says(std::string_view text, std::string_view name) {
    const auto part_of_name = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    };
    for (auto at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
        const auto end = at + name.size();
        if ((at == 0 || !part_of_name(text[at - 1])) &&
            (end == text.size() || !part_of_name(text[end]))) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::string cause_text(const Json& cause) {
    const std::string kind = text_at(cause, "class");
    if (kind.empty() || kind == "none") {
        return "";
    }
    std::string out = kind;
    const std::string message = text_at(cause, "message");
    out += message.empty() ? "" : ": " + message;
    std::string where;
    if (const auto rank = integer_at(cause, "rank")) {
        where = "rank " + std::to_string(*rank);
        if (message.find(where) != std::string::npos) {
            return out;  // it says all of this in words
        }
    }
    if (const std::string node = text_at(cause, "node"); !node.empty() && !says(message, node)) {
        where += (where.empty() ? "" : " on ") + node;
    }
    if (const auto code = integer_at(cause, "exit_code")) {
        where += (where.empty() ? "" : ", ") + ("exit code " + std::to_string(*code));
    }
    if (const auto signal = integer_at(cause, "signal"); signal && *signal > 0) {
        where += (where.empty() ? "" : ", ") + ("signal " + std::to_string(*signal));
    }
    return where.empty() ? out : out + " (" + where + ")";
}

namespace {

// A rank's own words, under a bar. Empty lines at the end are left out.
void quote(const Terminal& terminal, const Json& text, Lines& lines) {
    const std::string bar = terminal.unicode ? "  │ " : "  | ";
    for (const std::string& line : split(harmless(text.get_ref<const std::string&>()), '\n')) {
        lines.push_back(bar + line);
    }
    while (lines.size() > 1 && lines.back() == bar) {
        lines.pop_back();
    }
}

// "rank 1 on n0  exit 1  RuntimeError: Connection closed by peer (echo)"
void other_failures(const Terminal& terminal, const Json& cause, Lines& lines) {
    std::int64_t told = 0;
    for (const Json& one : items_at(cause, "others")) {
        std::string line = "rank " + integer_text(one, "rank") + " on " + text_at(one, "node");
        const auto signal = integer_at(one, "signal");
        line += signal && *signal > 0 ? "  signal " + std::to_string(*signal)
                                      : "  exit " + integer_text(one, "exit_code");
        const std::string error = text_at(one, "error");
        line += error.empty() ? "" : "  " + error;
        const std::string kind = text_at(one, "failure");
        line += kind.empty() || kind == "own" ? "" : " (" + kind + ")";
        const std::size_t room =
            terminal.interactive && terminal.width > 40 ? terminal.width - 14 : 240;
        lines.push_back(paint(terminal, Style::dim, told == 0 ? "also failed" : "           ") +
                        "  " + cut(terminal, line, room));
        ++told;
    }
    if (const auto total = integer_at(cause, "others_total"); total && *total > told) {
        lines.push_back("             and " + std::to_string(*total - told) + " ranks more");
    }
}

}  // namespace

Lines cause_view(const Terminal& terminal, const Json& cause) {
    Lines lines;
    const std::string line = cause_text(cause);
    if (line.empty()) {
        return lines;
    }
    lines.push_back(paint(terminal, Style::red, "cause") + "  " + line);
    const Json& traceback = at(at(cause, "exception"), "traceback");
    const Json& tail = at(cause, "log_tail");
    if (traceback.is_string()) {
        quote(terminal, traceback, lines);
    } else if (tail.is_string()) {
        quote(terminal, tail, lines);
    }
    other_failures(terminal, cause, lines);
    return lines;
}

}  // namespace lockstep::cli
