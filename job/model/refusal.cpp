#include "job/model/refusal.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kRefusalLines = 24;  // click's may list the choices, one a line
constexpr std::size_t kProgramName = 256;

constexpr std::string_view kClickWord = "Error: ";
constexpr std::string_view kArgparseWord = ": error: ";
// absl's, absl/app.py; Python Fire's and jsonargparse's.
constexpr std::string_view kAbslWord = "FATAL Flags parsing error:";
constexpr std::string_view kAbslLast = "Pass --helpshort or --helpfull";
constexpr std::string_view kFireWord = "ERROR: ";
constexpr std::string_view kJsonargparseWord = "error: ";
constexpr std::string_view kJsonargparseTip = "tip: For details of accepted options";
// rich draws typer's and tyro's box in ASCII where the output is no UTF-8. typer's are called
// Error, tyro's what they say.
constexpr std::array<std::string_view, 2> kBoxTops{"╭─ ", "+- "};
constexpr std::array<std::string_view, 2> kBoxErrors{"╭─ Error", "+- Error"};
constexpr std::array<std::string_view, 2> kBoxRules{"─", "-"};
constexpr std::array<std::string_view, 2> kBoxSides{"│", "|"};
constexpr std::array<std::string_view, 2> kBoxEnds{"╰", "+-"};

// Python's own, Modules/main.c and Lib/runpy.py, behind the path of the interpreter.
constexpr std::array<std::string_view, 1> kPythonTwo{"can't open file '"};
constexpr std::array<std::string_view, 3> kPythonOne{
    "No module named ", "Error while finding module specification for ",
    "can't find '__main__' module in "};
// dash, bash, env and exec of a program, with 126 and 127; dash of its script, with 2.
constexpr std::array<std::string_view, 7> kShellWords{
    "not found",      "Permission denied", "No such file",     "Is a directory",
    "cannot execute", "cannot open",       "Exec format error"};
constexpr std::string_view kDashOfScript = ": 0: cannot open ";

// Without colours, as terminals take them (FORCE_COLOR), and without the mark of its rank.
std::string plain_line(std::string_view line) {
    std::string out;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
            i += 2;
            while (i < line.size() && (line[i] < 0x40 || line[i] > 0x7e)) {
                ++i;
            }
        } else if (line[i] != '\r') {
            out += line[i];
        }
    }
    // "[rank1]: text" as torch prints it, "[default0]:text" as torchrun does.
    if (const auto close = out.find("]:"); out.starts_with('[') && close < 32) {
        out.erase(0, close + 2 + (out.compare(close + 2, 1, " ") == 0 ? 1 : 0));
    }
    out.erase(out.find_last_not_of(" \t") + 1);
    return out;
}

// The last lines that say something, in their order.
std::vector<std::string> last_lines(std::string_view output) {
    std::vector<std::string> out;
    while (!output.empty() && out.size() < kRefusalLines) {
        const auto newline = output.rfind('\n');
        const auto begin = newline == std::string_view::npos ? 0 : newline + 1;
        if (auto line = plain_line(output.substr(begin)); !line.empty()) {
            out.push_back(std::move(line));
        }
        output = output.substr(0, begin == 0 ? 0 : newline);
    }
    std::reverse(out.begin(), out.end());
    return out;
}

// A box's line across it, between what is wrong and the help.
bool is_rule(std::string_view text) {
    return std::any_of(kBoxRules.begin(), kBoxRules.end(), [&](std::string_view dash) {
        std::string_view rest = text;
        while (rest.starts_with(dash)) {
            rest.remove_prefix(dash.size());
        }
        return rest.empty() && !text.empty();
    });
}

std::optional<std::string> in_box(const std::vector<std::string>& lines, std::int32_t code) {
    const auto begins = [](const std::string& line, const auto& words) {
        return std::any_of(words.begin(), words.end(),
                           [&](std::string_view word) { return line.starts_with(word); });
    };
    if (!begins(lines.back(), kBoxEnds)) {
        return std::nullopt;
    }
    std::vector<std::string> words;
    for (std::size_t i = lines.size() - 1; i-- > 0;) {
        const std::string& line = lines[i];
        if (begins(line, kBoxErrors) || (code == 2 && begins(line, kBoxTops))) {
            std::reverse(words.begin(), words.end());
            words.erase(std::find_if(words.begin(), words.end(), is_rule), words.end());
            std::string out;
            for (const std::string& part : words) {
                out += (out.empty() || part.empty() ? "" : " ") + part;
            }
            return out;
        }
        const std::size_t side =
            line.starts_with(kBoxSides[0]) ? kBoxSides[0].size() : kBoxSides[1].size();
        if (!begins(line, kBoxSides) || line.size() < 2 * side) {
            return std::nullopt;
        }
        words.emplace_back(trim(std::string_view{line}.substr(side, line.size() - 2 * side)));
    }
    return std::nullopt;
}

// "Error: No such option '--lr'" and, of more than one line, what follows it.
std::optional<std::string> of_click(const std::vector<std::string>& lines, std::int32_t code) {
    for (std::size_t i = lines.size(); i-- > 0;) {
        if (!lines[i].starts_with(kClickWord)) {
            if (code != 2) {
                return std::nullopt;  // any program's word, of something that it got over
            }
            continue;
        }
        const bool with_usage =
            std::any_of(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(i),
                        [](const std::string& line) { return line.starts_with("Usage:"); });
        if (!with_usage && i + 1 != lines.size()) {
            return std::nullopt;
        }
        std::string out = lines[i].substr(kClickWord.size());
        for (std::size_t next = i + 1; next < lines.size(); ++next) {
            out += "\n" + lines[next];
        }
        return out;
    }
    return std::nullopt;
}

// With the program's name: it tells a launcher's arguments from the script's.
std::optional<std::string> of_argparse(const std::vector<std::string>& lines) {
    const std::string& line = lines.back();
    const auto at = line.find(kArgparseWord);
    return at == 0 || at > kProgramName ? std::nullopt : std::optional{line};
}

// What stands behind `word` on the line `at`, and the lines that follow it up to `end`.
std::string block(const std::vector<std::string>& lines, std::size_t at, std::string_view word,
                  std::size_t end) {
    std::string out{trim(std::string_view{lines[at]}.substr(word.size()))};
    for (std::size_t next = at + 1; next < end; ++next) {
        out += (out.empty() ? "" : "\n") + std::string{trim(lines[next])};
    }
    return out;
}

// "FATAL Flags parsing error: Unknown command line flag 'lrr'. Did you mean: lr ?"
std::optional<std::string> of_absl(const std::vector<std::string>& lines) {
    if (!lines.back().starts_with(kAbslLast)) {
        return std::nullopt;
    }
    for (std::size_t i = lines.size() - 1; i-- > 0;) {
        if (lines[i].starts_with(kAbslWord)) {
            return block(lines, i, kAbslWord, lines.size() - 1);
        }
    }
    return std::nullopt;
}

// "ERROR: Could not consume arg: --lrr=1", and then how it is used.
std::optional<std::string> of_fire(const std::vector<std::string>& lines) {
    for (std::size_t i = lines.size() - 1; i-- > 0;) {
        if (lines[i].starts_with(kFireWord) && lines[i + 1].starts_with("Usage: ")) {
            return lines[i].substr(kFireWord.size());
        }
    }
    return std::nullopt;
}

// "error: unrecognized arguments: --lrr 1" behind its tip.
std::optional<std::string> of_jsonargparse(const std::vector<std::string>& lines) {
    for (std::size_t i = lines.size(); i-- > 1;) {
        if (lines[i].starts_with(kJsonargparseWord)) {
            return lines[i - 1].starts_with(kJsonargparseTip)
                       ? std::optional{block(lines, i, kJsonargparseWord, lines.size())}
                       : std::nullopt;
        }
    }
    return std::nullopt;
}

// "/usr/bin/python3: No module named foo"
std::optional<std::string> of_python(const std::string& line, const auto& words) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos || line.find_first_of(" \t") < colon) {
        return std::nullopt;
    }
    const std::string_view said = std::string_view{line}.substr(colon + 2);
    const bool known = std::any_of(words.begin(), words.end(),
                                   [&](std::string_view word) { return said.starts_with(word); });
    return known ? std::optional{line} : std::nullopt;
}

std::optional<std::string> of_shell(const std::string& line) {
    const auto colon = line.find(": ");
    const bool known =
        colon != std::string::npos &&
        std::any_of(kShellWords.begin(), kShellWords.end(), [&](std::string_view word) {
            return line.find(word, colon) != std::string::npos;
        });
    return known ? std::optional{line} : std::nullopt;
}

}  // namespace

std::optional<std::string> printed_refusal(std::string_view output, std::int32_t exit_code) {
    const std::vector<std::string> lines = last_lines(output);
    if (lines.empty()) {
        return std::nullopt;
    }
    const std::string& last = lines.back();
    switch (exit_code) {
        case 1: {
            auto said = in_box(lines, exit_code);
            said = said ? said : of_python(last, kPythonOne);
            said = said ? said : of_absl(lines);
            return said ? said : of_click(lines, exit_code);
        }
        case 2: {
            auto said = in_box(lines, exit_code);
            said = said ? said : of_argparse(lines);
            said = said ? said : of_fire(lines);
            said = said ? said : of_jsonargparse(lines);
            said = said ? said : of_python(last, kPythonTwo);
            said = !said && last.find(kDashOfScript) != std::string::npos ? last : said;
            return said ? said : of_click(lines, exit_code);
        }
        case 126:
        case 127:
            return of_shell(last);
        default:
            return std::nullopt;
    }
}

}  // namespace lockstep
