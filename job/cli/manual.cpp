#include "job/cli/manual.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep::cli {
namespace {

// Text in roff: backslashes, the hyphens of options (so that they can be searched and pasted), and
// no line may begin with a dot or a quote.
std::string roff(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\') {
            out += "\\e";
        } else if (text[i] == '-') {
            out += "\\-";
        } else if (text.substr(i, 3) == "…") {
            out += "...";
            i += 2;
        } else {
            out += text[i];
        }
    }
    return !out.empty() && (out.front() == '.' || out.front() == '\'') ? "\\&" + out : out;
}

// roff() in lines of at most 78 bytes, broken at blanks: roff fills them again. No line may begin
// with a dot or a quote.
std::string filled(std::string_view text) {
    const std::string flat = roff(text);
    std::string out;
    std::size_t column = 0;
    for (std::size_t at = 0; at < flat.size();) {
        const std::size_t end = std::min(flat.find(' ', at), flat.size());
        const std::string word = flat.substr(at, end - at);
        if (column > 0 && column + 1 + word.size() > 78) {
            out += '\n';
            column = 0;
            out += word.empty() || (word[0] != '.' && word[0] != '\'') ? "" : "\\&";
        } else if (column > 0) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
        at = end + 1;
    }
    return out;
}

std::string bold(std::string_view text) {
    return "\\fB" + roff(text) + "\\fR";
}
std::string italic(std::string_view text) {
    return "\\fI" + roff(text) + "\\fR";
}

std::string synopsis_of(const Declared& option) {
    std::string text;
    if (option.positional) {
        text = italic(option.names.front());
    } else {
        text = bold(option.names.back());
        if (!option.value.empty()) {
            text += " " + italic(option.value);
        }
    }
    return option.required ? text : "[" + text + "]";
}

std::string sentence(const Declared& option) {
    std::string text = option.help;
    if (!option.fallback.empty()) {
        text += " (default: " + option.fallback + ")";
    }
    text += ".";
    if (!option.environment.empty()) {
        text += " Environment: " + option.environment + ".";
    }
    return text;
}

std::string option_entries(const std::vector<Declared>& options) {
    std::string out;
    for (const Declared& option : options) {
        std::string term;
        for (const std::string& name : option.names) {
            term += (term.empty() ? "" : ", ") + (option.positional ? italic(name) : bold(name));
        }
        if (!option.positional && !option.value.empty()) {
            term += " " + italic(option.value);
        }
        out += ".TP\n" + term + "\n" + filled(sentence(option)) + "\n";
    }
    return out;
}

std::string terms(std::string_view heading, const ManualText::Terms& entries) {
    if (entries.empty()) {
        return "";
    }
    std::string out = ".SH " + std::string(heading) + "\n";
    for (const auto& [term, text] : entries) {
        out += ".TP\n" + bold(term) + "\n" + filled(text) + "\n";
    }
    return out;
}

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

// The verb, and below it the verbs that it has: "kv", "kv set".
std::string verb_entry(const CLI::App& verb, const std::string& before) {
    const std::string name = before + verb.get_name();
    const std::vector<Declared> options = declared_options(verb);
    const std::vector<const CLI::App*> verbs = declared_verbs(verb);
    std::string usage = bold(name);
    for (const Declared& option : options) {
        usage += " " + synopsis_of(option);
    }
    usage += verbs.empty() ? "" : " " + italic("command") + " [" + italic("argument") + " ...]";
    std::string out = ".SS " + roff(name) + "\n" + usage + "\n.PP\n" +
                      roff(verb.get_description()) + ".\n" + option_entries(options);
    for (const CLI::App* one : verbs) {
        out += verb_entry(*one, name + " ");
    }
    return out;
}

std::string commands_section(const CLI::App& app) {
    std::string out;
    for (const CLI::App* verb : declared_verbs(app)) {
        out += verb_entry(*verb, "");
    }
    return out.empty() ? "" : ".SH COMMANDS\n" + out;
}

}  // namespace

std::string man_words(std::string_view text) {
    return roff(text);
}

std::string man_text(std::string_view text) {
    return filled(text) + "\n";
}

std::string value_name(const CLI::Option& option) {
    std::string name = option.get_type_name();
    const std::size_t words = name.find(":{");
    if (words != std::string::npos && name.back() == '}') {
        name = name.substr(words + 2, name.size() - words - 3);
        std::replace(name.begin(), name.end(), ',', '|');
        return name;
    }
    for (const char* check : {":INT in [", ":UINT in [", ":FLOAT in [", ":NONNEGATIVE", ":DIR"}) {
        name = name.substr(0, name.find(check));
    }
    return name == "INT" || name == "UINT" || name == "FLOAT" ? "N" : name;
}

std::vector<Declared> declared_options(const CLI::App& app) {
    std::vector<Declared> positionals;
    std::vector<Declared> out;
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_group().empty()) {
            continue;
        }
        Declared one;
        one.positional = option->get_positional();
        if (one.positional) {
            one.names.push_back(option->get_name(true));
        } else {
            for (const std::string& name : option->get_snames()) {
                one.names.push_back("-" + name);
            }
            for (const std::string& name : option->get_lnames()) {
                one.names.push_back("--" + name);
            }
        }
        one.value = option->get_items_expected_max() == 0 ? "" : value_name(*option);
        one.help = option->get_description();
        one.environment = option->get_envname();
        one.fallback = option->get_default_str();
        one.required = option->get_required();
        // Help belongs to every verb; the page says it once.
        if (app.get_parent() == nullptr || option != app.get_help_ptr()) {
            (one.positional ? positionals : out).push_back(std::move(one));
        }
    }
    out.insert(out.begin(), positionals.begin(), positionals.end());
    return out;
}

std::vector<const CLI::App*> declared_verbs(const CLI::App& app) {
    std::vector<const CLI::App*> out = app.get_subcommands([](const CLI::App* verb) {
        return !verb->get_name().empty() && !verb->get_group().empty();
    });
    return out;
}

std::string man_page(const CLI::App& app, const ManualText& text, std::string_view version,
                     std::string_view date) {
    const std::string& name = app.get_name();
    const std::vector<Declared> options = declared_options(app);
    std::string out = ".TH " + upper(name) + " " + std::to_string(text.section) + " \"" +
                      std::string(date) + "\" \"Lockstep " + std::string(version) + "\"\n";
    out += ".SH NAME\n" + roff(name) + " \\- " + roff(text.title) + "\n";
    out += ".SH SYNOPSIS\n" + bold(name) + " [" + italic("option") + " ...]";
    for (const Declared& option : options) {
        out += option.positional ? " " + synopsis_of(option) : "";
    }
    out += declared_verbs(app).empty()
               ? "\n"
               : " " + italic("command") + " [" + italic("argument") + " ...]\n";
    out += ".SH DESCRIPTION\n";
    for (std::size_t i = 0; i < text.description.size(); ++i) {
        out += (i == 0 ? "" : ".PP\n") + filled(text.description[i]) + "\n";
    }
    out += ".SH OPTIONS\n" + option_entries(options);
    out += commands_section(app);
    out += terms("ENVIRONMENT", text.environment);
    out += terms("FILES", text.files);
    out += terms("EXIT STATUS", text.exits);
    out += terms("EXAMPLES", text.examples);
    if (!text.see_also.empty()) {
        out += ".SH SEE ALSO\n";
        for (std::size_t i = 0; i < text.see_also.size(); ++i) {
            const std::string& page = text.see_also[i];
            const std::size_t open = page.find('(');
            out += ".BR " + page.substr(0, open) + " " +
                   (open == std::string::npos ? "" : page.substr(open)) +
                   (i + 1 < text.see_also.size() ? " ,\n" : "\n");
        }
    }
    return out;
}

std::optional<Shell> parse_shell(std::string_view name) {
    if (name == "bash") {
        return Shell::bash;
    }
    if (name == "zsh") {
        return Shell::zsh;
    }
    return name == "fish" ? std::optional(Shell::fish) : std::nullopt;
}

}  // namespace lockstep::cli
