// --help (manual.hpp).
#include "job/cli/manual.hpp"

#include <CLI/Formatter.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr std::size_t kNames = 28;
constexpr std::size_t kNamesNarrow = 22;  // below kPipeColumns: the longest word fits into 60
constexpr std::size_t kVerbs = 16;
constexpr std::size_t kLeast = 60;
constexpr std::size_t kMost = 120;  // longer lines are hard to read

std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not a continuation of UTF-8
    }));
}

// `names`, and from column `at` on what they are; on lines of their own where names are too long.
std::string entry(const std::string& names, const std::string& text, std::size_t at,
                  std::size_t columns) {
    std::string out;
    std::size_t used = 0;
    for (const std::string& line : wrapped(names, columns - 6)) {
        out += (out.empty() ? "  " : "\n      ") + line;
        used = characters(line) + (out.find('\n') == std::string::npos ? 2 : 6);
    }
    const std::vector<std::string> lines = wrapped(text, columns - at);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const bool beside = i == 0 && used < at;
        out += (beside ? std::string(at - used, ' ') : "\n" + std::string(at, ' ')) + lines[i];
    }
    return out + "\n";
}

// A command of an example, indented; where it is too long it goes on behind a backslash.
std::string command_line(std::string_view line, std::size_t columns) {
    const std::size_t indent = line.find_first_not_of(' ');
    std::string out;
    for (const std::string& part : wrapped(line.substr(indent), columns - indent - 6)) {
        out += std::string(indent, ' ') + (out.empty() ? "" : "    ") + part + " \\\n";
    }
    return out.substr(0, out.size() - 3) + "\n";
}

class HelpFormatter final : public CLI::Formatter {
  public:
    explicit HelpFormatter(std::size_t columns) : columns_(columns) {}
    std::string make_option(const CLI::Option* option, bool positional) const override {
        std::string names = make_option_name(option, positional);
        const bool takes = option->get_items_expected_max() != 0;
        const std::string value = takes && !positional ? value_name(*option) : "";
        names += value.empty() ? "" : " " + value;
        std::string text = option->get_description();
        const std::string& usual = option->get_default_str();
        if (takes && !usual.empty() && usual != "[]") {
            text += " (default: " + option->get_default_str() + ")";
        }
        if (!option->get_envname().empty()) {
            text += " [" + option->get_envname() + "]";
        }
        return entry(names, text, columns_ < kPipeColumns ? kNamesNarrow : kNames, columns_);
    }
    std::string make_subcommand(const CLI::App* verb) const override {
        return entry(verb->get_name(), verb->get_description(), kVerbs, columns_);
    }
    std::string make_description(const CLI::App* app) const override {
        std::string out;
        for (const std::string& line : wrapped(app->get_description(), columns_)) {
            out += line + "\n";
        }
        return out;
    }

    std::string make_footer(const CLI::App* app) const override {
        return filled(app->get_footer(), columns_);
    }

  private:
    std::size_t columns_;
};

}  // namespace

std::size_t terminal_columns() {
    winsize size{};
    const bool terminal = ::isatty(STDOUT_FILENO) == 1 &&
                          ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return terminal ? std::clamp<std::size_t>(size.ws_col, kLeast, kMost) : kPipeColumns;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
    std::vector<std::string> lines;
    std::string line;
    bool blank = false;  // between the line and the next word
    const auto end_line = [&] {
        lines.push_back(std::exchange(line, ""));
        blank = false;
    };
    while (!text.empty()) {
        std::size_t end = text.find_first_of(" \n|");
        if (characters(text.substr(0, end)) > columns) {
            // A list that no line holds is broken behind the last of its commas that one holds.
            const std::size_t comma = text.substr(0, columns).rfind(',');
            end = comma == std::string_view::npos || comma == 0 ? end : comma;
        }
        const bool kept = end != std::string_view::npos && (text[end] == '|' || text[end] == ',');
        const std::string_view word = text.substr(0, kept ? end + 1 : end);
        if (!line.empty() && characters(line) + characters(word) + (blank ? 1 : 0) > columns) {
            end_line();
        }
        line += blank ? " " : "";
        line += word;
        blank = !kept && !line.empty();
        if (end == std::string_view::npos) {
            break;
        }
        if (text[end] == '\n') {
            end_line();
        }
        text.remove_prefix(end + 1);
    }
    if (!line.empty()) {
        end_line();
    }
    return lines;
}

std::string filled(std::string_view text, std::size_t columns) {
    std::string out;
    std::string paragraph;
    const auto end_paragraph = [&] {
        for (const std::string& line : wrapped(paragraph, columns)) {
            out += line + "\n";
        }
        paragraph.clear();
    };
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        if (line.empty() || line.front() == ' ') {
            end_paragraph();
            out +=
                characters(line) > columns ? command_line(line, columns) : std::string(line) + "\n";
        } else {
            paragraph += (paragraph.empty() ? "" : " ") + std::string(line);
        }
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    end_paragraph();
    return out;
}

void dress_help(CLI::App& app, std::size_t columns) {
    const auto formatter = std::make_shared<HelpFormatter>(columns);
    app.formatter(formatter);
    for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
        dress_help(*verb, columns);
    }
}

}  // namespace lockstep::cli
