// Completion scripts (manual.hpp). Each shell gets the same facts: verbs with their options, and
// per option how its value is found.
#include "job/cli/manual.hpp"

#include <algorithm>
#include <array>

namespace lockstep::cli {
namespace {

enum class Values { none, words, files, folders, ids, command, unknown };

Values values_of(const Declared& option) {
    if (option.value.empty()) {
        return Values::none;
    }
    if (option.value == "DIR") {
        return Values::folders;
    }
    if (option.value == "ID") {
        return Values::ids;
    }
    if (option.value == "COMMAND") {
        return Values::command;
    }
    if (option.value.substr(0, 4) == "FILE") {
        return Values::files;
    }
    // a|b|c in lower case are words; N|all and NAME:VALUE are not.
    const bool words = option.value.find('|') != std::string::npos &&
                       std::all_of(option.value.begin(), option.value.end(), [](char c) {
                           return (c >= 'a' && c <= 'z') || c == '|' || c == '_';
                       });
    return words ? Values::words : Values::unknown;
}

std::string words_of(const Declared& option) {
    std::string words = option.value;
    std::replace(words.begin(), words.end(), '|', ' ');
    return words;
}

// In single quotes for any POSIX shell and fish (which also needs \ escaped).
std::string single_quoted(std::string_view text, bool fish = false) {
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'') {
            out += fish ? "\\'" : "'\\''";
        } else if (c == '\\' && fish) {
            out += "\\\\";
        } else {
            out += c;
        }
    }
    return out + "'";
}

std::string function_name(const std::string& program) {
    std::string name = "_" + program;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

std::string all_names(const std::vector<Declared>& options) {
    std::string out;
    for (const Declared& option : options) {
        for (const std::string& name : option.names) {
            out += option.positional ? "" : (out.empty() ? "" : " ") + name;
        }
    }
    return out;
}

// Whether the verb ends in another program's command line, in which no option is this one's.
bool takes_command(const CLI::App& verb) {
    const std::vector<Declared> options = declared_options(verb);
    return std::any_of(options.begin(), options.end(), [](const Declared& option) {
        return option.positional && values_of(option) == Values::command;
    });
}

std::vector<const CLI::App*> verbs_with_command(const CLI::App& app) {
    std::vector<const CLI::App*> verbs = declared_verbs(app);
    std::erase_if(verbs, [](const CLI::App* verb) { return !takes_command(*verb); });
    return verbs;
}

// Names of the options whose value is the next word.
std::string valued_names(const std::vector<Declared>& options, std::string_view between) {
    std::string out;
    for (const Declared& option : options) {
        for (const std::string& name : option.names) {
            if (!option.positional && !option.value.empty()) {
                out.append(out.empty() ? "" : between).append(name);
            }
        }
    }
    return out;
}

std::string valued_names(const CLI::App& app, const CLI::App& verb, std::string_view between) {
    std::vector<Declared> options = declared_options(app);
    const std::vector<Declared> own = declared_options(verb);
    options.insert(options.end(), own.begin(), own.end());
    return valued_names(options, between);
}

std::string bash_values(Values values, const std::string& words, std::string_view id_command) {
    switch (values) {
        case Values::words:
            return "COMPREPLY=($(compgen -W " + single_quoted(words) + " -- \"$cur\"))";
        case Values::files:
        case Values::command:
            return "compopt -o default; COMPREPLY=()";
        case Values::folders:
            return "COMPREPLY=($(compgen -d -- \"$cur\"))";
        case Values::ids:
            return id_command.empty() ? "COMPREPLY=()"
                                      : "COMPREPLY=($(compgen -W \"$(" + std::string(id_command) +
                                            ")\" -- \"$cur\"))";
        case Values::none:
        case Values::unknown:
            break;
    }
    return "COMPREPLY=()";
}

// case "$verb $prev": an option that takes a value.
std::string bash_option_cases(const CLI::App& app, const std::string& scope,
                              std::string_view id_command) {
    std::string out;
    for (const Declared& option : declared_options(app)) {
        if (option.positional || option.value.empty()) {
            continue;
        }
        std::string pattern;
        for (const std::string& name : option.names) {
            pattern += pattern.empty() ? "" : "|";
            pattern.append(scope).append("\" ").append(name).append("\"");
        }
        out += "        " + pattern + ") " +
               bash_values(values_of(option), words_of(option), id_command) + "; return ;;\n";
    }
    return out;
}

// Behind the first word of the other program, or --, there are files. bash makes words of = and :.
std::string bash_commands(const CLI::App& app) {
    std::string out;
    for (const CLI::App* verb : verbs_with_command(app)) {
        out += "    if [[ $verb == " + verb->get_name() +
               " ]]; then\n        for ((i++; i < COMP_CWORD; i++)); do\n"
               "            case \"${COMP_WORDS[i]}\" in\n"
               "                " +
               valued_names(app, *verb, "|") +
               ")\n                    [[ ${COMP_WORDS[i+1]} == \"=\" ]] && i=$((i + 1))\n"
               "                    i=$((i + 1)) ;;\n"
               "                =|:) [[ ${COMP_WORDS[i+1]} == -* ]] || i=$((i + 1)) ;;\n"
               "                --|[!-]*) " +
               bash_values(Values::command, "", "") +
               "; return ;;\n            esac\n        done\n    fi\n";
    }
    return out;
}

std::string bash(const CLI::App& app, std::string_view id_command) {
    const std::string& program = app.get_name();
    const std::string function = function_name(program);
    const std::vector<const CLI::App*> verbs = declared_verbs(app);
    const std::string global = all_names(declared_options(app));
    std::string verb_names;
    const std::string valued = valued_names(declared_options(app), "|");  // no verb follows
    for (const CLI::App* verb : verbs) {
        verb_names += (verb_names.empty() ? "" : " ") + verb->get_name();
    }
    std::string out =
        "# bash completion of " + program + "; generated\n" + function + "() {\n" +
        "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
        "    local verb=\"\" i\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        case \"${COMP_WORDS[i]}\" in\n";
    out += valued.empty() ? "" : "            " + valued + ") i=$((i + 1)) ;;\n";
    out +=
        "            -*) ;;\n"
        "            *) verb=\"${COMP_WORDS[i]}\"; break ;;\n"
        "        esac\n"
        "    done\n";
    out += bash_commands(app);
    out += "    case \"$verb $prev\" in\n";
    out += bash_option_cases(app, "*", id_command);
    for (const CLI::App* verb : verbs) {
        out += bash_option_cases(*verb, verb->get_name(), id_command);
    }
    out += "    esac\n    case \"$verb\" in\n";
    for (const CLI::App* verb : verbs) {
        const std::vector<Declared> options = declared_options(*verb);
        const std::string names = all_names(options);
        std::string words = names;
        words.append(names.empty() ? "" : " ").append(global);
        out += "        " + verb->get_name() + ")\n            if [[ $cur == -* ]]; then\n" +
               "                COMPREPLY=($(compgen -W " + single_quoted(words) +
               " -- \"$cur\"))\n            else\n                " +
               (!options.empty() && options.front().positional
                    ? bash_values(values_of(options.front()), words_of(options.front()), id_command)
                    : "COMPREPLY=()") +
               "\n            fi ;;\n";
    }
    out += "        *) COMPREPLY=($(compgen -W " +
           single_quoted(verb_names + (verb_names.empty() ? "" : " ") + global) +
           " -- \"$cur\")) ;;\n    esac\n}\ncomplete -F " + function + " " + program + "\n";
    return out;
}

// zsh's _arguments: [ and ] and : in descriptions are escaped.
std::string zsh_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') {
            out += '\\';
        }
        out += c;
    }
    return out;
}

std::string zsh_values(const Declared& option, const std::string& function) {
    switch (values_of(option)) {
        case Values::words:
            return "(" + words_of(option) + ")";
        case Values::files:
            return "_files";
        case Values::folders:
            return "_files -/";
        case Values::ids:
            return function + "_ids";
        case Values::command:
            return "_command_names -e";
        case Values::none:
        case Values::unknown:
            break;
    }
    return " ";
}

std::string zsh_specs(const CLI::App& app, const std::string& function) {
    std::string out;
    for (const Declared& option : declared_options(app)) {
        for (const std::string& name : option.names) {
            std::string spec;
            if (option.positional && values_of(option) == Values::command) {
                // Behind the first word the other program's own completion.
                out += " \\\n                '*::" + zsh_text(name) + ":_normal'";
                spec = "(-):" + zsh_text(name) + ":" + zsh_values(option, function);
            } else if (option.positional) {
                spec = ":" + zsh_text(name) + ":" + zsh_values(option, function);
            } else {
                spec = name + "[" + zsh_text(option.help) + "]";
                if (!option.value.empty()) {
                    spec += ":" + zsh_text(option.value) + ":" + zsh_values(option, function);
                }
            }
            out += " \\\n                " + single_quoted(spec);
        }
    }
    return out;
}

std::string zsh(const CLI::App& app, std::string_view id_command) {
    const std::string& program = app.get_name();
    const std::string function = function_name(program);
    const std::string global = zsh_specs(app, function);
    std::string out = "#compdef " + program + "\n# zsh completion of " + program + "; generated\n" +
                      function + "_ids() {\n    local -a ids\n    ids=(" +
                      (id_command.empty() ? "" : "${(f)\"$(" + std::string(id_command) + ")\"}") +
                      ")\n    compadd -a ids\n}\n" + function + "() {\n";
    const std::vector<const CLI::App*> verbs = declared_verbs(app);
    if (verbs.empty()) {
        return out + "    _arguments" + global + "\n}\n" + function + " \"$@\"\n";
    }
    out += "    local context state line\n    local -a verbs\n    verbs=(\n";
    for (const CLI::App* verb : verbs) {
        out += "        " +
               single_quoted(verb->get_name() + ":" + zsh_text(verb->get_description())) + "\n";
    }
    // -A: what stands behind the verb is the verb's.
    out += "    )\n    _arguments -C -A '-*'" + global +
           " \\\n                '1: :->verb' '*:: :->rest'\n    case $state in\n"
           "        verb) _describe command verbs ;;\n"
           "        rest)\n            case $line[1] in\n";
    for (const CLI::App* verb : verbs) {
        out += "            " + verb->get_name() + ") _arguments" +
               (takes_command(*verb) ? " -S -A '-*'" : "") + zsh_specs(*verb, function) + global +
               " ;;\n";
    }
    return out + "            esac ;;\n    esac\n}\n" + function + " \"$@\"\n";
}

// `seen`, `own`: conditions, "" = none. The second is not that of another program's words.
std::string fish_options(const std::string& program, const CLI::App& app, const std::string& seen,
                         const std::string& own, std::string_view id_command) {
    std::string out;
    for (const Declared& option : declared_options(app)) {
        std::string condition = seen;
        if (!own.empty() && values_of(option) != Values::command) {
            condition += (seen.empty() ? "" : "; and ") + own;
        }
        std::string line = "complete -c " + program;
        line += condition.empty() ? "" : " -n " + single_quoted(condition, true);
        for (const std::string& name : option.names) {
            if (!option.positional) {
                line +=
                    name.substr(0, 2) == "--" ? " -l " + name.substr(2) : " -s " + name.substr(1);
            }
        }
        switch (values_of(option)) {
            case Values::words:
                line += " -x -a " + single_quoted(words_of(option), true);
                break;
            case Values::files:
            case Values::command:
                line += option.positional ? " -F" : " -r -F";
                break;
            case Values::folders:
                line += " -x -a '(__fish_complete_directories)'";
                break;
            case Values::ids:
                line += " -x -a " + single_quoted("(" + std::string(id_command) + ")", true);
                break;
            case Values::unknown:
                line += option.positional ? "" : " -x";
                break;
            case Values::none:
                break;
        }
        out += line + " -d " + single_quoted(option.help, true) + "\n";
    }
    return out;
}

// A function that tells whether the word at the cursor is another program's.
std::string fish_in_command(const CLI::App& app, const std::string& function) {
    std::string names;
    std::string valued;
    for (const CLI::App* verb : verbs_with_command(app)) {
        names += " " + verb->get_name();
        valued += " " + valued_names(app, *verb, " ");
    }
    return "function " + function +
           "\n    set -l words (commandline -opc)\n    set -l verb ''\n    set -l i 2\n"
           "    while test $i -le (count $words)\n"
           "        switch $words[$i]\n"
           "            case" +
           valued +
           "\n                set i (math $i + 1)\n"
           "            case --\n                test -n \"$verb\"\n                return\n"
           "            case '-*'\n"
           "            case '*'\n                test -n \"$verb\"; and return 0\n"
           "                contains -- $words[$i]" +
           names +
           "; or return 1\n                set verb $words[$i]\n"
           "        end\n        set i (math $i + 1)\n    end\n    return 1\nend\n";
}

std::string fish(const CLI::App& app, std::string_view id_command) {
    const std::string& program = app.get_name();
    std::string out = "# fish completion of " + program + "; generated\n";
    const bool commands = !verbs_with_command(app).empty();
    const std::string function = "_" + function_name(program) + "_in_command";
    const std::string own = commands ? "not " + function : "";
    if (commands) {
        out += fish_in_command(app, function);
    }
    out += "complete -c " + program + " -f\n" + fish_options(program, app, "", own, id_command);
    for (const CLI::App* verb : declared_verbs(app)) {
        const std::string& name = verb->get_name();
        out.append("complete -c ").append(program);
        out.append(" -n __fish_use_subcommand -a ").append(name);
        out += " -d " + single_quoted(verb->get_description(), true) + "\n" +
               fish_options(program, *verb, "__fish_seen_subcommand_from " + name, own, id_command);
    }
    return out;
}

}  // namespace

std::string completion(const CLI::App& app, Shell shell, std::string_view id_command) {
    switch (shell) {
        case Shell::bash:
            return bash(app, id_command);
        case Shell::zsh:
            return zsh(app, id_command);
        case Shell::fish:
            break;
    }
    return fish(app, id_command);
}

}  // namespace lockstep::cli
