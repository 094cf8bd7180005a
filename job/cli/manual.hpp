// Man pages, shell completions and --help made from a program's CLI11 declarations, so that they
// cannot disagree with what it accepts. A library of its own (lockstep_manual): every program may
// use it. Pure but for terminal_columns(); any thread.
#pragma once

#include <CLI/App.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

// What a man page says beyond the options.
struct ManualText {
    using Terms = std::vector<std::pair<std::string, std::string>>;  // term, explanation
    int section = 1;
    std::string title;                     // one line, behind the name and a dash
    std::vector<std::string> description;  // paragraphs
    Terms environment;
    Terms files;
    Terms exits;                        // exit status
    Terms examples;                     // command, what it does
    std::vector<std::string> see_also;  // "lockstepd(8)"
};

// roff with the man macros (man(7)). Options and verbs whose group is "" are left out.
std::string man_page(const CLI::App& app, const ManualText& text, std::string_view version,
                     std::string_view date);

// Words as roff; and whole text, filled, with a newline at its end: for pages made otherwise.
std::string man_words(std::string_view text);
std::string man_text(std::string_view text);

enum class Shell { bash, zsh, fish };
std::optional<Shell> parse_shell(std::string_view name);
// A script to be sourced (bash, fish) or put on fpath as _<program> (zsh). Values are completed by
// the type name of the option: FILE and DIR from the disk, a|b|c from the words, ID from
// `id_command` (one a line) when it is not empty. A positional COMMAND is another program with its
// arguments: files, and no option of this one from there on and behind --.
std::string completion(const CLI::App& app, Shell shell, std::string_view id_command);

// What was declared, in order, without what is hidden: the common source of all of the above.
struct Declared {
    std::vector<std::string> names;  // "-f", "--follow"; for positionals the one name
    std::string value;               // type name; "" for a flag
    std::string help;
    std::string environment;
    std::string fallback;  // default value, "" when not worth saying
    bool positional = false;
    bool required = false;
};
// What stands for an option's value: its type name without what CLI11 adds of the checks; the words
// where only some are taken: a|b.
std::string value_name(const CLI::Option& option);
std::vector<Declared> declared_options(const CLI::App& app);
std::vector<const CLI::App*> declared_verbs(const CLI::App& app);

// --help as people read it.
inline constexpr std::size_t kPipeColumns = 80;

// Columns of the terminal that stdout is, between 60 and 120; kPipeColumns where it is none.
std::size_t terminal_columns();

// Lines of at most `columns` characters, broken at blanks, behind the | of alternatives and, in a
// word that no line holds, behind a comma; any other longer word stands alone. Newlines of the text
// stay.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);
// Paragraphs, whose lines are filled anew, and indented lines, which stay: commands, that go on
// behind a backslash where they are longer than `columns`.
std::string filled(std::string_view text, std::size_t columns);

// Names and value of an option in a column of their own, beside it what it is for, its default and
// its variable: "(default: 127.0.0.1:8470) [LOCKSTEP_LISTEN]". Verbs by their groups, in the order
// of the declarations. A footer is filled. For the app and the verbs that it has now.
void dress_help(CLI::App& app, std::size_t columns);

}  // namespace lockstep::cli
