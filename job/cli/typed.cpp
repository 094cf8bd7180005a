#include "job/cli/typed.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep::cli {
namespace {

// A short option that a verb has, as -f of submit, or one with its value, as -n4, is none of these.
const CLI::Option* general_option(const CLI::App& app, const CLI::App* verb,
                                  const std::string& name) {
    if (verb != nullptr && verb->get_option_no_throw(name) != nullptr) {
        return nullptr;  // --json of export names a file
    }
    return app.get_option_no_throw(name);
}

bool has_value(const CLI::Option* option) {
    return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

std::string shell_word(std::string_view text) {
    const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("-_./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain) {
        return std::string{text};
    }
    std::string out = "'";
    for (const char c : text) {
        out += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
    }
    return out + "'";
}

std::vector<std::string> general_words(const CLI::App& app, const std::vector<std::string>& words) {
    const auto chosen = app.get_subcommands();
    const CLI::App* verb = chosen.empty() ? nullptr : chosen.front();
    std::vector<std::string> out;
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        if (!words[i].starts_with("--")) {
            const bool own = words[i].size() == 2 && words[i].front() == '-' && verb != nullptr &&
                             has_value(verb->get_option_no_throw(words[i]));
            i += own ? 1 : 0;
            continue;
        }
        const std::size_t equals = words[i].find('=');
        const std::string name = words[i].substr(0, equals);
        const CLI::Option* general = general_option(app, verb, name);
        const CLI::Option* option =
            general != nullptr || verb == nullptr ? general : verb->get_option_no_throw(name);
        const bool next = equals == std::string::npos && has_value(option) && i + 1 < words.size();
        if (general != nullptr) {
            out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + (next ? 2 : 1)));
        }
        i += next ? 1 : 0;
    }
    return out;
}

std::string same_lockstep(const Options& options) {
    std::string out = "lockstep";
    for (const std::string& word : options.general) {
        out += " " + shell_word(word);
    }
    return out;
}

}  // namespace lockstep::cli
